//! The choice of the largest logit.

use cudarc::driver::sys::CUdeviceptr;
use engine::backend::{BackendError, Choose};

use super::CudaBackend;
use super::arguments::arguments;
use super::launch::word;
use super::pending::{Pending, ProductCall};
use crate::kernels;

impl CudaBackend {
    /// The largest logit of each row: by the product that makes them, if it waits and can, or by a kernel of its own.
    pub(super) fn choose_largest(&mut self, arguments: &Choose<'_, Self>) -> Result<(), BackendError> {
        let Choose { logits, width, rows, vocabulary, place } = *arguments;
        let (actual, limit) = (place + rows, self.choices.as_ref().map_or(0, |choices| choices.places));
        let too_large = BackendError::StepTooLarge { what: "choices", actual, limit };
        let choices = self.choices.as_ref().filter(|_| actual <= limit).ok_or(too_large)?;
        let [tokens, host] = choices.at(place);
        let columns = vocabulary.map_or(0, |tokens| tokens.pointer());
        let (best, arrivals) = (choices.best.pointer(), choices.arrivals.pointer());
        let choice = kernels::Choice { best, arrivals, tokens, host, columns };
        let logits = logits.memory.pointer();
        if let Pending::Product(call) = self.pending
            && let Some(product) = self.choosing(&call, logits, [width, rows], choice)
        {
            self.pending = Pending::Nothing;
            // SAFETY: as below; buffers and weights live as long as the backend's stream, sizes are those of the call.
            return Ok(unsafe { kernels::product(&self.launcher, &self.kernels, &product) }?);
        }
        self.ready(&[logits], &[])?;
        let argmax = kernels::Argmax { logits, choice, vocabulary: word(width), rows: word(rows) };
        // SAFETY: there is room for so many choices from this place on, on both sides; the list of tokens has one for
        // each column by the model's promise.
        Ok(unsafe { kernels::argmax(&self.launcher, &self.kernels, &argmax) }?)
    }

    /// The product that waits, made to choose from all of its output; nothing where it cannot.
    fn choosing(
        &self,
        call: &ProductCall,
        logits: CUdeviceptr,
        [width, rows]: [usize; 2],
        choice: kernels::Choice,
    ) -> Option<kernels::Product> {
        let whole = call.output == logits && call.outputs == width && call.stride == width && call.rows == rows;
        let product = kernels::Product { choice, ..arguments(call) };
        (whole && self.is_small(call) && kernels::chooses(&self.launcher, &self.kernels, &product)).then_some(product)
    }
}
