//! Exponentials and integer token weights: the arithmetic that every backend must repeat bit for bit.
//!
//! A token's weight is `round(2^z * 2^40)` with `z = (logit - largest logit) * (log2(e) / temperature)`, in f32 with
//! one rounding per operation (no fused multiply-add), rounded to nearest even, then an integer. Sums of weights are
//! sums of integers, so they do not depend on the order of summation: lanes, warps and ranks may add as they like and
//! still agree. A token below `2^-41` of the most likely one has weight 0 and is never drawn.

/// Binary digits after the point of a weight. 2^20 tokens of the largest weight stay below 2^61.
pub(super) const WEIGHT_BITS: u32 = 40;

/// At and below this `z` the weight is 0: `2^-42 * 2^40` rounds to 0.
pub(super) const LOWEST_WEIGHTED: f32 = -42.0;

/// Smallest argument that `exp2` tells apart: far below every weight, and the result is never subnormal.
const LOWEST_ARGUMENT: f32 = -64.0;

/// Coefficients of `f^1` to `f^5` of a polynomial through 2^f at the Chebyshev points of [-1/2, 1/2].
const POLYNOMIAL: [f32; 5] = [std::f32::consts::LN_2, 0.240_223_5, 0.055_503_81, 0.009_666_368, 0.001_338_130_2];

/// `2^x` for `x <= 0`, relative error below 3e-7; exactly 1 at 0. NaN and everything below -64 count as -64.
#[inline(always)]
pub(super) fn exp2(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to the nearest integer and leaves that integer in the low bits.
    const ROUNDER: f32 = 12_582_912.0;
    let x = if x > LOWEST_ARGUMENT { x } else { LOWEST_ARGUMENT };
    let rounded = x + ROUNDER;
    let rest = x - (rounded - ROUNDER);
    let [first, second, third, fourth, fifth] = POLYNOMIAL;
    let fraction = ((((fifth * rest + fourth) * rest + third) * rest + second) * rest + first) * rest + 1.0;
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
    fn exp2_is_close_to_the_true_value() {
        assert_eq!(exp2(0.0), 1.0);
        for step in 0..640_000 {
            let x = -(step as f32) * 1e-4;
            let truth = f64::from(x).exp2();
            let error = (f64::from(exp2(x)) - truth).abs() / truth;
            assert!(error < 3e-7, "exp2({x}) is off by {error:e}");
        }
    }

    /// Bits that another implementation must give; changing them changes the tokens of every seed.
    #[test]
    fn exp2_is_the_same_everywhere() {
        let bits = [-0.25, -0.5, -1.0, -3.3, -17.125, -41.9].map(|x: f32| exp2(x).to_bits());
        assert_eq!(bits, [0x3f57_44fc, 0x3f35_04f1, 0x3f00_0000, 0x3dcf_efc6, 0x36ea_c0c6, 0x2a89_2fd6]);
    }

    #[test]
    fn exp2_of_nothing_is_almost_zero() {
        for x in [f32::NEG_INFINITY, f32::NAN, -1e30, -65.0] {
            assert_eq!(exp2(x), exp2(LOWEST_ARGUMENT));
            assert_eq!(fixed_point(exp2(x)), 0);
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
        assert_eq!(fixed_point(exp2(LOWEST_WEIGHTED)), 0);
        assert!(fixed_point(exp2(-40.9)) > 0);
    }
}
