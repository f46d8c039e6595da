//! Tensor maps: what the copy engine must know of a matrix to bring boxes of it (PTX `cp.async.bulk.tensor`).

use std::ffi::c_void;
use std::mem::MaybeUninit;

use cudarc::driver::sys;

use crate::kernels::KernelError;

/// Columns of a block: a box has blocks of so many, 128 bytes, whose eight 16 bytes the copy engine exchanges as the number of
/// the row says, so that no two rows of a quarter of a warp meet in a bank of shared memory.
pub(super) const BLOCK: u32 = 64;

/// The twin of `TensorMap` in `kernels/include/bulk.cuh`.
#[repr(C, align(128))]
#[derive(Clone, Copy)]
pub(super) struct TensorMap([u64; 16]);

/// Matrices that lie one behind the other, `[matrices, rows, columns]` bf16, and the box that is brought at once: the same
/// rows of so many of them.
pub(super) struct Boxes {
    pub address: u64,
    pub matrices: u32,
    pub rows: u32,
    /// A multiple of [`BLOCK`].
    pub columns: u32,
    pub box_matrices: u32,
    pub box_rows: u32,
    pub box_columns: u32,
}

impl TensorMap {
    /// Errors: a matrix that the driver does not take; it must begin at a multiple of 16 bytes.
    pub fn new(boxes: &Boxes) -> Result<Self, KernelError> {
        let Boxes { address, matrices, rows, columns, box_matrices, box_rows, box_columns } = *boxes;
        let row = u64::from(columns) * 2;
        let dimensions = [BLOCK, rows, matrices, columns / BLOCK].map(u64::from);
        let strides = [row, u64::from(rows) * row, u64::from(BLOCK) * 2];
        let sides = [BLOCK, box_rows, box_matrices, box_columns / BLOCK];
        let mut map = MaybeUninit::<Self>::uninit();
        // SAFETY: the map is as large and aligned as the driver's type; the arrays have as many elements as dimensions, and
        // strides one less; the address is not read here.
        let result = unsafe {
            sys::cuTensorMapEncodeTiled(
                map.as_mut_ptr().cast(),
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                4,
                address as *mut c_void,
                dimensions.as_ptr(),
                strides.as_ptr(),
                sides.as_ptr(),
                [1; 4].as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        let failed =
            |error: cudarc::driver::DriverError| KernelError::Launch { kernel: "product", error: error.to_string() };
        result.result().map_err(failed)?;
        // SAFETY: the driver has written it.
        Ok(unsafe { map.assume_init() })
    }
}
