//! Row order of query and key projections.

/// Undoes the reordering that llama.cpp's converter applies to Llama's query and key projections: within each head it
/// stores row `i` of the first half and row `i` of the second half side by side (rotary pairs (2i, 2i+1)), where
/// Hugging Face stores the halves one after the other (pairs (i, i + dim/2)).
///
/// `bytes` are `rows` rows of equal length, `rows` a multiple of `2 * heads`. Works on quantised rows too, because
/// blocks never cross rows; a bias is a tensor of one-element rows.
pub(super) fn split_halves(bytes: &[u8], rows: usize, heads: usize) -> Vec<u8> {
    let row_bytes = bytes.len() / rows;
    let half = rows / heads / 2;
    let mut result = Vec::with_capacity(bytes.len());
    for head in bytes.chunks_exact(2 * half * row_bytes) {
        for first in 0..2 {
            for pair in head.chunks_exact(2 * row_bytes) {
                result.extend_from_slice(&pair[first * row_bytes..][..row_bytes]);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::split_halves;

    #[test]
    fn halves_are_split_within_each_head() {
        // Two heads of four rows of two bytes; row r of the original is (r, r).
        let stored: Vec<u8> = [0, 2, 1, 3, 4, 6, 5, 7].iter().flat_map(|row| [*row, *row]).collect();
        let expected: Vec<u8> = (0..8).flat_map(|row| [row, row]).collect();
        assert_eq!(split_halves(&stored, 8, 2), expected);
    }
}
