//! SentencePiece's table of replacements (`precompiled_charsmap`): how much longer it makes a text.
//!
//! The table (sentencepiece's `normalizer.cc`) is the length of a trie in bytes, the trie, and the replacements, each ended by
//! a zero byte. The trie is a double array (darts-clone): a node's child for a byte lies at its position xor the byte.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Longest text in bytes that the library looks up: clusters of letters below six bytes, else single letters.
const LONGEST_KEY: usize = 5;
/// Bytes of a replacement that are looked at: more are as much too many.
const LONGEST_TEXT: usize = 1 << 10;
/// Nodes that are looked at. Published tables have some thousands; a trie with a ring in it has no end.
const MOST_NODES: usize = 1 << 18;

/// Times that the longest replacement makes what it replaces longer, at least 1. Errors: the table is damaged.
pub(super) fn times(base64: &str) -> Result<usize, String> {
    let bytes = STANDARD.decode(base64).map_err(|error| format!("`precompiled_charsmap`: {error}"))?;
    let cut = || "`precompiled_charsmap` ends within its trie".to_owned();
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(cut)?;
    let (trie, texts) = rest.split_at_checked(u32::from_le_bytes(*length) as usize / 4 * 4).ok_or_else(cut)?;
    let units: Vec<Unit> = trie.as_chunks::<4>().0.iter().map(|unit| Unit(u32::from_le_bytes(*unit))).collect();
    walk(&units, texts)
}

/// One element of the double array.
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    fn has_leaf(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    /// Of a leaf: where its replacement begins.
    fn value(self) -> usize {
        (self.0 & !(1 << 31)) as usize
    }

    /// The byte that leads here; a leaf has none.
    fn label(self) -> usize {
        (self.0 & (1 << 31 | 0xff)) as usize
    }

    fn offset(self) -> usize {
        ((self.0 >> 10) as usize) << ((self.0 & 1 << 9) >> 6)
    }
}

/// Looks at every key; what begins with a key is replaced as the key is, so nothing lies below one.
fn walk(units: &[Unit], texts: &[u8]) -> Result<usize, String> {
    let Some(root) = units.first() else { return Ok(1) };
    let (mut times, mut seen) = (1, 0);
    let mut open = vec![(root.offset(), 1)];
    while let Some((node, depth)) = open.pop() {
        seen += 1;
        if seen > MOST_NODES {
            return Err(format!("`precompiled_charsmap` has more than {MOST_NODES} nodes"));
        }
        for label in 1..=0xff {
            let position = node ^ label;
            let Some(unit) = units.get(position).filter(|unit| unit.label() == label) else { continue };
            let child = position ^ unit.offset();
            if unit.has_leaf() {
                let text = units.get(child).and_then(|leaf| texts.get(leaf.value()..)).unwrap_or_default();
                let length = text.iter().take(LONGEST_TEXT).take_while(|byte| **byte != 0).count();
                times = times.max(length.div_ceil(depth));
            } else if depth < LONGEST_KEY {
                open.push((child, depth + 1));
            }
        }
    }
    Ok(times)
}

#[cfg(test)]
pub(super) mod tests {
    use tokenizers::normalizers::Precompiled;
    use tokenizers::{NormalizedString, Normalizer};

    use super::*;

    /// A table with the keys "a" and "é".
    fn table(letter: &str, accented: &str) -> Vec<u8> {
        let mut units = [0u32; 768];
        let at = |position: u32, label: u32, child: u32| label | (position ^ child) << 10;
        units[0] = at(0, 0, 256);
        units[256 ^ 0x61] = at(256 ^ 0x61, 0x61, 1) | 1 << 8;
        units[1] = 0;
        units[256 ^ 0xc3] = at(256 ^ 0xc3, 0xc3, 512);
        units[512 ^ 0xa9] = at(512 ^ 0xa9, 0xa9, 2) | 1 << 8;
        units[2] = letter.len() as u32 + 1;
        let length = (units.len() * 4) as u32;
        let texts = format!("{letter}\0{accented}\0");
        [&length.to_le_bytes()[..], units.map(u32::to_le_bytes).as_flattened(), texts.as_bytes()].concat()
    }

    pub fn encoded(letter: &str, accented: &str) -> String {
        STANDARD.encode(table(letter, accented))
    }

    fn by_the_library(letter: &str, accented: &str, text: &str) -> String {
        let mut text = NormalizedString::from(text);
        Precompiled::from(&table(letter, accented)).unwrap().normalize(&mut text).unwrap();
        text.get().to_owned()
    }

    #[test]
    fn the_longest_replacement_counts_for_the_bytes_that_it_replaces() {
        let long = "0123456789".repeat(5);
        for (letter, accented, most) in [("", "e", 1), ("bc", "e", 2), ("b", &*long, 25), (&long, "e", 50)] {
            assert_eq!(times(&encoded(letter, accented)), Ok(most));
            let grown = ["a", "é", "b"].map(|text| by_the_library(letter, accented, text).len().div_ceil(text.len()));
            assert_eq!(grown.into_iter().max(), Some(most), "{letter} {accented}");
        }
    }

    #[test]
    fn damaged_tables_are_refused_or_harmless() {
        assert!(times("?").is_err());
        assert!(times(&STANDARD.encode([9, 0, 0, 0, 1])).unwrap_err().contains("ends within"));
        assert_eq!(times(&STANDARD.encode([0, 0, 0, 0])), Ok(1));
        // Every byte leads from the root to the root.
        let mut ring: Vec<u32> = (0..256).map(|label| label | label << 10).collect();
        ring[0] = 0;
        let bytes = [
            &1024u32.to_le_bytes()[..],
            ring.iter().flat_map(|unit| unit.to_le_bytes()).collect::<Vec<_>>().as_slice(),
        ]
        .concat();
        assert!(times(&STANDARD.encode(bytes)).unwrap_err().contains("nodes"));
    }
}
