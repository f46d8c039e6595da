//! What is handed over once, before the first step.

use std::ops::Range;

use crate::weights::TensorView;

/// A rectangle of a stored matrix: what one rank keeps of it. Columns may cut through quantised blocks; the backend
/// then converts those rows to a type that it can cut.
#[derive(Clone, Debug)]
pub struct MatrixPart<'a> {
    /// `[out, in]`.
    pub tensor: TensorView<'a>,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
}

impl<'a> MatrixPart<'a> {
    /// The whole matrix.
    pub fn whole(tensor: TensorView<'a>) -> Self {
        let (rows, columns) = (0..tensor.shape[0], 0..tensor.shape[1]);
        Self { tensor, rows, columns }
    }
}

/// One expert's part on this rank: `down(activation(gate(x)) * up(x))`.
#[derive(Clone, Debug)]
pub struct ExpertParts<'a> {
    pub gate: MatrixPart<'a>,
    pub up: MatrixPart<'a>,
    pub down: MatrixPart<'a>,
}

/// The up-projection of latent attention: per head first `nope` rows (keys), then `value` rows, each over the latent.
#[derive(Clone, Debug)]
pub struct LatentUpParts<'a> {
    /// `[heads * (nope + value), latent]`, rows of this rank's heads.
    pub part: MatrixPart<'a>,
    pub heads: usize,
    pub nope_dimension: usize,
    pub value_dimension: usize,
}

/// Rotary frequencies, after scaling rules; the backend makes cosines and sines of them.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// Radians per position of each pair; twice as many columns are rotated.
    pub frequencies: Vec<f64>,
    /// Factor of cosine and sine (YaRN's attention factor).
    pub factor: f64,
    /// Pairs are (2i, 2i+1) instead of (i, i + half).
    pub interleaved: bool,
    /// Positions that a step may name: 0 to this, exclusive.
    pub positions: usize,
}

/// What one position of one layer stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheLayout {
    /// A key and a value per cached head of this rank.
    KeyValue { heads: usize, head_dimension: usize },
    /// One latent and one rotated key, shared by all heads.
    Latent { latent: usize, rope: usize },
}

/// One cache group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    pub layers: usize,
    pub pages: usize,
    /// Positions in a page.
    pub page_size: usize,
    pub layout: CacheLayout,
}

impl CacheShape {
    /// Elements of one page over all layers: what memory planning multiplies by the element's bytes.
    pub fn page_elements(&self) -> usize {
        let position = match self.layout {
            CacheLayout::KeyValue { heads, head_dimension } => 2 * heads * head_dimension,
            CacheLayout::Latent { latent, rope } => latent + rope,
        };
        self.layers * self.page_size * position
    }
}
