//! From operations to kernels: what waits for the next operation, and the operations on whole rows.

use engine::backend::*;
use engine::weights::WeightType;

use super::CudaBackend;
use super::arguments::place;
use super::pending::{EmbedCall, Pending};
use crate::kernels::{self, Format};

/// Sizes of a step are far below 2^32.
pub(super) fn word(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

pub(super) fn format(kind: WeightType) -> Result<Format, BackendError> {
    Format::of(kind).ok_or(BackendError::WeightType { operation: "linear", kind })
}

impl CudaBackend {
    /// Launches the operation that waits for the next one.
    pub(super) fn launch_pending(&mut self) -> Result<(), BackendError> {
        match std::mem::take(&mut self.pending) {
            Pending::Nothing => Ok(()),
            Pending::Embed(call) => self.launch_embed(&call),
            Pending::Product(call) => self.launch_product(&call),
            Pending::Norms(first, second) => {
                self.launch_norm_blocks(&first)?;
                second.map_or(Ok(()), |second| self.launch_norm_blocks(&second))
            }
            Pending::Rotation(norms, rotation) => {
                if let Some((first, second)) = norms {
                    self.launch_norm_blocks(&first)?;
                    self.launch_norm_blocks(&second)?;
                }
                self.launch_rotate(&rotation)
            }
            Pending::Appended(call) => {
                // SAFETY: the layout was checked when it was made; slots are those of the step's pages, which the cache
                // has.
                Ok(unsafe { kernels::rotate_append(&self.launcher, &self.kernels, &call) }?)
            }
        }
    }

    pub(super) fn launch_activate(&mut self, arguments: Activate<'_, Self>) -> Result<(), BackendError> {
        let Activate { activation, input, width, output, rows } = arguments;
        let (input, output) = (input.memory.pointer(), output.memory.pointer());
        let arguments = kernels::Activate { input, output, width: word(width), rows: word(rows) };
        // SAFETY: the buffers have room for so many rows by the model's promise.
        Ok(unsafe { kernels::activate(&self.launcher, &self.kernels, activation, &arguments) }?)
    }

    pub(super) fn embed_call(&self, arguments: &Embed<'_, Self>) -> Result<EmbedCall, BackendError> {
        let Embed { step, table, first, output, rows } = arguments;
        let [run] = table.runs.as_slice() else { panic!("an embedding is one stored matrix") };
        let embed = kernels::Embed {
            tokens: step.addresses().tokens,
            choices: self.choices.as_ref().map_or(0, |choices| choices.tokens.pointer()),
            table: run.memory.pointer(),
            output: output.memory.pointer(),
            first: word(*first),
            table_rows: word(table.rows),
            columns: word(table.columns),
            rows: word(*rows),
            norm: 0,
            scaled: 0,
            squares: 0,
        };
        Ok(EmbedCall { format: format(run.kind)?, embed })
    }

    pub(super) fn launch_embed(&self, call: &EmbedCall) -> Result<(), BackendError> {
        // SAFETY: the step has tokens for so many rows, and the outputs room for them.
        Ok(unsafe { kernels::embed(&self.launcher, &self.kernels, call.format, &call.embed) }?)
    }

    pub(super) fn launch_add_norm(&mut self, arguments: &AddNorm<'_, Self>) -> Result<(), BackendError> {
        let AddNorm { addend, residual, weight, epsilon, output, rows } = arguments;
        let norm = kernels::Norm {
            input: addend.memory.pointer(),
            residual: residual.memory.pointer(),
            weight: weight.memory.pointer(),
            output: output.memory.pointer(),
            width: word(weight.length),
            epsilon: *epsilon,
            rows: word(*rows),
        };
        // SAFETY: rows are as wide as the weight by the model's promise.
        Ok(unsafe { kernels::add_rms_norm(&self.launcher, &self.kernels, &norm) }?)
    }

    pub(super) fn launch_add(
        &mut self,
        Add { addend, target, width, rows }: Add<'_, Self>,
    ) -> Result<(), BackendError> {
        let (addend, target) = (addend.memory.pointer(), target.memory.pointer());
        let add = kernels::Add { addend, target, elements: (rows * width) as u64 };
        // SAFETY: both buffers hold so many elements by the model's promise.
        Ok(unsafe { kernels::add(&self.launcher, &self.kernels, &add) }?)
    }

    pub(super) fn launch_gather(&mut self, arguments: Gather<'_, Self>) -> Result<(), BackendError> {
        let Gather { step, range, input, width, output } = arguments;
        let gather = kernels::Gather {
            rows: step.addresses().logit_rows + (range.start * size_of::<u32>()) as u64,
            input: input.memory.pointer(),
            output: output.memory.pointer(),
            width: word(width),
            count: word(range.len()),
        };
        if self.gather_lazily(gather)? {
            return Ok(());
        }
        self.ready(&[gather.input], &[gather.output])?;
        // SAFETY: the step's logit rows are rows of the input; the output has room for the range.
        Ok(unsafe { kernels::gather(&self.launcher, &self.kernels, &gather) }?)
    }

    pub(super) fn launch_copy_columns(&mut self, arguments: CopyColumns<'_, Self>) -> Result<(), BackendError> {
        let CopyColumns { source, width, target, target_width, offset, rows } = arguments;
        let copy = kernels::CopyColumns {
            source: source.memory.pointer(),
            target: target.memory.pointer(),
            width: word(width),
            target_width: word(target_width),
            offset: word(offset),
            rows: word(rows),
        };
        // SAFETY: both buffers hold so many rows by the model's promise.
        Ok(unsafe { kernels::copy_columns(&self.launcher, &self.kernels, &copy) }?)
    }

    pub(super) fn launch_move_rows(
        &mut self,
        MoveRows { step, cache }: MoveRows<'_, Self>,
    ) -> Result<(), BackendError> {
        let (addresses, layers) = (step.addresses(), cache.shape.layers);
        let arguments = kernels::MoveRows {
            counts: addresses.counts,
            moves: addresses.moves,
            cache: place(cache, 0),
            layer_stride: cache.layer_stride() as u64,
            layers: word(layers),
            reserved: 0,
        };
        // SAFETY: moves are between places of the cache's pages by the executor's promise.
        Ok(unsafe { kernels::move_rows(&self.launcher, &self.kernels, &arguments) }?)
    }
}
