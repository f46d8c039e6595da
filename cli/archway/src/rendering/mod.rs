//! Chat templates in a process of their own.
//!
//! A template is a program that came with a checkpoint. The engine counts its steps, but lists that share their items can
//! be compared or printed for ever in one of them, and values that nest without end overflow a stack when they go. In a
//! process with bounds of its own neither takes the server along.

mod child;
mod worker;

pub use child::TemplateChild;
pub use worker::serve;

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Address space of the process: several times what the most steps of a template can take.
const MOST_MEMORY: u64 = 2 << 30;

/// Time of one conversation.
const MOST_TIME: Duration = Duration::from_secs(10);

/// Exit code of a process that ran out of time.
const TOO_SLOW: i32 = 3;

/// What the process reads, one a line, after a line with the [`engine::tokenizer::TemplateSource`].
#[derive(Serialize, Deserialize)]
struct Conversation<'a> {
    messages: Cow<'a, [Value]>,
    add_generation_prompt: bool,
    variables: Cow<'a, Map<String, Value>>,
}

/// What it answers, one a line: the text, or why there is none.
type Answer = Result<String, String>;
