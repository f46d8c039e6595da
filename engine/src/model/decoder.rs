//! The walk that all decoder-only families share: embed, then attention and MLP per layer, then norm and logits.

use std::ops::Range;

use super::layers::{Embedding, GroupedAttention, Head, LatentAttentionLayer, MixtureOfExperts, Mlp};
use super::{Loader, ModelError, Pass, Scratch, Widths};
use crate::backend::{AddNorm, Backend, BackendError, CopyColumns, Norm};
use crate::collective::{PassError, Site};

pub enum AttentionLayer<B: Backend> {
    Grouped(GroupedAttention<B>),
    Latent(LatentAttentionLayer<B>),
}

pub enum MlpLayer<B: Backend> {
    Dense(Mlp<B>),
    Mixture(MixtureOfExperts<B>),
}

/// One layer, as its family put it together.
pub struct Layer<B: Backend> {
    pub attention_norm: B::Vector,
    pub attention: AttentionLayer<B>,
    pub mlp_norm: B::Vector,
    pub mlp: MlpLayer<B>,
}

/// The largest pass a decoder can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of a step.
    pub rows: usize,
    /// Rows of one call for logits.
    pub logit_rows: usize,
    /// Positions of a sequence.
    pub context: usize,
}

/// Residual-stream boundaries that a pass copies out: boundary `b` is the input of layer `b`, and the number of layers
/// is the input of the final norm.
struct Taps<B: Backend> {
    boundaries: Vec<usize>,
    /// `[rows, boundaries * hidden]`, in the order of `boundaries`.
    buffer: B::Buffer,
}

/// One rank's share of a decoder-only model.
pub struct Decoder<B: Backend> {
    embedding: Embedding<B>,
    layers: Vec<Layer<B>>,
    norm: B::Vector,
    head: Head<B>,
    scratch: Scratch<B>,
    taps: Option<Taps<B>>,
    hidden: usize,
    epsilon: f32,
    rows: usize,
}

impl<B: Backend> Decoder<B> {
    /// Loads what surrounds `layers` and allocates the activations. `load` stands at the root.
    pub fn load(load: &mut Loader<'_, B>, layers: Vec<Layer<B>>, limits: Limits) -> Result<Self, ModelError> {
        let hidden = load.config.hidden;
        let embedding = Embedding::load(&mut load.at("model"))?;
        let norm = load.at("model").norm("norm", hidden)?;
        let head = Head::load(load, load.config.tied_embeddings.then(|| embedding.table()), limits.logit_rows)?;
        let widths = layers.iter().fold(Widths::default(), |widths, layer| widths.or(layer.widths()));
        let scratch = Scratch::allocate(load.backend, limits.rows, hidden, widths)?;
        let epsilon = load.config.norm_epsilon as f32;
        Ok(Self { embedding, layers, norm, head, scratch, taps: None, hidden, epsilon, rows: limits.rows })
    }

    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The token embedding, for a draft model that shares it.
    pub fn embedding(&self) -> &Embedding<B> {
        &self.embedding
    }

    /// The output projection, for a draft model that shares it.
    pub fn head(&self) -> &Head<B> {
        &self.head
    }

    /// From now on every pass copies the residual stream at these boundaries. Boundaries are at most [`Self::layers`].
    pub fn tap(&mut self, backend: &mut B, boundaries: Vec<usize>) -> Result<(), BackendError> {
        let buffer = backend.allocate_buffer(self.rows * boundaries.len() * self.hidden)?;
        self.taps = Some(Taps { boundaries, buffer });
        Ok(())
    }

    /// What the last pass copied: `[rows, boundaries * hidden]`, every rank the same.
    pub fn taps(&self) -> Option<&B::Buffer> {
        self.taps.as_ref().map(|taps| &taps.buffer)
    }

