//! Softmax attention over cached keys and values, written out.

use engine::backend::{Blocks, HeadGroups};

use crate::cache::{Cache, Store};
use crate::matrix::dot;
use crate::step::{RowView, Step};

/// What one attention call reads.
pub struct Problem<'a> {
    pub step: &'a Step,
    pub source: &'a [f32],
    pub query: Blocks,
    pub groups: HeadGroups,
    pub scale: f32,
    pub cache: &'a Cache,
    pub layer: usize,
}

/// `output` is `[rows, query_heads * width]`.
pub fn attend(problem: &Problem<'_>, scores: &mut Vec<f32>, output: &mut [f32]) {
    let (query, width) = (problem.query, problem.query.width);
    for segment in &problem.step.input.segments {
        for view in problem.step.views(segment) {
            for head in 0..query.count {
                let from = view.row * query.row + query.offset + head * query.stride;
                let to = (view.row * query.count + head) * width;
                let cached = (head + problem.groups.offset) / problem.groups.group;
                attend_row(
                    problem,
                    view,
                    &problem.source[from..from + width],
                    cached,
                    scores,
                    &mut output[to..to + width],
                );
            }
        }
    }
}

fn attend_row(
    problem: &Problem<'_>,
    view: RowView<'_>,
    query: &[f32],
    head: usize,
    scores: &mut Vec<f32>,
    output: &mut [f32],
) {
    let (cache, layer) = (problem.cache, problem.layer);
    score(view, scores, |position| {
        problem.scale * dot(query, cache.read(layer, Store::Key, view.pages, position, head))
    });
    output.fill(0.0);
    weighted_sum(scores, output, |position| cache.read(layer, Store::Value, view.pages, position, head));
}

/// Softmax of the scores of all visible positions, 0 for the others.
pub fn score(view: RowView<'_>, scores: &mut Vec<f32>, score: impl Fn(usize) -> f32) {
    scores.clear();
    scores
        .extend((0..view.span()).map(|position| if view.sees(position) { score(position) } else { f32::NEG_INFINITY }));
    softmax(scores);
}

/// `output += sum over positions of weight * value`, in order of position.
pub fn weighted_sum<'a>(weights: &[f32], output: &mut [f32], value: impl Fn(usize) -> &'a [f32]) {
    for (position, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
        output.iter_mut().zip(value(position)).for_each(|(sum, value)| *sum += weight * value);
    }
}

/// In place. A row sees at least itself, so the largest score is finite.
pub fn softmax(scores: &mut [f32]) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - largest).exp();
        sum += *score;
    }
    scores.iter_mut().for_each(|score| *score /= sum);
}
