//! `top_k` and `top_p` without sorting the vocabulary.
//!
//! Both keep the first tokens of the order "larger logit first, then smaller id", so their result is one cut in that
//! order. A histogram over `z` (monotone in the logit) finds the bucket that holds the cut; only that bucket is sorted.

use std::cmp::Ordering;

use super::weight::{self, LOWEST_WEIGHTED};

const BUCKETS_PER_UNIT: f32 = 32.0;
/// The last bucket takes every token of weight 0.
const BUCKETS: usize = (-LOWEST_WEIGHTED) as usize * BUCKETS_PER_UNIT as usize + 1;

/// The last kept token: everything before it in the order, and itself, is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    pub logit: f32,
    pub id: u32,
}

impl Cut {
    pub const KEEP_ALL: Self = Self { logit: f32::NEG_INFINITY, id: u32::MAX };

    #[inline(always)]
    pub fn keeps(self, logit: f32, id: u32) -> bool {
        logit > self.logit || (logit == self.logit && id <= self.id)
    }
}

/// A row of logits seen through one temperature: `z = (logit - maximum) * inverse_temperature`.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub logits: &'a [f32],
    pub maximum: f32,
    pub inverse_temperature: f32,
}

impl Row<'_> {
    #[inline(always)]
    pub fn z(&self, logit: f32) -> f32 {
        (logit - self.maximum) * self.inverse_temperature
    }

    #[inline(always)]
    fn weight(&self, logit: f32) -> u64 {
        weight::fixed_point(weight::exp(self.z(logit)))
    }

    #[inline(always)]
    fn bucket(&self, logit: f32) -> usize {
        let z = self.z(logit);
        if z > LOWEST_WEIGHTED { ((-z * BUCKETS_PER_UNIT) as usize).min(BUCKETS - 1) } else { BUCKETS - 1 }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    tokens: u32,
    weight: u64,
}

/// One bucket's token in the order of the cut.
#[derive(Clone, Copy, Debug)]
struct Member {
    logit: f32,
    id: u32,
}

#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: Vec<Bucket>,
    members: Vec<Member>,
}

impl Histogram {
    /// The cut for `top_k` (0: off), then `top_p` (1 or more: off) of what `top_k` left, renormalised.
    pub fn cut(&mut self, row: Row<'_>, top_k: u32, top_p: f32) -> Cut {
        self.count(row);
        let (cut, total) = self.cut_by_count(row, top_k);
        if top_p < 1.0 { self.cut_by_weight(row, cut, share(total, top_p)) } else { cut }
    }

    fn count(&mut self, row: Row<'_>) {
        self.buckets.clear();
        self.buckets.resize(BUCKETS, Bucket::default());
        for &logit in row.logits {
            let bucket = &mut self.buckets[row.bucket(logit)];
            bucket.tokens += 1;
            bucket.weight += row.weight(logit);
        }
    }

    /// The cut after `top_k` tokens and the weight before it. Tokens of weight 0 need no cut: nobody draws them.
    fn cut_by_count(&mut self, row: Row<'_>, top_k: u32) -> (Cut, u64) {
        let (mut tokens, mut weight) = (0u64, 0u64);
        for index in 0..BUCKETS - 1 {
            let bucket = self.buckets[index];
            let missing = u64::from(top_k).saturating_sub(tokens);
            if top_k > 0 && missing <= u64::from(bucket.tokens) {
                self.sort_bucket(row, index);
                let kept = &self.members[..missing as usize];
                weight += kept.iter().map(|member| row.weight(member.logit)).sum::<u64>();
                let cut = kept.last().map_or(Cut::KEEP_ALL, |last| Cut { logit: last.logit, id: last.id });
                return (cut, weight);
            }
            tokens += u64::from(bucket.tokens);
            weight += bucket.weight;
        }
        (Cut::KEEP_ALL, weight)
    }

    /// The first token at which the weight of the tokens so far reaches `target`; `before` is an earlier cut.
    fn cut_by_weight(&mut self, row: Row<'_>, before: Cut, target: u64) -> Cut {
        let mut sum = 0;
        for index in 0..BUCKETS - 1 {
            if sum + self.buckets[index].weight < target {
                sum += self.buckets[index].weight;
                continue;
            }
            self.sort_bucket(row, index);
            for member in self.members.iter().take_while(|member| before.keeps(member.logit, member.id)) {
                sum += row.weight(member.logit);
                if sum >= target {
                    return Cut { logit: member.logit, id: member.id };
                }
            }
            return before;
        }
        before
    }

    fn sort_bucket(&mut self, row: Row<'_>, index: usize) {
        self.members.clear();
        let tokens = row.logits.iter().zip(0u32..).filter(|&(&logit, _)| row.bucket(logit) == index);
        self.members.extend(tokens.map(|(&logit, id)| Member { logit, id }));
        // No NaN has a weight, so none is here; both zeros are one logit.
        let order =
            |a: &Member, b: &Member| b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id));
        self.members.sort_unstable_by(order);
    }
}

/// `ceil(total * part)`, at least 1, with `part` as a fraction of 2^32.
fn share(total: u64, part: f32) -> u64 {
    let part = (f64::from(part) * (1u64 << 32) as f64) as u128;
    (((u128::from(total) * part).div_ceil(1 << 32)) as u64).max(1)
}
