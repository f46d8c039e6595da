//! Attention over the pages of a cache.

mod near;

use engine::backend::{Blocks, HeadGroups};

pub(crate) use near::{NEAR_CONTEXT, NEAR_DRAFTED, NEAR_ROWS, NEAR_SEQUENCES, near_rows, near_tiles};
use near::{NearKernels, larger};

use super::launch::Shape;
use super::module::Module;
use super::rope::{Angles, CachePlace, HeadNorm};
use super::{Kernel, KernelError, KernelSet, Launcher};
use crate::step::{AttentionGeometry, PAGE, StepAddresses};

const WARPS: u32 = 4;
/// Pairs of (row, query head) in a tile.
const PAIRS: u32 = 16;

pub(super) struct AttentionKernels {
    split: Kernel,
    /// None where the target has no clusters, or for these heads.
    near: Option<NearKernels>,
    whole: Kernel,
}

impl AttentionKernels {
    pub fn load(module: &Module, head: u32) -> Result<Self, KernelError> {
        Ok(Self {
            split: module.kernel("attend_split", shared(head))?.beside_streamed()?,
            near: NearKernels::load(module, head)?,
            whole: module.kernel("attend_whole", shared_whole(head))?,
        })
    }
}

/// Floats that a pair's part takes: sums, the largest score, the sum of weights.
const fn part(head: u32) -> u32 {
    head + 2
}

/// Pages that a warp, or a block, has under way or in work: the twin of `STAGES` in `kernels/attention/attention.cu`.
const STAGES: u32 = 3;

/// Bytes of a page's keys and values of one head.
const fn page(head: u32) -> u32 {
    2 * PAGE as u32 * head * 2
}

/// Of the kernels that split the context: a ring of pages per warp, then the parts of the warps and of the block.
pub(super) const fn shared(head: u32) -> u32 {
    let ring = WARPS * STAGES * page(head);
    larger(ring, (WARPS + 1) * PAIRS * part(head) * size_of::<f32>() as u32)
}

/// Of the other one: a ring of pages.
const fn shared_whole(head: u32) -> u32 {
    STAGES * page(head)
}

/// Memory that attention needs besides its input and output, shared by all layers.
#[derive(Clone, Copy, Debug)]
pub struct AttentionSpace {
    /// [`AttentionSpace::workspace_bytes`] bytes of any content.
    pub workspace: u64,
    /// [`AttentionSpace::arrivals_bytes`] bytes of zeros; a launch leaves them zero.
    pub arrivals: u64,
}

impl AttentionSpace {
    /// For steps of up to `rows` rows, and heads of `padded` columns.
    pub fn workspace_bytes(geometry: &AttentionGeometry, rows: usize, padded: usize) -> usize {
        geometry.split_grid(rows)
            * geometry.bundles()
            * PAIRS as usize
            * part(padded as u32) as usize
            * size_of::<f32>()
    }

    pub fn arrivals_bytes(geometry: &AttentionGeometry, rows: usize) -> usize {
        geometry.split_grid(rows) * geometry.bundles() * size_of::<u32>()
    }
}

/// Softmax attention of every row over what its sequence has in the cache, the step's own rows included.
#[derive(Clone, Copy, Debug)]
pub struct Attend {
    pub step: StepAddresses,
    pub geometry: AttentionGeometry,
    /// Rows of the step, padding included: sizes the grid of the kernel that splits the context.
    pub rows: u32,
    /// Blocks of the other one: what [`crate::step::StepImage::whole_items`] says, 0 where a graph is captured.
    pub whole_items: u32,
    /// `[rows, query.row]` bf16, queries in the columns of `query`.
    pub source: u64,
    pub query: Blocks,
    pub groups: HeadGroups,
    pub cache: CachePlace,
    /// Factor of the scores before softmax.
    pub scale: f32,
    /// `[rows, query heads * head dimension]` bf16.
    pub output: u64,
    pub space: AttentionSpace,
    /// Where the kernel that splits the context also rotates the step's rows and appends them; the other one does not.
    pub fresh: Option<Fresh>,
    /// Contexts and rows are within [`NEAR_CONTEXT`], [`NEAR_SEQUENCES`] and [`NEAR_ROWS`], and what the cache holds of them was written before
    /// this pass: the kernel reads it before it waits for the one in front.
    pub near: Option<Near>,
}

