//! Weights, tables and caches to the device.

use engine::backend::{BackendError, CacheLayout, CacheShape, MatrixPart, RopeTable};
use engine::weights::WeightType;
use half::bf16;

use super::cut::{self, Piece};
use super::types::{Bias, Cache, Matrix, Rope, Run};
use super::{CudaBackend, absent};
use crate::compile::padded_head;
use crate::device::{Allocation, Purpose};
use crate::step::PAGE;

impl CudaBackend {
    /// Parts of one format stand in one run; a part of another begins a new one.
    pub(super) fn load_matrix(
        &mut self,
        parts: &[MatrixPart<'_>],
        bias: Option<&[f32]>,
    ) -> Result<Matrix, BackendError> {
        let columns = parts.first().map_or(0, |part| part.columns.len());
        let mut pieces = parts.iter().map(cut::cut).collect::<Result<Vec<_>, _>>()?;
        // One launch is better than two, and a format of its own for a few rows saves little.
        if pieces.iter().any(|piece| piece.kind == WeightType::Bf16) {
            pieces = parts.iter().map(cut::widen_unless_bf16).collect::<Result<_, _>>()?;
        }
        let (mut runs, mut first) = (Vec::new(), 0);
        for same in pieces.chunk_by(|left, right| left.kind == right.kind) {
            let run = self.load_run(same, columns, first)?;
            first += run.rows;
            runs.push(run);
        }
        let bias = bias.map(|bias| self.load_bias(bias)).transpose()?;
        Ok(Matrix { rows: first, columns, runs, bias })
    }

    fn load_run(&mut self, pieces: &[Piece<'_>], columns: usize, first: usize) -> Result<Run, BackendError> {
        self.kernels.ready_if_compiled()?;
        let bytes = pieces.iter().map(|piece| piece.bytes.len()).sum();
        let memory = Allocation::new(&self.gpu.account, bytes, Purpose::Weights, "load_linear")?;
        let mut to = memory.pointer();
        for piece in pieces {
            self.uploader.upload(&piece.bytes, to)?;
            to += piece.bytes.len() as u64;
        }
        let (kind, rows) = (pieces[0].kind, pieces.iter().map(|piece| piece.rows).sum());
        if kind != WeightType::Bf16 {
            self.widest = self.widest.max(rows * columns);
        }
        Ok(Run { memory, kind, rows, first })
    }

    fn load_bias(&mut self, bias: &[f32]) -> Result<Bias, BackendError> {
        let narrow: Vec<u8> = bias.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect();
        let memory = Allocation::new(&self.gpu.account, narrow.len(), Purpose::Weights, "load_linear")?;
        self.uploader.upload(&narrow, memory.pointer())?;
        Ok(Bias { wide: self.load_values(bias, "load_linear")?, narrow: memory })
    }

    /// f32 values.
    pub(super) fn load_values(&mut self, values: &[f32], operation: &'static str) -> Result<Allocation, BackendError> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let memory = Allocation::new(&self.gpu.account, bytes.len(), Purpose::Weights, operation)?;
        self.uploader.upload(bytes, memory.pointer())?;
        Ok(memory)
    }

    pub(super) fn load_angles(&mut self, table: &RopeTable) -> Result<Rope, BackendError> {
        let pairs = table.frequencies.len();
        let (mut cosines, mut sines) = (Vec::new(), Vec::new());
        for position in 0..table.positions {
            for frequency in &table.frequencies {
                let (sine, cosine) = (position as f64 * frequency).sin_cos();
                cosines.push((cosine * table.factor) as f32);
                sines.push((sine * table.factor) as f32);
            }
        }
        let cosines = self.load_values(&cosines, "load_rope")?;
        let sines = self.load_values(&sines, "load_rope")?;
        Ok(Rope { cosines, sines, pairs, interleaved: table.interleaved })
    }

    pub(super) fn make_cache(&mut self, shape: &CacheShape) -> Result<Cache, BackendError> {
        let CacheLayout::KeyValue { heads, head_dimension } = shape.layout else {
            return Err(absent("allocate_cache", "latent attention"));
        };
        if shape.page_size != PAGE {
            return Err(absent("allocate_cache", "pages of other sizes than 16 positions"));
        }
        let padded = padded_head(head_dimension) as usize;
        let kept = CacheShape { layout: CacheLayout::KeyValue { heads, head_dimension: padded }, ..*shape };
        let elements = u128::from(kept.page_elements() as u64) * shape.pages as u128;
        let bytes = usize::try_from(elements * 2).unwrap_or(usize::MAX);
        let memory = self.zeroed(bytes, Purpose::Cache, "allocate_cache")?;
        self.widest_head = self.widest_head.max(padded);
        Ok(Cache { memory, shape: *shape, heads, padded })
    }
}
