//! The bytes that each token stands for.

use std::collections::HashMap;
use std::sync::LazyLock;

/// How a vocabulary writes bytes as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// GPT-2: every byte is a printable character.
    ByteLevel,
    /// SentencePiece: `▁` is a space, `<0x0A>` a byte.
    SentencePiece {
        /// A space was put before the text, so the first one is dropped when a whole text is decoded.
        first_space_dropped: bool,
    },
}

/// One token as a tokenizer lists it.
pub(super) struct Entry<'a> {
    pub id: usize,
    pub text: &'a str,
    /// Stands outside the vocabulary's spelling: its text is meant literally.
    pub literal: bool,
    /// Controls the model and is not part of the answer.
    pub special: bool,
}

/// The bytes of every token, and which tokens are special.
pub(super) struct Vocabulary {
    bytes: Vec<u8>,
    /// End of each token's bytes; a token starts where the one before it ends.
    ends: Vec<usize>,
    special: Vec<bool>,
    pub spelling: Spelling,
}

/// Ids that a vocabulary may leave out, beside three for every one that it has.
const GAPS: usize = 1 << 16;

impl Vocabulary {
    /// Collects entries in any order. Errors complete the sentence "FILE: ...".
    pub fn new(spelling: Spelling, mut entries: Vec<Entry>) -> Result<Self, String> {
        entries.sort_by_key(|entry| entry.id);
        let largest = entries.last().map_or(0, |entry| entry.id);
        if largest / 4 > entries.len() + GAPS / 4 {
            return Err(format!("has token id {largest}, but only {} tokens", entries.len()));
        }
        let (mut bytes, mut ends, mut special) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries {
            if entry.id < ends.len() {
                // Two texts for one id: the added one comes last and counts.
                ends.truncate(entry.id);
                special.truncate(entry.id);
                bytes.truncate(ends.last().copied().unwrap_or(0));
            }
            ends.resize(entry.id, bytes.len());
            special.resize(entry.id, false);
            spell(spelling, entry.text, entry.literal, &mut bytes);
            ends.push(bytes.len());
            special.push(entry.special);
        }
        Ok(Self { bytes, ends, special, spelling })
    }

    /// One more than the largest id.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of a token; none for an id that the vocabulary lacks.
    pub fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(end) = self.ends.get(id) else { return &[] };
        let start = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..*end]
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }
}

fn spell(spelling: Spelling, text: &str, literal: bool, bytes: &mut Vec<u8>) {
    match spelling {
        _ if literal => bytes.extend(text.as_bytes()),
        Spelling::ByteLevel => {
            let start = bytes.len();
            for character in text.chars() {
                let Some(byte) = BYTES.get(&character) else {
                    bytes.truncate(start);
                    return bytes.extend(text.as_bytes());
                };
                bytes.push(*byte);
            }
        }
        Spelling::SentencePiece { .. } => match byte_token(text) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(text.replace('▁', " ").as_bytes()),
        },
    }
}

/// The byte that a token such as `<0x0A>` stands for.
pub(super) fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// GPT-2's characters for bytes: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards in order.
static BYTES: LazyLock<HashMap<char, u8>> = LazyLock::new(|| {
    let printable = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let own = (0..=255).filter(|byte| printable(*byte)).map(|byte| (char::from(byte), byte));
    let other = (0..=255).filter(|byte| !printable(*byte)).zip(256_u32..);
    own.chain(other.filter_map(|(byte, code)| Some((char::from_u32(code)?, byte)))).collect()
});

#[cfg(test)]
mod tests {
    use super::{Entry, Spelling, Vocabulary, byte_token};

    fn entry(id: usize, text: &str) -> Entry<'_> {
        Entry { id, text, literal: false, special: false }
    }

    #[test]
    fn byte_level_characters_are_bytes() {
        let entries = vec![entry(0, "Ġhello"), entry(1, "Ã"), entry(2, "¼Ċ"), entry(4, "<|x|> y")];
        let vocabulary = Vocabulary::new(Spelling::ByteLevel, entries).expect("is dense");
        assert_eq!(vocabulary.bytes(0), b" hello");
        assert_eq!([vocabulary.bytes(1), vocabulary.bytes(2)].concat(), "ü\n".as_bytes());
        assert_eq!(
            (vocabulary.bytes(3), vocabulary.bytes(4), vocabulary.bytes(5)),
            (&b""[..], &b"<|x|> y"[..], &b""[..])
        );
    }

    #[test]
    fn sentence_piece_spaces_and_bytes() {
        let spelling = Spelling::SentencePiece { first_space_dropped: true };
        let literal = Entry { literal: true, special: true, ..entry(2, "<▁>") };
        let vocabulary =
            Vocabulary::new(spelling, vec![literal, entry(0, "▁a▁b"), entry(1, "<0xE2>")]).expect("is dense");
        assert_eq!(
            (vocabulary.bytes(0), vocabulary.bytes(1), vocabulary.bytes(2)),
            (&b" a b"[..], &[0xe2][..], "<▁>".as_bytes())
        );
        assert!(vocabulary.is_special(2) && !vocabulary.is_special(0) && !vocabulary.is_special(9));
        assert_eq!((byte_token("<0x+1>"), byte_token("<0x0a>"), byte_token("<0x0>")), (None, Some(10), None));
    }

    #[test]
    fn absurd_ids_are_refused() {
        let error = Vocabulary::new(Spelling::ByteLevel, vec![entry(0, "a"), entry(4_000_000_000, "b")]).err();
        assert_eq!(error.as_deref(), Some("has token id 4000000000, but only 2 tokens"));
    }
}
