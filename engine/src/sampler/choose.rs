//! Choosing a token from a row of logits.

use super::row::{Row, maximum};
use super::scratch::SamplerScratch;

/// Tokens whose weights are summed before the draw looks at single ones.
const BLOCK: usize = 1024;

/// Parameters that shape the distribution, after penalties.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub temperature: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
}

/// The smallest id with the largest logit; none where the largest is not finite.
pub fn largest(logits: &[f32]) -> Option<u32> {
    let largest = maximum(logits)?;
    logits.iter().position(|&logit| logit == largest).map(|id| id as u32)
}

/// Draws by inverse distribution function in ascending id. `random` is 64 uniform bits; the drawn point is
/// `floor(random * total / 2^64)`, and the token is the first whose running sum of weights exceeds it.
pub(super) fn draw(logits: &[f32], shape: Shape, random: u64, scratch: &mut SamplerScratch) -> Option<u32> {
    let row = Row::new(logits, shape.temperature)?;
    if (shape.top_k > 0 || shape.top_p < 1.0)
        && let Some((cut, tokens)) = scratch.filter.cut(row, shape.top_k, shape.top_p)
    {
        let kept = tokens.iter().filter(|token| cut.keeps(token) && token.likelihood >= shape.min_p);
        let total = kept.clone().map(|token| token.weight()).sum();
        return locate(kept.map(|token| (token.id, token.weight())), point(random, total));
    }
    draw_from_all(row, shape.min_p, random, &mut scratch.blocks)
}

fn draw_from_all(row: Row<'_>, min_p: f32, random: u64, blocks: &mut Vec<u64>) -> Option<u32> {
    blocks.clear();
    blocks.extend(row.logits.chunks(BLOCK).map(|block| row.weight(block, min_p)));
    let mut point = point(random, blocks.iter().sum());
    for (index, (block, &sum)) in row.logits.chunks(BLOCK).zip(blocks.iter()).enumerate() {
        if point < sum {
            let single = block.chunks(1).map(|one| row.weight(one, min_p));
            return locate((index as u32 * BLOCK as u32..).zip(single), point);
        }
        point -= sum;
    }
    None
}

fn point(random: u64, total: u64) -> u64 {
    ((u128::from(random) * u128::from(total)) >> 64) as u64
}

/// The first token whose running sum of weights exceeds `point`.
fn locate(weights: impl Iterator<Item = (u32, u64)>, point: u64) -> Option<u32> {
    let mut point = point;
    for (id, weight) in weights {
        if point < weight {
            return Some(id);
        }
        point -= weight;
    }
    None
}