/// What a step promises whose context is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// Every sequence has one row.
    OneRow,
    /// A sequence may have several; tiles are no more than [`near_tiles`] says.
    Rows,
}

/// The step's own rows before rotation: queries, keys and values of [`Attend::source`]. Keys in the source stay as they are.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    pub angles: Angles,
    pub norm: HeadNorm,
    /// Columns of a row where its keys and its values begin, head by head without gaps.
    pub key_offset: u32,
    pub value_offset: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Arguments {
    counts: u64,
    segments: u64,
    items: u64,
    pages: u64,
    mask: u64,
    source: u64,
    keys: u64,
    values: u64,
    output: u64,
    workspace: u64,
    arrivals: u64,
    positions: u64,
    cosines: u64,
    sines: u64,
    query_norm: u64,
    key_norm: u64,
    row: u32,
    query_offset: u32,
    query_stride: u32,
    width: u32,
    query_heads: u32,
    cached_heads: u32,
    group: u32,
    group_offset: u32,
    bundles_per_head: u32,
    scale: f32,
    pairs: u32,
    interleaved: u32,
    epsilon: f32,
    key_offset: u32,
    value_offset: u32,
}

impl Attend {
    fn arguments(&self, items: u64) -> Arguments {
        let Self { step, geometry, source, query, groups, cache, scale, output, space, fresh, .. } = *self;
        let (angles, norm) = (fresh.map(|fresh| fresh.angles), fresh.map(|fresh| fresh.norm).unwrap_or_default());
        Arguments {
            counts: step.counts,
            segments: step.segments,
            items,
            pages: step.pages,
            mask: step.mask,
            source,
            keys: cache.keys,
            values: cache.values,
            output,
            workspace: space.workspace,
            arrivals: space.arrivals,
            positions: step.positions,
            cosines: angles.map_or(0, |angles| angles.cosines),
            sines: angles.map_or(0, |angles| angles.sines),
            query_norm: norm.query,
            key_norm: norm.key,
            row: query.row as u32,
            query_offset: query.offset as u32,
            query_stride: query.stride as u32,
            width: query.width as u32,
            query_heads: groups.query_heads as u32,
            cached_heads: cache.heads,
            group: groups.group as u32,
            group_offset: groups.offset as u32,
            bundles_per_head: geometry.bundles_per_head() as u32,
            scale: scale * std::f32::consts::LOG2_E,
            pairs: angles.map_or(0, |angles| angles.pairs),
            interleaved: angles.map_or(0, |angles| angles.interleaved),
            epsilon: norm.epsilon,
            key_offset: fresh.map_or(0, |fresh| fresh.key_offset),
            value_offset: fresh.map_or(0, |fresh| fresh.value_offset),
        }
    }
}

/// # Safety
/// As this module says; the step's arrays are those of an image filled with the same geometry.
pub unsafe fn attend(launcher: &Launcher, kernels: &KernelSet, attend: &Attend) -> Result<(), KernelError> {
    let head = attend.cache.padded;
    let Some((_, family)) = kernels.attention.iter().find(|(compiled, _)| *compiled == head) else {
        let (what, why) = (format!("heads of {head}"), "the kernels were not compiled for them");
        return Err(KernelError::Shape { kernel: "attend", what, why });
    };
    if let Some((kernel, shape)) = attend.near(family.near) {
        // SAFETY: this function's contract; the argument is the kernel's.
        return unsafe { launcher.launch(kernel, shape, &attend.arguments(attend.step.split_items)) };
    }
    let bundles = attend.geometry.bundles() as u32;
    let items = attend.geometry.split_grid(attend.rows as usize) as u32;
    let shape = Shape { grid: [items, bundles], threads: WARPS * 32, shared: shared(head) };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(family.split, shape, &attend.arguments(attend.step.split_items)) }?;
    if attend.whole_items > 0 && attend.fresh.is_some() {
        let (what, why) =
            ("rows that are not appended yet".to_owned(), "only few rows of a sequence are appended here");
        return Err(KernelError::Shape { kernel: "attend_whole", what, why });
    }
    let shape = Shape { grid: [attend.whole_items, bundles], threads: WARPS * 32, shared: shared_whole(head) };
    // SAFETY: as above.
    unsafe { launcher.launch(family.whole, shape, &attend.arguments(attend.step.whole_items)) }
}
