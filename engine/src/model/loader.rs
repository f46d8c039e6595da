//! Takes a model's tensors by name, cuts out this rank's part and hands it to the backend.

use std::fmt::Display;
use std::ops::Range;

use super::{ModelConfig, Share};
use crate::backend::{Backend, BackendError, MatrixPart};
use crate::collective::PassError;
use crate::weights::dequantise::dequantise;
use crate::weights::{WeightError, WeightSource};

/// Why a model cannot be made of these weights on this rank.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error(transparent)]
    Weight(#[from] WeightError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A first pass, before any step.
    #[error(transparent)]
    Pass(PassError),
    #[error("{heads} attention heads cannot be shared equally by {world_size} ranks; choose a divisor of {heads}")]
    HeadsNotDivisible { heads: usize, world_size: usize },
    #[error("this engine has no forward pass for {0}; `archway plan` can still plan it")]
    Unserved(String),
}

/// Which ranks add a linear layer's bias (`NAME.bias` beside `NAME.weight`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    None,
    /// Each rank has its own rows of it.
    ByRow,
    /// Rank 0 adds it to its part of a sum over ranks.
    Once,
}

/// A stored matrix `[out, in]` and the rectangle of it that this rank keeps.
#[derive(Clone, Debug)]
pub struct Slice<'n> {
    pub name: &'n str,
    pub shape: [usize; 2],
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    pub bias: Bias,
}

impl<'n> Slice<'n> {
    /// The whole matrix, on every rank.
    pub fn whole(name: &'n str, out: usize, input: usize) -> Self {
        Self { name, shape: [out, input], rows: 0..out, columns: 0..input, bias: Bias::None }
    }

    /// Some outputs.
    pub fn outputs(self, rows: Range<usize>) -> Self {
        Self { rows, ..self }
    }

    /// Some inputs: the results of all ranks must be summed.
    pub fn inputs(self, columns: Range<usize>) -> Self {
        Self { columns, ..self }
    }

    pub fn bias(self, bias: Bias) -> Self {
        Self { bias, ..self }
    }
}

/// One rank's view of the weights while a model loads.
pub struct Loader<'a, B: Backend> {
    pub backend: &'a mut B,
    pub config: &'a ModelConfig,
    pub share: Share,
    source: &'a dyn WeightSource,
    prefix: String,
}

impl<'a, B: Backend> Loader<'a, B> {
    pub fn new(backend: &'a mut B, source: &'a dyn WeightSource, config: &'a ModelConfig, share: Share) -> Self {
        Self { backend, config, share, source, prefix: String::new() }
    }

    /// The loader for everything below `name`.
    pub fn at(&mut self, name: impl Display) -> Loader<'_, B> {
        let prefix = format!("{}{name}.", self.prefix);
        Loader { backend: self.backend, config: self.config, share: self.share, source: self.source, prefix }
    }

    /// The slices one below the other as one linear layer.
    pub fn linear(&mut self, slices: &[Slice<'_>]) -> Result<B::Linear, ModelError> {
        let mut parts = Vec::with_capacity(slices.len());
        let mut bias = Vec::new();
        for slice in slices {
            parts.push(self.part(slice)?);
            bias.extend(self.bias(slice)?);
        }
        let bias = slices.iter().any(|slice| slice.bias != Bias::None).then_some(bias);
        Ok(self.backend.load_linear(&parts, bias.as_deref())?)
    }

    /// The rectangle of one stored matrix.
    pub fn part(&self, slice: &Slice<'_>) -> Result<MatrixPart<'a>, ModelError> {
        let tensor = self.source.tensor(&format!("{}{}.weight", self.prefix, slice.name), &slice.shape)?;
        Ok(MatrixPart { tensor, rows: slice.rows.clone(), columns: slice.columns.clone() })
    }

    /// A vector `NAME.weight` of `width` values, whole on every rank.
    pub fn norm(&mut self, name: &str, width: usize) -> Result<B::Vector, ModelError> {
        self.vector(&format!("{name}.weight"), width)
    }

    /// A vector by its full name below the prefix.
    pub fn vector(&mut self, name: &str, width: usize) -> Result<B::Vector, ModelError> {
        let values = self.values(name, width)?;
        Ok(self.backend.load_vector(&values)?)
    }

    /// Elements in a block of `NAME.weight`: where its columns are best cut. 1 where the source cannot say: random
    /// weights have no blocks, and a missing tensor is an error when its values are taken.
    pub fn block(&self, name: &str) -> usize {
        self.source.info(&format!("{}{name}.weight", self.prefix)).map_or(1, |info| info.kind.block_elements())
    }

    /// One value per row of the slice; zeros where another rank adds the bias.
    fn bias(&self, slice: &Slice<'_>) -> Result<Vec<f32>, ModelError> {
        if slice.bias == Bias::None || (slice.bias == Bias::Once && self.share.rank != 0) {
            return Ok(vec![0.0; slice.rows.len()]);
        }
        Ok(self.values(&format!("{}.bias", slice.name), slice.shape[0])?[slice.rows.clone()].to_vec())
    }

    fn values(&self, name: &str, width: usize) -> Result<Vec<f32>, ModelError> {
        let name = format!("{}{name}", self.prefix);
        let tensor = self.source.tensor(&name, &[width])?;
        let convert = dequantise(tensor.kind);
        let convert = convert.ok_or(WeightError::Type { name, actual: tensor.kind, needed_for: "a norm or a bias" })?;
        let mut values = vec![0.0; width];
        convert(&tensor.bytes, &mut values);
        Ok(values)
    }
}
