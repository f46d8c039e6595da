//! Products of few rows, in every format.

use std::time::Instant;

use engine::backend::MatrixPart;
use engine::weights::{TensorView, WeightType};
use engine_cpu::kernels::{Compute, Pool, Precision, QuantMatrix};
use engine_gpu::kernels::{self, Format, Product, QuantisedProduct};
use engine_gpu::step::NONE;
use half::bf16;

use super::gated::gated;
use super::sampling::ChoiceRoom;
use super::{ROUNDING, Report};
use crate::random::{KINDS, floats};
use crate::rig::{Failure, Memory, Rig, launched};

/// Sums in f32 in another order.
const SUMS: f64 = 1e-5;
/// Most elements of a weight where large shapes are left out.
const SMALL: usize = 1 << 20;
/// Every number of rows at and off the edge of a tile.
const COUNTS: [usize; 14] = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 32, 33, 63, 64];
const FEW_COUNTS: [usize; 4] = [1, 8, 16, 33];
const QUANTISED_COUNTS: [usize; 12] = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33];
const FEW_QUANTISED_COUNTS: [usize; 4] = [1, 3, 9, 17];

pub fn run(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let compute = Compute::new(Pool::share(1)?, Precision::Exact);
    let small = rig.small;
    let fits = |[outputs, columns]: &[usize; 2]| !small || outputs * columns <= SMALL;
    let shapes = [
        [16, 8],
        [17, 64],
        [100, 576],
        [1000, 1032],
        [6144, 4096],
        [256, 14336],
        [33, 40],
        [9001, 1032],
        [1100, 14344],
    ];
    for [outputs, columns] in shapes.into_iter().filter(fits) {
        let all = outputs < 6000 && columns < 14344;
        let counts = if all { &COUNTS[..] } else { &FEW_COUNTS };
        plain(rig, report, &compute, WeightType::Bf16, [outputs, columns], counts)?;
    }
    let shapes = [[8, 8], [13, 64], [1536, 576], [700, 4096], [3333, 2056]];
    for shape in shapes.into_iter().filter(fits) {
        gated(rig, report, &compute, shape, &COUNTS)?;
    }
    for kind in KINDS.into_iter().filter(|kind| kind.block_elements() > 1) {
        for shape in [[7, 256], [130, 1536], [577, 4096], [2113, 768]].into_iter().filter(fits) {
            let counts = if small { &FEW_QUANTISED_COUNTS[..] } else { &QUANTISED_COUNTS };
            plain(rig, report, &compute, kind, shape, counts)?;
        }
    }
    Ok(())
}

/// Products large enough for the copy engine, of every form, at and off the edges of a stage and of a tile (132
/// multiprocessors choose as the comments say); few of them, for a race checker.
const STREAMED: [(usize, usize, usize); 35] = [
    // Two blocks per multiprocessor.
    (9001, 1032, 1),
    (2900, 4096, 8),
    (640, 14344, 3),
    (4400, 2056, 16),
    // Held, of two blocks: one and two chunks.
    (6501, 896, 1),
    (3301, 1920, 1),
    (6700, 2048, 5),
    // Held, of one block: one to four chunks, several tiles of each block.
    (4411, 3072, 1),
    (4205, 3200, 5),
    (6600, 2048, 9),
    (14001, 960, 10),
    (11501, 1152, 12),
    (3501, 4096, 8),
    (17001, 4096, 16),
    // Tiles of 32 rows, one and two of a block, and of 16 where those are too few.
    (3901, 4224, 1),
    (3901, 4224, 3),
    (3901, 4224, 16),
    (6203, 4352, 6),
    (6203, 4352, 14),
    (1100, 14464, 1),
    (1100, 14464, 7),
    (1100, 14400, 13),
    // The same where shares are not whole.
    (3901, 4104, 16),
    (1100, 14344, 7),
    // Columns outermost, dealt to two blocks of a cluster, with registers for 8 and for 15 times sixteen rows, and of one: with
    // parts of a chunk, with one block that has none, and with long rows.
    (4001, 3264, 17),
    (2801, 4736, 32),
    (1100, 14400, 25),
    (6201, 2112, 31),
    (13001, 1088, 18),
    (17001, 832, 24),
    (31601, 448, 32),
    // The same of fewer rows, where two blocks share rows of the weight and nothing is gated.
    (4001, 3264, 9),
    (6201, 2112, 16),
    (3301, 4480, 12),
    // Where such a form has no registers for the rows: tiles of 32, one or two of a block.
    (8601, 4224, 16),
];

