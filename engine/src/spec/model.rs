//! The draft model: one Llama layer over `[norm(embedding), norm(hidden)]`, and its small output projection.
//!
//! Row `t` reads the target's features at position `t` and the token at `t + 1`, and predicts the token at `t + 2`. Its
//! rotary position is `t`. The first pass over a row reads real features through `fc`; later draft rows read the layer's
//! own output. Source: SafeAILab/EAGLE, `cnets.py`; variants as in vLLM's `llama_eagle3.py`.

use std::ops::Range;
use std::rc::Rc;

use super::checkpoint::{HeadCheckpoint, Toggles};
use crate::backend::{Backend, BackendError, Blocks, CopyColumns, Gather, Norm, NormBlocks, Product};
use crate::collective::{PassError, Site};
use crate::model::layers::{Embedding, GroupedAttention, GroupedOptions, Head, Mlp};
use crate::model::{
    Attention, Bias, Decoder, Limits, Loader, ModelConfig, ModelError, Pass, Scratch, Share, Slice, Widths, rope_table,
    sum_and_norm,
};

/// What a draft pass reads as its hidden state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// Outputs of the last committed rows, kept per slot.
    Carried,
    /// Outputs of the pass before.
    Previous,
}

struct FeatureNorms<B: Backend> {
    /// Over all taps side by side.
    whole: Option<B::Vector>,
    /// Over each tap.
    each: Vec<B::Vector>,
}

/// One rank's share of a draft model. Every rank has all of `fc`, which runs once per cycle.
pub struct DraftModel<B: Backend> {
    embedding: Embedding<B>,
    embedding_norm: B::Vector,
    hidden_norm: B::Vector,
    feature_norms: FeatureNorms<B>,
    joined: B::Linear,
    attention: GroupedAttention<B>,
    mlp_norm: B::Vector,
    mlp: Mlp<B>,
    norm: B::Vector,
    head: Head<B>,
    scratch: Scratch<B>,
    /// Picked features, `[rows, taps * target hidden]`.
    features: B::Buffer,
    /// Hidden state of each row, `[rows, hidden]`, and its normalised form.
    hidden: B::Buffer,
    normed: B::Buffer,
    /// Outputs that later cycles start from, `[slots, hidden]`, then those of the pass just done, `[rows, hidden]`.
    carried: B::Buffer,
    kept: B::Buffer,
    toggles: Toggles,
    taps: usize,
    tap_width: usize,
    width: usize,
    slots: usize,
    rows: usize,
    epsilon: f32,
}

impl<B: Backend> DraftModel<B> {
    /// `limits.rows` rows of a pass, `slots` sequences. Embedding and output projection come from the target where the
    /// checkpoint has none. Errors: heads that the ranks cannot share, missing or misshapen tensors, no room.
    pub fn load(
        backend: &mut B,
        head: &HeadCheckpoint,
        target: &Decoder<B>,
        share: Share,
        limits: Limits,
        slots: usize,
    ) -> Result<Self, ModelError> {
        let (config, width) = (&head.config, head.config.hidden);
        if !config.heads.is_multiple_of(share.world_size) {
            return Err(ModelError::HeadsNotDivisible { heads: config.heads, world_size: share.world_size });
        }
        let rope = Rc::new(backend.load_rope(&rope_table(&config.rope, limits.context))?);
        let embedding = embedding(backend, head, target, share)?;
        let mut load = Loader::new(backend, &*head.weights, config, share);
        let mut layer = load.at("midlayer");
        let attention = GroupedAttention::load(&mut layer.at("self_attn"), options(config)?, rope)?;
        let mlp = Mlp::load(&mut layer.at("mlp"), config.intermediate)?;
        let (embedding_norm, hidden_norm) = (layer.norm("input_layernorm", width)?, layer.norm("hidden_norm", width)?);
        let mlp_norm = layer.norm("post_attention_layernorm", width)?;
        let own = (!head.own_output).then(|| target.head().weight());
        let output = Head::load(&mut load, own, limits.logit_rows)?;
        let (taps, tap_width) = (head.taps.boundaries.len(), head.target_hidden);
        let widths = attention.widths().or(mlp.widths()).or(Widths { normed: 2 * width, ..Widths::default() });
        let rows = limits.rows;
        Ok(Self {
            embedding,
            embedding_norm,
            hidden_norm,
            feature_norms: FeatureNorms::load(&mut load, head)?,
            joined: joined(&mut load, head)?,
            attention,
            mlp_norm,
            mlp,
            norm: load.norm("norm", width)?,
            head: output,
            scratch: Scratch::allocate(load.backend, rows, width, widths)?,
            features: load.backend.allocate_buffer(rows * taps * tap_width)?,
            hidden: load.backend.allocate_buffer(rows * width)?,
            normed: load.backend.allocate_buffer(rows * width)?,
            carried: load.backend.allocate_buffer((slots + rows) * width)?,
            kept: load.backend.allocate_buffer(slots * width)?,
            toggles: head.toggles,
            taps,
            tap_width,
            width,
            slots,
            rows,
            epsilon: config.norm_epsilon as f32,
        })
    }

