//! Products: our own kernels where they are the faster ones, else the matrix library.

use cudarc::driver::sys::CUdeviceptr;
use engine::backend::{Activate, Backend, BackendError};
use engine::weights::WeightType;

use super::arguments::{arguments, stored_arguments};
use super::launch::{format, word};
use super::pending::{NormInput, ProductCall};
use super::types::{Element, Matrix, Run};
use super::{Buffer, CudaBackend};
use crate::device::Shape;
use crate::kernels;

impl CudaBackend {
    /// Whether our kernels for bf16 multiply so many rows with a matrix of this kind and of these rows and columns.
    pub(super) fn takes_small(&self, kind: WeightType, matrix: [usize; 2], rows: usize) -> bool {
        kind == WeightType::Bf16 && kernels::prefers(&self.launcher, &self.kernels, matrix.map(word), word(rows))
    }

    /// Whether a product is multiplied by them: they can do more than the product.
    pub(super) fn is_small(&self, call: &ProductCall) -> bool {
        self.takes_small(call.kind, [call.outputs, call.columns], call.rows)
    }

    /// The product of one run of a matrix.
    pub(super) fn product_call(
        weight: &Matrix,
        run: &Run,
        input: &Buffer,
        output: &Buffer,
        rows: usize,
        norm: Option<NormInput>,
    ) -> ProductCall {
        let wide = output.element == Element::F32;
        let width = if wide { size_of::<f32>() } else { Self::ELEMENT_BYTES };
        let at = |base: CUdeviceptr, bytes: usize| base + (run.first * bytes) as CUdeviceptr;
        let bias = weight.bias.as_ref();
        ProductCall {
            weight: run.memory.pointer(),
            kind: run.kind,
            bias: bias.map(|bias| [at(bias.wide.pointer(), size_of::<f32>()), at(bias.narrow.pointer(), 2)]),
            input: norm.map_or_else(|| input.memory.pointer(), |norm| norm.input),
            output: at(output.memory.pointer(), width),
            wide,
            rows,
            columns: weight.columns,
            outputs: run.rows,
            stride: weight.rows,
            norm,
            add: false,
            sum: None,
        }
    }

    pub(super) fn launch_product(&mut self, call: &ProductCall) -> Result<(), BackendError> {
        if call.is_stored() {
            return self.launch_stored(call.kind, &stored_arguments(call));
        }
        let stored = call.kind != WeightType::Bf16;
        if self.is_small(call) {
            // SAFETY: buffers and weights live as long as the backend's stream; sizes are those of the call.
            return Ok(unsafe { kernels::product(&self.launcher, &self.kernels, &arguments(call)) }?);
        }
        // The library's kernels wait for the one in front of them, which may have written the converted weights.
        let call = if stored { &self.widen(call)? } else { call };
        let ProductCall { rows, columns: input, outputs: out, stride, wide, .. } = *call;
        let shape = Shape { rows, input, out, stride, wide, bias: call.bias.is_some() };
        let bias = call.bias.map(|[f32, bf16]| if wide { f32 } else { bf16 });
        self.products.multiply(shape, call.weight, call.input, call.output, bias)
    }

    fn launch_stored(&self, kind: WeightType, product: &kernels::QuantisedProduct) -> Result<(), BackendError> {
        // SAFETY: buffers and weights live as long as the backend's stream; sizes are those of a product call.
        Ok(unsafe { kernels::quantised_product(&self.launcher, &self.kernels, format(kind)?, product) }?)
    }

    /// Converts a matrix in blocks to bf16, in the room that all of them share.
    fn widen(&mut self, call: &ProductCall) -> Result<ProductCall, BackendError> {
        let message = "no room was made for converted weights".to_owned();
        let room = self.widened.as_ref().ok_or(BackendError::Device { operation: "linear", message })?;
        let output = room.pointer();
        let (rows, columns) = (word(call.outputs), word(call.columns));
        let arguments = kernels::Dequantise { weight: call.weight, output, rows, columns };
        // SAFETY: the room is as large as the largest matrix in blocks.
        unsafe { kernels::dequantise(&self.launcher, &self.kernels, format(call.kind)?, &arguments) }?;
        Ok(ProductCall { weight: output, kind: WeightType::Bf16, ..*call })
    }

    /// The product and the activation of its output in one; false where no kernel does both.
    pub(super) fn launch_gated(
        &mut self,
        call: &ProductCall,
        activate: &Activate<'_, Self>,
    ) -> Result<bool, BackendError> {
        let fits = (call.is_stored() || self.is_small(call))
            && call.rows == activate.rows
            && call.output == activate.input.memory.pointer()
            && call.outputs == 2 * activate.width
            && call.outputs == call.stride
            && !call.wide;
        if !fits {
            return Ok(false);
        }
        let width = word(activate.width);
        let output = activate.output.memory.pointer();
        if call.is_stored() {
            let gate = kernels::gate_word(activate.activation);
            let product =
                kernels::QuantisedProduct { output, outputs: width, stride: width, gate, ..stored_arguments(call) };
            self.launch_stored(call.kind, &product)?;
            return Ok(true);
        }
        let product = kernels::Product { output, outputs: width, stride: width, ..arguments(call) };
        // SAFETY: buffers and weights live as long as the backend's stream; sizes are those of the call.
        unsafe { kernels::gated_product(&self.launcher, &self.kernels, activate.activation, &product) }?;
        Ok(true)
    }
}
