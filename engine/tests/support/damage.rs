//! Damages files: at random, reproducibly, and with a liking for what hurts readers.

use serde_json::Value;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }
}

/// Counts, lengths and offsets that overflow something somewhere.
const NUMBERS: [u64; 14] =
    [0, 1, 7, 31, 33, 255, 1 << 16, (1 << 31) - 1, 1 << 31, u32::MAX as u64, 1 << 40, 1 << 61, (1 << 63) - 1, u64::MAX];

/// Values that surprise a reader of JSON. Not all can be parsed as one value: those replace text.
const WORDS: [&str; 24] = [
    "null",
    "true",
    "{}",
    "[]",
    "[1]",
    "\"\"",
    "\"x\"",
    "\"▁\"",
    "\"yarn\"",
    "-1",
    "0",
    "1",
    "2",
    "3",
    "64",
    "0.5",
    "1e308",
    "4294967296",
    "18446744073709551615",
    "[[[[",
    "}",
    "1e999",
    "99999999999999999999",
    "\"\\ud800\"",
];

/// One to four damages of bytes, mostly one.
pub fn binary(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(2) * random.below(4) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => remove(&mut bytes, at, random),
            2 => duplicate(&mut bytes, at, random),
            3 => overwrite(&mut bytes, at, &NUMBERS[random.below(NUMBERS.len())].to_le_bytes()),
            4 => overwrite(&mut bytes, at, &(NUMBERS[random.below(NUMBERS.len())] as u32).to_le_bytes()),
            5 => overwrite(&mut bytes, at, &random.next().to_le_bytes()[..1]),
            // Lengths and counts are small numbers at the low byte of a field; one more or less is the likeliest slip.
            6 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = byte.wrapping_add(1)),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (at % 8)),
        }
    }
    bytes
}

/// One to three damages of JSON: mostly a value replaced, removed or doubled, sometimes text.
pub fn json(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(2) * random.below(3) {
        let parsed = serde_json::from_slice(&bytes).ok().filter(|_| random.below(6) > 0);
        bytes = match parsed {
            Some(mut value) => {
                damage_value(&mut value, random);
                value.to_string().into_bytes()
            }
            None if random.below(2) == 0 => binary(&bytes, random),
            None => {
                let at = random.below(bytes.len());
                bytes.splice(at..at, random.pick(&WORDS).bytes());
                bytes
            }
        };
    }
    bytes
}

/// Walks to a random place and changes it.
fn damage_value(value: &mut Value, random: &mut Random) {
    let deeper = random.below(4) > 0;
    match value {
        Value::Object(map) if deeper && !map.is_empty() => {
            let index = random.below(map.len());
            let key = map.keys().nth(index).cloned().unwrap_or_default();
            match random.below(8) {
                0 => _ = map.remove(&key),
                _ => map.values_mut().skip(index).take(1).for_each(|inner| damage_value(inner, random)),
            }
        }
        Value::Array(items) if deeper && !items.is_empty() => {
            let index = random.below(items.len());
            match random.below(8) {
                0 => _ = items.remove(index),
                1 => items.push(items[index].clone()),
                _ => damage_value(&mut items[index], random),
            }
        }
        Value::String(text) if deeper => text.push(if random.below(2) == 0 { 'x' } else { '▁' }),
        Value::Number(number) if deeper => {
            let number = number.as_u64().unwrap_or(1);
            *value = Value::from(
                [number.saturating_add(1), number / 2, number.saturating_mul(3), number.saturating_sub(1)]
                    [random.below(4)],
            );
        }
        other => *other = serde_json::from_str(random.pick(&WORDS)).unwrap_or(Value::Null),
    }
}

fn remove(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let end = (at + 1 + random.below(16)).min(bytes.len());
    bytes.drain(at.min(end)..end);
}

fn duplicate(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let end = (at + 1 + random.below(32)).min(bytes.len());
    let piece = bytes[at.min(end)..end].to_vec();
    let to = random.below(bytes.len());
    bytes.splice(to..to, piece);
}

fn overwrite(bytes: &mut [u8], at: usize, piece: &[u8]) {
    bytes.iter_mut().skip(at).zip(piece).for_each(|(byte, new)| *byte = *new);
}