    /// The pass over committed rows. `pick` names, as its logit rows, the row of `features`
    /// (`[target rows, taps * target hidden]`) that each row of the pass reads.
    pub fn extend(&mut self, pass: &mut Pass<'_, B>, pick: &B::Step, features: &B::Buffer) -> Result<(), PassError> {
        let (rows, width) = (pass.rows, self.feature_width());
        let output = &mut self.features;
        pass.backend.gather(Gather { step: pick, range: 0..rows, input: features, width, output })?;
        self.normalise_features(pass.backend, rows)?;
        let (weight, input, output) = (&self.joined, &self.features, &mut self.hidden);
        pass.backend.linear(Product { weight, input, output, rows })?;
        self.layer(pass)
    }

    /// A pass over drafted rows, whose hidden states `pick` names among those that `from` says.
    pub fn draft(&mut self, pass: &mut Pass<'_, B>, pick: &B::Step, from: Hidden) -> Result<(), PassError> {
        self.gather_hidden(pass.backend, pick, from, pass.rows)?;
        if self.toggles.norm_output {
            let (input, weight, epsilon) = (&self.hidden, &self.norm, self.epsilon);
            let (output, rows) = (&mut self.normed, pass.rows);
            pass.backend.rms_norm(Norm { input, weight, epsilon, output, rows })?;
            std::mem::swap(&mut self.hidden, &mut self.normed);
        }
        self.layer(pass)
    }

    /// What [`Self::logits`] reads: the carried outputs that `pick` names, normalised, in place of a pass.
    pub fn recall(&mut self, backend: &mut B, pick: &B::Step, rows: usize) -> Result<(), BackendError> {
        self.gather_hidden(backend, pick, Hidden::Carried, rows)?;
        let (input, weight, epsilon, output) = (&self.hidden, &self.norm, self.epsilon, &mut self.scratch.normed);
        backend.rms_norm(Norm { input, weight, epsilon, output, rows })
    }

    /// Keeps outputs of the pass just done for later cycles. `pick` names for each slot which row of `[slots, pass
    /// rows]` it keeps from now on: its own number for no change.
    pub fn carry(&mut self, backend: &mut B, pick: &B::Step, rows: usize) -> Result<(), BackendError> {
        let (slots, width) = (self.slots, self.width);
        let all = (slots + self.rows) * width;
        let (source, target) = (&self.scratch.residual, &mut self.carried);
        // The pass's outputs as one long row behind those of the slots.
        let (block, offset) = (rows * width, slots * width);
        backend.copy_columns(CopyColumns { source, width: block, target, target_width: all, offset, rows: 1 })?;
        backend.gather(Gather { step: pick, range: 0..slots, input: &self.carried, width, output: &mut self.kept })?;
        let (source, target) = (&self.kept, &mut self.carried);
        backend.copy_columns(CopyColumns { source, width: offset, target, target_width: all, offset: 0, rows: 1 })
    }

    /// Elements of a row of features: all taps side by side.
    pub fn feature_width(&self) -> usize {
        self.taps * self.tap_width
    }

    /// Most rows that [`Self::logits`] computes at once.
    pub fn logit_capacity(&self) -> usize {
        self.head.capacity()
    }

    /// Draft logits `[range.len(), draft vocabulary]` of some of the step's logit rows.
    pub fn logits(&mut self, pass: &mut Pass<'_, B>, range: Range<usize>) -> Result<&B::Buffer, PassError> {
        self.head.forward(pass, &self.scratch, range)
    }

    /// Outputs of the last pass before the final norm, `[rows, hidden]`.
    pub fn outputs(&self) -> &B::Buffer {
        &self.scratch.residual
    }

    /// Hidden states that the last pass read, `[rows, hidden]`.
    pub fn inputs(&self) -> &B::Buffer {
        &self.hidden
    }

