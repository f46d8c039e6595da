use std::rc::Rc;

use crate::backend::{Append, AttendLatent, Backend, Blocks, LatentUpParts, NormBlocks, Product, Rotate};
use crate::collective::PassError;
use crate::model::rope::score_factor;
use crate::model::{LatentAttention, Loader, ModelError, Pass, Scratch, Slice, Widths};

/// The released models' code norms latents with this epsilon whatever `rms_norm_eps` says.
const LATENT_NORM_EPSILON: f32 = 1e-6;

/// How queries are made: straight, or through a low-rank latent.
enum Query<B: Backend> {
    Direct(B::Linear),
    LowRank { down: B::Linear, norm: B::Vector, up: B::Linear, rank: usize },
}

/// Multi-head latent attention: one cached latent and one rotated key per position, shared by all heads. Heads are
/// shared among ranks; the latent is computed and cached on every rank.
pub struct LatentAttentionLayer<B: Backend> {
    query: Query<B>,
    latent: B::Linear,
    latent_norm: B::Vector,
    up: B::LatentUp,
    output: B::Linear,
    rope: Rc<B::Rope>,
    heads: usize,
    shape: LatentAttention,
    scale: f32,
}

impl<B: Backend> LatentAttentionLayer<B> {
    /// `load` stands at the layer's attention (`model.layers.N.self_attn`).
    pub fn load(load: &mut Loader<'_, B>, shape: &LatentAttention, rope: Rc<B::Rope>) -> Result<Self, ModelError> {
        let (config, heads) = (load.config, load.share.heads(load.config.heads, load.config.heads).query);
        let (nope, rotated) = (shape.nope_head_dimension, shape.rope_head_dimension);
        let (rank, value) = (shape.key_value_lora_rank, shape.value_head_dimension);
        let rows = |width: usize| heads.start * width..heads.end * width;
        let query_width = nope + rotated;
        let up = Slice::whole("kv_b_proj", config.heads * (nope + value), rank).outputs(rows(nope + value));
        let part = load.part(&up)?;
        let parts = LatentUpParts { part, heads: heads.len(), nope_dimension: nope, value_dimension: value };
        let output = Slice::whole("o_proj", config.hidden, config.heads * value).inputs(rows(value));
        Ok(Self {
            query: Query::load(load, shape.query_lora_rank, config.heads * query_width, rows(query_width))?,
            latent: load.linear(&[Slice::whole("kv_a_proj_with_mqa", rank + rotated, config.hidden)])?,
            latent_norm: load.norm("kv_a_layernorm", rank)?,
            up: load.backend.load_latent_up(parts)?,
            output: load.linear(&[output])?,
            rope,
            heads: heads.len(),
            scale: (score_factor(&config.rope.scaling) / (query_width as f64).sqrt()) as f32,
            shape: shape.clone(),
        })
    }

    pub fn widths(&self) -> Widths {
        let shape = &self.shape;
        Widths {
            projected: self.heads * (shape.nope_head_dimension + shape.rope_head_dimension),
            attended: self.heads * shape.value_head_dimension,
            query_latent: shape.query_lora_rank.unwrap_or(0),
            latent: shape.key_value_lora_rank + shape.rope_head_dimension,
            ..Widths::default()
        }
    }

    /// `scratch.normed` to this rank's part in `scratch.partial`.
    pub fn forward(&self, pass: &mut Pass<'_, B>, scratch: &mut Scratch<B>, layer: usize) -> Result<(), PassError> {
        self.query.forward(pass, scratch)?;
        let (rows, step, backend) = (pass.rows, pass.step, &mut *pass.backend);
        let (weight, output) = (&self.latent, &mut scratch.latent);
        backend.linear(Product { weight, input: &scratch.normed, output, rows })?;
        let (rank, rotated) = (self.shape.key_value_lora_rank, self.shape.rope_head_dimension);
        let one = |offset, width| Blocks { row: rank + rotated, offset, count: 1, stride: width, width };
        let (weight, epsilon) = (&self.latent_norm, LATENT_NORM_EPSILON);
        let buffer = &mut scratch.latent;
        backend.rms_norm_blocks(NormBlocks { buffer, blocks: one(0, rank), weight, epsilon, rows })?;
        let width = self.shape.nope_head_dimension + rotated;
        let query = Blocks { row: self.heads * width, offset: 0, count: self.heads, stride: width, width };
        let turned = Blocks { offset: self.shape.nope_head_dimension, width: rotated, ..query };
        let rope = &*self.rope;
        backend.rotate(Rotate { step, rope, buffer: &mut scratch.projected, blocks: turned, rows })?;
        backend.rotate(Rotate { step, rope, buffer: &mut scratch.latent, blocks: one(rank, rotated), rows })?;
        let (key, cache) = (one(0, rank + rotated), &mut *pass.cache);
        backend.append(Append { step, source: &scratch.latent, key, value: None, cache, layer, rows })?;
        let (source, up, scale) = (&scratch.projected, &self.up, self.scale);
        let output = &mut scratch.attended;
        backend.attend_latent(AttendLatent { step, source, query, up, scale, cache, layer, output, rows })?;
        let (weight, output) = (&self.output, &mut scratch.partial);
        Ok(backend.linear(Product { weight, input: &scratch.attended, output, rows })?)
    }
}

impl<B: Backend> Query<B> {
    fn load(
        load: &mut Loader<'_, B>,
        rank: Option<usize>,
        out: usize,
        rows: std::ops::Range<usize>,
    ) -> Result<Self, ModelError> {
        let hidden = load.config.hidden;
        let Some(rank) = rank else {
            return Ok(Self::Direct(load.linear(&[Slice::whole("q_proj", out, hidden).outputs(rows)])?));
        };
        Ok(Self::LowRank {
            down: load.linear(&[Slice::whole("q_a_proj", rank, hidden)])?,
            norm: load.norm("q_a_layernorm", rank)?,
            up: load.linear(&[Slice::whole("q_b_proj", out, rank).outputs(rows)])?,
            rank,
        })
    }

    /// `scratch.normed` to this rank's query heads in `scratch.projected`.
    fn forward(&self, pass: &mut Pass<'_, B>, scratch: &mut Scratch<B>) -> Result<(), PassError> {
        let (rows, backend) = (pass.rows, &mut *pass.backend);
        let (input, output) = (&scratch.normed, &mut scratch.projected);
        let Self::LowRank { down, norm, up, rank } = self else {
            let Self::Direct(weight) = self else { return Ok(()) };
            return Ok(backend.linear(Product { weight, input, output, rows })?);
        };
        backend.linear(Product { weight: down, input, output: &mut scratch.query_latent, rows })?;
        let blocks = Blocks { row: *rank, offset: 0, count: 1, stride: *rank, width: *rank };
        let (buffer, epsilon) = (&mut scratch.query_latent, LATENT_NORM_EPSILON);
        backend.rms_norm_blocks(NormBlocks { buffer, blocks, weight: norm, epsilon, rows })?;
        Ok(backend.linear(Product { weight: up, input: &scratch.query_latent, output, rows })?)
    }
}
