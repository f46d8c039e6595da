//! Choosing a token from a row of logits.

use super::filter::{Cut, Row};
use super::scratch::SamplerScratch;
use super::weight;

/// Tokens whose weights are summed before the draw looks at single ones.
const BLOCK: usize = 1024;
const LANES: usize = 16;

/// Parameters that shape the distribution, after penalties.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub inverse_temperature: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
}

/// The largest logit; NaN counts as the smallest. None if that is not finite: no token can be chosen then.
pub(super) fn maximum(logits: &[f32]) -> Option<f32> {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    let largest =
        lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |best, &value| if value > best { value } else { best });
    largest.is_finite().then_some(largest)
}

/// The smallest id with the largest logit.
pub(super) fn greedy(logits: &[f32]) -> Option<u32> {
    let largest = maximum(logits)?;
    logits.iter().position(|&logit| logit == largest).map(|id| id as u32)
}

/// Draws by inverse distribution function in ascending id. `random` is 64 uniform bits; the drawn point is
/// `floor(random * total / 2^64)`, and the token is the first whose running sum of weights exceeds it.
pub(super) fn draw(logits: &[f32], shape: Shape, random: u64, scratch: &mut SamplerScratch) -> Option<u32> {
    let row = Row { logits, maximum: maximum(logits)?, inverse_temperature: shape.inverse_temperature };
    let plain = |logit: f32, _: u32| weight::fixed_point(weight::exp(row.z(logit)));
    if shape.top_k == 0 && shape.top_p >= 1.0 && shape.min_p <= 0.0 {
        return locate(logits, random, &mut scratch.blocks, plain);
    }
    let sorted = shape.top_k > 0 || shape.top_p < 1.0;
    let cut = if sorted { scratch.histogram.cut(row, shape.top_k, shape.top_p) } else { Cut::KEEP_ALL };
    let filtered = |logit: f32, id: u32| {
        let likelihood = weight::exp(row.z(logit));
        if cut.keeps(logit, id) && likelihood >= shape.min_p { weight::fixed_point(likelihood) } else { 0 }
    };
    locate(logits, random, &mut scratch.blocks, filtered)
}

fn locate(logits: &[f32], random: u64, blocks: &mut Vec<u64>, weight: impl Fn(f32, u32) -> u64) -> Option<u32> {
    let weights = |block: usize| {
        let start = block * BLOCK;
        let end = logits.len().min(start + BLOCK);
        logits[start..end].iter().zip(start as u32..).map(|(&logit, id)| (id, weight(logit, id)))
    };
    blocks.clear();
    blocks.extend((0..logits.len().div_ceil(BLOCK)).map(|block| weights(block).map(|(_, weight)| weight).sum::<u64>()));
    let total: u64 = blocks.iter().sum();
    let mut point = ((u128::from(random) * u128::from(total)) >> 64) as u64;
    for (block, &sum) in blocks.iter().enumerate() {
        if point >= sum {
            point -= sum;
            continue;
        }
        for (id, weight) in weights(block) {
            if point < weight {
                return Some(id);
            }
            point -= weight;
        }
    }
    None
}
