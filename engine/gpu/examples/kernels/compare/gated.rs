//! Products with gates and what they gate, in one kernel.

use engine::model::Activation;
use engine::weights::WeightType;
use engine_cpu::kernels::Compute;
use engine_gpu::kernels::{self, Product};
use half::bf16;

use super::product::expected;
use super::{ROUNDING, Report};
use crate::rig::{Failure, Rig, launched};

/// Cases of few rows take the first ones of the input that the largest has.
pub fn gated(
    rig: &mut Rig,
    report: &mut Report,
    compute: &Compute,
    [outputs, columns]: [usize; 2],
    counts: &[usize],
) -> Result<(), Failure> {
    if !rig.mine() {
        return Ok(());
    }
    let weight = rig.random.matrix(WeightType::Bf16, 2 * outputs, columns);
    let most = counts.iter().copied().max().unwrap_or(0);
    let (input, bias) = (rig.random.bf16(most * columns), rig.random.values(2 * outputs));
    let projected = expected(compute, &weight, &input, Some(&bias));
    let given = [rig.upload(&weight.bytes)?, rig.upload(&input)?, rig.upload(&bias)?];
    for activation in [Activation::Silu, Activation::Gelu] {
        let mut expected = vec![0.0; most * outputs];
        compute.activate(activation, &projected, outputs, &mut expected);
        for &count in counts {
            let output = rig.poisoned(count * outputs * 2)?;
            let product = Product {
                weight: given[0].address,
                input: given[1].address,
                bias: given[2].address,
                output: output.address,
                outputs: outputs as u32,
                columns: columns as u32,
                count: count as u32,
                stride: outputs as u32,
                ..Product::default()
            };
            // SAFETY: the buffers above are as large as the arguments say.
            launched(unsafe { kernels::gated_product(&rig.launcher, &rig.kernels, activation, &product) })?;
            let case = format!("{activation:?} {outputs} of {columns}, {count} rows");
            let (actual, expected) = (output.read::<bf16>()?, &expected[..count * outputs]);
            report.near_bf16("gated_product", &case, &actual, expected, ROUNDING);
        }
    }
    Ok(())
}
