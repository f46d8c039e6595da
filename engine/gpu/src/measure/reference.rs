//! What must come out, written out on the host: the inputs that the devices make, and sums in double precision.

use half::{bf16, f16};

use crate::kernels::Element;

fn mix(mut value: u32) -> u32 {
    value ^= value >> 16;
    value = value.wrapping_mul(0x7feb_352d);
    value ^= value >> 15;
    value = value.wrapping_mul(0x846c_a68b);
    value ^ (value >> 16)
}

/// Element `index` of rank `rank`'s input, as `fill` of `allreduce_check` makes it.
pub fn input(element: Element, round: u32, salt: u32, rank: usize, index: u64) -> f32 {
    let bits = mix(index as u32 ^ mix(round ^ mix(salt ^ mix(rank as u32 + 1))));
    rounded(element, (bits >> 16) as f32 / 32768.0 - 1.0)
}

/// To the element's format, to nearest even, and back.
pub fn rounded(element: Element, value: f32) -> f32 {
    match element {
        Element::Bf16 => bf16::from_f32(value).to_f32(),
        Element::F16 => f16::from_f32(value).to_f32(),
        Element::F32 => value,
    }
}

/// The element's value in raw bytes.
pub fn decode(element: Element, bytes: &[u8], index: usize) -> f32 {
    let two = |index: usize| u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]);
    match element {
        Element::Bf16 => bf16::from_bits(two(index)).to_f32(),
        Element::F16 => f16::from_bits(two(index)).to_f32(),
        Element::F32 => f32::from_bits(u32::from(two(2 * index)) | u32::from(two(2 * index + 1)) << 16),
    }
}

/// The sum over ranks in f64.
pub fn sum(element: Element, round: u32, salt: u32, ranks: usize, index: u64) -> f64 {
    (0..ranks).map(|rank| f64::from(input(element, round, salt, rank, index))).sum()
}

/// The sum as the kernels define it: in rank order in f32, rounded once.
pub fn rounded_sum(element: Element, round: u32, salt: u32, ranks: usize, index: u64) -> f32 {
    let values = (0..ranks).map(|rank| input(element, round, salt, rank, index));
    rounded(element, values.reduce(|sum, value| sum + value).unwrap_or(0.0))
}

/// The least and the largest that a sum by multicast memory may be: f32 additions in an order that is not known, then one
/// rounding. n values take n - 1 additions, each of which is off by at most half a unit in the last place of what it gives,
/// and no partial sum is larger than the sum of magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms", 4.2).
pub fn bounds(element: Element, values: &[f32]) -> [f32; 2] {
    let exact: f64 = values.iter().map(|value| f64::from(*value)).sum();
    let magnitude: f64 = values.iter().map(|value| f64::from(value.abs())).sum();
    let additions = values.len().saturating_sub(1) as f64;
    let unit = f64::from(f32::EPSILON) / 2.0;
    let off = additions * unit / (1.0 - additions * unit) * magnitude;
    [exact - off, exact + off].map(|end| rounded(element, end as f32))
}

/// How far a correctly rounded sum of `ranks` values of at most 1 may be from the exact one.
pub fn tolerance(element: Element, ranks: usize) -> f64 {
    let step = match element {
        Element::Bf16 => 1.0 / 256.0,
        Element::F16 => 1.0 / 2048.0,
        Element::F32 => 1.0 / f64::from(1 << 24),
    };
    // Each of the ranks' additions may round once; NCCL adds in the element's own format.
    step * (ranks * ranks) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_spread_and_differ_by_round_salt_and_rank() {
        let values: Vec<f32> = (0..1000).map(|index| input(Element::F32, 1, 2, 0, index)).collect();
        assert!(values.iter().all(|value| (-1.0..1.0).contains(value)));
        let mean = values.iter().sum::<f32>() / 1000.0;
        assert!(mean.abs() < 0.1, "{mean}");
        for (round, salt, rank) in [(2, 2, 0), (1, 3, 0), (1, 2, 1)] {
            let same =
                (0..1000).filter(|index| input(Element::F32, round, salt, rank, *index) == values[*index as usize]);
            assert!(same.count() < 10, "{round} {salt} {rank}");
        }
    }

    /// Every order of five values, and every way to add four of them in pairs, is inside.
    #[test]
    fn sums_in_any_order_are_within_the_bounds() {
        fn orders(values: &mut Vec<f32>, from: usize, visit: &mut dyn FnMut(&[f32])) {
            if from == values.len() {
                return visit(values);
            }
            for next in from..values.len() {
                values.swap(from, next);
                orders(values, from + 1, visit);
                values.swap(from, next);
            }
        }
        let mut differing = 0;
        for element in Element::ALL {
            for index in 0..40 {
                let mut values: Vec<f32> = (0..5).map(|rank| input(element, 5, 6, rank, index)).collect();
                // Magnitudes far apart, so that orders differ.
                values[0] *= 1024.0;
                let [least, most] = bounds(element, &values);
                let mut distinct = std::collections::BTreeSet::new();
                orders(&mut values, 0, &mut |values| {
                    let chain = values.iter().copied().reduce(|sum, value| sum + value).unwrap();
                    let pairs = values[4] + ((values[0] + values[1]) + (values[2] + values[3]));
                    for sum in [chain, pairs].map(|sum| rounded(element, sum)) {
                        assert!((least..=most).contains(&sum), "{element:?}: {sum} is outside {least}..={most}");
                        distinct.insert(sum.to_bits());
                    }
                });
                let magnitude: f32 = values.iter().map(|value| value.abs()).sum();
                assert!(most - least <= magnitude / 64.0, "{element:?}: {least}..={most} says nothing");
                differing += usize::from(element == Element::F32 && distinct.len() > 1);
            }
        }
        assert!(differing > 10, "orders matter");
        assert_eq!(bounds(Element::F32, &[1.5, -0.25]), [1.25 - f32::EPSILON, 1.25 + f32::EPSILON]);
    }

    #[test]
    fn elements_are_decoded_from_bytes() {
        assert_eq!(decode(Element::F32, &[0, 0, 0, 0, 0, 0, 0x80, 0x3f], 1), 1.0);
        assert_eq!(decode(Element::Bf16, &[0, 0, 0x80, 0x3f], 1), 1.0);
        assert_eq!(decode(Element::F16, &[0, 0x3c], 0), 1.0);
    }

    #[test]
    fn a_rounded_sum_is_within_the_tolerance() {
        for element in Element::ALL {
            for index in 0..500 {
                let (exact, rounded) = (sum(element, 3, 4, 8, index), rounded_sum(element, 3, 4, 8, index));
                assert!((exact - f64::from(rounded)).abs() <= tolerance(element, 8), "{element:?} {index}");
            }
        }
    }
}
