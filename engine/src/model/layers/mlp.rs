use std::ops::Range;

use crate::backend::{Activate, Backend, Product};
use crate::collective::PassError;
use crate::model::{Activation, Bias, Loader, ModelError, Pass, Scratch, Slice, Widths};

/// `down(activation(gate(x)) * up(x))`. Column-parallel in, row-parallel out, by intermediate columns.
pub struct Mlp<B: Backend> {
    gate_up: B::Linear,
    down: B::Linear,
    /// Intermediate columns of this rank.
    width: usize,
    activation: Activation,
}

impl<B: Backend> Mlp<B> {
    /// `load` stands at `gate_proj`'s parent (`model.layers.N.mlp`).
    pub fn load(load: &mut Loader<'_, B>, intermediate: usize) -> Result<Self, ModelError> {
        let config = load.config;
        let part: Range<usize> = load.share.parts(intermediate, load.block("down_proj"));
        let (bias, once) = if config.mlp_bias { (Bias::ByRow, Bias::Once) } else { (Bias::None, Bias::None) };
        let project = |name| Slice::whole(name, intermediate, config.hidden).outputs(part.clone()).bias(bias);
        let down = Slice::whole("down_proj", config.hidden, intermediate).inputs(part.clone()).bias(once);
        Ok(Self {
            gate_up: load.linear(&[project("gate_proj"), project("up_proj")])?,
            down: load.linear(&[down])?,
            width: part.len(),
            activation: config.activation,
        })
    }

    pub fn widths(&self) -> Widths {
        Widths { projected: 2 * self.width, activated: self.width, ..Widths::default() }
    }

    /// `scratch.normed` to this rank's part in `scratch.partial`.
    pub fn forward(&self, pass: &mut Pass<'_, B>, scratch: &mut Scratch<B>) -> Result<(), PassError> {
        let (rows, backend) = (pass.rows, &mut *pass.backend);
        let (weight, output) = (&self.gate_up, &mut scratch.projected);
        backend.linear(Product { weight, input: &scratch.normed, output, rows })?;
        let (activation, output) = (self.activation, &mut scratch.activated);
        backend.activate(Activate { activation, input: &scratch.projected, width: self.width, output, rows })?;
        let (weight, output) = (&self.down, &mut scratch.partial);
        Ok(backend.linear(Product { weight, input: &scratch.activated, output, rows })?)
    }
}
