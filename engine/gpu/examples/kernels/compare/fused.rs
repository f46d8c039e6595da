//! Products with weights in blocks and what a layer does besides: the norm of the input, the activation of gates, the sum
//! with the residual stream. And that a row's product has the same bits however many rows there are.

use engine::model::Activation;
use engine::weights::{TensorView, WeightType};
use engine_cpu::kernels::{Compute, Pool, Precision};
use engine_gpu::kernels::{self, Format, QuantisedProduct};
use half::bf16;

use super::Report;
use super::product::expected;
use crate::random::KINDS;
use crate::rig::{Failure, Rig, launched};

const EPSILON: f32 = 1e-5;
/// A rounding of the product, and one of the sum.
const ROUNDINGS: f64 = 5e-3;

/// What a product does besides.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: WeightType,
    outputs: usize,
    columns: usize,
    count: usize,
    norm: bool,
    /// Rows of the input in another order.
    picked: bool,
    add: bool,
    gate: Option<Activation>,
}

pub fn run(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let compute = Compute::new(Pool::new(8)?, Precision::Exact);
    for kind in KINDS.into_iter().filter(|kind| kind.block_elements() > 1) {
        for (outputs, columns) in [(7, 256), (577, 512), (1536, 1536), (9001, 512), (100, 4096)] {
            for count in [1, 2, 4, 8, 9, 16] {
                let small = outputs * columns < 1 << 19 && [1, 9].contains(&count);
                if outputs > 9000 && ![1, 4].contains(&count) || rig.small && !small {
                    continue;
                }
                let plain = Case { kind, outputs, columns, count, norm: false, picked: false, add: true, gate: None };
                let normed = Case { norm: true, add: false, ..plain };
                let gate = |gate| Case { gate: Some(gate), ..normed };
                for case in [
                    plain,
                    normed,
                    Case { picked: true, add: true, ..normed },
                    gate(Activation::Silu),
                    gate(Activation::Gelu),
                    Case { norm: false, ..gate(Activation::Silu) },
                ] {
                    one(rig, report, &compute, case)?;
                }
            }
        }
        rows_alone(rig, report, kind)?;
    }
    Ok(())
}

/// The product of a case on the CPU. With a norm the kernel rounds what the norm's weights give, and multiplies with the
/// inverse root of the mean square after the product.
fn on_cpu(compute: &Compute, case: Case, weight: &TensorView<'_>, input: &[bf16], factors: &[f32]) -> Vec<f32> {
    let mut product = if case.norm {
        let scaled = input.iter().zip(factors.iter().cycle());
        let scaled: Vec<bf16> = scaled.map(|(value, factor)| bf16::from_f32(value.to_f32() * factor)).collect();
        expected(compute, weight, &scaled, None)
    } else {
        expected(compute, weight, input, None)
    };
    if case.norm {
        let wide = product.len() / case.count;
        for (row, products) in input.chunks_exact(case.columns).zip(product.chunks_exact_mut(wide)) {
            let squares: f64 = row.iter().map(|value| f64::from(value.to_f32()).powi(2)).sum();
            let inverse = (squares / case.columns as f64 + f64::from(EPSILON)).sqrt().recip();
            products.iter_mut().for_each(|value| *value = (f64::from(*value) * inverse) as f32);
        }
    }
    let Some(activation) = case.gate else { return product };
    let mut output = vec![0.0; case.count * case.outputs];
    compute.activate(activation, &product, case.outputs, &mut output);
    output
}

fn one(rig: &mut Rig, report: &mut Report, compute: &Compute, case: Case) -> Result<(), Failure> {
    let Case { kind, outputs, columns, count, norm, picked, add, gate } = case;
    let weight = rig.random.matrix(kind, if gate.is_some() { 2 * outputs } else { outputs }, columns);
    let (input, before) = (rig.random.bf16(count * columns), rig.random.bf16(count * outputs));
    let factors: Vec<f32> = rig.random.values(columns).iter().map(|value| 1.0 + 0.5 * value).collect();
    // The last row first, and so on.
    let rows: Vec<u32> = (0..count as u32).rev().collect();
    let taken: Vec<bf16> = if picked {
        rows.iter().flat_map(|row| input[*row as usize * columns..][..columns].to_vec()).collect()
    } else {
        input.clone()
    };
    let mut wanted = on_cpu(compute, case, &weight, &taken, &factors);
    if add {
        wanted.iter_mut().zip(&before).for_each(|(value, before)| *value += before.to_f32());
    }
    let (device_weight, device_input) = (rig.upload(&weight.bytes)?, rig.upload(&input)?);
    let (device_factors, device_rows) = (rig.upload(&factors)?, rig.upload(&rows)?);
    let output = if add { rig.upload(&before)? } else { rig.poisoned(count * outputs * 2)? };
    let product = QuantisedProduct {
        weight: device_weight.address,
        input: device_input.address,
        output: output.address,
        norm: if norm { device_factors.address } else { 0 },
        rows: if picked { device_rows.address } else { 0 },
        outputs: outputs as u32,
        columns: columns as u32,
        count: count as u32,
        stride: outputs as u32,
        gate: gate.map_or(0, kernels::gate_word),
        add: u32::from(add),
        epsilon: EPSILON,
        ..QuantisedProduct::default()
    };
    launch(rig, kind, &product)?;
    report.near_bf16("fused quantised_product", &format!("{case:?}"), &output.read::<bf16>()?, &wanted, ROUNDINGS);
    Ok(())
}

/// Each of eight rows by itself and all of them together: a pass that verifies drafted tokens rounds as plain decoding does.
fn rows_alone(rig: &mut Rig, report: &mut Report, kind: WeightType) -> Result<(), Failure> {
    let (outputs, columns, count) = (200, 1536, 8);
    let weight = rig.random.matrix(kind, outputs, columns);
    let (weight, input) = (rig.upload(&weight.bytes)?, rig.random_bf16(count * columns)?);
    let factors = rig.upload(&vec![1.5f32; columns])?;
    let (together, alone) = (rig.poisoned(count * outputs * 4)?, rig.poisoned(count * outputs * 4)?);
    let product = QuantisedProduct {
        weight: weight.address,
        input: input.address,
        output: together.address,
        norm: factors.address,
        outputs: outputs as u32,
        columns: columns as u32,
        count: count as u32,
        stride: outputs as u32,
        float_output: 1,
        epsilon: EPSILON,
        ..QuantisedProduct::default()
    };
    launch(rig, kind, &product)?;
    for row in 0..count {
        let input = input.address + (row * columns * 2) as u64;
        let output = alone.address + (row * outputs * 4) as u64;
        launch(rig, kind, &QuantisedProduct { input, output, count: 1, ..product })?;
    }
    report.equal("rows of a product", &format!("{kind:?}"), &together.read::<u32>()?, &alone.read::<u32>()?);
    Ok(())
}

fn launch(rig: &Rig, kind: WeightType, product: &QuantisedProduct) -> Result<(), Failure> {
    let format = Format::of(kind).ok_or("a weight type")?;
    // SAFETY: the caller's buffers are as large as the arguments say, and live until the device is done.
    launched(unsafe { kernels::quantised_product(&rig.launcher, &rig.kernels, format, product) })?;
    Ok(rig.gpu.context.synchronize()?)
}
