//! What a plan must know of the devices that it is for, whether they are here or not.

use std::path::Path;

use anyhow::{Context, Result, bail};
use engine::model::ModelConfig;
use engine::plan::PlanRequest;
use engine_cpu::kernels::Precision;
use engine_gpu::compile::Pack;

use super::capacity::Sizes;
use super::cuda::head_dimension;
use super::unused;
use crate::settings::{CpuPrecision, NumberType, Options};

/// The processor: rows enough to read the weights seldom, few enough that running outputs do not wait long for a
/// prompt; a cache that leaves room for the machine's other work.
const CPU: Sizes = Sizes { slots: 64, rows: 512, logit_rows: 64, cache_bytes: 4 << 30 };

/// A GPU is fast at many rows, and its memory has no other user: the cache takes what the plan leaves.
const CUDA: Sizes = Sizes { slots: 256, rows: 2048, logit_rows: 256, cache_bytes: u64::MAX };

/// Bytes of bf16: activations, keys and values on a GPU.
const GPU_ELEMENT: usize = 2;

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Cpu,
    Cuda,
}

impl Kind {
    /// Errors: a number type that the devices do not compute in.
    pub fn check_number_type(self, options: &Options) -> Result<()> {
        match (self, options.dtype) {
            (_, None | Some(NumberType::Auto)) => Ok(()),
            (Self::Cpu, Some(NumberType::Float32)) | (Self::Cuda, Some(NumberType::Bfloat16)) => Ok(()),
            (Self::Cpu, Some(word)) => {
                bail!("--dtype {word}: the CPU backend computes in float32; use --dtype auto or float32")
            }
            (Self::Cuda, Some(word)) => {
                bail!("--dtype {word}: the CUDA backend computes in bfloat16; use --dtype auto or bfloat16")
            }
        }
    }

    /// Errors: a draft model that the devices cannot compute.
    pub fn check_draft(self, draft: &ModelConfig) -> Result<()> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda => head_dimension(draft).map(drop).context("the draft model"),
        }
    }

    /// Sizes of activations and cache, and what these devices have no use for. Errors: a file that is of another kind.
    pub fn plan_request(self, request: PlanRequest, options: &Options) -> Result<PlanRequest> {
        let sizes = self.sizes();
        let request =
            PlanRequest { max_rows: sizes.rows as usize, cache_bytes: self.cache_element_bytes(options), ..request };
        Ok(match self {
            Self::Cpu => PlanRequest { unused: unused::on_cpu(options)?, activation_bytes: 4, ..request },
            Self::Cuda => {
                check_pack(options)?;
                let (unused, max_sequences) = (unused::on_gpus(options)?, sizes.slots as usize);
                PlanRequest { unused, max_sequences, activation_bytes: GPU_ELEMENT, ..request }
            }
        })
    }

    /// Bytes of an element of the key-value cache: on the CPU keys and values are in f16 where the products are rounded too.
    pub fn cache_element_bytes(self, options: &Options) -> usize {
        match (self, precision(options)) {
            (Self::Cuda, _) => GPU_ELEMENT,
            (Self::Cpu, Precision::Fast) => 2,
            (Self::Cpu, Precision::Exact) => 4,
        }
    }

    /// Whether a draft model's matrices are kept in blocks of eight bits: drafts need not be exact, and on the CPU a draft
    /// step reads little but weights.
    pub fn drafts_in_blocks(self, options: &Options) -> bool {
        self == Self::Cpu && precision(options) == Precision::Fast
    }

    pub fn sizes(self) -> Sizes {
        match self {
            Self::Cpu => CPU,
            Self::Cuda => CUDA,
        }
    }
}

/// How the CPU backend multiplies.
pub fn precision(options: &Options) -> Precision {
    match options.cpu_precision {
        None | Some(CpuPrecision::Fast) => Precision::Fast,
        Some(CpuPrecision::Exact) => Precision::Exact,
    }
}

/// Errors: a pack of kernels that is not there, or is none.
pub fn check_pack(options: &Options) -> Result<()> {
    let pack = options.kernels.as_deref().map(|pack| Pack::read(Path::new(pack)));
    pack.transpose().map(drop).context("--kernels")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_model_is_refused_where_no_kernel_takes_its_heads() {
        let shape = include_str!("../../../../models/shapes/llama-3.1-8b.json");
        let mut shape: serde_json::Value = serde_json::from_str(shape).unwrap();
        let mut check = |kind: Kind, head: u32| {
            shape["head_dim"] = head.into();
            kind.check_draft(&engine::load::parse_config("config.json", &shape.to_string()).unwrap())
        };
        assert!(check(Kind::Cuda, 128).is_ok() && check(Kind::Cpu, 256).is_ok());
        let said = format!("{:#}", check(Kind::Cuda, 256).unwrap_err());
        assert!(said.starts_with("the draft model: ") && said.contains("256"), "{said}");
    }
}
