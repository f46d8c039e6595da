//! Norms, activations and sums.

use engine::backend::Blocks;
use engine::model::Activation;

/// `output = input / sqrt(mean(input^2) + epsilon) * weight`.
pub fn rms_norm(input: &[f32], weight: &[f32], epsilon: f32, output: &mut [f32]) {
    let scale = inverse_rms(input, epsilon);
    for ((output, input), weight) in output.iter_mut().zip(input).zip(weight) {
        *output = input * scale * weight;
    }
}

/// The same in place.
pub fn rms_norm_in_place(row: &mut [f32], weight: &[f32], epsilon: f32) {
    let scale = inverse_rms(row, epsilon);
    row.iter_mut().zip(weight).for_each(|(value, weight)| *value *= scale * weight);
}

fn inverse_rms(row: &[f32], epsilon: f32) -> f32 {
    let squares = crate::matrix::dot(row, row);
    (squares / row.len() as f32 + epsilon).sqrt().recip()
}

/// Each block of the first `rows` rows.
pub fn for_each_block(buffer: &mut [f32], blocks: Blocks, rows: usize, mut each: impl FnMut(usize, &mut [f32])) {
    for row in 0..rows {
        for block in 0..blocks.count {
            let from = row * blocks.row + blocks.offset + block * blocks.stride;
            each(row, &mut buffer[from..from + blocks.width]);
        }
    }
}

pub fn add(target: &mut [f32], addend: &[f32]) {
    target.iter_mut().zip(addend).for_each(|(sum, addend)| *sum += addend);
}

/// `input` is one row of gate then up, `output` is half as wide.
pub fn gate(activation: Activation, input: &[f32], output: &mut [f32]) {
    let (gate, up) = input.split_at(output.len());
    for ((output, gate), up) in output.iter_mut().zip(gate).zip(up) {
        *output = activate(activation, *gate) * up;
    }
}

fn activate(activation: Activation, value: f32) -> f32 {
    match activation {
        Activation::Silu => value / (1.0 + (-value).exp()),
        // The tanh form, as `gelu_pytorch_tanh`.
        Activation::Gelu => {
            let inner = 0.797_884_6 * (value + 0.044_715 * value * value * value);
            0.5 * value * (1.0 + inner.tanh())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Activation, gate};

    /// Expected values: the definitions, in f64.
    #[test]
    fn activations_follow_their_definitions() {
        for (activation, expected) in [
            (Activation::Silu, [0.731_058_6, -0.188_770_33, 2.857_722_3]),
            (Activation::Gelu, [0.841_191_97, -0.154_286, 2.996_362_7]),
        ] {
            let mut output = [0.0; 3];
            gate(activation, &[1.0, -0.5, 3.0, 2.0, 2.0, 2.0], &mut output);
            for (output, expected) in output.iter().zip(expected) {
                assert!(
                    (output - 2.0 * expected).abs() < 1e-5,
                    "{activation:?}: {output}, expected {}",
                    2.0 * expected
                );
            }
        }
    }
}