pub fn streamed(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let begun = Instant::now();
    let compute = Compute::new(Pool::share(1)?, Precision::Exact);
    for (outputs, columns, count) in STREAMED {
        plain(rig, report, &compute, WeightType::Bf16, [outputs, columns], &[count])?;
        gated(rig, report, &compute, [outputs / 2, columns], &[count])?;
        // What was compared should a checker's time end before the last.
        if rig.small {
            println!("{outputs} of {columns}, {count} rows after {:.0} s", begun.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// `input * weight^T + bias` on the CPU.
pub fn expected(compute: &Compute, weight: &TensorView<'_>, input: &[bf16], bias: Option<&[f32]>) -> Vec<f32> {
    linear(compute, weight, &floats(input), bias)
}

/// The same of inputs that no rounding has met.
pub fn linear(compute: &Compute, weight: &TensorView<'_>, input: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let packed = QuantMatrix::pack(&MatrixPart::whole(weight.clone())).expect("a weight type");
    let mut output = vec![0.0; input.len() / weight.shape[1] * weight.shape[0]];
    compute.linear(input, &[packed], bias, &mut output);
    output
}

#[derive(Clone, Copy, Debug)]
struct Case {
    kind: WeightType,
    outputs: usize,
    columns: usize,
    count: usize,
    float_output: bool,
    bias: bool,
}

/// What cases of one shape share: those of few rows take the first ones.
struct Given {
    weight: Memory,
    input: Memory,
    bias: Memory,
    /// Without the bias and with it, `[rows, outputs]` for the most rows.
    expected: [Vec<f32>; 2],
}

fn plain(
    rig: &mut Rig,
    report: &mut Report,
    compute: &Compute,
    kind: WeightType,
    [outputs, columns]: [usize; 2],
    counts: &[usize],
) -> Result<(), Failure> {
    if !rig.mine() {
        return Ok(());
    }
    let weight = rig.random.matrix(kind, outputs, columns);
    let most = counts.iter().copied().max().unwrap_or(0);
    let (input, biases) = (rig.random.bf16(most * columns), rig.random.values(outputs));
    let without = expected(compute, &weight, &input, None);
    let with: Vec<f32> = without.iter().zip(biases.iter().cycle()).map(|(value, bias)| value + bias).collect();
    let given = Given {
        weight: rig.upload(&weight.bytes)?,
        input: rig.upload(&input)?,
        bias: rig.upload(&biases)?,
        expected: [without, with],
    };
    for &count in counts {
        let case = Case { kind, outputs, columns, count, float_output: true, bias: true };
        if kind == WeightType::Bf16 {
            one(rig, report, &given, Case { float_output: false, ..case })?;
            one(rig, report, &given, Case { bias: false, ..case })?;
        } else {
            one(rig, report, &given, case)?;
        }
    }
    Ok(())
}

fn one(rig: &Rig, report: &mut Report, given: &Given, case: Case) -> Result<(), Failure> {
    let Case { kind, outputs, columns, count, float_output, bias } = case;
    // Columns of other parts stand on either side of the output's.
    let (stride, offset) = (outputs + 5, 3);
    let element = if float_output { 4 } else { 2 };
    let product = Product {
        weight: given.weight.address,
        input: given.input.address,
        bias: if bias { given.bias.address } else { 0 },
        output: 0,
        outputs: outputs as u32,
        columns: columns as u32,
        count: count as u32,
        stride: stride as u32,
        float_output: u32::from(float_output),
        ..Product::default()
    };
    let multiply = |times: usize| -> Result<Vec<f32>, Failure> {
        let output = rig.poisoned(count * stride * element)?;
        for _ in 0..times {
            launch(rig, kind, &Product { output: output.address + (offset * element) as u64, ..product })?;
        }
        Ok(if float_output { output.read::<f32>()? } else { floats(&output.read::<bf16>()?) })
    };
    let values = multiply(1)?;
    let (kernel, text) = (if kind == WeightType::Bf16 { "product" } else { "quantised_product" }, format!("{case:?}"));
    // Blocks draw tiles one by one: the sums of a tile do not depend on the block that multiplies it. A checker, for which a
    // launch takes seconds, judges each by itself.
    let times = if rig.small { 1 } else { 3 };
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    report.equal(kernel, &format!("{text}, once more"), &bits(&multiply(times)?), &bits(&values));
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for row in values.chunks_exact(stride) {
        inside.extend(&row[offset..offset + outputs]);
        outside.extend(row[..offset].iter().chain(&row[offset + outputs..]).map(|value| value.is_nan()));
    }
    if kind == WeightType::Bf16 && kernels::chooses(&rig.launcher, &rig.kernels, &product) {
        let output = rig.poisoned(count * stride * element)?;
        let product = Product { output: output.address + (offset * element) as u64, ..product };
        choosing(rig, report, &text, &product, &inside)?;
    }
    let expected = &given.expected[usize::from(bias)][..count * outputs];
    report.near(kernel, &text, &inside, expected, if float_output { SUMS } else { ROUNDING });
    report.equal(kernel, &format!("{text}, beside the output"), &outside, &vec![true; outside.len()]);
    Ok(())
}

/// A product that chooses the largest of each row of `outputs`, which are what it gives.
fn choosing(rig: &Rig, report: &mut Report, case: &str, product: &Product, outputs: &[f32]) -> Result<(), Failure> {
    let vocabulary = product.outputs as usize;
    let room = ChoiceRoom::new(rig, product.count as usize, vocabulary)?;
    // The first of equals.
    let largest = |row: &[f32]| (0..row.len()).rev().max_by(|a, b| row[*a].total_cmp(&row[*b]));
    let expected =
        outputs.chunks_exact(vocabulary).map(|row| ChoiceRoom::token(largest(row).map_or(NONE, |at| at as u32)));
    let expected: Vec<u32> = expected.collect();
    for _ in 0..2 {
        launch(rig, WeightType::Bf16, &Product { choice: room.choice(), ..*product })?;
        room.compare(report, "product that chooses", case, &expected)?;
    }
    Ok(())
}

fn launch(rig: &Rig, kind: WeightType, product: &Product) -> Result<(), Failure> {
    let format = Format::of(kind).ok_or("a weight type")?;
    // SAFETY: the caller's buffers are as large as the arguments say, and live until the device is done.
    launched(unsafe {
        match kind {
            WeightType::Bf16 => kernels::product(&rig.launcher, &rig.kernels, product),
            _ => kernels::quantised_product(&rig.launcher, &rig.kernels, format, &stored(product)),
        }
    })
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
