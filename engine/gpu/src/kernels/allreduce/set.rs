//! The kernels of collectives, loaded.

use std::sync::Arc;

use cudarc::driver::CudaContext;

use crate::compile::{Unit, units};
use crate::kernels::module::Module;
use crate::kernels::multimem::MultimemKernels;
use crate::kernels::{Kernel, KernelError};

pub struct AllReduceKernels {
    pub(super) reduce: [[Kernel; 3]; 2],
    /// By shots; f32 has no quantised outputs.
    pub(super) norm: [[Kernel; 3]; 2],
    pub(super) quantised: [[[Kernel; 3]; 2]; 2],
    /// One-shot for rows of up to `NARROW_THREADS` packets: bf16, f16, and bf16 to fp8 by tensor and by token.
    pub(super) narrow: [Kernel; 4],
    pub(in crate::kernels) gather: Kernel,
    pub(in crate::kernels) multimem: MultimemKernels,
    pub(super) fill: [Kernel; 3],
    pub(super) check: [Kernel; 3],
    pub(super) next_round: Kernel,
    pub(super) delay: Kernel,
}

impl AllReduceKernels {
    /// What is compiled for collectives.
    pub fn units() -> Vec<Unit> {
        let ours = |unit: &Unit| unit.name().starts_with("allreduce") || unit.name() == "allgather";
        units(&[]).into_iter().filter(ours).collect()
    }

    /// Loads [`AllReduceKernels::units`]. `cubin` gives a unit's compiled form.
    pub fn load<E: From<KernelError>>(
        context: &Arc<CudaContext>,
        mut cubin: impl FnMut(&Unit) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        let mut modules = Vec::new();
        for unit in Self::units() {
            modules.push((unit.name().to_owned(), Module::load(context, unit.name(), &cubin(&unit)?)?));
        }
        let module = |unit: &str| {
            let module = modules.iter().find(|(other, _)| other == unit).map(|(_, module)| module);
            module.expect("every unit that is asked for is listed")
        };
        let kernel = |unit: &str, name: &'static str| -> Result<Kernel, KernelError> {
            module(unit).kernel(name, 0)?.beside_streamed()
        };
        let three = |unit: &str, [a, b, c]: [&'static str; 3]| -> Result<[Kernel; 3], KernelError> {
            Ok([kernel(unit, a)?, kernel(unit, b)?, kernel(unit, c)?])
        };
        let norm = "allreduce_norm";
        Ok(Self {
            reduce: [
                three("allreduce", ["one_shot_bf16", "one_shot_f16", "one_shot_f32"])?,
                three("allreduce", ["two_shot_bf16", "two_shot_f16", "two_shot_f32"])?,
            ],
            norm: [
                three(norm, ["one_shot_norm_bf16", "one_shot_norm_f16", "one_shot_norm_f32"])?,
                three(norm, ["two_shot_norm_bf16", "two_shot_norm_f16", "two_shot_norm_f32"])?,
            ],
            quantised: [
                [three(norm, ONE_SHOT_BF16)?, three(norm, ONE_SHOT_F16)?],
                [three(norm, TWO_SHOT_BF16)?, three(norm, TWO_SHOT_F16)?],
            ],
            narrow: [
                kernel(norm, "one_shot_norm_narrow_bf16")?,
                kernel(norm, "one_shot_norm_narrow_f16")?,
                kernel(norm, "one_shot_norm_narrow_bf16_fp8_tensor")?,
                kernel(norm, "one_shot_norm_narrow_bf16_fp8_token")?,
            ],
            gather: kernel("allgather", "all_gather")?,
            multimem: MultimemKernels::load(module("allreduce_multimem"))?,
            fill: three("allreduce_check", ["fill_bf16", "fill_f16", "fill_f32"])?,
            check: three("allreduce_check", ["check_bf16", "check_f16", "check_f32"])?,
            next_round: kernel("allreduce_check", "next_round")?,
            delay: kernel("allreduce_check", "delay")?,
        })
    }
}

const ONE_SHOT_BF16: [&str; 3] =
    ["one_shot_norm_bf16_fp8_tensor", "one_shot_norm_bf16_fp8_token", "one_shot_norm_bf16_nvfp4"];
const ONE_SHOT_F16: [&str; 3] =
    ["one_shot_norm_f16_fp8_tensor", "one_shot_norm_f16_fp8_token", "one_shot_norm_f16_nvfp4"];
const TWO_SHOT_BF16: [&str; 3] =
    ["two_shot_norm_bf16_fp8_tensor", "two_shot_norm_bf16_fp8_token", "two_shot_norm_bf16_nvfp4"];
const TWO_SHOT_F16: [&str; 3] =
    ["two_shot_norm_f16_fp8_tensor", "two_shot_norm_f16_fp8_token", "two_shot_norm_f16_nvfp4"];
