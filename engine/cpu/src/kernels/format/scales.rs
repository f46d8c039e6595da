//! The floating-point part of block formats: what a code is multiplied with and what is added.

use bytemuck::{Pod, Zeroable};

use crate::kernels::simd::{LANES, Simd};

/// One tile's scales: `weight = scale * (code - zero) + offset`.
pub(crate) struct TileScales<S: Simd> {
    /// Of columns 0 to 15.
    pub low: S::Floats,
    /// Of columns 16 to 31; the same value as `low` unless [`Scales::HALVES`].
    pub high: S::Floats,
    /// What is added; not used unless [`Scales::AFFINE`].
    pub offset: S::Floats,
}

/// The scales of a block of the file, for 16 rows.
pub(crate) trait Scales: Pod {
    /// Tiles of a block.
    const TILES: usize;
    /// There is an offset.
    const AFFINE: bool;
    /// The halves of a tile have scales of their own.
    const HALVES: bool;

    fn tile<S: Simd>(&self, s: S, tile: usize) -> TileScales<S>;
}

/// Q8_0, Q4_0, Q5_0: an f16 for 32 columns.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct Single(pub [u16; LANES]);

/// Q4_1, Q5_1: an f16 scale and an f16 offset for 32 columns.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Pair {
    pub scale: [u16; LANES],
    pub offset: [u16; LANES],
}

/// Q4_K, Q5_K: eight tiles with a 6-bit scale and a 6-bit offset each, which an f16 scale and an f16 offset multiply.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Nested {
    pub scale: [u16; LANES],
    pub offset: [u16; LANES],
    pub scales: [[u8; LANES]; 8],
    pub offsets: [[u8; LANES]; 8],
}

/// Q6_K: sixteen half tiles with an 8-bit scale each, which an f16 scale multiplies.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Halves {
    pub scale: [u16; LANES],
    pub scales: [[i8; LANES]; 16],
}

impl Scales for Single {
    const TILES: usize = 1;
    const AFFINE: bool = false;
    const HALVES: bool = false;

    #[inline(always)]
    fn tile<S: Simd>(&self, s: S, _tile: usize) -> TileScales<S> {
        let scale = s.load_f16(&self.0);
        TileScales { low: scale, high: scale, offset: s.splat(0.0) }
    }
}

impl Scales for Pair {
    const TILES: usize = 1;
    const AFFINE: bool = true;
    const HALVES: bool = false;

    #[inline(always)]
    fn tile<S: Simd>(&self, s: S, _tile: usize) -> TileScales<S> {
        let scale = s.load_f16(&self.scale);
        TileScales { low: scale, high: scale, offset: s.load_f16(&self.offset) }
    }
}

impl Scales for Nested {
    const TILES: usize = 8;
    const AFFINE: bool = true;
    const HALVES: bool = false;

    #[inline(always)]
    fn tile<S: Simd>(&self, s: S, tile: usize) -> TileScales<S> {
        let scale = s.mul(s.load_f16(&self.scale), s.load_u8(&self.scales[tile]));
        // The file's offsets are subtracted.
        let offset = s.mul(s.load_f16(&self.offset), s.load_u8(&self.offsets[tile]));
        TileScales { low: scale, high: scale, offset: s.sub(s.splat(0.0), offset) }
    }
}

impl Scales for Halves {
    const TILES: usize = 8;
    const AFFINE: bool = false;
    const HALVES: bool = true;

    #[inline(always)]
    fn tile<S: Simd>(&self, s: S, tile: usize) -> TileScales<S> {
        let scale = s.load_f16(&self.scale);
        let low = s.mul(scale, s.load_i8(&self.scales[2 * tile]));
        TileScales { low, high: s.mul(scale, s.load_i8(&self.scales[2 * tile + 1])), offset: s.splat(0.0) }
    }
}
