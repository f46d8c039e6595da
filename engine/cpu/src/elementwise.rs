//! Small operations in place.

use engine::backend::Blocks;

/// `row = row / sqrt(mean(row^2) + epsilon) * weight`.
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

/// In place. The largest score is finite.
pub fn softmax(scores: &mut [f32]) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - largest).exp();
        sum += *score;
    }
    scores.iter_mut().for_each(|score| *score /= sum);
}
