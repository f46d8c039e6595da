//! Weight matrices and their product with activations.

use std::borrow::Cow;

use engine::backend::{BackendError, MatrixPart};
use engine::weights::WeightType;
use half::{bf16, f16};

/// Lanes of a dot product: the sum's order is fixed by this, not by the instruction set or the number of rows.
const LANES: usize = 16;

/// `[rows, columns]` with an optional bias, parts stacked one below the other.
pub struct Matrix {
    pub rows: usize,
    pub columns: usize,
    values: Vec<f32>,
    bias: Option<Vec<f32>>,
}

impl Matrix {
    pub fn load(parts: &[MatrixPart<'_>], bias: Option<&[f32]>) -> Result<Self, BackendError> {
        let columns = parts.first().map_or(0, |part| part.columns.len());
        let rows = parts.iter().map(|part| part.rows.len()).sum();
        let mut values = Vec::with_capacity(rows * columns);
        for part in parts {
            assert_eq!(part.columns.len(), columns, "stacked parts have equal columns");
            append_part(part, &mut values)?;
        }
        assert!(bias.is_none_or(|bias| bias.len() == rows), "a bias has a value per row");
        Ok(Self { rows, columns, values, bias: bias.map(<[f32]>::to_vec) })
    }

    /// One row as f32.
    pub fn row(&self, row: usize) -> Cow<'_, [f32]> {
        Cow::Borrowed(&self.values[row * self.columns..(row + 1) * self.columns])
    }

    /// `output[row] = input[row] * self^T + bias`; `input` is `[rows, columns]`, `output` `[rows, self.rows]`.
    pub fn multiply(&self, input: &[f32], output: &mut [f32], rows: usize) {
        for row in 0..rows {
            let input = &input[row * self.columns..(row + 1) * self.columns];
            let output = &mut output[row * self.rows..(row + 1) * self.rows];
            for (out, value) in output.iter_mut().enumerate() {
                *value = dot(input, &self.row(out)) + self.bias.as_ref().map_or(0.0, |bias| bias[out]);
            }
        }
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

fn append_part(part: &MatrixPart<'_>, values: &mut Vec<f32>) -> Result<(), BackendError> {
    let (kind, width) = (part.tensor.kind, part.tensor.shape[1]);
    let size = match kind {
        WeightType::F32 => 4,
        WeightType::F16 | WeightType::Bf16 => 2,
        _ => return Err(BackendError::WeightType { operation: "load_linear", kind }),
    };
    for row in part.rows.clone() {
        let from = (row * width + part.columns.start) * size;
        let bytes = &part.tensor.bytes[from..from + part.columns.len() * size];
        match kind {
            WeightType::F32 => values.extend(bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word))),
            WeightType::F16 => values.extend(bytes.as_chunks().0.iter().map(|half| f16::from_le_bytes(*half).to_f32())),
            _ => values.extend(bytes.as_chunks().0.iter().map(|half| bf16::from_le_bytes(*half).to_f32())),
        }
    }
    Ok(())
}