    /// One pass over the step's rows; afterwards [`Self::logits`] can be asked for.
    pub fn forward(&mut self, pass: &mut Pass<'_, B>) -> Result<(), PassError> {
        let (scratch, epsilon, rows) = (&mut self.scratch, self.epsilon, pass.rows);
        self.embedding.forward(pass, scratch)?;
        let weight = self.layers.first().map_or(&self.norm, |layer| &layer.attention_norm);
        let (input, output) = (&scratch.residual, &mut scratch.normed);
        pass.backend.rms_norm(Norm { input, weight, epsilon, output, rows })?;
        for (index, layer) in self.layers.iter().enumerate() {
            capture(&mut self.taps, index, self.hidden, pass, &scratch.residual)?;
            layer.attention.forward(pass, scratch, index)?;
            sum_and_norm(pass, scratch, Site::AttentionOutput, &layer.mlp_norm, self.hidden, epsilon)?;
            layer.mlp.forward(pass, scratch)?;
            let next = self.layers.get(index + 1).map_or(&self.norm, |layer| &layer.attention_norm);
            sum_and_norm(pass, scratch, Site::MlpOutput, next, self.hidden, epsilon)?;
        }
        Ok(capture(&mut self.taps, self.layers.len(), self.hidden, pass, &scratch.residual)?)
    }

    /// Most rows that [`Self::logits`] computes at once.
    pub fn logit_capacity(&self) -> usize {
        self.head.capacity()
    }

    /// What the last call of [`Self::logits`] computed, also where it was replayed.
    pub fn last_logits(&self) -> &B::Buffer {
        self.head.last()
    }

    /// The same, for a choice that changes them on the way.
    pub fn last_logits_mut(&mut self) -> &mut B::Buffer {
        self.head.last_mut()
    }

    /// Logits `[range.len(), vocabulary]` of some of the step's logit rows, after [`Self::forward`].
    pub fn logits(&mut self, pass: &mut Pass<'_, B>, range: Range<usize>) -> Result<&B::Buffer, PassError> {
        self.head.forward(pass, &self.scratch, range)
    }
}

/// What follows every attention and every MLP: sum the ranks' parts, add to the residual stream, normalise.
pub fn sum_and_norm<B: Backend>(
    pass: &mut Pass<'_, B>,
    scratch: &mut Scratch<B>,
    site: Site,
    weight: &B::Vector,
    hidden: usize,
    epsilon: f32,
) -> Result<(), PassError> {
    let Scratch { partial: addend, residual, normed: output, .. } = scratch;
    let arguments = AddNorm { addend, residual, weight, epsilon, output, rows: pass.rows };
    pass.communicator.all_reduce_add_norm(pass.backend, (site, pass.phase), hidden, arguments)
}

fn capture<B: Backend>(
    taps: &mut Option<Taps<B>>,
    boundary: usize,
    hidden: usize,
    pass: &mut Pass<'_, B>,
    source: &B::Buffer,
) -> Result<(), BackendError> {
    let Some(Taps { boundaries, buffer: target }) = taps else { return Ok(()) };
    let (width, target_width, rows) = (hidden, boundaries.len() * hidden, pass.rows);
    for (place, _) in boundaries.iter().enumerate().filter(|(_, tap)| **tap == boundary) {
        let offset = place * hidden;
        pass.backend.copy_columns(CopyColumns { source, width, target, target_width, offset, rows })?;
    }
    Ok(())
}

impl<B: Backend> Layer<B> {
    fn widths(&self) -> Widths {
        let attention = match &self.attention {
            AttentionLayer::Grouped(attention) => attention.widths(),
            AttentionLayer::Latent(attention) => attention.widths(),
        };
        attention.or(match &self.mlp {
            MlpLayer::Dense(mlp) => mlp.widths(),
            MlpLayer::Mixture(mixture) => mixture.widths(),
        })
    }
}

impl<B: Backend> AttentionLayer<B> {
    fn forward(&self, pass: &mut Pass<'_, B>, scratch: &mut Scratch<B>, layer: usize) -> Result<(), PassError> {
        match self {
            Self::Grouped(attention) => attention.forward(pass, scratch, layer),
            Self::Latent(attention) => attention.forward(pass, scratch, layer),
        }
    }
}

impl<B: Backend> MlpLayer<B> {
    fn forward(&self, pass: &mut Pass<'_, B>, scratch: &mut Scratch<B>) -> Result<(), PassError> {
        match self {
            Self::Dense(mlp) => mlp.forward(pass, scratch),
            Self::Mixture(mixture) => mixture.forward(pass, scratch),
        }
    }
}
