//! Super-blocks of 256 weights ("K quants"): scales of sub-blocks are quantised themselves.

use super::scale;

const SUPER_BLOCK: usize = 256;

/// Splits bytes and output into super-blocks.
fn each<const BYTES: usize>(bytes: &[u8], out: &mut [f32], convert: impl Fn(&[u8; BYTES], &mut [f32; SUPER_BLOCK])) {
    let blocks = bytes.as_chunks::<BYTES>().0.iter();
    for (block, out) in blocks.zip(out.as_chunks_mut::<SUPER_BLOCK>().0) {
        convert(block, out);
    }
}

/// Six-bit scale and minimum of sub-block `index` of 8, packed in 12 bytes: the first four of each lie in the low six
/// bits of bytes 0..4 and 4..8; of the others, the low nibbles lie in bytes 8..12 and the high bits atop the former.
fn scale_and_minimum(packed: &[u8], index: usize) -> (f32, f32) {
    let (scale, minimum) = if index < 4 {
        (packed[index] & 63, packed[index + 4] & 63)
    } else {
        let low = packed[index + 4];
        ((low & 15) | (packed[index - 4] >> 6) << 4, (low >> 4) | (packed[index] >> 6) << 4)
    };
    (f32::from(scale), f32::from(minimum))
}

/// Scale and minimum (f16), 12 bytes of sub-scales, 128 bytes of nibbles: 32 bytes hold the low nibbles of one
/// sub-block of 32 and the high nibbles of the next.
pub fn q4_k(bytes: &[u8], out: &mut [f32]) {
    each::<144>(bytes, out, |block, out| {
        let (d, minimum) = (scale(block, 0), scale(block, 2));
        let quanta = &block[16..];
        for (sub_block, out) in out.chunks_exact_mut(32).enumerate() {
            let (sub_scale, sub_minimum) = scale_and_minimum(&block[4..16], sub_block);
            let (d, minimum) = (d * sub_scale, minimum * sub_minimum);
            let shift = 4 * (sub_block % 2);
            for (out, byte) in out.iter_mut().zip(&quanta[sub_block / 2 * 32..]) {
                *out = d * f32::from(byte >> shift & 15) - minimum;
            }
        }
    });
}

/// As [`q4_k`], with 32 bytes of fifth bits before the nibbles: bit `b` of byte `i` belongs to weight `i` of
/// sub-block `b`.
pub fn q5_k(bytes: &[u8], out: &mut [f32]) {
    each::<176>(bytes, out, |block, out| {
        let (d, minimum) = (scale(block, 0), scale(block, 2));
        let (fifth, quanta) = block[16..].split_at(32);
        for (sub_block, out) in out.chunks_exact_mut(32).enumerate() {
            let (sub_scale, sub_minimum) = scale_and_minimum(&block[4..16], sub_block);
            let (d, minimum) = (d * sub_scale, minimum * sub_minimum);
            let shift = 4 * (sub_block % 2);
            for ((out, byte), fifth) in out.iter_mut().zip(&quanta[sub_block / 2 * 32..]).zip(fifth) {
                let quantum = (byte >> shift & 15) | (fifth >> sub_block & 1) << 4;
                *out = d * f32::from(quantum) - minimum;
            }
        }
    });
}

/// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed sub-scales, scale (f16); offset 32. Each half of
/// 128 weights has four rows of 32: their nibbles lie low, low, high, high in 64 bytes, their bit pairs in 32 bytes.
pub fn q6_k(bytes: &[u8], out: &mut [f32]) {
    each::<210>(bytes, out, |block, out| {
        let d = scale(block, 208);
        for (row, out) in out.chunks_exact_mut(32).enumerate() {
            let (half, row) = (row / 4, row % 4);
            let low = &block[64 * half + 32 * (row % 2)..];
            let high = &block[128 + 32 * half..];
            let scales = &block[192 + 8 * half + 2 * row..];
            for (index, out) in out.iter_mut().enumerate() {
                let quantum = (low[index] >> (4 * (row / 2)) & 15) | (high[index] >> (2 * row) & 3) << 4;
                *out = d * f32::from(scales[index / 16] as i8) * f32::from(quantum as i8 - 32);
            }
        }
    });
}
