//! The forms in which `kernels/product/*.cu` compiles its kernels, and which product uses which form.

use super::Product;

/// One form of a kernel.
#[derive(Clone, Copy)]
pub(super) struct Size {
    /// The compiled source that has it.
    pub unit: &'static str,
    pub plain: &'static str,
    pub gated: &'static str,
    /// Most rows of activations.
    inputs: u32,
    /// Rows of weights in a tile.
    pub rows: u32,
    /// Blocks on a multiprocessor.
    pub resident: u32,
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Columns of a stage that one warp multiplies. Where one block is on a multiprocessor, or activations are held, a row's
    /// columns must be a multiple of it.
    share: u32,
    worth: Worth,
}

/// Names of a streamed kernel: the compiled source, the plain kernel and the gated one.
struct Names {
    unit: &'static str,
    plain: &'static str,
    gated: &'static str,
}

/// The block of a streamed kernel.
struct Stages {
    /// Columns of a stage.
    columns: u32,
    stages: u32,
    /// Warps that multiply.
    warps: u32,
    /// Other warps; one of them orders the copies.
    others: u32,
    /// Columns of a row of activations that stays in shared memory.
    kept: u32,
    /// Blocks on a multiprocessor.
    resident: u32,
}

/// Which products a kernel is for, beside the limit of its rows of activations.
#[derive(Clone, Copy)]
enum Worth {
    Any,
    /// At least [`WORTH_STREAMING`] bytes of weights per multiprocessor.
    Large,
    /// At least so many bytes of weights per multiprocessor, and rows that the registers of two blocks hold.
    Short(u64),
    /// At least so many bytes of weights per multiprocessor but fewer than [`LONG`], and rows of up to so many columns.
    Light(u64, u32),
    /// At least [`WORTH_ONE_BLOCK`] bytes of weights per multiprocessor, and rows that the registers of one block hold.
    Held,
    /// At least [`WORTH_ONE_BLOCK`] bytes of weights per multiprocessor, and tiles for nine multiprocessors in ten.
    Wide,
    /// As `Wide`; where registers would hold the rows, at most one tile for each multiprocessor.
    Once,
    /// At least [`WORTH_ONE_BLOCK`] bytes of weights per multiprocessor.
    Deep,
}

/// Bytes of weights per multiprocessor below which starting the copy engine costs more than it gains.
const WORTH_STREAMING: u64 = 48 * 1024;
/// Bytes of weights per multiprocessor that one block has on their way at a time; below, two smaller blocks are faster.
const WORTH_ONE_BLOCK: u64 = 192 * 1024;
/// Bytes of weights per multiprocessor from which room for another block beside this one is worth more than an earlier start.
const WORTH_ROOM: u64 = 320 * 1024;
/// Bytes of weights per multiprocessor from which a product is so long that neither matters.
const LONG: u64 = 2 * 1024 * 1024;
/// Longest rows of activations that stay in the registers of one block per multiprocessor, in columns.
const HELD_COLUMNS: u32 = 4096;
/// The same for two blocks per multiprocessor.
const SHORT_COLUMNS: u32 = 2048;

