//! Blocks of 32 weights. Nibbles of byte `i` are weights `i` (low) and `i + 16` (high).

use super::scale;

const BLOCK: usize = 32;

/// Splits bytes and output into blocks.
fn each<const BYTES: usize>(bytes: &[u8], out: &mut [f32], convert: impl Fn(&[u8; BYTES], &mut [f32; BLOCK])) {
    let blocks = bytes.as_chunks::<BYTES>().0.iter();
    for (block, out) in blocks.zip(out.as_chunks_mut::<BLOCK>().0) {
        convert(block, out);
    }
}

/// Scale (f16), 32 signed bytes.
pub fn q8_0(bytes: &[u8], out: &mut [f32]) {
    each::<34>(bytes, out, |block, out| {
        let d = scale(block, 0);
        for (out, quantum) in out.iter_mut().zip(&block[2..]) {
            *out = f32::from(*quantum as i8) * d;
        }
    });
}

/// Scale (f16), 16 bytes of nibbles with an offset of 8.
pub fn q4_0(bytes: &[u8], out: &mut [f32]) {
    each::<18>(bytes, out, |block, out| {
        let d = scale(block, 0);
        for (index, byte) in block[2..].iter().enumerate() {
            out[index] = f32::from((byte & 15) as i8 - 8) * d;
            out[index + 16] = f32::from((byte >> 4) as i8 - 8) * d;
        }
    });
}

/// Scale and minimum (f16), 16 bytes of nibbles.
pub fn q4_1(bytes: &[u8], out: &mut [f32]) {
    each::<20>(bytes, out, |block, out| {
        let (d, minimum) = (scale(block, 0), scale(block, 2));
        for (index, byte) in block[4..].iter().enumerate() {
            out[index] = f32::from(byte & 15) * d + minimum;
            out[index + 16] = f32::from(byte >> 4) * d + minimum;
        }
    });
}

/// The fifth bits of weights `index` and `index + 16`, in place.
fn fifth_bits(high: &[u8], index: usize) -> (u8, u8) {
    let high = u32::from_le_bytes([high[0], high[1], high[2], high[3]]);
    (((high >> index) & 1) as u8 * 16, ((high >> (index + 16)) & 1) as u8 * 16)
}

/// Scale (f16), 32 fifth bits, 16 bytes of nibbles, with an offset of 16.
pub fn q5_0(bytes: &[u8], out: &mut [f32]) {
    each::<22>(bytes, out, |block, out| {
        let d = scale(block, 0);
        for (index, byte) in block[6..].iter().enumerate() {
            let (low, high) = fifth_bits(&block[2..6], index);
            out[index] = f32::from((byte & 15 | low) as i8 - 16) * d;
            out[index + 16] = f32::from((byte >> 4 | high) as i8 - 16) * d;
        }
    });
}

/// Scale and minimum (f16), 32 fifth bits, 16 bytes of nibbles.
pub fn q5_1(bytes: &[u8], out: &mut [f32]) {
    each::<24>(bytes, out, |block, out| {
        let (d, minimum) = (scale(block, 0), scale(block, 2));
        for (index, byte) in block[8..].iter().enumerate() {
            let (low, high) = fifth_bits(&block[4..8], index);
            out[index] = f32::from(byte & 15 | low) * d + minimum;
            out[index + 16] = f32::from(byte >> 4 | high) * d + minimum;
        }
    });
}
