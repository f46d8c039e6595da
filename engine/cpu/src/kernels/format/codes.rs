//! The integer part of block formats: codes of 4, 5, 6 or 8 bits.

use bytemuck::{Pod, Zeroable};

use super::{GROUPS, TILE};
use crate::kernels::simd::Simd;

/// The codes of a tile, packed.
pub(crate) trait Codes: Pod {
    /// Signed bytes instead of unsigned codes.
    const SIGNED: bool;

    /// Puts one row's codes into its lane; the lane is zero before.
    fn set(&mut self, lane: usize, codes: &[u8; TILE]);

    /// One vector of bytes per group of four columns.
    fn groups<S: Simd>(&self, s: S) -> [S::Bytes; GROUPS];

    /// Per lane, the sum of code times activation over `N` groups.
    fn dot<S: Simd, const N: usize>(s: S, groups: &[S::Bytes; N], words: &[i32; N]) -> S::Ints;
}

/// Vector `j` holds group `j` in the low halves of its bytes and group `j + 4` in the high halves.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct Codes4([[u8; 64]; 4]);

/// The low four bits, then a vector whose bit `g` of a byte is the fifth bit of group `g`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Codes5 {
    low: Codes4,
    fifth: [u8; 64],
}

/// The low four bits, then two vectors with the other two bits of groups 0 to 3 and 4 to 7, from the lowest bits up.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Codes6 {
    low: Codes4,
    high: [[u8; 64]; 2],
}

/// Vector `g` is group `g`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct Codes8([[u8; 64]; GROUPS]);

impl Codes for Codes4 {
    const SIGNED: bool = false;

    fn set(&mut self, lane: usize, codes: &[u8; TILE]) {
        let (low, high) = codes.split_at(TILE / 2);
        for (column, (low, high)) in low.iter().zip(high).enumerate() {
            self.0[column / 4][lane * 4 + column % 4] |= (low & 15) | (high << 4);
        }
    }

    #[inline(always)]
    fn groups<S: Simd>(&self, s: S) -> [S::Bytes; GROUPS] {
        let [a, b, c, d] = &self.0;
        let (a, b, c, d) = (s.bytes(a), s.bytes(b), s.bytes(c), s.bytes(d));
        [
            s.and(a, 15),
            s.and(b, 15),
            s.and(c, 15),
            s.and(d, 15),
            s.and(s.shift_right::<4>(a), 15),
            s.and(s.shift_right::<4>(b), 15),
            s.and(s.shift_right::<4>(c), 15),
            s.and(s.shift_right::<4>(d), 15),
        ]
    }

    #[inline(always)]
    fn dot<S: Simd, const N: usize>(s: S, groups: &[S::Bytes; N], words: &[i32; N]) -> S::Ints {
        s.dot_unsigned::<4, N>(groups, words)
    }
}

impl Codes for Codes5 {
    const SIGNED: bool = false;

    fn set(&mut self, lane: usize, codes: &[u8; TILE]) {
        self.low.set(lane, codes);
        for (column, code) in codes.iter().enumerate() {
            self.fifth[lane * 4 + column % 4] |= (code >> 4 & 1) << (column / 4);
        }
    }

    #[inline(always)]
    fn groups<S: Simd>(&self, s: S) -> [S::Bytes; GROUPS] {
        let [a, b, c, d, e, f, g, h] = self.low.groups(s);
        let fifth = s.bytes(&self.fifth);
        [
            s.or(a, s.and(s.shift_left::<4>(fifth), 16)),
            s.or(b, s.and(s.shift_left::<3>(fifth), 16)),
            s.or(c, s.and(s.shift_left::<2>(fifth), 16)),
            s.or(d, s.and(s.shift_left::<1>(fifth), 16)),
            s.or(e, s.and(fifth, 16)),
            s.or(f, s.and(s.shift_right::<1>(fifth), 16)),
            s.or(g, s.and(s.shift_right::<2>(fifth), 16)),
            s.or(h, s.and(s.shift_right::<3>(fifth), 16)),
        ]
    }

    #[inline(always)]
    fn dot<S: Simd, const N: usize>(s: S, groups: &[S::Bytes; N], words: &[i32; N]) -> S::Ints {
        s.dot_unsigned::<5, N>(groups, words)
    }
}

impl Codes for Codes6 {
    const SIGNED: bool = false;

    fn set(&mut self, lane: usize, codes: &[u8; TILE]) {
        self.low.set(lane, codes);
        for (column, code) in codes.iter().enumerate() {
            let group = column / 4;
            self.high[group / 4][lane * 4 + column % 4] |= (code >> 4 & 3) << (2 * (group % 4));
        }
    }

    #[inline(always)]
    fn groups<S: Simd>(&self, s: S) -> [S::Bytes; GROUPS] {
        let [a, b, c, d, e, f, g, h] = self.low.groups(s);
        let (first, second) = (s.bytes(&self.high[0]), s.bytes(&self.high[1]));
        [
            s.or(a, s.and(s.shift_left::<4>(first), 48)),
            s.or(b, s.and(s.shift_left::<2>(first), 48)),
            s.or(c, s.and(first, 48)),
            s.or(d, s.and(s.shift_right::<2>(first), 48)),
            s.or(e, s.and(s.shift_left::<4>(second), 48)),
            s.or(f, s.and(s.shift_left::<2>(second), 48)),
            s.or(g, s.and(second, 48)),
            s.or(h, s.and(s.shift_right::<2>(second), 48)),
        ]
    }

    #[inline(always)]
    fn dot<S: Simd, const N: usize>(s: S, groups: &[S::Bytes; N], words: &[i32; N]) -> S::Ints {
        s.dot_unsigned::<6, N>(groups, words)
    }
}

impl Codes for Codes8 {
    const SIGNED: bool = true;

    fn set(&mut self, lane: usize, codes: &[u8; TILE]) {
        for (column, code) in codes.iter().enumerate() {
            self.0[column / 4][lane * 4 + column % 4] = *code;
        }
    }

    #[inline(always)]
    fn groups<S: Simd>(&self, s: S) -> [S::Bytes; GROUPS] {
        let [a, b, c, d, e, f, g, h] = &self.0;
        [s.bytes(a), s.bytes(b), s.bytes(c), s.bytes(d), s.bytes(e), s.bytes(f), s.bytes(g), s.bytes(h)]
    }

    #[inline(always)]
    fn dot<S: Simd, const N: usize>(s: S, groups: &[S::Bytes; N], words: &[i32; N]) -> S::Ints {
        s.dot_signed(groups, words)
    }
}
