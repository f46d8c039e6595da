//! RMS norms.

use engine_cpu::kernels::{Compute, Pool, Precision};
use engine_gpu::kernels::{self, Norm, NormBlocks};
use half::bf16;

use super::{ROUNDING, Report};
use crate::random::floats;
use crate::rig::{Failure, Rig, launched};

const EPSILON: f32 = 1e-5;

pub fn run(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let compute = Compute::new(Pool::new(1)?, Precision::Exact);
    for (rows, width) in [(1, 8), (1, 4096), (3, 64), (17, 576), (2, 7168), (33, 2048), (1, 16384)] {
        rows_of(rig, report, &compute, rows, width)?;
    }
    for (rows, row, offset, count, stride, width) in
        [(3, 192, 0, 4, 32, 32), (5, 192, 128, 2, 32, 32), (2, 40, 3, 1, 40, 37), (9, 6144, 4096, 8, 128, 128)]
    {
        blocks_of(rig, report, [rows, row, offset, count, stride, width])?;
    }
    Ok(())
}

fn rows_of(rig: &mut Rig, report: &mut Report, compute: &Compute, rows: usize, width: usize) -> Result<(), Failure> {
    let (input, residual) = (rig.random.bf16(rows * width), rig.random.bf16(rows * width));
    let weight: Vec<f32> = rig.random.values(width).iter().map(|value| 1.0 + 0.5 * value).collect();
    let (device_input, device_residual) = (rig.upload(&input)?, rig.upload(&residual)?);
    let (device_weight, output) = (rig.upload(&weight)?, rig.poisoned(rows * width * 2)?);
    let norm = Norm {
        input: device_input.address,
        residual: device_residual.address,
        weight: device_weight.address,
        output: output.address,
        width: width as u32,
        epsilon: EPSILON,
        rows: rows as u32,
    };
    let case = format!("{rows} x {width}");
    // SAFETY: the buffers above are as large as the arguments say.
    launched(unsafe { kernels::rms_norm(&rig.launcher, &rig.kernels, &norm) })?;
    let mut expected = vec![0.0; rows * width];
    compute.rms_norm(&floats(&input), &weight, EPSILON, &mut expected);
    report.near_bf16("rms_norm", &case, &output.read::<bf16>()?, &expected, ROUNDING);

    // SAFETY: as above.
    launched(unsafe { kernels::add_rms_norm(&rig.launcher, &rig.kernels, &norm) })?;
    let sum = |(left, right): (&bf16, &bf16)| bf16::from_f32(left.to_f32() + right.to_f32());
    let sums: Vec<bf16> = residual.iter().zip(&input).map(sum).collect();
    compute.rms_norm(&floats(&sums), &weight, EPSILON, &mut expected);
    report.near_bf16("add_rms_norm", &case, &output.read::<bf16>()?, &expected, ROUNDING);
    report.equal("add_rms_norm residual", &case, &device_residual.read::<bf16>()?, &sums);
    Ok(())
}

fn blocks_of(rig: &mut Rig, report: &mut Report, shape: [usize; 6]) -> Result<(), Failure> {
    let [rows, row, offset, count, stride, width] = shape;
    let buffer = rig.random.bf16(rows * row);
    let weight: Vec<f32> = rig.random.values(width).iter().map(|value| 1.0 + 0.5 * value).collect();
    let (device, device_weight) = (rig.upload(&buffer)?, rig.upload(&weight)?);
    let norm = NormBlocks {
        buffer: device.address,
        weight: device_weight.address,
        row: row as u32,
        offset: offset as u32,
        count: count as u32,
        stride: stride as u32,
        width: width as u32,
        rows: rows as u32,
        epsilon: EPSILON,
    };
    // SAFETY: the buffers above are as large as the arguments say.
    launched(unsafe { kernels::rms_norm_blocks(&rig.launcher, &rig.kernels, &norm) })?;
    let mut expected = floats(&buffer);
    for block in (0..rows * count).map(|index| index / count * row + offset + index % count * stride) {
        let values = &mut expected[block..block + width];
        let mean = values.iter().map(|value| f64::from(value * value)).sum::<f64>() / width as f64;
        let factor = (mean + f64::from(EPSILON)).sqrt().recip() as f32;
        values.iter_mut().zip(&weight).for_each(|(value, weight)| *value *= factor * weight);
    }
    report.near_bf16("rms_norm_blocks", &format!("{shape:?}"), &device.read::<bf16>()?, &expected, ROUNDING);
    Ok(())
}
