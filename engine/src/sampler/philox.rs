//! Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
//!
//! A draw is a pure function of key and counter, so a request's tokens do not depend on the batch around it, on the
//! rank that asks, or on the device that computes.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Names one random draw of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counter {
    /// Number of output tokens before the one that is chosen.
    pub position: u32,
    /// Which of the request's `n` outputs.
    pub choice: u32,
    /// Node of a speculative tree; 0 outside of one.
    pub node: u32,
    /// Which draw at this node; 0 is the token itself.
    pub draw: u32,
}

/// The four 32-bit words for a counter under a key.
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut words = counter;
    let mut key = key;
    for _ in 0..ROUNDS {
        let first = u64::from(MULTIPLIERS[0]) * u64::from(words[0]);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(words[2]);
        words = [
            (second >> 32) as u32 ^ words[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ words[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    words
}

/// 64 uniform bits: the key is the seed's low and high word, the result word 1 above word 0.
pub fn random_bits(seed: u64, counter: Counter) -> u64 {
    let Counter { position, choice, node, draw } = counter;
    let words = philox4x32_10([position, choice, node, draw], [seed as u32, (seed >> 32) as u32]);
    (u64::from(words[1]) << 32) | u64::from(words[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `philox4x32 10` lines of `kat_vectors` in the Random123 distribution.
    #[test]
    fn agrees_with_the_published_known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32_10(counter, key), expected, "counter {counter:x?} key {key:x?}");
        }
    }

    #[test]
    fn every_field_of_the_counter_and_every_bit_of_the_seed_counts() {
        let base = Counter { position: 3, choice: 1, node: 4, draw: 1 };
        let mut seen = std::collections::HashSet::new();
        assert!(seen.insert(random_bits(9, base)));
        for bit in 0..64 {
            assert!(seen.insert(random_bits(9 ^ (1 << bit), base)), "seed bit {bit}");
        }
        for changed in [
            Counter { position: 4, ..base },
            Counter { choice: 2, ..base },
            Counter { node: 5, ..base },
            Counter { draw: 2, ..base },
        ] {
            assert!(seen.insert(random_bits(9, changed)), "{changed:?}");
        }
    }
}