    fn gather_hidden(
        &mut self,
        backend: &mut B,
        pick: &B::Step,
        from: Hidden,
        rows: usize,
    ) -> Result<(), BackendError> {
        let input = match from {
            Hidden::Carried => &self.carried,
            Hidden::Previous => &self.scratch.residual,
        };
        let (width, output) = (self.width, &mut self.hidden);
        backend.gather(Gather { step: pick, range: 0..rows, input, width, output })
    }

    fn normalise_features(&mut self, backend: &mut B, rows: usize) -> Result<(), BackendError> {
        let (row, epsilon) = (self.feature_width(), self.epsilon);
        let whole = self.feature_norms.whole.iter().map(|weight| (weight, 0, row));
        let each = self.feature_norms.each.iter().enumerate();
        let each = each.map(|(tap, weight)| (weight, tap * self.tap_width, self.tap_width));
        for (weight, offset, width) in whole.chain(each) {
            let blocks = Blocks { row, offset, count: 1, stride: width, width };
            backend.rms_norm_blocks(NormBlocks { buffer: &mut self.features, blocks, weight, epsilon, rows })?;
        }
        Ok(())
    }

    /// The layer over `self.hidden` and the step's tokens; leaves its output in the residual stream, and normalised.
    fn layer(&mut self, pass: &mut Pass<'_, B>) -> Result<(), PassError> {
        let (scratch, epsilon, rows, width) = (&mut self.scratch, self.epsilon, pass.rows, self.width);
        self.embedding.forward(pass, scratch)?;
        for (input, weight, place) in
            [(&scratch.residual, &self.embedding_norm, 0), (&self.hidden, &self.hidden_norm, 1)]
        {
            pass.backend.rms_norm(Norm { input, weight, epsilon, output: &mut self.normed, rows })?;
            let (source, target, target_width) = (&self.normed, &mut scratch.normed, 2 * width);
            let offset = place * width;
            pass.backend.copy_columns(CopyColumns { source, width, target, target_width, offset, rows })?;
        }
        let source = if self.toggles.norm_before_residual { &self.normed } else { &self.hidden };
        let (target, target_width) = (&mut scratch.residual, width);
        pass.backend.copy_columns(CopyColumns { source, width, target, target_width, offset: 0, rows })?;
        self.attention.forward(pass, scratch, 0)?;
        sum_and_norm(pass, scratch, Site::Draft, &self.mlp_norm, width, epsilon)?;
        self.mlp.forward(pass, scratch)?;
        sum_and_norm(pass, scratch, Site::Draft, &self.norm, width, epsilon)
    }
}

impl<B: Backend> FeatureNorms<B> {
    fn load(load: &mut Loader<'_, B>, head: &HeadCheckpoint) -> Result<Self, ModelError> {
        let (taps, width, toggles) = (head.taps.boundaries.len(), head.target_hidden, head.toggles);
        let whole = toggles.norm_before_fc.then(|| load.norm("input_norm", taps * width)).transpose()?;
        let each = if toggles.fc_norm { 0..taps } else { 0..0 };
        let each = each.map(|tap| load.norm(&format!("fc_norm.{tap}"), width)).collect::<Result<_, _>>()?;
        Ok(Self { whole, each })
    }
}

fn options(config: &ModelConfig) -> Result<GroupedOptions, ModelError> {
    match config.attention {
        Attention::Grouped { key_value_heads, head_dimension, query_key_norm, bias, output_bias } => {
            let input = 2 * config.hidden;
            Ok(GroupedOptions { key_value_heads, head_dimension, input, query_key_norm, bias, output_bias })
        }
        Attention::Latent(_) => Err(ModelError::Unserved("a draft head with latent attention".to_owned())),
    }
}

fn embedding<B: Backend>(
    backend: &mut B,
    head: &HeadCheckpoint,
    target: &Decoder<B>,
    share: Share,
) -> Result<Embedding<B>, ModelError> {
    if !head.own_embedding {
        return Ok(target.embedding().shared());
    }
    let config = ModelConfig { vocabulary: head.target_vocabulary, ..head.config.clone() };
    Embedding::load(&mut Loader::new(backend, &*head.weights, &config, share))
}

fn joined<B: Backend>(load: &mut Loader<'_, B>, head: &HeadCheckpoint) -> Result<B::Linear, ModelError> {
    let bias = if head.fc_bias { Bias::ByRow } else { Bias::None };
    let input = head.taps.boundaries.len() * head.target_hidden;
    load.linear(&[Slice::whole("fc", head.config.hidden, input).bias(bias)])
}
