//! Which devices a model runs on.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use engine::executor::{LoadProgress, RanksConfig, RanksExecutor};
use engine::model::ModelConfig;
use engine::plan::{Machine, Plan, PlanRequest};
use engine_cpu::kernels::Precision;
use engine_cpu::{CpuOptions, CpuRanks};

use super::capacity::Sizes;
use super::cuda::Gpus;
use super::{host, unused};
use crate::settings::{CpuPrecision, Device, NumberType, Options};

/// The processor: rows enough to read the weights seldom, few enough that running outputs do not wait long for a
/// prompt; a cache that leaves room for the machine's other work.
const CPU: Sizes = Sizes { slots: 64, rows: 512, logit_rows: 64, cache_bytes: 4 << 30 };

/// Bytes of bf16: activations, keys and values on a GPU.
const GPU_ELEMENT: usize = 2;

/// The devices of all ranks.
pub enum Devices {
    Cpu,
    Cuda(Box<Gpus>),
}

impl Devices {
    /// What the settings ask for. `auto` takes a GPU that can serve the model, and says why where one cannot.
    pub fn choose(options: &Options, config: &ModelConfig) -> Result<Self> {
        match options.device.unwrap_or(Device::Auto) {
            Device::Cpu => Ok(Self::Cpu),
            Device::Cuda => Ok(Self::Cuda(Box::new(Gpus::find(options, config)?))),
            Device::Auto if !Gpus::present() => Ok(Self::Cpu),
            Device::Auto => Ok(match Gpus::find(options, config) {
                Ok(gpus) => Self::Cuda(Box::new(gpus)),
                Err(why) => {
                    eprintln!("note: the GPU is not used: {why:#}");
                    Self::Cpu
                }
            }),
        }
    }

    /// Errors: a number type that the devices do not compute in.
    pub fn check_number_type(&self, options: &Options) -> Result<()> {
        match (self, options.dtype) {
            (_, None | Some(NumberType::Auto)) => Ok(()),
            (Self::Cpu, Some(NumberType::Float32)) | (Self::Cuda(_), Some(NumberType::Bfloat16)) => Ok(()),
            (Self::Cpu, Some(word)) => {
                bail!("--dtype {word}: the CPU backend computes in float32; use --dtype auto or float32")
            }
            (Self::Cuda(_), Some(word)) => {
                bail!("--dtype {word}: the CUDA backend computes in bfloat16; use --dtype auto or bfloat16")
            }
        }
    }

    /// Errors: a draft model that the devices cannot compute.
    pub fn check_draft(&self, draft: Option<&ModelConfig>) -> Result<()> {
        match (self, draft) {
            (Self::Cuda(_), Some(draft)) => super::cuda::head_dimension(draft).map(drop).context("the draft model"),
            _ => Ok(()),
        }
    }

    pub fn machine(&self, options: &Options) -> Machine {
        match self {
            Self::Cpu => Machine::Cpu(host::cpu(options.threads)),
            Self::Cuda(gpus) => gpus.machine().clone(),
        }
    }

    /// Sizes of activations and cache, and what these devices have no use for. Errors: a file for others that is none.
    pub fn plan_request(&self, request: PlanRequest, options: &Options) -> Result<PlanRequest> {
        Ok(match self {
            Self::Cpu => PlanRequest { unused: unused::on_cpu(options)?, ..cpu_request(request, options) },
            Self::Cuda(gpus) => {
                let (tuning, unused) = (gpus.tuning().cloned(), unused::on_gpus(options));
                PlanRequest { tuning, unused, ..gpu_request(request) }
            }
        })
    }

    /// Bytes of an element of the key-value cache.
    pub fn cache_element_bytes(&self, options: &Options) -> usize {
        match self {
            Self::Cpu => cache_element_bytes(options),
            Self::Cuda(_) => GPU_ELEMENT,
        }
    }

    /// Whether a draft model's matrices are kept in blocks of eight bits: drafts need not be exact, and on the CPU a draft
    /// step reads little but weights.
    pub fn drafts_in_blocks(&self, options: &Options) -> bool {
        matches!(self, Self::Cpu) && precision(options) == Precision::Fast
    }

    pub fn sizes(&self) -> Sizes {
        match self {
            Self::Cpu => CPU,
            Self::Cuda(_) => super::cuda::SIZES,
        }
    }

    /// Plans are made around `algorithm` from now on. False where that changes nothing.
    pub fn strike(&mut self, algorithm: &str) -> bool {
        match self {
            Self::Cpu => false,
            Self::Cuda(gpus) => gpus.strike(algorithm),
        }
    }

    /// Loads the model on every rank of the plan.
    pub fn start(
        &self,
        config: RanksConfig,
        options: &Options,
        plan: &Plan,
        progress: impl Fn(LoadProgress) + Send + Sync + 'static,
    ) -> Result<RanksExecutor> {
        let (deadline, ranks): (Duration, usize) = (config.step_deadline, plan.tensor_parallel);
        let started = match self {
            Self::Cpu => {
                let threads = options.threads.map(|threads| (threads as usize / ranks).max(1));
                let precision = precision(options);
                let ranks = CpuRanks::new(CpuOptions { world_size: ranks, threads, precision, deadline });
                RanksExecutor::start(ranks, config, progress)
            }
            Self::Cuda(gpus) => return gpus.start(config, plan, progress),
        };
        Ok(started?)
    }
}

/// The CPU backend: activations in f32, keys and values in f16 where the products are rounded too.
pub fn cpu_request(request: PlanRequest, options: &Options) -> PlanRequest {
    PlanRequest {
        max_rows: CPU.rows as usize,
        activation_bytes: 4,
        cache_bytes: cache_element_bytes(options),
        ..request
    }
}

/// Bytes of an element of the CPU backend's key-value cache.
pub fn cache_element_bytes(options: &Options) -> usize {
    match precision(options) {
        Precision::Fast => 2,
        Precision::Exact => 4,
    }
}

/// The CUDA backend: activations, keys and values in bf16.
fn gpu_request(request: PlanRequest) -> PlanRequest {
    let sizes = super::cuda::SIZES;
    PlanRequest {
        max_rows: sizes.rows as usize,
        max_sequences: sizes.slots as usize,
        activation_bytes: GPU_ELEMENT,
        cache_bytes: GPU_ELEMENT,
        ..request
    }
}

fn precision(options: &Options) -> Precision {
    match options.cpu_precision {
        None | Some(CpuPrecision::Fast) => Precision::Fast,
        Some(CpuPrecision::Exact) => Precision::Exact,
    }
}
