use std::rc::Rc;

use crate::backend::{Append, Attend, Backend, Blocks, HeadGroups, NormBlocks, Product, Rotate};
use crate::collective::PassError;
use crate::model::{Bias, Loader, ModelError, Pass, Scratch, Slice, Widths};

/// What distinguishes the families' grouped-query attention.
#[derive(Clone, Copy, Debug)]
pub struct GroupedOptions {
    pub key_value_heads: usize,
    pub head_dimension: usize,
    /// Columns of the layer's input: the hidden size, or twice that in a draft model.
    pub input: usize,
    /// RMS norm over each query and key head (`q_norm`, `k_norm`).
    pub query_key_norm: bool,
    pub bias: bool,
    pub output_bias: bool,
}

/// Multi-head, grouped-query or multi-query attention over cached keys and values. Column-parallel in, row-parallel
/// out, by heads.
pub struct GroupedAttention<B: Backend> {
    query_key_value: B::Linear,
    query_norm: Option<B::Vector>,
    key_norm: Option<B::Vector>,
    output: B::Linear,
    rope: Rc<B::Rope>,
    groups: HeadGroups,
    key_value_heads: usize,
    head_dimension: usize,
    rotated: usize,
    epsilon: f32,
}

impl<B: Backend> GroupedAttention<B> {
    /// `load` stands at the layer's attention (`model.layers.N.self_attn`).
    pub fn load(load: &mut Loader<'_, B>, options: GroupedOptions, rope: Rc<B::Rope>) -> Result<Self, ModelError> {
        let GroupedOptions { key_value_heads, head_dimension: width, input, .. } = options;
        let (config, share) = (load.config, load.share.heads(load.config.heads, key_value_heads));
        let columns = |heads: &std::ops::Range<usize>| heads.start * width..heads.end * width;
        let bias = if options.bias { Bias::ByRow } else { Bias::None };
        let project = |name, heads, part| Slice::whole(name, heads * width, input).outputs(part).bias(bias);
        let query_key_value = load.linear(&[
            project("q_proj", config.heads, columns(&share.query)),
            project("k_proj", key_value_heads, columns(&share.key_value)),
            project("v_proj", key_value_heads, columns(&share.key_value)),
        ])?;
        let output = Slice::whole("o_proj", config.hidden, config.heads * width)
            .inputs(columns(&share.query))
            .bias(if options.output_bias { Bias::Once } else { Bias::None });
        let mut norm = |name| options.query_key_norm.then(|| load.norm(name, width)).transpose();
        Ok(Self {
            query_key_value,
            query_norm: norm("q_norm")?,
            key_norm: norm("k_norm")?,
            output: load.linear(&[output])?,
            rope,
            groups: share.groups,
            key_value_heads: share.key_value.len(),
            head_dimension: width,
            rotated: config.rope.dimension,
            epsilon: config.norm_epsilon as f32,
        })
    }

    pub fn widths(&self) -> Widths {
        let queries = self.groups.query_heads * self.head_dimension;
        let projected = queries + 2 * self.key_value_heads * self.head_dimension;
        Widths { projected, attended: queries, ..Widths::default() }
    }

    /// Heads `first..first + count` of the projected row: queries, then keys, then values.
    fn heads(&self, first: usize, count: usize) -> Blocks {
        let width = self.head_dimension;
        let row = (self.groups.query_heads + 2 * self.key_value_heads) * width;
        Blocks { row, offset: first * width, count, stride: width, width }
    }

    /// `scratch.normed` to this rank's part in `scratch.partial`.
    pub fn forward(&self, pass: &mut Pass<'_, B>, scratch: &mut Scratch<B>, layer: usize) -> Result<(), PassError> {
        let (rows, step, backend) = (pass.rows, pass.step, &mut *pass.backend);
        let (queries, cached) = (self.groups.query_heads, self.key_value_heads);
        let (query, key) = (self.heads(0, queries), self.heads(queries, cached));
        let value = self.heads(queries + cached, cached);
        let weight = &self.query_key_value;
        backend.linear(Product { weight, input: &scratch.normed, output: &mut scratch.projected, rows })?;
        for (blocks, norm) in [(query, &self.query_norm), (key, &self.key_norm)] {
            let Some(weight) = norm else { continue };
            let (buffer, epsilon) = (&mut scratch.projected, self.epsilon);
            backend.rms_norm_blocks(NormBlocks { buffer, blocks, weight, epsilon, rows })?;
        }
        let blocks = Blocks { width: self.rotated, ..self.heads(0, queries + cached) };
        backend.rotate(Rotate { step, rope: &self.rope, buffer: &mut scratch.projected, blocks, rows })?;
        let (source, cache) = (&scratch.projected, &mut *pass.cache);
        backend.append(Append { step, source, key, value: Some(value), cache, layer, rows })?;
        let (groups, scale) = (self.groups, (self.head_dimension as f32).sqrt().recip());
        let output = &mut scratch.attended;
        backend.attend(Attend { step, source, query, groups, scale, cache, layer, output, rows })?;
        let (weight, output) = (&self.output, &mut scratch.partial);
        Ok(backend.linear(Product { weight, input: &scratch.attended, output, rows })?)
    }
}
