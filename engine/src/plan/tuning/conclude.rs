//! Times → which algorithm up to which size, and up to which size fusing pays.

use std::collections::BTreeMap;

use capdb::record::{AlgorithmId, Dtype, FusionId};

use super::measurement::{Group, NormPoint, SumPoint};

/// An algorithm stays where it is slower by no more than this share: a ladder that changes back and forth within the
/// spread of its figures says nothing.
const TOLERANCE: f64 = 0.02;

/// One rung: the algorithm of messages up to a size, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub up_to: u64,
    pub algorithm: AlgorithmId,
}

/// The ladder of one element type; empty where nothing was measured.
pub fn ladder(sums: &[SumPoint], dtype: Dtype) -> Vec<Step> {
    let mut sizes: BTreeMap<u64, Vec<&SumPoint>> = BTreeMap::new();
    for sum in sums.iter().filter(|sum| sum.dtype == dtype) {
        sizes.entry(sum.bytes).or_default().push(sum);
    }
    let mut steps: Vec<Step> = Vec::new();
    for (up_to, points) in sizes {
        let Some(best) = points.iter().min_by(|a, b| a.microseconds.total_cmp(&b.microseconds)) else { continue };
        let stays = steps.last().is_some_and(|last| {
            let time = points.iter().find(|point| point.algorithm == last.algorithm).map(|point| point.microseconds);
            time.is_some_and(|time| time <= best.microseconds * (1.0 + TOLERANCE))
        });
        match steps.last_mut() {
            Some(last) if stays => last.up_to = up_to,
            _ => steps.push(Step { up_to, algorithm: best.algorithm }),
        }
    }
    steps
}

/// The algorithm of a message; none above the ladder.
pub fn algorithm(ladder: &[Step], bytes: u64) -> Option<AlgorithmId> {
    ladder.iter().find(|step| bytes <= step.up_to).map(|step| step.algorithm)
}

/// Whether summing and normalising in one kernel pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusing {
    Unmeasured,
    /// The smallest message that was measured, of so many bytes, is faster in two kernels.
    Never(u64),
    /// Up to messages of so many bytes.
    UpTo(u64),
}

/// Whose fused kernel is the fastest, by size, up to messages of `limit` bytes; empty where nothing was measured with more
/// than one algorithm. Shapes of the same size count together.
pub fn fused_ladder(group: &Group, limit: u64) -> Vec<Step> {
    let mut sums: BTreeMap<(u64, AlgorithmId), f64> = BTreeMap::new();
    let plain = |norm: &NormPoint| norm.fused && norm.output == FusionId::ResidualRmsnorm;
    let fused = |norm: &&NormPoint| plain(norm) && norm.bytes() <= limit;
    let also = |norm: &NormPoint, other: &NormPoint| {
        plain(other) && (other.rows, other.width) == (norm.rows, norm.width) && other.algorithm != norm.algorithm
    };
    for norm in group.norms.iter().filter(fused) {
        if group.norms.iter().any(|other| also(norm, other)) {
            *sums.entry((norm.bytes(), norm.algorithm)).or_default() += norm.microseconds;
        }
    }
    let point = |((bytes, algorithm), microseconds): ((u64, AlgorithmId), f64)| SumPoint {
        algorithm,
        dtype: Dtype::Bf16,
        bytes,
        microseconds,
        spread: 0.0,
    };
    ladder(&sums.into_iter().map(point).collect::<Vec<_>>(), Dtype::Bf16)
}

/// The largest message that some algorithm sums and normalises in one kernel no slower than any does in two, and so for
/// all that were measured below it. For quantised outputs the two kernels still lack the quantising: where one kernel keeps
/// up with them, it is faster than three.
pub fn fusing(group: &Group, ladder: &[Step], output: FusionId) -> Fusing {
    let mut sizes: BTreeMap<u64, Vec<&NormPoint>> = BTreeMap::new();
    if !group.norms.iter().any(|norm| norm.fused && norm.output == output) {
        return Fusing::Unmeasured;
    }
    for norm in group.norms.iter().filter(|norm| !norm.fused || norm.output == output) {
        sizes.entry(norm.bytes()).or_default().push(norm);
    }
    let mut limit = Fusing::Unmeasured;
    for (bytes, points) in sizes {
        // NCCL's messages are never fused.
        if algorithm(ladder, bytes).is_none_or(|own| own == AlgorithmId::Nccl) {
            break;
        }
        let time = |fused: bool, width: u32| {
            let same = points.iter().filter(|norm| (norm.fused, norm.width) == (fused, width));
            same.map(|norm| norm.microseconds).min_by(f64::total_cmp)
        };
        // None where one of the two was not measured.
        let pays = |width: u32| Some(time(true, width)? <= time(false, width)? * (1.0 + TOLERANCE));
        let answers: Vec<Option<bool>> = points.iter().map(|norm| pays(norm.width)).collect();
        if !answers.iter().all(|pays| *pays == Some(true)) {
            if limit == Fusing::Unmeasured && answers.contains(&Some(false)) {
                limit = Fusing::Never(bytes);
            }
            break;
        }
        limit = Fusing::UpTo(bytes);
    }
    limit
}
