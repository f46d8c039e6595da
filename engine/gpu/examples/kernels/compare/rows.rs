//! Embedding, gather, copies, sums, activations.

use engine::backend::chosen;
use engine::model::Activation;
use engine::weights::WeightType;
use engine::weights::dequantise::dequantise;
use engine_cpu::kernels::{Compute, Pool, Precision};
use engine_gpu::kernels::{self, Activate, Add, CopyColumns, Dequantise, Embed, Format, Gather, SQUARES, Widen};
use engine_gpu::step::NONE;
use half::bf16;

use super::{ROUNDING, Report};
use crate::random::{KINDS, floats};
use crate::rig::{Failure, Memory, Rig, launched};

pub fn run(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    embedding(rig, report)?;
    copies(rig, report)?;
    sums(rig, report)?;
    activations(rig, report)
}

fn embedding(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    for kind in KINDS {
        for columns in [256, 768, 4096] {
            let table = Table::new(rig, kind, columns)?;
            table.embed(rig, report)?;
            if Format::STORED.contains(&table.format) {
                table.dequantise(rig, report)?;
            }
        }
    }
    Ok(())
}

/// Rows of an embedding, on both sides.
struct Table {
    format: Format,
    rows: usize,
    columns: usize,
    values: Vec<f32>,
    device: Memory,
    case: String,
}

impl Table {
    fn new(rig: &mut Rig, kind: WeightType, columns: usize) -> Result<Self, Failure> {
        let rows = 37;
        let table = rig.random.matrix(kind, rows, columns);
        let mut values = vec![0.0; rows * columns];
        dequantise(kind).expect("a weight type")(&table.bytes, &mut values);
        let (device, format) = (rig.upload(&table.bytes)?, Format::of(kind).expect("a weight type"));
        Ok(Self { format, rows, columns, values, device, case: format!("{kind:?} {columns}") })
    }

    /// The table begins at the fifth token, so some tokens are not in it.
    fn embed(&self, rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
        let (first, rows, columns) = (5, 9, self.columns);
        let tokens: Vec<u32> = (0..rows).map(|row| (row * 7) as u32).collect();
        // The last row's token is one that was chosen.
        let mut given = tokens.clone();
        given[rows - 1] = chosen(2);
        let choices = [NONE, NONE, tokens[rows - 1]];
        let (device_choices, device_tokens) = (rig.upload(&choices)?, rig.upload(&given)?);
        let output = rig.poisoned(rows * columns * 2)?;
        let embed = Embed {
            tokens: device_tokens.address,
            choices: device_choices.address,
            table: self.device.address,
            output: output.address,
            first,
            table_rows: self.rows as u32,
            columns: columns as u32,
            rows: rows as u32,
            norm: 0,
            scaled: 0,
            squares: 0,
        };
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::embed(&rig.launcher, &rig.kernels, self.format, &embed) })?;
        let zeros = vec![0.0; columns];
        let row = |token: &u32| match token.checked_sub(first).filter(|row| (*row as usize) < self.rows) {
            Some(row) => &self.values[row as usize * columns..][..columns],
            None => &zeros[..],
        };
        let expected: Vec<bf16> = tokens.iter().flat_map(row).map(|value| bf16::from_f32(*value)).collect();
        report.equal("embedding", &self.case, &output.read::<bf16>()?, &expected);
        begun(rig, report, self.format, &embed, &expected)
    }

    fn dequantise(&self, rig: &Rig, report: &mut Report) -> Result<(), Failure> {
        let output = rig.poisoned(self.values.len() * 2)?;
        let (rows, columns) = (self.rows as u32, self.columns as u32);
        let arguments = Dequantise { weight: self.device.address, output: output.address, rows, columns };
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::dequantise(&rig.launcher, &rig.kernels, self.format, &arguments) })?;
        let expected: Vec<bf16> = self.values.iter().map(|value| bf16::from_f32(*value)).collect();
        report.equal("dequantise", &self.case, &output.read::<bf16>()?, &expected);
        Ok(())
    }
}

/// The same with the begin of a norm, of the rows that are `expected`.
fn begun(rig: &mut Rig, report: &mut Report, format: Format, embed: &Embed, expected: &[bf16]) -> Result<(), Failure> {
    let (columns, elements) = (embed.columns as usize, expected.len());
    let norm = rig.random.values(columns);
    let (weight, output, scaled) = (rig.upload(&norm)?, rig.poisoned(elements * 2)?, rig.poisoned(elements * 2)?);
    let squares = rig.poisoned(elements / SQUARES as usize * 4)?;
    let addresses = [weight.address, scaled.address, squares.address];
    let embed =
        Embed { output: output.address, norm: addresses[0], scaled: addresses[1], squares: addresses[2], ..*embed };
    // SAFETY: the buffers above are as large as the arguments say.
    launched(unsafe { kernels::embed(&rig.launcher, &rig.kernels, format, &embed) })?;
    let case = format!("{format:?} {columns}, norm begun");
    report.equal("embedding", &case, &output.read::<bf16>()?, expected);
    let rows = floats(expected);
    let times: Vec<bf16> =
        rows.iter().zip(norm.iter().cycle()).map(|(value, norm)| bf16::from_f32(value * norm)).collect();
    report.equal("embedding", &case, &scaled.read::<bf16>()?, &times);
    let sums = rows.chunks_exact(SQUARES as usize).map(|values| values.iter().map(|value| value * value).sum());
    report.near("embedding", &case, &squares.read::<f32>()?, &sums.collect::<Vec<f32>>(), 1e-6);
    Ok(())
}

