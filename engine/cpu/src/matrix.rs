//! Weight matrices and their product with activations.

use engine::backend::{BackendError, MatrixPart};

use crate::kernels::{Compute, QuantMatrix};

/// Lanes of a dot product: the sum's order is fixed by this, not by the instruction set or the number of rows.
const LANES: usize = 16;

/// `[rows, columns]` with an optional bias: parts one below the other, each in the format of its file.
pub struct Matrix {
    pub rows: usize,
    pub columns: usize,
    parts: Vec<QuantMatrix>,
    bias: Option<Vec<f32>>,
}

impl Matrix {
    pub fn load(parts: &[MatrixPart<'_>], bias: Option<&[f32]>) -> Result<Self, BackendError> {
        let columns = parts.first().map_or(0, |part| part.columns.len());
        let rows = parts.iter().map(|part| part.rows.len()).sum();
        assert!(parts.iter().all(|part| part.columns.len() == columns), "stacked parts have equal columns");
        assert!(bias.is_none_or(|bias| bias.len() == rows), "a bias has a value per row");
        let parts = parts.iter().map(QuantMatrix::pack).collect::<Result<_, _>>()?;
        Ok(Self { rows, columns, parts, bias: bias.map(<[f32]>::to_vec) })
    }

    /// Row `row` as f32 values, one per column.
    pub fn row(&self, row: usize, to: &mut [f32]) {
        let mut row = row;
        for part in &self.parts {
            if row < part.rows() {
                return part.row(row, to);
            }
            row -= part.rows();
        }
        panic!("a row beyond the {} of the matrix", self.rows);
    }

    /// `output = input * self^T + bias`; `input` is `[rows, columns]`, `output` `[rows, self.rows]`.
    pub fn multiply(&self, compute: &Compute, input: &[f32], output: &mut [f32], rows: usize) {
        let (input, output) = (&input[..rows * self.columns], &mut output[..rows * self.rows]);
        if self.columns > 0 {
            return compute.linear(input, &self.parts, self.bias.as_deref(), output);
        }
        // A rank without a part of the inputs adds nothing but its bias.
        for output in output.chunks_exact_mut(self.rows.max(1)) {
            match &self.bias {
                Some(bias) => output.copy_from_slice(bias),
                None => output.fill(0.0),
            }
        }
    }

    /// All values as f32, row by row.
    pub fn values(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.rows * self.columns];
        values.chunks_exact_mut(self.columns.max(1)).enumerate().for_each(|(row, to)| self.row(row, to));
        values
    }
}

/// Sum of products in a fixed order.
pub fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (left_chunks, left_rest) = left.as_chunks::<LANES>();
    let (right_chunks, right_rest) = right.as_chunks::<LANES>();
    for (left, right) in left_chunks.iter().zip(right_chunks) {
        for lane in 0..LANES {
            lanes[lane] += left[lane] * right[lane];
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(left, right)| left * right).sum();
    lanes.iter().sum::<f32>() + rest
}
