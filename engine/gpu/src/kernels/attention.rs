//! Attention over the pages of a cache.

use engine::backend::{Blocks, HeadGroups};

use super::launch::Shape;
use super::module::Module;
use super::rope::{Angles, CachePlace, HeadNorm};
use super::{Kernel, KernelError, KernelSet, Launcher};
use crate::step::{AttentionGeometry, PAGE, StepAddresses};

const WARPS: u32 = 4;
/// Pairs of (row, query head) in a tile.
const PAIRS: u32 = 16;

/// Blocks of a cluster: the twin of `CLUSTER` in `kernels/attention/near_room.cuh`.
const CLUSTER: u32 = 8;

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

/// For short contexts.
#[derive(Clone, Copy)]
struct NearKernels {
    /// Where every sequence has one row, in tiles of 8 pairs: those of [`NEAR_ONE`].
    one: [Kernel; NEAR_ONE.len()],
    /// Several rows of a sequence, in tiles of 8 pairs.
    few: Kernel,
    /// In tiles of up to 64 pairs.
    many: Kernel,
}

/// Blocks of a cluster that takes a tile of 8 pairs, and warps of a block: the twin of `Team` in
/// `kernels/attention/near_page.cuh`.
#[derive(Clone, Copy)]
struct Team {
    blocks: u32,
    warps: u32,
}

/// Kernels for one row of each of up to so many sequences: the more there are, the fewer blocks share one, so that all of
/// them run together.
const NEAR_ONE: [(usize, &str, Team); 3] = [
    (4, "attend_near_8", NEAR_TEAM),
    (8, "attend_near_8_some", Team { blocks: 4, warps: 4 }),
    (NEAR_SEQUENCES, "attend_near_8_many", Team { blocks: 2, warps: 6 }),
];

/// Who takes a tile of several rows.
const NEAR_TEAM: Team = Team { blocks: CLUSTER, warps: WARPS };

impl NearKernels {
    fn load(module: &Module, head: u32) -> Result<Option<Self>, KernelError> {
        // Asking for what is not there would be an error to whoever watches the driver.
        if !NEAR_HEADS.contains(&head) {
            return Ok(None);
        }
        let kernel = |name, shared| module.optional(name, shared)?.map(Kernel::beside_streamed).transpose();
        let [first, second, third] = NEAR_ONE.map(|(_, name, team)| kernel(name, team.shared(head, NEAR_PAIRS, 1)));
        let (Some(first), Some(second), Some(third)) = (first?, second?, third?) else { return Ok(None) };
        let few = kernel("attend_near_8_rows", NEAR_TEAM.shared(head, NEAR_PAIRS, NEAR_ROWS as u32))?;
        let many = kernel("attend_rows", rows_shared(head))?;
        Ok(few.zip(many).map(|(few, many)| Self { one: [first, second, third], few, many }))
    }
}

/// Heads that they are compiled for: the twin of a condition in `kernels/attention/near.cuh`.
const NEAR_HEADS: [u32; 2] = [64, 128];
/// Longest context for which a pass is recorded that attends so: a warp then has at most six pages, and a block of 64 pairs
/// at most nine, of which it works on five, or three, at once.
pub(crate) const NEAR_CONTEXT: usize = 1024;
/// Most sequences of such a pass where each has one row, and most rows of one.
pub(crate) const NEAR_SEQUENCES: usize = 32;
pub(crate) const NEAR_ROWS: usize = 16;
/// Most sequences where a row of each has more pairs than a tile of 8: each takes a cluster of its own.
const MANY_SEQUENCES: usize = 8;
/// Most positions of a tree, drafted in this step or before, of which a row of such a pass may not see all: those of seven
/// pages. The kernel for many pairs looks at the mask for the first page of each of its blocks alone.
pub(crate) const NEAR_DRAFTED: usize = 7 * PAGE;
/// Pairs of a tile where there are few, whose pages are in registers, and where there are many: the twin of `ROWS_PAIRS` in
/// `kernels/attention/rows_memory.cuh`.
const NEAR_PAIRS: u32 = 8;
const ROWS_PAIRS: usize = 64;

/// Tiles of a pass beyond which 8 pairs are few: more blocks than run together would come one after the other. Where they are
/// many, a cluster takes up to so many tiles in turns.
const NEAR_TILES: usize = 4;

/// Whether pairs of a pass over `rows` rows of sequences are few, whose cached heads serve `group` query heads each.
const fn is_few(group: usize, rows: usize) -> bool {
    let few = NEAR_PAIRS as usize;
    group <= few && (group == 0 || rows.div_ceil(few / group) <= NEAR_TILES)
}