fn copies(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    // The last ones take several blocks a row, whose last turns are not whole.
    let widths = [(64, 192, 64), (4096, 12288, 8192), (7, 20, 3), (8, 24, 1), (70_008, 140_000, 8), (4001, 4100, 99)];
    for (width, target_width, offset) in widths {
        let rows = 11;
        let source = rig.random.bf16(rows * width);
        let picked: Vec<u32> = (0..6).map(|_| rig.random.below(rows) as u32).collect();
        let (memory, device_rows) = (rig.upload(&source)?, rig.upload(&picked)?);
        let output = rig.poisoned(picked.len() * width * 2)?;
        let (input, count) = (memory.address, picked.len() as u32);
        let gather = Gather { rows: device_rows.address, input, output: output.address, width: width as u32, count };
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::gather(&rig.launcher, &rig.kernels, &gather) })?;
        let expected: Vec<bf16> =
            picked.iter().flat_map(|row| source[*row as usize * width..][..width].to_vec()).collect();
        report.equal("gather", &format!("{width}"), &output.read::<bf16>()?, &expected);

        let mut target = rig.random.bf16(rows * target_width);
        let device = rig.upload(&target)?;
        let copy = CopyColumns {
            source: memory.address,
            target: device.address,
            width: width as u32,
            target_width: target_width as u32,
            offset: offset as u32,
            rows: rows as u32,
        };
        // SAFETY: as above.
        launched(unsafe { kernels::copy_columns(&rig.launcher, &rig.kernels, &copy) })?;
        for row in 0..rows {
            target[row * target_width + offset..][..width].copy_from_slice(&source[row * width..][..width]);
        }
        report.equal("copy_columns", &format!("{width} at {offset}"), &device.read::<bf16>()?, &target);
    }
    Ok(())
}

fn sums(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    for elements in [1, 7, 8, 4096, 33 * 576] {
        let (target, addend) = (rig.random.bf16(elements), rig.random.bf16(elements));
        let (device, addends) = (rig.upload(&target)?, rig.upload(&addend)?);
        let add = Add { addend: addends.address, target: device.address, elements: elements as u64 };
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::add(&rig.launcher, &rig.kernels, &add) })?;
        let sum = |(target, addend): (&bf16, &bf16)| bf16::from_f32(target.to_f32() + addend.to_f32());
        let expected: Vec<bf16> = target.iter().zip(&addend).map(sum).collect();
        report.equal("add", &format!("{elements}"), &device.read::<bf16>()?, &expected);

        let wide = rig.poisoned(elements * 4)?;
        let widen = Widen { source: addends.address, target: wide.address, elements: elements as u64 };
        // SAFETY: as above.
        launched(unsafe { kernels::widen(&rig.launcher, &rig.kernels, &widen) })?;
        report.equal("widen", &format!("{elements}"), &wide.read::<f32>()?, &floats(&addend));
    }
    Ok(())
}

fn activations(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let compute = Compute::new(Pool::new(1)?, Precision::Exact);
    for activation in [Activation::Silu, Activation::Gelu] {
        for (rows, width) in [(1, 8), (3, 1536), (5, 14336), (2, 13)] {
            let input: Vec<bf16> = (0..rows * 2 * width).map(|_| bf16::from_f32(6.0 * rig.random.value())).collect();
            let (memory, output) = (rig.upload(&input)?, rig.poisoned(rows * width * 2)?);
            let (width_word, rows_word) = (width as u32, rows as u32);
            let arguments =
                Activate { input: memory.address, output: output.address, width: width_word, rows: rows_word };
            // SAFETY: the buffers above are as large as the arguments say.
            launched(unsafe { kernels::activate(&rig.launcher, &rig.kernels, activation, &arguments) })?;
            let mut expected = vec![0.0; rows * width];
            compute.activate(activation, &floats(&input), width, &mut expected);
            let case = format!("{activation:?} {rows} x {width}");
            report.near_bf16("activate", &case, &output.read::<bf16>()?, &expected, ROUNDING);
        }
    }
    Ok(())
}
