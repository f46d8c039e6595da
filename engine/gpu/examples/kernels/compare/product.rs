//! Products of few rows, in every format.

use engine::backend::MatrixPart;
use engine::model::Activation;
use engine::weights::{TensorView, WeightType};
use engine_cpu::kernels::{Compute, Pool, Precision, QuantMatrix};
use engine_gpu::kernels::{self, Format, Product, QuantisedProduct};
use half::bf16;

use super::Report;
use crate::random::{KINDS, floats};
use crate::rig::{Failure, Memory, Rig, launched};

/// Sums in f32 in another order.
const SUMS: f64 = 1e-5;
/// One rounding to bf16.
const ROUNDING: f64 = 3e-3;
/// Most elements of a weight where large shapes are left out.
const SMALL: usize = 1 << 20;
/// Every number of rows at and off the edge of a tile.
const COUNTS: [usize; 14] = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 32, 33, 63, 64];

pub fn run(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let compute = Compute::new(Pool::new(8)?, Precision::Exact);
    let small = rig.small;
    let fits = |(outputs, columns): &(usize, usize)| !small || outputs * columns <= SMALL;
    for (outputs, columns) in
        [(16, 8), (17, 64), (100, 576), (1000, 1032), (6144, 4096), (256, 14336), (33, 40), (9001, 1032), (1100, 14344)]
            .into_iter()
            .filter(fits)
    {
        for count in
            COUNTS.into_iter().filter(|count| outputs < 6000 && columns < 14344 || [1, 8, 16, 33].contains(count))
        {
            let weight = rig.random.matrix(WeightType::Bf16, outputs, columns);
            for (float_output, bias) in [(false, true), (true, false)] {
                let shape = Case { kernel: "product", outputs, columns, count, float_output, bias };
                plain(rig, report, &compute, &weight, shape)?;
            }
        }
    }
    for (outputs, columns) in [(8, 8), (13, 64), (1536, 576), (700, 4096), (3333, 2056)].into_iter().filter(fits) {
        for count in COUNTS {
            gated(rig, report, &compute, [outputs, columns, count])?;
        }
    }
    for kind in KINDS.into_iter().filter(|kind| kind.block_elements() > 1) {
        for (outputs, columns) in [(7, 256), (130, 1536), (577, 4096), (2113, 768)].into_iter().filter(fits) {
            let counts = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33];
            for count in counts.into_iter().filter(|count| !small || [1, 3, 9, 17].contains(count)) {
                let weight = rig.random.matrix(kind, outputs, columns);
                let case =
                    Case { kernel: "quantised_product", outputs, columns, count, float_output: true, bias: true };
                plain(rig, report, &compute, &weight, case)?;
            }
        }
    }
    Ok(())
}

