//! Products with weights in blocks and what a layer does besides: the norm of the input, the activation of gates, the sum
//! with the residual stream. And that a row's product has the same bits however many rows there are.

use engine::model::Activation;
use engine::weights::{TensorView, WeightType};
use engine_cpu::kernels::{Compute, Pool, Precision};
use engine_gpu::kernels::{self, Format, QuantisedProduct};
use half::bf16;

use super::product::expected;
use super::{ROUNDING, Report, size};
use crate::random::{KINDS, floats};
use crate::rig::{Failure, Memory, Rig, launched};

const EPSILON: f32 = 1e-5;
const COUNTS: [usize; 6] = [1, 2, 4, 8, 9, 16];
const MOST: usize = 16;

/// What a product does besides.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: WeightType,
    outputs: usize,
    columns: usize,
    count: usize,
    norm: bool,
    /// Rows of the input in another order: the last first.
    picked: bool,
    add: bool,
    gate: Option<Activation>,
}

pub fn run(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let compute = Compute::new(Pool::share(1)?, Precision::Exact);
    for kind in KINDS.into_iter().filter(|kind| kind.block_elements() > 1) {
        for [outputs, columns] in [[7, 256], [577, 512], [1536, 1536], [9001, 512], [100, 4096]] {
            let small = rig.small;
            let counts = COUNTS.into_iter().filter(|count| outputs < 9000 || [1, 4].contains(count));
            let counts: Vec<usize> = counts.filter(|count| !small || [1, 9].contains(count)).collect();
            if small && outputs * columns >= 1 << 19 {
                continue;
            }
            let plain = Case { kind, outputs, columns, count: 0, norm: false, picked: false, add: true, gate: None };
            let normed = Case { norm: true, add: false, ..plain };
            shape(rig, report, &compute, &counts, &[plain, normed, Case { picked: true, add: true, ..normed }])?;
            let gate = |gate| Case { gate: Some(gate), ..normed };
            let ungated = Case { norm: false, ..gate(Activation::Silu) };
            shape(rig, report, &compute, &counts, &[gate(Activation::Silu), gate(Activation::Gelu), ungated])?;
        }
        if rig.mine() {
            rows_alone(rig, report, kind)?;
        }
    }
    Ok(())
}

/// What cases of one weight share: those of few rows take the first ones.
struct Given {
    weight: Memory,
    input: Memory,
    factors: Memory,
    before: Vec<bf16>,
    /// Products on the CPU without the norm and with it, `[MOST, outputs]`, or twice as many with gates.
    products: [Vec<f32>; 2],
}

/// Cases of one weight, each with all counts.
fn shape(
    rig: &mut Rig,
    report: &mut Report,
    compute: &Compute,
    counts: &[usize],
    cases: &[Case],
) -> Result<(), Failure> {
    let Some(Case { kind, outputs, columns, gate, .. }) = cases.first().copied().filter(|_| rig.mine()) else {
        return Ok(());
    };
    let weight = rig.random.matrix(kind, if gate.is_some() { 2 * outputs } else { outputs }, columns);
    let (input, before) = (rig.random.bf16(MOST * columns), rig.random.bf16(MOST * outputs));
    let factors: Vec<f32> = rig.random.values(columns).iter().map(|value| 1.0 + 0.5 * value).collect();
    let products = [expected(compute, &weight, &input, None), normed(compute, &weight, &input, &factors)];
    let (weight, input, factors) = (rig.upload(&weight.bytes)?, rig.upload(&input)?, rig.upload(&factors)?);
    let given = Given { weight, input, factors, before, products };
    for &count in counts {
        for case in cases {
            one(rig, report, compute, &given, Case { count, ..*case })?;
        }
    }
    Ok(())
}

/// With a norm the kernel rounds what the norm's weights give, and multiplies with the inverse root of the mean square
/// after the product.
fn normed(compute: &Compute, weight: &TensorView<'_>, input: &[bf16], factors: &[f32]) -> Vec<f32> {
    let scaled = input.iter().zip(factors.iter().cycle());
    let scaled: Vec<bf16> = scaled.map(|(value, factor)| bf16::from_f32(value.to_f32() * factor)).collect();
    let mut product = expected(compute, weight, &scaled, None);
    let (wide, columns) = (weight.shape[0], weight.shape[1]);
    for (row, products) in input.chunks_exact(columns).zip(product.chunks_exact_mut(wide)) {
        let squares: f64 = row.iter().map(|value| f64::from(value.to_f32()).powi(2)).sum();
        let inverse = (squares / columns as f64 + f64::from(EPSILON)).sqrt().recip();
        products.iter_mut().for_each(|value| *value = (f64::from(*value) * inverse) as f32);
    }
    product
}

/// What must come out of a case, and what its errors are measured against: each of its roundings is off by
/// [`ROUNDING`] of what is rounded. Without a sum that is the result. With one it is the product and then their sum, so
/// that the error of n values is at most that part of both sizes together (the triangle inequality).
fn wanted(compute: &Compute, case: Case, given: &Given) -> (Vec<f32>, f64) {
    let Case { outputs, count, norm, picked, add, gate, .. } = case;
    let wide = if gate.is_some() { 2 * outputs } else { outputs };
    let product = &given.products[usize::from(norm)][..count * wide];
    let mut product = if picked { product.rchunks_exact(wide).flatten().copied().collect() } else { product.to_vec() };
    if let Some(activation) = gate {
        let projected = std::mem::replace(&mut product, vec![0.0; count * outputs]);
        compute.activate(activation, &projected, outputs, &mut product);
    }
    if !add {
        let size = size(&product);
        return (product, size);
    }
    let sums: Vec<f32> = product.iter().zip(&given.before).map(|(value, before)| value + before.to_f32()).collect();
    let sizes = size(&product) + size(&sums);
    (sums, sizes)
}

fn one(rig: &Rig, report: &mut Report, compute: &Compute, given: &Given, case: Case) -> Result<(), Failure> {
    let Case { kind, outputs, columns, count, norm, picked, add, gate } = case;
    let rows = rig.upload(&(0..count as u32).rev().collect::<Vec<_>>())?;
    let elements = count * outputs;
    let output = if add { rig.upload(&given.before[..elements])? } else { rig.poisoned(elements * 2)? };
    let product = QuantisedProduct {
        weight: given.weight.address,
        input: given.input.address,
        output: output.address,
        norm: if norm { given.factors.address } else { 0 },
        rows: if picked { rows.address } else { 0 },
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
    let (expected, of) = wanted(compute, case, given);
    let (name, actual) = ("fused quantised_product", floats(&output.read::<bf16>()?));
    report.near_of(name, &format!("{case:?}"), &actual, &expected, [of, ROUNDING]);
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
