//! Kernels for short contexts: which of them takes a step.

use super::{Attend, Near, PAIRS, WARPS};
use crate::kernels::launch::Shape;
use crate::kernels::module::Module;
use crate::kernels::{Kernel, KernelError, KernelSet};
use crate::step::PAGE;

/// Blocks of a cluster: the twin of `CLUSTER` in `kernels/attention/near_room.cuh`.
const CLUSTER: u32 = 8;

/// For short contexts.
#[derive(Clone, Copy)]
pub(super) struct NearKernels {
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
const NEAR_ONE: [(usize, &str, Team); 4] = [
    (4, "attend_near_8", NEAR_TEAM),
    (8, "attend_near_8_some", Team { blocks: 4, warps: 4 }),
    (16, "attend_near_8_many", Team { blocks: 2, warps: 6 }),
    (NEAR_SEQUENCES, "attend_near_8_alone", Team { blocks: 1, warps: 6 }),
];

/// Who takes a tile of several rows.
const NEAR_TEAM: Team = Team { blocks: CLUSTER, warps: WARPS };

impl NearKernels {
    pub fn load(module: &Module, head: u32) -> Result<Option<Self>, KernelError> {
        // Asking for what is not there would be an error to whoever watches the driver.
        if !NEAR_HEADS.contains(&head) {
            return Ok(None);
        }
        let kernel = |name, shared| module.optional(name, shared)?.map(Kernel::beside_streamed).transpose();
        let one =
            NEAR_ONE.iter().filter_map(|(_, name, team)| kernel(name, team.shared(head, NEAR_PAIRS, 1)).transpose());
        let Ok(one) = <[Kernel; _]>::try_from(one.collect::<Result<Vec<_>, _>>()?) else { return Ok(None) };
        let few = kernel("attend_near_8_rows", NEAR_TEAM.shared(head, NEAR_PAIRS, NEAR_ROWS as u32))?;
        let many = kernel("attend_rows", rows_shared(head))?;
        Ok(few.zip(many).map(|(few, many)| Self { one, few, many }))
    }
}

/// Heads that they are compiled for: the twin of `ARCHWAY_ATTENDS_NEAR` in `kernels/attention/tile.cuh`.
const NEAR_HEADS: [u32; 2] = [64, 128];
/// Longest context for which a pass is recorded that attends so: a warp then has at most eleven pages, and a block of 64
/// pairs at most nine, of which it works on five, or three, at once.
pub(crate) const NEAR_CONTEXT: usize = 1024;
/// Most sequences of such a pass where each has one row, and most rows of one.
pub(crate) const NEAR_SEQUENCES: usize = 64;
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

/// Tiles of a pass beyond which 8 pairs are few: more blocks than run together would come one after the other.
const NEAR_TILES: usize = 4;
/// Tiles that a cluster takes in turns where pairs are many. With three, the kernel for any context is faster by a third
/// (`kernels/attention/HISTORY.md`).
const TURNS: usize = 2;

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
    if is_few(group, rows) || tiles > TURNS { tiles } else { TURNS }
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

pub(super) const fn larger(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
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
    pub(super) fn near(&self, kernels: Option<NearKernels>) -> Option<(Kernel, Shape)> {
        let (near, kernels, fresh) = (self.near?, kernels?, self.fresh?);
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
