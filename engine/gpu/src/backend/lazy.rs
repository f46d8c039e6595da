//! Norms that wait for the product that reads them.
//!
//! A norm is not launched where it stands: a product of few rows takes it in, and the normalised rows never go to memory.
//! One with weights in blocks reads what the norm reads ([`crate::kernels::QuantisedProduct::norm`]). One with bf16 weights
//! needs a product of the same kind in front of the norm, which has left the rows times the norm's weight in the norm's
//! output, and sums of squares ([`crate::kernels::Product::input_squares`]). Anything else that reads the normalised rows
//! has the norm launched first; so has anything that is about to change what it reads. Inside a recorded pass, a norm that
//! was taken in and that nothing else has read by then is left out.

use cudarc::driver::sys::CUdeviceptr;
use engine::backend::{AddNorm, BackendError};

use super::launch::word;
use super::pending::{EmbedCall, NormInput, Pending, ProductCall, Sum, takes_stored};
use super::types::{Matrix, Vector};
use super::{CudaBackend, SMALL_ROWS};
use crate::kernels::{self, Embed, Gather};

/// A norm that was asked for and not launched.
#[derive(Clone, Copy, Debug)]
pub(super) struct LazyNorm {
    /// What products read instead of `output`: rows of `width`. With squares, `output` holds rows times the weight.
    pub norm: NormInput,
    pub width: usize,
    pub rows: usize,
    pub output: CUdeviceptr,
    /// Rows that are picked out of another norm's output.
    pub gather: Option<Gather>,
    /// A product has taken it in.
    pub taken: bool,
}

impl LazyNorm {
    pub fn new(input: CUdeviceptr, weight: &Vector, epsilon: f32, output: CUdeviceptr, rows: usize) -> Self {
        let norm = NormInput { input, weight: weight.pointer(), epsilon, rows: 0, squares: 0 };
        Self { norm, width: weight.length(), rows, output, gather: None, taken: false }
    }

    /// What a product of this matrix reads, if it takes the norm in. `small`: our kernels for bf16 multiply so many rows; those
    /// for more than a few take all of them, in their order.
    fn input_of(&self, weight: &Matrix, rows: usize, small: bool) -> Option<NormInput> {
        let small = self.norm.squares != 0 && small && (self.gather.is_none() || rows <= SMALL_ROWS);
        let scaled = NormInput { input: self.gather.map_or(self.output, |gather| gather.input), ..self.norm };
        let all_stored = || weight.runs.iter().all(|run| takes_stored(run.kind, rows));
        let stored = || all_stored().then_some(NormInput { squares: 0, ..self.norm });
        small.then_some(scaled).or_else(stored)
    }

    fn reads(&self, address: CUdeviceptr) -> bool {
        self.norm.input == address || self.gather.is_some_and(|gather| gather.input == address)
    }
}

impl CudaBackend {
    /// Called before every operation: launches what it cannot go without. `reads` and `writes` are the buffers that it
    /// touches.
    pub(super) fn ready(&mut self, reads: &[CUdeviceptr], writes: &[CUdeviceptr]) -> Result<(), BackendError> {
        self.launch_pending()?;
        self.touch(reads, writes)
    }

    /// The same for norms alone, where what is pending is part of the operation.
    pub(super) fn touch(&mut self, reads: &[CUdeviceptr], writes: &[CUdeviceptr]) -> Result<(), BackendError> {
        for address in reads {
            self.launch_lazy(&|norm: &LazyNorm| norm.output == *address)?;
        }
        for address in writes {
            self.leave_or_launch(&|norm: &LazyNorm| norm.reads(*address))?;
            self.lazy.retain(|norm| norm.output != *address);
        }
        Ok(())
    }

    /// Launches everything that waits.
    pub(crate) fn flush(&mut self) -> Result<(), BackendError> {
        self.launch_pending()?;
        self.leave_or_launch(&|_| true)
    }

    fn leave_or_launch(&mut self, which: &dyn Fn(&LazyNorm) -> bool) -> Result<(), BackendError> {
        if self.recording.is_some() {
            self.lazy.retain(|norm| !norm.taken || !which(norm));
        }
        self.launch_lazy(which)
    }

    /// Launches those norms, in the order in which they were asked for.
    fn launch_lazy(&mut self, which: &dyn Fn(&LazyNorm) -> bool) -> Result<(), BackendError> {
        while let Some(at) = self.lazy.iter().position(which) {
            let lazy = self.lazy.remove(at);
            match lazy.gather {
                Some(gather) => {
                    self.launch_lazy(&|norm: &LazyNorm| norm.output == gather.input)?;
                    // SAFETY: the step's logit rows are rows of the input; the output has room for them.
                    unsafe { kernels::gather(&self.launcher, &self.kernels, &gather) }?;
                }
                None => {
                    self.launch_norm(&lazy)?;
                    // They pick from what has just changed.
                    self.launch_lazy(&|norm: &LazyNorm| norm.gather.is_some_and(|gather| gather.input == lazy.output))?;
                }
            }
        }
        Ok(())
    }

    /// A norm that was asked for: it waits where a product may take it in, else it is launched.
    pub(super) fn norm_later(&mut self, lazy: LazyNorm) -> Result<(), BackendError> {
        if self.widest == 0 && lazy.norm.squares == 0 {
            return self.launch_norm(&lazy);
        }
        self.lazy.push(lazy);
        Ok(())
    }

