//! Memory for packed weights: zeroed, on cache-line boundaries.

use bytemuck::{Pod, Zeroable};

/// A cache line, and one vector of the widest instruction set.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A buffer of `T`s that begins on a cache line.
pub(crate) struct Buffer(Vec<Line>);

impl Buffer {
    /// `count` zeroed values of `T`.
    pub(crate) fn zeroed<T: Pod>(count: usize) -> Self {
        let bytes = count.checked_mul(size_of::<T>()).expect("a packed matrix is about as large as its file");
        Self(bytemuck::zeroed_vec(bytes.div_ceil(size_of::<Line>())))
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
