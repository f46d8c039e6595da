//! What happens to the heads of projected rows before attention: norms, rotation, and their place in the cache.

use engine::backend::{Append, BackendError, Blocks};

use super::CudaBackend;
use super::arguments::place;
use super::launch::word;
use super::pending::{NormCall, RotateCall};
use crate::kernels::{self, HeadNorm};

impl CudaBackend {
    pub(super) fn launch_norm_blocks(&mut self, call: &NormCall) -> Result<(), BackendError> {
        let NormCall { buffer, blocks, weight, epsilon, rows } = *call;
        let norm = kernels::NormBlocks {
            buffer,
            weight,
            row: word(blocks.row),
            offset: word(blocks.offset),
            count: word(blocks.count),
            stride: word(blocks.stride),
            width: word(blocks.width),
            rows: word(rows),
            epsilon,
        };
        // SAFETY: blocks lie inside the buffer's rows by the model's promise.
        Ok(unsafe { kernels::rms_norm_blocks(&self.launcher, &self.kernels, &norm) }?)
    }

    pub(super) fn launch_rotate(&mut self, call: &RotateCall) -> Result<(), BackendError> {
        let rotate = kernels::Rotate {
            positions: call.positions,
            angles: call.angles,
            buffer: call.buffer,
            row: word(call.blocks.row),
            offset: word(call.blocks.offset),
            count: word(call.blocks.count),
            stride: word(call.blocks.stride),
            rows: word(call.rows),
            reserved: 0,
        };
        // SAFETY: blocks lie inside the buffer's rows, and positions inside the tables, by the model's promise.
        Ok(unsafe { kernels::rotate(&self.launcher, &self.kernels, &rotate) }?)
    }

    /// Norms of heads, rotation and append in one; none where the columns are not laid out for it.
    pub(super) fn rotate_append(
        norms: Option<(NormCall, NormCall)>,
        rotation: &RotateCall,
        append: &Append<'_, Self>,
    ) -> Option<kernels::RotateAppend> {
        let (blocks, key, Some(value)) = (&rotation.blocks, append.key, append.value) else { return None };
        let (width, cached) = (key.width, key.count);
        let queries = blocks.count.checked_sub(cached)?;
        let packed = |blocks: Blocks, first: usize, count: usize| {
            (blocks.offset, blocks.count, blocks.stride) == (first * width, count, width)
                && blocks.row == (queries + 2 * cached) * width
        };
        let normed = norms.is_none_or(|(first, second)| {
            packed(first.blocks, 0, queries) && packed(second.blocks, queries, cached) && first.blocks.width == width
        });
        let fits = rotation.buffer == append.source.memory.pointer()
            && rotation.rows == append.rows
            && packed(*blocks, 0, queries + cached)
            && packed(key, queries, cached)
            && packed(value, queries + cached, cached)
            && normed;
        if !fits {
            return None;
        }
        let norm = norms.map_or_else(HeadNorm::default, |(first, second)| HeadNorm {
            query: first.weight,
            key: second.weight,
            epsilon: first.epsilon,
            reserved: 0,
        });
        Some(kernels::RotateAppend {
            positions: rotation.positions,
            slots: append.step.addresses().slots,
            angles: rotation.angles,
            buffer: rotation.buffer,
            cache: place(append.cache, append.layer),
            norm,
            query_heads: word(queries),
            width: word(width),
            rows: word(append.rows),
            reserved: 0,
        })
    }

    pub(super) fn launch_append(&mut self, append: &Append<'_, Self>) -> Result<(), BackendError> {
        let Append { step, source, key, value, cache, layer, rows } = append;
        let value = value.unwrap_or_else(|| panic!("keys and values go to this cache"));
        let arguments = kernels::Append {
            slots: step.addresses().slots,
            source: source.memory.pointer(),
            cache: place(cache, *layer),
            row: word(key.row),
            key_offset: word(key.offset),
            key_stride: word(key.stride),
            value_offset: word(value.offset),
            value_stride: word(value.stride),
            width: word(key.width),
            rows: word(*rows),
            reserved: 0,
        };
        // SAFETY: columns lie inside the rows by the model's promise; slots are those of the step's pages.
        Ok(unsafe { kernels::append(&self.launcher, &self.kernels, &arguments) }?)
    }
}
