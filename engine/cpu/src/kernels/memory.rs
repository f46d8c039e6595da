//! Memory for packed weights: zeroed, on cache-line boundaries.

use bytemuck::{Pod, Zeroable};
use engine::backend::BackendError;

/// A cache line, and one vector of the widest instruction set.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A buffer of `T`s that begins on a cache line.
pub(crate) struct Buffer(Vec<Line>);

impl Buffer {
    /// `count` zeroed values of `T` for `operation`. Errors: the system has no such memory.
    pub(crate) fn zeroed<T: Pod>(operation: &'static str, count: usize) -> Result<Self, BackendError> {
        let bytes = count.saturating_mul(size_of::<T>());
        let lines = bytemuck::try_zeroed_vec(bytes.div_ceil(size_of::<Line>()));
        lines.map(Self).map_err(|()| BackendError::Memory { operation, bytes })
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.0.as_slice())
    }

    /// As `T`s; a last, partial one is left out.
    pub(crate) fn values<T: Pod>(&self) -> &[T] {
        let bytes: &[u8] = bytemuck::cast_slice(&self.0);
        bytemuck::cast_slice(&bytes[..bytes.len() / size_of::<T>() * size_of::<T>()])
    }

    /// As [`Buffer::values`].
    pub(crate) fn values_mut<T: Pod>(&mut self) -> &mut [T] {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.0);
        let whole = bytes.len() / size_of::<T>() * size_of::<T>();
        bytemuck::cast_slice_mut(&mut bytes[..whole])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_there_is_not_is_an_error() {
        for count in [usize::MAX, usize::MAX / 16] {
            let error = Buffer::zeroed::<u64>("load_linear", count).err().map(|error| error.to_string());
            assert!(error.is_some_and(|said| said.starts_with("load_linear: the device has no room for")), "{count}");
        }
        assert_eq!(Buffer::zeroed::<u8>("load_linear", 65).unwrap().bytes(), 128);
    }
}
