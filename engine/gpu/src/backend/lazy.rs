//! Norms that wait for the product that reads them.
//!
//! A norm is not launched where it stands: a product of few rows with weights in blocks takes it in
//! ([`crate::kernels::QuantisedProduct::norm`]), and the normalised rows never go to memory. Anything else that reads
//! them has the norm launched first; so has anything that is about to change what it reads. Inside a recorded pass, a
//! norm that was taken in and that nothing else has read by then is left out.

use cudarc::driver::sys::CUdeviceptr;
use engine::backend::BackendError;

use super::CudaBackend;
use super::launch::word;
use super::pending::{NormInput, Pending, ProductCall, takes_stored};
use super::types::Matrix;
use crate::kernels::{self, Gather};

/// A norm that was asked for and not launched.
#[derive(Clone, Copy, Debug)]
pub(super) struct LazyNorm {
    /// What products read instead of `output`: rows of `width`.
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
            self.lazy.retain(|norm| norm.output != *address);
            self.leave_or_launch(&|norm: &LazyNorm| norm.reads(*address))?;
        }
        Ok(())
    }

    /// Launches everything that waits.
    pub(crate) fn flush(&mut self) -> Result<(), BackendError> {
        self.launch_pending()?;
        self.leave_or_launch(&|_| true)
    }

    fn leave_or_launch(&mut self, which: &dyn Fn(&LazyNorm) -> bool) -> Result<(), BackendError> {
        if self.recording {
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
                None => self.launch_norm(&lazy)?,
            }
        }
        Ok(())
    }

    /// A norm that was asked for: it waits where the model has weights in blocks, else it is launched.
    pub(super) fn norm_later(&mut self, lazy: LazyNorm) -> Result<(), BackendError> {
        if self.widest == 0 {
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
        let all = weight.runs.iter().all(|run| takes_stored(run.kind, rows));
        let lazy = self.lazy.iter_mut().find(|lazy| lazy.output == input && lazy.width == weight.columns)?;
        if !all || rows > lazy.rows || lazy.reads(output) {
            return None;
        }
        lazy.taken = true;
        Some(lazy.norm)
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

    /// The product that waits, made to add to the residual stream; nothing where it cannot.
    pub(super) fn adding(
        &self,
        addend: CUdeviceptr,
        residual: CUdeviceptr,
        width: usize,
        rows: usize,
    ) -> Option<ProductCall> {
        let Pending::Product(call) = self.pending else { return None };
        let whole = call.output == addend && call.outputs == width && call.stride == width && call.rows == rows;
        // A block of the product may not read what another one has added to already.
        let apart = call.input != residual;
        (whole && apart && !call.wide && call.is_stored()).then_some(ProductCall {
            output: residual,
            add: true,
            ..call
        })
    }
}