impl Size {
    /// A kernel whose eight warps load weights to registers.
    const fn direct(names: [&'static str; 2], inputs: u32, rows: u32, resident: u32) -> Self {
        let [plain, gated] = names;
        let (threads, shared) = (8 * 32, sums(inputs, rows, 8));
        Self { unit: "product", plain, gated, inputs, rows, resident, threads, shared, share: 1, worth: Worth::Any }
    }

    /// A kernel whose weights go to shared memory, in stages of 16 rows.
    const fn streamed(names: Names, inputs: u32, rows: u32, stages: Stages, worth: Worth) -> Self {
        let (Names { unit, plain, gated }, Stages { columns, stages, warps, others, kept, resident }) = (names, stages);
        let shared = stages * 16 * 2 * columns + 2 * sums(inputs, 16, warps) + 2 * kept;
        let (threads, share) = ((warps + others) * 32, columns / warps);
        Self { unit, plain, gated, inputs, rows, resident, threads, shared, share, worth }
    }

    /// Whether the plain kernel can choose the largest output of each row: the twin of `CHOOSES` in
    /// `kernels/product/streamed.cuh`.
    pub fn chooses(&self) -> bool {
        !matches!(self.worth, Worth::Any) && self.inputs <= 8
    }

    pub fn tiles(&self, product: &Product, gated: bool) -> u32 {
        product.outputs.div_ceil(if gated { self.rows / 2 } else { self.rows })
    }

    /// Whether the kernel can compute the product, and is worth using for it.
    pub fn suits(&self, product: &Product, gated: bool, multiprocessors: u32) -> bool {
        let bytes = product.weight_bytes(gated);
        let large = |least: u64| bytes >= least * u64::from(multiprocessors);
        // A warp has all of its columns of a stage, or none.
        let whole = product.columns.is_multiple_of(self.share);
        let one_block = large(WORTH_ONE_BLOCK) && whole;
        let held = |least: u64| large(least) && whole && product.columns <= HELD_COLUMNS;
        let tiles = self.tiles(product, gated);
        let filled = 10 * u64::from(tiles) >= 9 * u64::from(multiprocessors);
        let once = tiles <= multiprocessors || product.columns > HELD_COLUMNS;
        product.count <= self.inputs
            && match self.worth {
                Worth::Any => true,
                Worth::Large => large(WORTH_STREAMING),
                Worth::Short(least) => large(least) && whole && product.columns <= SHORT_COLUMNS,
                Worth::Light(least, columns) => !large(LONG) && held(least) && product.columns <= columns,
                Worth::Held => held(WORTH_ONE_BLOCK),
                Worth::Wide => one_block && filled,
                Worth::Once => one_block && filled && once,
                Worth::Deep => one_block,
            }
    }
}

/// Bytes of the sums that `warps` warps have of a tile of `rows` rows of the weight.
const fn sums(inputs: u32, rows: u32, warps: u32) -> u32 {
    warps * rows * (inputs + 1) * size_of::<f32>() as u32
}

/// By rows of activations. The first form that suits is used, [`STREAMED`] before these.
pub(super) const DIRECT: [Size; 4] = [
    Size::direct(["product_8", "gated_8"], 8, 16, 2),
    Size::direct(["product_16", "gated_16"], 16, 16, 2),
    Size::direct(["product_32", "gated_32"], 32, 32, 1),
    Size::direct(["product_64", "gated_64"], 64, 32, 1),
];

/// The fastest first. They have as many stages as leave room for a block of attention, except where registers leave none.
pub(super) const STREAMED: [Size; 14] = [
    held(["streamed_short_1", "streamed_gated_short_1"], 1, LIGHT_SHORT, Worth::Light(WORTH_STREAMING, SHORT_COLUMNS)),
    held(["streamed_light_1", "streamed_gated_light_1"], 1, LIGHT, Worth::Light(WORTH_ROOM, HELD_COLUMNS)),
    held(["streamed_held_1", "streamed_gated_held_1"], 1, one_block(6, 8), Worth::Held),
    wide(["streamed_wide_1", "streamed_gated_wide_1"], 1, 32, one_block(6, 8), Worth::Wide),
    wide(["streamed_deep_1", "streamed_gated_deep_1"], 1, 16, one_block(4, 8), Worth::Deep),
    held(["streamed_short_8", "streamed_gated_short_8"], 8, SHORT, Worth::Short(WORTH_ONE_BLOCK)),
    held(["streamed_held_8", "streamed_gated_held_8"], 8, one_block(6, 8), Worth::Held),
    wide(["streamed_wide_8", "streamed_gated_wide_8"], 8, 32, one_block(6, 8), Worth::Wide),
    wide(["streamed_deep_8", "streamed_gated_deep_8"], 8, 16, one_block(4, 8), Worth::Deep),
    two_blocks(["streamed_8", "streamed_gated_8"], 8, 6),
    wide(["streamed_wide_16", "streamed_gated_wide_16"], 16, 32, one_block(5, 8), Worth::Once),
    held(["streamed_held_16", "streamed_gated_held_16"], 16, GROWING, Worth::Held),
    wide(["streamed_deep_16", "streamed_gated_deep_16"], 16, 16, one_block(5, 16), Worth::Deep),
    two_blocks(["streamed_16", "streamed_gated_16"], 16, 5),
];

const SHORT: Stages = Stages { resident: 2, ..one_block(3, 8) };

/// With one row of activations in shared memory, which leaves registers for other blocks on the multiprocessor.
const LIGHT_SHORT: Stages = Stages { kept: SHORT_COLUMNS, resident: 3, ..one_block(2, 8) };
const LIGHT: Stages = Stages { kept: HELD_COLUMNS, ..one_block(6, 8) };

/// Its multiplying warps take registers over from the others.
const GROWING: Stages = Stages { others: 4, ..one_block(6, 16) };

const fn one_block(stages: u32, warps: u32) -> Stages {
    Stages { columns: 1024, stages, warps, others: 1, kept: 0, resident: 1 }
}

const fn held(names: [&'static str; 2], inputs: u32, stages: Stages, worth: Worth) -> Size {
    Size::streamed(Names { unit: "held", plain: names[0], gated: names[1] }, inputs, 16, stages, worth)
}

const fn wide(names: [&'static str; 2], inputs: u32, rows: u32, stages: Stages, worth: Worth) -> Size {
    Size::streamed(Names { unit: "wide", plain: names[0], gated: names[1] }, inputs, rows, stages, worth)
}

const fn two_blocks(names: [&'static str; 2], inputs: u32, stages: u32) -> Size {
    let stages = Stages { columns: 512, resident: 2, ..one_block(stages, 8) };
    Size::streamed(Names { unit: "streamed", plain: names[0], gated: names[1] }, inputs, 16, stages, Worth::Large)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel that a device of 132 multiprocessors uses for `[outputs, columns]` and so many rows.
    fn chosen([outputs, columns]: [u32; 2], count: u32, gated: bool) -> &'static str {
        let product = Product { outputs, columns, count, ..Product::default() };
        let size = STREAMED.iter().chain(&DIRECT).find(|size| size.suits(&product, gated, 132)).expect("up to 64 rows");
        if gated { size.gated } else { size.plain }
    }

    #[test]
    fn each_product_has_the_form_that_was_measured_fastest() {
        for (shape, count, gated, name) in [
            ([4096, 4096], 1, false, "streamed_held_1"),
            ([6144, 4096], 1, false, "streamed_light_1"),
            ([14336, 4096], 1, true, "streamed_gated_light_1"),
            ([14336, 4096], 2, true, "streamed_gated_held_8"),
            ([14336, 4096], 16, true, "streamed_gated_held_16"),
            ([6144, 4096], 16, false, "streamed_held_16"),
            ([6144, 4096], 8, false, "streamed_held_8"),
            ([4096, 4096], 16, false, "streamed_wide_16"),
            ([128_256, 4096], 16, false, "streamed_held_16"),
            ([128_256, 4096], 1, false, "streamed_held_1"),
            ([128_256, 2048], 1, false, "streamed_held_1"),
            ([4096, 14336], 1, false, "streamed_wide_1"),
            ([4096, 14336], 8, false, "streamed_wide_8"),
            ([4096, 14336], 9, false, "streamed_wide_16"),
            ([3072, 2048], 1, false, "streamed_short_1"),
            ([3072, 2048], 8, false, "streamed_8"),
            ([3072, 4096], 1, false, "streamed_8"),
            ([8192, 2048], 1, true, "streamed_gated_short_1"),
            ([8192, 2048], 8, true, "streamed_gated_short_8"),
            ([2048, 8192], 1, false, "streamed_deep_1"),
            ([2048, 8192], 4, false, "streamed_deep_8"),
            ([2048, 8192], 16, false, "streamed_deep_16"),
            ([4096, 4032], 1, false, "streamed_8"),
            ([4096, 4032], 16, false, "streamed_held_16"),
            ([8192, 14336], 16, false, "streamed_wide_16"),
            ([576, 576], 16, false, "product_16"),
            ([4096, 4096], 17, false, "product_32"),
        ] {
            assert_eq!(chosen(shape, count, gated), name, "{shape:?}, {count} rows");
        }
    }
}
