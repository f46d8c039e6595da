//! Exponentials and integer token weights: the arithmetic that every backend must repeat bit for bit.
//!
//! A token's weight is `round(exp(z) * 2^40)` with `z = (logit - largest logit) * (1 / temperature)`, all in f32 with
//! one rounding per operation (no fused multiply-add), then an integer. Sums of weights are sums of integers, so
//! they do not depend on the order of summation: lanes, warps and ranks may add as they like and still agree.
//! A token below `2^-41` of the most likely one has weight 0 and is never drawn.

/// Binary digits after the point of a weight. 2^20 tokens of the largest weight stay below 2^61.
pub(super) const WEIGHT_BITS: u32 = 40;

/// Below this `z` the weight is 0: `exp(-29) * 2^40` is 0.28, and the approximation is better than that by far.
pub(super) const LOWEST_WEIGHTED: f32 = -29.0;

/// Smallest argument that `exp` tells apart; `exp(-64)` is far below every weight, and the result is never subnormal.
const LOWEST_ARGUMENT: f32 = -64.0;

/// `exp(x)` for `x <= 0`, relative error below 3e-7; exactly 1 at 0. NaN and everything below -64 count as -64.
///
/// Cephes' `expf`: range reduction by a two-part ln 2, then a polynomial on [-ln 2 / 2, ln 2 / 2].
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to the nearest integer and leaves that integer in the low bits.
    const ROUNDER: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = if x > LOWEST_ARGUMENT { x } else { LOWEST_ARGUMENT };
    let rounded = x * std::f32::consts::LOG2_E + ROUNDER;
    let exponent = rounded - ROUNDER;
    let rest = (x - exponent * LN2_HIGH) - exponent * LN2_LOW;
    let mut sum = 1.987_569_2e-4;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        sum = sum * rest + coefficient;
    }
    let fraction = sum * (rest * rest) + rest + 1.0;
    f32::from_bits(fraction.to_bits().wrapping_add(rounded.to_bits() << 23))
}

/// `round_to_nearest_even(value * 2^40)` for `value` in [0, 2).
#[inline(always)]
pub(super) fn fixed_point(value: f32) -> u64 {
    // At 2^12 the last place of an f64 is 2^-40, so the sum's low bits are the answer; this form runs in SIMD lanes.
    const ALIGNER: f64 = (1u64 << (52 - WEIGHT_BITS)) as f64;
    (f64::from(value) + ALIGNER).to_bits().wrapping_sub(ALIGNER.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_true_value() {
        assert_eq!(exp(0.0), 1.0);
        for step in 0..640_000 {
            let x = -(step as f32) * 1e-4;
            let truth = f64::from(x).exp();
            let error = (f64::from(exp(x)) - truth).abs() / truth;
            assert!(error < 3e-7, "exp({x}) is off by {error:e}");
        }
    }

    #[test]
    fn exp_of_nothing_is_almost_zero() {
        for x in [f32::NEG_INFINITY, f32::NAN, -1e30, -65.0] {
            assert_eq!(exp(x), exp(LOWEST_ARGUMENT));
            assert_eq!(fixed_point(exp(x)), 0);
        }
    }

    #[test]
    fn fixed_point_rounds_to_nearest_even() {
        let unit = 2f32.powi(-(WEIGHT_BITS as i32));
        for (value, expected) in [(0.0, 0), (0.5, 0), (0.75, 1), (1.0, 1), (1.5, 2), (2.5, 2), (3.5, 4), (1000.0, 1000)]
        {
            assert_eq!(fixed_point(value * unit), expected, "{value} units");
        }
        assert_eq!(fixed_point(1.0), 1 << WEIGHT_BITS);
    }

    #[test]
    fn nothing_below_the_bound_has_weight() {
        assert_eq!(fixed_point(exp(LOWEST_WEIGHTED)), 0);
        assert!(fixed_point(exp(-28.0)) > 0);
    }
}
