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
