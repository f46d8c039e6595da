//! What of a stored matrix goes to the device, and in which format.

use std::borrow::Cow;

use engine::backend::{BackendError, MatrixPart};
use engine::weights::WeightType;
use engine::weights::dequantise::dequantise;
use half::bf16;

/// Rows of one format, row by row, as the kernels read them.
pub(super) struct Piece<'a> {
    /// Bf16 or a block format.
    pub kind: WeightType,
    pub rows: usize,
    pub bytes: Cow<'a, [u8]>,
}

/// Whether the kernels read the format as it is stored. Plain types become bf16.
pub(super) fn stays(kind: WeightType) -> bool {
    kind == WeightType::Bf16 || kind.block_elements() > 1
}

/// The rectangle of a part. Blocks stay as they are unless the cut goes through them.
/// Errors: a type that is not a weight's.
pub(super) fn cut<'a>(part: &'a MatrixPart<'_>) -> Result<Piece<'a>, BackendError> {
    let (kind, columns, rows) = (part.tensor.kind, &part.columns, part.rows.len());
    let block = kind.block_elements();
    let whole_blocks = columns.start.is_multiple_of(block) && columns.end.is_multiple_of(block);
    let row_bytes = part.tensor.shape[1] / block * kind.block_bytes();
    let stored = &part.tensor.bytes[part.rows.start * row_bytes..part.rows.end * row_bytes];
    if stays(kind) && columns.len() == part.tensor.shape[1] {
        return Ok(Piece { kind, rows, bytes: Cow::Borrowed(stored) });
    }
    if stays(kind) && whole_blocks {
        let (from, to) = (columns.start / block * kind.block_bytes(), columns.end / block * kind.block_bytes());
        let mut cut = Vec::with_capacity(rows * (to - from));
        stored.chunks_exact(row_bytes.max(1)).for_each(|row| cut.extend_from_slice(&row[from..to]));
        return Ok(Piece { kind, rows, bytes: Cow::Owned(cut) });
    }
    let bytes = to_bf16(kind, stored, row_bytes, part)?;
    Ok(Piece { kind: WeightType::Bf16, rows, bytes: Cow::Owned(bytes) })
}

/// The part as bf16, where it stands in one matrix with others.
pub(super) fn widen_unless_bf16<'a>(part: &'a MatrixPart<'_>) -> Result<Piece<'a>, BackendError> {
    if part.tensor.kind == WeightType::Bf16 {
        return cut(part);
    }
    let kind = part.tensor.kind;
    let row_bytes = part.tensor.shape[1] / kind.block_elements() * kind.block_bytes();
    let stored = &part.tensor.bytes[part.rows.start * row_bytes..part.rows.end * row_bytes];
    let bytes = to_bf16(kind, stored, row_bytes, part)?;
    Ok(Piece { kind: WeightType::Bf16, rows: part.rows.len(), bytes: Cow::Owned(bytes) })
}

fn to_bf16(kind: WeightType, stored: &[u8], row_bytes: usize, part: &MatrixPart<'_>) -> Result<Vec<u8>, BackendError> {
    let convert = dequantise(kind).ok_or(BackendError::WeightType { operation: "load_linear", kind })?;
    let mut row = vec![0.0_f32; part.tensor.shape[1]];
    let mut bytes = Vec::with_capacity(part.rows.len() * part.columns.len() * 2);
    for stored in stored.chunks_exact(row_bytes.max(1)) {
        convert(stored, &mut row);
        bytes.extend(row[part.columns.clone()].iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use engine::backend::MatrixPart;
    use engine::weights::{TensorView, WeightType};
    use half::bf16;

    use super::cut;

    /// `[4, 64]` in Q8_0: scale 1, value `row + column % 32 - 16`.
    fn quantised() -> TensorView<'static> {
        let block = |row: u8| {
            let mut block = half::f16::ONE.to_le_bytes().to_vec();
            block.extend((0..32).map(|column| row.wrapping_add(column).wrapping_sub(16)));
            block
        };
        let bytes: Vec<u8> = (0..4).flat_map(|row| [block(row), block(row)].concat()).collect();
        TensorView { kind: WeightType::Q8_0, shape: vec![4, 64], bytes: bytes.into() }
    }

    #[test]
    fn rows_and_whole_blocks_stay_as_they_are() {
        let whole = quantised();
        let part = MatrixPart { tensor: quantised(), rows: 1..3, columns: 0..64 };
        let piece = cut(&part).expect("can be cut");
        assert_eq!((piece.kind, &*piece.bytes), (WeightType::Q8_0, &whole.bytes[68..204]));
        let part = MatrixPart { tensor: quantised(), rows: 0..2, columns: 32..64 };
        let piece = cut(&part).expect("can be cut");
        assert_eq!((piece.kind, piece.rows), (WeightType::Q8_0, 2));
        assert_eq!(*piece.bytes, [&whole.bytes[34..68], &whole.bytes[102..136]].concat());
    }

    #[test]
    fn a_cut_through_blocks_becomes_bf16() {
        let part = MatrixPart { tensor: quantised(), rows: 2..3, columns: 30..34 };
        let piece = cut(&part).expect("can be cut");
        assert_eq!((piece.kind, piece.rows), (WeightType::Bf16, 1));
        let values: Vec<f32> =
            piece.bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect();
        assert_eq!(values, [16.0, 17.0, -14.0, -13.0]);
    }

    #[test]
    fn plain_types_become_bf16() {
        let bytes: Vec<u8> = [1.0_f32, 1.001, -2.5, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = TensorView { kind: WeightType::F32, shape: vec![2, 2], bytes: bytes.into() };
        let part = MatrixPart::whole(tensor);
        let piece = cut(&part).expect("can be cut");
        assert_eq!(piece.kind, WeightType::Bf16);
        let expected: Vec<u8> =
            [1.0_f32, 1.001, -2.5, 3.0].iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect();
        assert_eq!(*piece.bytes, expected);
    }
}
