//! The block formats of GGUF: how a block of the file becomes codes and scales. Source: ggml's `block_q*` structures
//! and `dequantize_row_q*` functions.

use super::{
    TILE,
    codes::{Codes, Codes4, Codes5, Codes6, Codes8},
    scales::{Halves, Nested, Pair, Scales, Single},
};

/// A block format. A block of the file has `Scales::TILES` tiles.
pub(crate) trait Block {
    type Codes: Codes;
    type Scales: Scales;
    /// The code that stands for zero.
    const ZERO: i32;

    /// Codes of one tile of a block of the file.
    fn codes(block: &[u8], tile: usize) -> [u8; TILE];

    /// Puts the block's scales into a lane.
    fn scales(block: &[u8], to: &mut Self::Scales, lane: usize);
}

pub(crate) struct Q8_0;
pub(crate) struct Q4_0;
pub(crate) struct Q4_1;
pub(crate) struct Q5_0;
pub(crate) struct Q5_1;
pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// 16 bytes whose low halves are the first 16 columns and whose high halves are the other 16.
fn nibbles(bytes: &[u8]) -> [u8; TILE] {
    std::array::from_fn(|column| if column < 16 { bytes[column] & 15 } else { bytes[column - 16] >> 4 })
}

/// Adds the fifth bits: bit `i` of the four bytes belongs to column `i`.
fn with_fifth_bits(mut codes: [u8; TILE], bits: &[u8]) -> [u8; TILE] {
    for (column, code) in codes.iter_mut().enumerate() {
        *code |= (bits[column / 8] >> (column % 8) & 1) << 4;
    }
    codes
}

/// The 6-bit scales and offsets of the eight tiles of Q4_K and Q5_K, in 12 bytes.
fn nested_scales(block: &[u8], to: &mut Nested, lane: usize) {
    to.scale[lane] = half(block, 0);
    to.offset[lane] = half(block, 2);
    let packed = &block[4..16];
    for tile in 0..4 {
        to.scales[tile][lane] = packed[tile] & 63;
        to.offsets[tile][lane] = packed[tile + 4] & 63;
        to.scales[tile + 4][lane] = (packed[tile + 8] & 15) | (packed[tile] >> 6 << 4);
        to.offsets[tile + 4][lane] = (packed[tile + 8] >> 4) | (packed[tile + 4] >> 6 << 4);
    }
}

/// Two neighbouring tiles share 32 bytes: the even one has the low halves.
fn paired_nibbles(bytes: &[u8], tile: usize) -> [u8; TILE] {
    let bytes = &bytes[tile / 2 * TILE..];
    std::array::from_fn(|column| bytes[column] >> (tile % 2 * 4) & 15)
}

impl Block for Q8_0 {
    type Codes = Codes8;
    type Scales = Single;
    const ZERO: i32 = 0;

    fn codes(block: &[u8], _tile: usize) -> [u8; TILE] {
        std::array::from_fn(|column| block[2 + column])
    }

    fn scales(block: &[u8], to: &mut Single, lane: usize) {
        to.0[lane] = half(block, 0);
    }
}

impl Block for Q4_0 {
    type Codes = Codes4;
    type Scales = Single;
    const ZERO: i32 = 8;

    fn codes(block: &[u8], _tile: usize) -> [u8; TILE] {
        nibbles(&block[2..])
    }

    fn scales(block: &[u8], to: &mut Single, lane: usize) {
        to.0[lane] = half(block, 0);
    }
}

impl Block for Q4_1 {
    type Codes = Codes4;
    type Scales = Pair;
    const ZERO: i32 = 0;

    fn codes(block: &[u8], _tile: usize) -> [u8; TILE] {
        nibbles(&block[4..])
    }

    fn scales(block: &[u8], to: &mut Pair, lane: usize) {
        to.scale[lane] = half(block, 0);
        to.offset[lane] = half(block, 2);
    }
}

impl Block for Q5_0 {
    type Codes = Codes5;
    type Scales = Single;
    const ZERO: i32 = 16;

    fn codes(block: &[u8], _tile: usize) -> [u8; TILE] {
        with_fifth_bits(nibbles(&block[6..]), &block[2..6])
    }

    fn scales(block: &[u8], to: &mut Single, lane: usize) {
        to.0[lane] = half(block, 0);
    }
}

impl Block for Q5_1 {
    type Codes = Codes5;
    type Scales = Pair;
    const ZERO: i32 = 0;

    fn codes(block: &[u8], _tile: usize) -> [u8; TILE] {
        with_fifth_bits(nibbles(&block[8..]), &block[4..8])
    }

    fn scales(block: &[u8], to: &mut Pair, lane: usize) {
        to.scale[lane] = half(block, 0);
        to.offset[lane] = half(block, 2);
    }
}

impl Block for Q4K {
    type Codes = Codes4;
    type Scales = Nested;
    const ZERO: i32 = 0;

    fn codes(block: &[u8], tile: usize) -> [u8; TILE] {
        paired_nibbles(&block[16..], tile)
    }

    fn scales(block: &[u8], to: &mut Nested, lane: usize) {
        nested_scales(block, to, lane);
    }
}

impl Block for Q5K {
    type Codes = Codes5;
    type Scales = Nested;
    const ZERO: i32 = 0;

    fn codes(block: &[u8], tile: usize) -> [u8; TILE] {
        let mut codes = paired_nibbles(&block[48..], tile);
        for (code, bits) in codes.iter_mut().zip(&block[16..48]) {
            *code |= (bits >> tile & 1) << 4;
        }
        codes
    }

    fn scales(block: &[u8], to: &mut Nested, lane: usize) {
        nested_scales(block, to, lane);
    }
}

impl Block for Q6K {
    type Codes = Codes6;
    type Scales = Halves;
    const ZERO: i32 = 32;

    /// Each half of the block has 64 bytes of low bits, of which two tiles share 32, and 32 bytes of high bits, of
    /// which all four tiles take two bits each.
    fn codes(block: &[u8], tile: usize) -> [u8; TILE] {
        let (half, quarter) = (tile / 4, tile % 4);
        let low = &block[half * 64 + quarter % 2 * 32..];
        let high = &block[128 + half * 32..];
        std::array::from_fn(|column| (low[column] >> (quarter / 2 * 4) & 15) | (high[column] >> (quarter * 2) & 3) << 4)
    }

    fn scales(block: &[u8], to: &mut Halves, lane: usize) {
        to.scale[lane] = half(block, 208);
        for (scales, byte) in to.scales.iter_mut().zip(&block[192..208]) {
            scales[lane] = *byte as i8;
        }
    }
}
