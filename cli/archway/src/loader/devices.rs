//! Which devices a model runs on.

use std::time::Duration;

use anyhow::Result;
use engine::executor::{LoadProgress, RanksConfig, RanksExecutor};
use engine::model::ModelConfig;
use engine::plan::tuning::TuningReport;
use engine::plan::{Machine, Plan};
use engine_cpu::{CpuOptions, CpuRanks};

use super::cuda::Gpus;
use super::host;
use super::kind::{Kind, precision};
use crate::settings::{Device, Options};

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

    pub fn kind(&self) -> Kind {
        match self {
            Self::Cpu => Kind::Cpu,
            Self::Cuda(_) => Kind::Cuda,
        }
    }

    pub fn machine(&self, options: &Options) -> Machine {
        match self {
            Self::Cpu => Machine::Cpu(host::cpu(options.threads)),
            Self::Cuda(gpus) => gpus.machine().clone(),
        }
    }

    /// What was measured on these devices, or is said to have been.
    pub fn tuning(&self) -> Option<TuningReport> {
        match self {
            Self::Cpu => None,
            Self::Cuda(gpus) => gpus.tuning().cloned(),
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
