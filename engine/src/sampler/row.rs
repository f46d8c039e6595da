//! A row of logits, read in SIMD-sized pieces.

use super::weight;

const LANES: usize = 8;
/// Lanes where there is only a comparison to do.
const WIDE: usize = 16;

/// A row of logits seen through one temperature.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub logits: &'a [f32],
    pub maximum: f32,
    /// `log2(e) / temperature`.
    pub scale: f32,
}

impl<'a> Row<'a> {
    /// None if the row has no finite maximum.
    pub fn new(logits: &'a [f32], temperature: f32) -> Option<Self> {
        Some(Self { logits, maximum: maximum(logits)?, scale: std::f32::consts::LOG2_E / temperature })
    }

    /// Logarithm to base 2 of the token's likelihood relative to the most likely one.
    #[inline(always)]
    pub fn z(&self, logit: f32) -> f32 {
        (logit - self.maximum) * self.scale
    }

    #[inline(always)]
    pub fn likelihood(&self, logit: f32) -> f32 {
        weight::exp2(self.z(logit))
    }

    /// Sum of the weights in a part of the row, without tokens less likely than `min_p`.
    pub fn weight(&self, part: &[f32], min_p: f32) -> u64 {
        let kept = |logit: f32| {
            let likelihood = self.likelihood(logit);
            weight::fixed_point(if likelihood >= min_p { likelihood } else { 0.0 })
        };
        let mut lanes = [0u64; LANES];
        let (chunks, rest) = part.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &logit) in lanes.iter_mut().zip(chunk) {
                // Far from the end of u64; an overflow check would keep the loop out of SIMD.
                *lane = lane.wrapping_add(kept(logit));
            }
        }
        lanes.iter().sum::<u64>() + rest.iter().map(|&logit| kept(logit)).sum::<u64>()
    }
}

/// The largest logit; NaN counts as the smallest. None if that is not finite: no token can be chosen then.
pub(super) fn maximum(logits: &[f32]) -> Option<f32> {
    let mut lanes = [f32::NEG_INFINITY; WIDE];
    let (chunks, rest) = logits.as_chunks::<WIDE>();
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    let largest =
        lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |best, &value| if value > best { value } else { best });
    largest.is_finite().then_some(largest)
}

/// Calls `visit` for every token that `wanted` accepts, in ascending id. Whole pieces without one are passed over at
/// the cost of a comparison: few tokens of a row are near its top. `wanted` is asked again before each visit.
pub(super) fn visit_where(logits: &[f32], wanted: impl Fn(f32) -> bool, mut visit: impl FnMut(u32, f32)) {
    let (chunks, rest) = logits.as_chunks::<WIDE>();
    let mut visit_piece = |first: u32, piece: &[f32]| {
        for (&logit, id) in piece.iter().zip(first..) {
            if wanted(logit) {
                visit(id, logit);
            }
        }
    };
    for (chunk, first) in chunks.iter().zip((0u32..).step_by(WIDE)) {
        if chunk.iter().fold(false, |any, &logit| any | wanted(logit)) {
            visit_piece(first, chunk);
        }
    }
    visit_piece((logits.len() - rest.len()) as u32, rest);
}
