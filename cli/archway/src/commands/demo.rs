//! `archway demo`: a first answer on a fresh machine.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, anyhow};
use clap::Args;
use engine::types::{RequestEvent, SamplingParams};
use engine_server::service::Service;
use engine_server::text::Chat;
use serde_json::json;

use crate::generate::Run;
use crate::settings::{Options, Speculative, resolve};
use crate::{demo_model, loader, progress};
