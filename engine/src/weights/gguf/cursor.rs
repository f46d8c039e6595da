//! Little-endian reading with bounds, and errors that give the offset.

/// A position in a file's bytes. Errors complete the sentence "FILE: ...".
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// The next `length` bytes; `what` says what they should be.
    pub fn take(&mut self, length: usize, what: &str) -> Result<&'a [u8], String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..length) else {
            return Err(format!(
                "{what} at offset {} takes {length} bytes, but {} are left: the file is truncated or damaged",
                self.at,
                rest.len()
            ));
        };
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], String> {
        let taken = self.take(N, what)?;
        Ok(std::array::from_fn(|index| taken[index]))
    }

    pub fn u32(&mut self, what: &str) -> Result<u32, String> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, what: &str) -> Result<u64, String> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count of items that take at least `smallest` bytes each, so no count can exceed what the file holds.
    pub fn count(&mut self, smallest: usize, what: &str) -> Result<usize, String> {
        let at = self.at;
        let count = self.u64(what)?;
        let most = self.remaining() / smallest;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(format!(
                "{what} at offset {at} is {count}, but the {} bytes left hold {most} at most",
                self.remaining()
            )),
        }
    }

    /// A string: 64 bits of length, then the bytes, which need not be UTF-8.
    pub fn string(&mut self, what: &str) -> Result<&'a [u8], String> {
        let length = self.count(1, what)?;
        self.take(length, what)
    }

    /// A string that must be UTF-8.
    pub fn text(&mut self, what: &str) -> Result<&'a str, String> {
        let at = self.at;
        std::str::from_utf8(self.string(what)?).map_err(|error| format!("{what} at offset {at} is not UTF-8: {error}"))
    }
}
