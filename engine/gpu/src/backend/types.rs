//! What a model keeps on the device.

use cudarc::driver::sys::CUdeviceptr;
use engine::backend::CacheShape;
use engine::weights::WeightType;

use crate::device::Allocation;
use crate::kernels::Angles;

/// Type of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    Bf16,
    /// Logits.
    F32,
}

/// Activations, or logits.
pub struct Buffer {
    pub(super) memory: Allocation,
    pub(super) elements: usize,
    pub(super) element: Element,
}

impl Buffer {
    pub(crate) fn pointer(&self) -> CUdeviceptr {
        self.memory.pointer()
    }
}

/// A vector in f32.
pub struct Vector {
    pub(super) memory: Allocation,
    pub(super) length: usize,
}

impl Vector {
    pub(crate) fn pointer(&self) -> CUdeviceptr {
        self.memory.pointer()
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

/// `[rows, columns]`: runs of rows of one format each, one below the other.
pub struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) runs: Vec<Run>,
    pub(super) bias: Option<Bias>,
}

/// One value per row of a matrix, in the types that our kernels and cuBLASLt take.
pub(super) struct Bias {
    pub wide: Allocation,
    pub narrow: Allocation,
}

/// Rows of one format.
pub(super) struct Run {
    pub memory: Allocation,
    pub kind: WeightType,
    pub rows: usize,
    /// Rows of the matrix before it.
    pub first: usize,
}

/// Cosines and sines by position, f32 `[positions, pairs]` each.
pub struct Rope {
    pub(super) cosines: Allocation,
    pub(super) sines: Allocation,
    pub(super) pairs: usize,
    pub(super) interleaved: bool,
}

impl Rope {
    pub(super) fn angles(&self) -> Angles {
        Angles {
            cosines: self.cosines.pointer(),
            sines: self.sines.pointer(),
            pairs: self.pairs as u32,
            interleaved: u32::from(self.interleaved),
        }
    }
}

/// Keys and values of every layer, bf16: `[layer][keys, values][page][head][position][padded]`.
pub struct Cache {
    pub(super) memory: Allocation,
    pub(super) shape: CacheShape,
    pub(super) heads: usize,
    /// Dimension of a head as the kernels keep it.
    pub(super) padded: usize,
}

/// What this backend has none of: a value of it is proof that a load succeeded which always fails.
pub enum Absent {}

impl Cache {
    /// Elements of the keys, or of the values, of one layer.
    fn half(&self) -> usize {
        self.shape.pages * self.shape.page_size * self.heads * self.padded
    }

    /// Elements from a layer's keys to the next one's.
    pub(super) fn layer_stride(&self) -> usize {
        2 * self.half()
    }

    pub(super) fn keys(&self, layer: usize) -> CUdeviceptr {
        self.memory.pointer() + (2 * layer * self.half() * 2) as CUdeviceptr
    }

    pub(super) fn values(&self, layer: usize) -> CUdeviceptr {
        self.memory.pointer() + ((2 * layer + 1) * self.half() * 2) as CUdeviceptr
    }
}
