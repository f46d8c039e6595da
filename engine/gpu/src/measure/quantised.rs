//! Outputs of fused sums against their definition on the host, the quantised ones after decoding.

use super::norm::{Buffers, NormCase};
use super::reference::decode;
use super::{MeasureError, Rank};
use crate::kernels::NormOutput;

const E2M1: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// `expected` in f64; `given` is the scale that the kernel was given.
pub(super) fn compare_output(
    rank: &Rank,
    case: &NormCase,
    buffers: &Buffers,
    expected: &[f64],
    given: f32,
) -> Result<(), MeasureError> {
    let width = case.width as usize;
    let bytes = match case.output {
        NormOutput::Element => expected.len() * case.element.bytes() as usize,
        NormOutput::Fp8Tensor | NormOutput::Fp8Token => expected.len(),
        NormOutput::Nvfp4 => expected.len() / 2,
    };
    let output = rank.read::<u8>(buffers.output.pointer(), bytes)?;
    let scales = rank.read::<f32>(buffers.scale.pointer(), case.rows as usize)?;
    let blocks = match case.output {
        NormOutput::Nvfp4 => rank.read::<u8>(buffers.block_scales.pointer(), expected.len() / 16)?,
        _ => Vec::new(),
    };
    for (index, expected) in expected.iter().enumerate() {
        let (value, step) = match case.output {
            // The norm's factor is a few units of f32 off; rounding to the element is half a step of 2^-8 or less.
            NormOutput::Element => (f64::from(decode(case.element, &output, index)), expected.abs() / 200.0 + 1e-6),
            NormOutput::Fp8Tensor => fp8(output[index], f64::from(given), *expected),
            NormOutput::Fp8Token => fp8(output[index], f64::from(scales[index / width]), *expected),
            NormOutput::Nvfp4 => {
                let code = output[index / 2] >> (4 * (index % 2)) & 15;
                fp4(code, from_e4m3(blocks[index / 16]), f64::from(given), *expected)
            }
        };
        let off = (value - expected).abs();
        if off.is_nan() || off > step {
            let rank = rank.rank();
            return Err(MeasureError::Wrong(format!(
                "{case}: output {index} of rank {rank} is {value}, not {expected}"
            )));
        }
    }
    Ok(())
}

/// The value, and half a step of the format there: one 16th of the magnitude, or of the smallest normal number.
fn fp8(bits: u8, scale: f64, expected: f64) -> (f64, f64) {
    let (value, scaled) = (from_e4m3(bits) * scale, (expected / scale).abs());
    let step = if scaled > 448.0 { scaled - 448.0 + 1e-3 } else { scaled.max(1.0 / 64.0) / 15.0 };
    (value, step * scale.abs())
}

/// The value and the largest distance to a neighbour: a third of the magnitude, or a quarter.
fn fp4(code: u8, block: f64, global: f64, expected: f64) -> (f64, f64) {
    let unit = if global == 0.0 { 0.0 } else { block / global };
    let magnitude = E2M1[usize::from(code & 7)] * unit;
    let scaled = if unit == 0.0 { 0.0 } else { (expected / unit).abs() };
    // The block's scale has three bits of mantissa itself, so that the largest value may lie a 16th beyond 6; a scale too
    // small for its format is one of its steps.
    let step = if scaled > 6.0 { scaled - 5.999 } else { (scaled / 4.9).max(0.2501) };
    let flat = if block == 0.0 { f64::INFINITY } else { step * unit.abs() + 1e-9 };
    (if code & 8 != 0 { -magnitude } else { magnitude }, flat)
}

fn from_e4m3(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let magnitude = if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
    if bits & 0x80 != 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::from_e4m3;

    #[test]
    fn e4m3_is_decoded() {
        for (bits, value) in [(0x7e, 448.0), (0x38, 1.0), (0xb8, -1.0), (0x01, 1.0 / 512.0), (0x08, 1.0 / 64.0)] {
            assert_eq!(from_e4m3(bits), value);
        }
    }
}
