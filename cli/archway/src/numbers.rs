//! Numbers of benchmarks: a repeatable random source, and summaries of samples.

use serde::Serialize;

/// SplitMix64: the same seed gives the same workload.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }

    /// From 0 inclusive to `end` exclusive; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// From 0 exclusive to 1 inclusive.
    pub fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Token ids below `vocabulary`.
    pub fn tokens(&mut self, length: usize, vocabulary: u32) -> Vec<u32> {
        (0..length).map(|_| self.below(u64::from(vocabulary)) as u32).collect()
    }

    /// Seconds until the next arrival of a Poisson process of `rate` per second.
    pub fn arrival(&mut self, rate: f64) -> f64 {
        -self.share().ln() / rate
    }
}

/// Mean and percentiles of some samples, in their unit. All zero if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub count: usize,
    pub mean: f64,
    pub median: f64,
    pub p90: f64,
    pub p99: f64,
    pub minimum: f64,
    pub maximum: f64,
    pub deviation: f64,
}

impl Summary {
    pub fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (Some(&minimum), Some(&maximum)) = (sorted.first(), sorted.last()) else { return Self::default() };
        let count = sorted.len();
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let variance = sorted.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / count as f64;
        Self {
            count,
            mean,
            median: percentile(&sorted, 0.5),
            p90: percentile(&sorted, 0.9),
            p99: percentile(&sorted, 0.99),
            minimum,
            maximum,
            deviation: variance.sqrt(),
        }
    }
}

/// Linear interpolation between the two nearest samples, as numpy's default. `sorted` is not empty.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (place - low as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_follow_numpy() {
        let samples: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let summary = Summary::of(&samples);
        assert_eq!((summary.mean, summary.median, summary.minimum, summary.maximum), (5.5, 5.5, 1.0, 10.0));
        assert!((summary.p90 - 9.1).abs() < 1e-12 && (summary.p99 - 9.91).abs() < 1e-12);
        assert!((summary.deviation - 2.872_281_323_269_014_3).abs() < 1e-12);
        assert_eq!(Summary::of(&[]), Summary::default());
    }

    #[test]
    fn the_source_is_repeatable_and_in_range() {
        let (mut left, mut right) = (Random::new(7), Random::new(7));
        for _ in 0..1000 {
            assert_eq!(left.below(10), right.below(10));
            assert!(left.below(10) < 10 && right.below(10) < 10);
            assert!((0.0..=1.0).contains(&left.share()));
            right.share();
        }
        assert_eq!(left.below(0), 0);
        let mean = (0..10_000).map(|_| left.arrival(4.0)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.25).abs() < 0.02, "{mean}");
    }
}