    fn launch_norm(&self, lazy: &LazyNorm) -> Result<(), BackendError> {
        let NormInput { input, weight, epsilon, .. } = lazy.norm;
        let (output, width, rows) = (lazy.output, word(lazy.width), word(lazy.rows));
        let norm = kernels::Norm { input, residual: 0, weight, output, width, epsilon, rows };
        // SAFETY: rows are as wide as the weight by the model's promise.
        Ok(unsafe { kernels::rms_norm(&self.launcher, &self.kernels, &norm) }?)
    }

    /// The norm that wrote `input`, if it waits and a product of this matrix to `output` takes it in.
    pub(super) fn take_norm(
        &mut self,
        weight: &Matrix,
        [input, output]: [CUdeviceptr; 2],
        rows: usize,
    ) -> Option<NormInput> {
        let small = weight.runs.iter().all(|run| self.takes_small(run.kind, [run.rows, weight.columns], rows));
        let lazy = self.lazy.iter_mut().find(|lazy| lazy.output == input && lazy.width == weight.columns)?;
        if rows > lazy.rows || lazy.reads(output) {
            return None;
        }
        let norm = lazy.input_of(weight, rows, small)?;
        lazy.taken = true;
        Some(norm)
    }

    /// A gather whose rows a product may take in with the norm that it picks them from; false where no norm waits.
    pub(super) fn gather_lazily(&mut self, gather: Gather) -> Result<bool, BackendError> {
        let parent = self.lazy.iter_mut().find(|lazy| lazy.output == gather.input && lazy.gather.is_none());
        let Some(parent) = parent.filter(|parent| parent.width == gather.width as usize) else { return Ok(false) };
        parent.taken = true;
        let lazy = LazyNorm {
            norm: NormInput { rows: gather.rows, ..parent.norm },
            rows: gather.count as usize,
            output: gather.output,
            gather: Some(gather),
            taken: false,
            ..*parent
        };
        self.ready(&[], &[gather.output])?;
        self.lazy.push(lazy);
        Ok(true)
    }

    /// The rows that are embedded, with the begin of the norm that follows; nothing where another one follows, or more rows
    /// than products take in.
    pub(super) fn beginning(&self, call: &EmbedCall, lazy: &LazyNorm) -> Option<(EmbedCall, LazyNorm)> {
        let Embed { output, columns, rows, .. } = call.embed;
        let LazyNorm { norm, width, rows: normed, output: scaled, .. } = *lazy;
        let whole = output == norm.input && columns as usize == width && rows as usize == normed;
        let squares = self.squares_of(width, normed).filter(|_| whole && normed <= SMALL_ROWS && scaled != output)?;
        let embed = Embed { norm: norm.weight, scaled, squares, ..call.embed };
        Some((EmbedCall { embed, ..*call }, LazyNorm { norm: NormInput { squares, ..norm }, ..*lazy }))
    }

    pub(super) fn embed_and_begin(&mut self, call: &EmbedCall, lazy: LazyNorm) -> Result<(), BackendError> {
        self.touch(&[], &[lazy.output])?;
        self.leave_squares()?;
        self.launch_embed(call)?;
        self.norm_later(lazy)
    }

    /// The squares that older norms have are about to be overwritten.
    fn leave_squares(&mut self) -> Result<(), BackendError> {
        self.leave_or_launch(&|norm: &LazyNorm| norm.norm.squares != 0)
    }

    /// The sum with the residual stream and its norm: the product that waits adds where it can, and the norm waits.
    pub(super) fn add_norm(&mut self, arguments: &AddNorm<'_, Self>) -> Result<(), BackendError> {
        let AddNorm { addend, residual, weight, epsilon, output, rows } = arguments;
        let (addend, residual) = (addend.memory.pointer(), residual.memory.pointer());
        let mut lazy = LazyNorm::new(residual, weight, *epsilon, output.memory.pointer(), *rows);
        let Some(call) = self.adding(addend, &lazy) else {
            self.ready(&[addend, residual], &[lazy.output, residual])?;
            return self.launch_add_norm(arguments);
        };
        self.pending = Pending::Nothing;
        self.touch(&[], &[lazy.output, residual])?;
        if let Some(sum) = call.sum {
            self.leave_squares()?;
            lazy.norm.squares = sum.squares;
        }
        self.launch_product(&call)?;
        self.norm_later(lazy)
    }

    /// The product that waits, made to add to the residual stream; nothing where it cannot.
    fn adding(&self, addend: CUdeviceptr, norm: &LazyNorm) -> Option<ProductCall> {
        let Pending::Product(call) = self.pending else { return None };
        let LazyNorm { norm: NormInput { input: residual, weight, .. }, width, rows, output, .. } = *norm;
        let whole = call.output == addend && call.outputs == width && call.stride == width && call.rows == rows;
        // A block of the product may not read what another one has written already.
        let apart = call.input != residual && call.input != output && call.norm.is_none_or(|norm| norm.squares == 0);
        if !whole || !apart || call.wide {
            return None;
        }
        if call.is_stored() {
            return Some(ProductCall { output: residual, add: true, ..call });
        }
        let squares = self.squares_of(width, rows).filter(|_| self.is_small(&call))?;
        Some(ProductCall { output, sum: Some(Sum { residual, weight, squares }), ..call })
    }
}
