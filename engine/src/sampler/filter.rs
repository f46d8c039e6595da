//! `top_k` and `top_p` without sorting the vocabulary.
//!
//! Both keep the first tokens of the order "larger logit first, then smaller id", so their result is one cut in that
//! order. Only tokens near the top are looked at one by one, or every token of some weight if those do not suffice. A
//! histogram of them over `z`, which is monotone in the logit, finds the bucket that holds the cut; only that is sorted.

use std::cmp::Ordering;

use super::row::{Row, visit_where};
use super::weight::{self, LOWEST_WEIGHTED};

/// Values of `z` down to which tokens are looked at: first near the top, then everything that has a weight.
const BOUNDS: [f32; 2] = [-14.0, LOWEST_WEIGHTED];
const BUCKETS_PER_UNIT: f32 = 16.0;
const BUCKETS: usize = (-LOWEST_WEIGHTED * BUCKETS_PER_UNIT) as usize;

/// The last kept token: everything before it in the order, and itself, is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    pub logit: f32,
    pub id: u32,
}

impl Cut {
    #[inline(always)]
    pub fn keeps(self, token: &Token) -> bool {
        token.logit > self.logit || (token.logit == self.logit && token.id <= self.id)
    }
}

/// A token near the top of the row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub id: u32,
    pub logit: f32,
    pub likelihood: f32,
}

impl Token {
    pub fn weight(&self) -> u64 {
        weight::fixed_point(self.likelihood)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    tokens: u32,
    weight: u64,
}

#[derive(Debug, Default)]
pub(super) struct Filter {
    /// In ascending id.
    tokens: Vec<Token>,
    buckets: Vec<Bucket>,
    /// One bucket's tokens in the order of the cut.
    sorted: Vec<Token>,
}

impl Filter {
    /// The cut of `top_k` (0: off), then of `top_p` (1: off) over what `top_k` left, renormalised; and a superset of
    /// the kept tokens in ascending id. None if every token of some weight is kept.
    pub fn cut(&mut self, row: Row<'_>, top_k: u32, top_p: f32) -> Option<(Cut, &[Token])> {
        let total = if top_k == 0 { row.weight(row.logits, 0.0) } else { 0 };
        for bound in BOUNDS {
            self.collect(row, bound);
            let by_count = self.cut_by_count(row, top_k);
            let (before, total) = match (top_k, by_count) {
                (0, _) => (None, total),
                (_, Some((cut, weight))) => (Some(cut), weight),
                // Fewer tokens than `top_k`: look at more, and in the end at all that have a weight.
                (_, None) if bound > LOWEST_WEIGHTED => continue,
                (_, None) => (None, self.buckets.iter().map(|bucket| bucket.weight).sum()),
            };
            let cut = if top_p < 1.0 { self.cut_by_weight(row, before, share(total, top_p)) } else { before };
            if let Some(cut) = cut {
                return Some((cut, &self.tokens));
            }
        }
        None
    }

    fn collect(&mut self, row: Row<'_>, bound: f32) {
        let Self { tokens, buckets, .. } = self;
        tokens.clear();
        buckets.clear();
        buckets.resize(BUCKETS, Bucket::default());
        visit_where(
            row.logits,
            |logit| row.z(logit) > bound,
            |id, logit| {
                let token = Token { id, logit, likelihood: row.likelihood(logit) };
                let bucket = &mut buckets[index(row, logit)];
                bucket.tokens += 1;
                bucket.weight += token.weight();
                tokens.push(token);
            },
        );
    }

    /// The cut after `top_k` tokens and the weight before it.
    fn cut_by_count(&mut self, row: Row<'_>, top_k: u32) -> Option<(Cut, u64)> {
        let (mut missing, mut weight) = (top_k, 0);
        for index in 0..BUCKETS {
            let bucket = self.buckets[index];
            if missing <= bucket.tokens {
                self.sort_bucket(row, index);
                let kept = &self.sorted[..missing as usize];
                weight += kept.iter().map(Token::weight).sum::<u64>();
                return kept.last().map(|last| (Cut { logit: last.logit, id: last.id }, weight));
            }
            missing -= bucket.tokens;
            weight += bucket.weight;
        }
        None
    }

    /// The first token at which the weight of the tokens so far reaches `target`, or an earlier cut.
    fn cut_by_weight(&mut self, row: Row<'_>, before: Option<Cut>, target: u64) -> Option<Cut> {
        let mut sum = 0;
        for index in 0..BUCKETS {
            if sum + self.buckets[index].weight < target {
                sum += self.buckets[index].weight;
                continue;
            }
            self.sort_bucket(row, index);
            for token in self.sorted.iter().take_while(|token| before.is_none_or(|cut| cut.keeps(token))) {
                sum += token.weight();
                if sum >= target {
                    return Some(Cut { logit: token.logit, id: token.id });
                }
            }
            return before;
        }
        before
    }

    fn sort_bucket(&mut self, row: Row<'_>, wanted: usize) {
        self.sorted.clear();
        self.sorted.extend(self.tokens.iter().filter(|token| index(row, token.logit) == wanted));
        // A token without a number has no weight, so none is here; both zeros are one logit.
        let order =
            |a: &Token, b: &Token| b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id));
        self.sorted.sort_unstable_by(order);
    }
}

fn index(row: Row<'_>, logit: f32) -> usize {
    ((-row.z(logit) * BUCKETS_PER_UNIT) as usize).min(BUCKETS - 1)
}

/// `ceil(total * part)`, at least 1, with `part` as a fraction of 2^32.
fn share(total: u64, part: f32) -> u64 {
    let part = (f64::from(part) * (1u64 << 32) as f64) as u128;
    (((u128::from(total) * part).div_ceil(1 << 32)) as u64).max(1)
}
