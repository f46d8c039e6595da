//! How weights lie in memory: panels of 16 output rows, row by row side by side, so that one vector holds the same
//! few columns of 16 rows and no sum ever crosses lanes. A panel is about as large as its 16 rows in the file.
//!
//! Block formats are cut into tiles of 32 columns. A tile's codes are vectors of 64 bytes: four columns (a *group*) of
//! 16 rows. Its scales lie apart, 16 of each kind.

mod block;
mod codes;
mod plain;
mod scales;

pub(crate) use block::{Block, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
pub(crate) use codes::Codes;
pub(crate) use plain::{Bf16, F16, F32, Plain};
pub(crate) use scales::{Scales, TileScales};

/// Columns of a tile.
pub(crate) const TILE: usize = 32;

/// Groups of four columns in a tile.
pub(crate) const GROUPS: usize = TILE / 4;

/// Calls `$body` with `$format` bound to the block format of a weight type, or evaluates `$other`.
macro_rules! with_block_format {
    ($kind:expr, $format:ident => $body:expr, $other:expr) => {
        match $kind {
            engine::weights::WeightType::Q8_0 => {
                type $format = $crate::kernels::format::Q8_0;
                $body
            }
            engine::weights::WeightType::Q4_0 => {
                type $format = $crate::kernels::format::Q4_0;
                $body
            }
            engine::weights::WeightType::Q4_1 => {
                type $format = $crate::kernels::format::Q4_1;
                $body
            }
            engine::weights::WeightType::Q5_0 => {
                type $format = $crate::kernels::format::Q5_0;
                $body
            }
            engine::weights::WeightType::Q5_1 => {
                type $format = $crate::kernels::format::Q5_1;
                $body
            }
            engine::weights::WeightType::Q4K => {
                type $format = $crate::kernels::format::Q4K;
                $body
            }
            engine::weights::WeightType::Q5K => {
                type $format = $crate::kernels::format::Q5K;
                $body
            }
            engine::weights::WeightType::Q6K => {
                type $format = $crate::kernels::format::Q6K;
                $body
            }
            _ => $other,
        }
    };
}

/// Calls `$body` with `$format` bound to the plain format of a weight type, or evaluates `$other`.
macro_rules! with_plain_format {
    ($kind:expr, $format:ident => $body:expr, $other:expr) => {
        match $kind {
            engine::weights::WeightType::F32 => {
                type $format = $crate::kernels::format::F32;
                $body
            }
            engine::weights::WeightType::F16 => {
                type $format = $crate::kernels::format::F16;
                $body
            }
            engine::weights::WeightType::Bf16 => {
                type $format = $crate::kernels::format::Bf16;
                $body
            }
            _ => $other,
        }
    };
}

pub(crate) use {with_block_format, with_plain_format};