/// Products large enough for the copy engine, at and off the edges of a stage; few of them, for a race checker.
pub fn streamed(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let compute = Compute::new(Pool::new(8)?, Precision::Exact);
    for (outputs, columns, count) in [(9001, 1032, 1), (2900, 4096, 8), (640, 14344, 3), (4400, 2056, 16)] {
        let weight = rig.random.matrix(WeightType::Bf16, outputs, columns);
        let shape = Case { kernel: "product", outputs, columns, count, float_output: false, bias: true };
        plain(rig, report, &compute, &weight, shape)?;
        gated(rig, report, &compute, [outputs / 2, columns, count])?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct Case {
    kernel: &'static str,
    outputs: usize,
    columns: usize,
    count: usize,
    float_output: bool,
    bias: bool,
}

/// `input * weight^T + bias` on the CPU.
pub fn expected(compute: &Compute, weight: &TensorView<'_>, input: &[bf16], bias: Option<&[f32]>) -> Vec<f32> {
    let packed = QuantMatrix::pack(&MatrixPart::whole(weight.clone())).expect("a weight type");
    let mut output = vec![0.0; input.len() / weight.shape[1] * weight.shape[0]];
    compute.linear(&floats(input), &[packed], bias, &mut output);
    output
}

fn plain(
    rig: &mut Rig,
    report: &mut Report,
    compute: &Compute,
    weight: &TensorView<'_>,
    case: Case,
) -> Result<(), Failure> {
    let Case { kernel, outputs, columns, count, float_output, bias } = case;
    let (input, biases) = (rig.random.bf16(count * columns), rig.random.values(outputs));
    let bias = bias.then_some(&biases[..]);
    // Columns of other parts stand on either side of the output's.
    let (stride, offset) = (outputs + 5, 3);
    let element = if float_output { 4 } else { 2 };
    let output = rig.poisoned(count * stride * element)?;
    let (device_weight, device_input) = (rig.upload(&weight.bytes)?, rig.upload(&input)?);
    let device_bias = rig.upload(&biases)?;
    let product = Product {
        weight: device_weight.address,
        input: device_input.address,
        bias: bias.map_or(0, |_| device_bias.address),
        output: output.address + (offset * element) as u64,
        outputs: outputs as u32,
        columns: columns as u32,
        count: count as u32,
        stride: stride as u32,
        float_output: u32::from(float_output),
        activation: 0,
        launch: 0,
    };
    let format = Format::of(weight.kind).expect("a weight type");
    let launch = |product: &Product| {
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe {
            match kernel {
                "product" => kernels::product(&rig.launcher, &rig.kernels, product),
                _ => kernels::quantised_product(&rig.launcher, &rig.kernels, format, &stored(product)),
            }
        })
    };
    launch(&product)?;
    let read = |output: &Memory| -> Result<Vec<f32>, Failure> {
        Ok(if float_output { output.read::<f32>()? } else { floats(&output.read::<bf16>()?) })
    };
    let values = read(&output)?;
    let case = format!("{:?} {case:?}", weight.kind);
    // Blocks take tiles as they come to them: whoever multiplies a tile, its sums are the same.
    let repeated = rig.poisoned(count * stride * element)?;
    for _ in 0..3 {
        launch(&Product { output: repeated.address + (offset * element) as u64, ..product })?;
    }
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    report.equal(kernel, &format!("{case}, once more"), &bits(&read(&repeated)?), &bits(&values));
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for row in values.chunks_exact(stride) {
        inside.extend(&row[offset..offset + outputs]);
        outside.extend(row[..offset].iter().chain(&row[offset + outputs..]).map(|value| value.is_nan()));
    }
    let expected = expected(compute, weight, &input, bias);
    report.near(kernel, &case, &inside, &expected, if float_output { SUMS } else { ROUNDING });
    report.equal(kernel, &format!("{case}, beside the output"), &outside, &vec![true; outside.len()]);
    Ok(())
}

/// The same of a weight in blocks.
fn stored(product: &Product) -> QuantisedProduct {
    let Product { weight, input, bias, output, outputs, columns, count, stride, float_output, .. } = *product;
    QuantisedProduct {
        weight,
        input,
        bias,
        output,
        outputs,
        columns,
        count,
        stride,
        float_output,
        ..QuantisedProduct::default()
    }
}

fn gated(
    rig: &mut Rig,
    report: &mut Report,
    compute: &Compute,
    [outputs, columns, count]: [usize; 3],
) -> Result<(), Failure> {
    let weight = rig.random.matrix(WeightType::Bf16, 2 * outputs, columns);
    let (input, bias) = (rig.random.bf16(count * columns), rig.random.values(2 * outputs));
    let (device_weight, device_input) = (rig.upload(&weight.bytes)?, rig.upload(&input)?);
    let device_bias = rig.upload(&bias)?;
    let projected = expected(compute, &weight, &input, Some(&bias));
    for activation in [Activation::Silu, Activation::Gelu] {
        let output = rig.poisoned(count * outputs * 2)?;
        let product = Product {
            weight: device_weight.address,
            input: device_input.address,
            bias: device_bias.address,
            output: output.address,
            outputs: outputs as u32,
            columns: columns as u32,
            count: count as u32,
            stride: outputs as u32,
            float_output: 0,
            activation: 0,
            launch: 0,
        };
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::gated_product(&rig.launcher, &rig.kernels, activation, &product) })?;
        let mut expected = vec![0.0; count * outputs];
        compute.activate(activation, &projected, outputs, &mut expected);
        let case = format!("{activation:?} {outputs} of {columns}, {count} rows");
        report.near_bf16("gated_product", &case, &output.read::<bf16>()?, &expected, ROUNDING);
    }
    Ok(())
}