/// Rows of a tile of such a pass.
pub(crate) const fn near_rows(group: usize, rows: usize) -> usize {
    let pairs = if is_few(group, rows) { NEAR_PAIRS as usize } else { ROWS_PAIRS };
    if group == 0 || group > PAIRS as usize { 1 } else { pairs / group }
}

/// Most tiles of such a pass.
pub(crate) const fn near_tiles(group: usize, rows: usize) -> usize {
    let tiles = rows.div_ceil(near_rows(group, rows));
    if is_few(group, rows) || tiles > NEAR_TILES { tiles } else { NEAR_TILES }
}

impl Team {
    /// Bytes that a block needs for the parts of its warps and of the cluster's blocks (sums, the largest score, the sum of
    /// weights), and before that for the angles of a sequence's rows: the twin of `NearRoom` and `NearAngles`.
    const fn shared(self, head: u32, pairs: u32, rows: u32) -> u32 {
        let parts = (self.warps + 1) * pairs * head + (self.warps + self.blocks) * pairs * 2;
        larger(parts, rows * (head + 4)) * size_of::<f32>() as u32
    }
}

/// Pages that a block of many pairs has at once, and dimensions of their values.
const ROWS_PAGES: u32 = 5;
const ROWS_SHARE: u32 = 64;

/// Bytes that a block of many pairs needs: the twin of `RowsMemory` in `kernels/attention/rows_memory.cuh`.
const fn rows_shared(head: u32) -> u32 {
    let float = size_of::<f32>() as u32;
    let keys = ROWS_PAGES * PAGE as u32 * head * 2;
    let parts = CLUSTER * (WARPS * 32 + WARPS * 8) * 4 * float;
    let values = ROWS_PAGES * PAGE as u32 * ROWS_SHARE * 2;
    let (norms, barrier) = (2 * head * float, 16);
    larger(keys, parts) + values + norms + barrier
}

const fn larger(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
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

/// Whether heads of `head` columns, of which `pairs` pairs are rotated, have kernels for short contexts.
const fn is_laid_out(head: u32, pairs: u32, group: u32) -> bool {
    2 * pairs == head && group <= PAIRS
}

impl KernelSet {
    /// Whether some heads have kernels for short contexts.
    pub fn attends_near(&self) -> bool {
        self.attention.iter().any(|(_, family)| family.near.is_some())
    }

    /// Whether these are: heads padded to `head` columns, of which `pairs` pairs are rotated, `group` to a cached head.
    pub fn attends_near_with(&self, head: u32, pairs: u32, group: u32) -> bool {
        let family = self.attention.iter().find(|(compiled, _)| *compiled == head);
        is_laid_out(head, pairs, group) && family.is_some_and(|(_, family)| family.near.is_some())
    }
}

impl Attend {
    /// The kernel for short contexts, and its launch, where the heads are laid out for it.
    fn near(&self, family: &AttentionKernels) -> Option<(Kernel, Shape)> {
        let (near, kernels, fresh) = (self.near?, family.near?, self.fresh?);
        let (head, group) = (self.cache.padded, self.groups.group as u32);
        if self.query.width as u32 != head || !is_laid_out(head, fresh.angles.pairs, group) || self.whole_items > 0 {
            return None;
        }
        let rows = self.rows as usize;
        let each = near_rows(group as usize, rows);
        let tiles = rows.div_ceil(each) as u32;
        let grid = |team: Team, tiles: u32| [team.blocks * tiles, self.geometry.bundles() as u32];
        let few = |kernel, team: Team, tiles, shared| {
            (kernel, Shape { grid: grid(team, tiles), threads: team.warps * 32, shared })
        };
        // Clusters share the dimensions of a head.
        let many = |tiles| few(kernels.many, NEAR_TEAM, head / ROWS_SHARE * tiles, rows_shared(head));
        Some(match near {
            Near::OneRow if group <= NEAR_PAIRS => {
                let which = NEAR_ONE.iter().position(|(most, ..)| rows <= *most)?;
                let team = NEAR_ONE[which].2;
                few(kernels.one[which], team, self.rows, team.shared(head, group, 1))
            }
            Near::OneRow if rows <= MANY_SEQUENCES => many(self.rows),
            Near::OneRow => return None,
            Near::Rows if is_few(group as usize, rows) => {
                let pairs = group * rows.min(each) as u32;
                few(kernels.few, NEAR_TEAM, tiles, NEAR_TEAM.shared(head, pairs, self.rows))
            }
            Near::Rows => many(tiles),
        })
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
    if let Some((kernel, shape)) = attend.near(family) {
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
