//! How a step's attention is cut into work items.

use engine::backend::{HeadGroups, Segment, StepInput};

use super::{AttentionItem, PAGE};
use crate::kernels::{NEAR_CONTEXT, NEAR_DRAFTED, NEAR_ROWS, NEAR_SEQUENCES, near_rows, near_tiles};

/// Pairs of (row, query head) in a tile of the tensor cores.
const PAIRS: usize = 16;
/// Warps of a block.
const WARPS: usize = 4;
/// Positions that a block's warps take at once: the shortest part of a context.
const SHORTEST_PART: usize = WARPS * PAGE;
/// Rows of a step up to which every segment is split: recorded passes have no work items of the other kind.
pub const SPLIT_ROWS: usize = 64;
/// Tiles of a segment up to which its context is split; from there on there are rows enough to fill the device.
const SPLIT_TILES: usize = 4;
/// Blocks per multiprocessor that keep the memory busy.
const BLOCKS_EACH: usize = 2;

/// The passes that may attend a step as one of short contexts, because they have blocks for each of its tiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearPasses {
    /// Those in which every sequence has one row.
    pub one_row: bool,
    /// Those over several rows of a sequence.
    pub rows: bool,
}

/// What the cutting depends on besides the step: heads and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionGeometry {
    /// Query heads that share a cached head.
    group: usize,
    /// Rows that share a tile.
    tile_rows: usize,
    /// Blocks that one work item stands for: bundles of query heads that share a cached head.
    bundles: usize,
    bundles_per_head: usize,
    /// Work items beyond one per tile.
    extra_items: usize,
}

impl AttentionGeometry {
    /// For these query heads over `cached_heads` cached heads on a device of so many multiprocessors.
    pub fn new(groups: &HeadGroups, cached_heads: usize, multiprocessors: usize) -> Self {
        let bundles_per_head = groups.group.div_ceil(PAIRS);
        let bundles = cached_heads * bundles_per_head;
        Self {
            group: groups.group,
            tile_rows: PAIRS / groups.group.clamp(1, PAIRS),
            bundles,
            bundles_per_head,
            extra_items: (BLOCKS_EACH * multiprocessors).div_ceil(bundles.max(1)),
        }
    }

    /// Blocks in y of the attention kernels.
    pub fn bundles(&self) -> usize {
        self.bundles
    }

    /// Bundles that share a cached head.
    pub fn bundles_per_head(&self) -> usize {
        self.bundles_per_head
    }

    /// Most split items of a step of `rows` rows: blocks in x of `attend_split`, and places of its workspace.
    pub fn split_grid(&self, rows: usize) -> usize {
        rows + self.extra_items
    }

    /// Which passes of `padded` rows may attend this step as one of short contexts.
    pub fn near(&self, input: &StepInput, padded: usize) -> NearPasses {
        let segments = &input.segments;
        let short = segments.iter().all(|segment| segment.start + segment.rows <= NEAR_CONTEXT);
        let drafted = |segment: &Segment| {
            segment.tree.as_ref().map_or(0, |tree| (segment.start + segment.rows).saturating_sub(tree.committed))
        };
        let each = near_rows(self.group, padded);
        let tiles: usize = segments.iter().map(|segment| segment.rows.div_ceil(each)).sum();
        NearPasses {
            one_row: short && segments.len() <= NEAR_SEQUENCES && segments.iter().all(|segment| segment.rows == 1),
            rows: short
                && padded <= NEAR_ROWS
                && tiles <= near_tiles(self.group, padded)
                && segments.iter().all(|segment| drafted(segment) <= NEAR_DRAFTED),
        }
    }

    /// Cuts the step: items of the kernel that splits the context, then of the one that does not.
    pub fn cut(&self, input: &StepInput, [split, whole]: [&mut Vec<AttentionItem>; 2]) {
        split.clear();
        whole.clear();
        let tiles = |rows: usize| rows.div_ceil(self.tile_rows);
        let total: usize = input.segments.iter().map(|segment| segment.rows).sum();
        let few = |rows: usize| total <= SPLIT_ROWS || tiles(rows) <= SPLIT_TILES;
        let split_tiles = || {
            let split = input.segments.iter().filter(|segment| few(segment.rows));
            split.map(|segment| (tiles(segment.rows), segment.start + segment.rows))
        };
        let part = self.part(&split_tiles);
        for (index, segment) in input.segments.iter().enumerate() {
            let (rows_each, items) =
                if few(segment.rows) { (self.tile_rows, &mut *split) } else { (WARPS * self.tile_rows, &mut *whole) };
            for first_row in (0..segment.rows).step_by(rows_each) {
                let rows = rows_each.min(segment.rows - first_row);
                // A tree's row may see any drafted position; another one sees nothing behind itself.
                let drafted = if segment.tree.is_some() { segment.rows } else { first_row + rows };
                let end = segment.start + drafted;
                let part = if few(segment.rows) { part } else { end };
                push(items, [index, first_row, rows], end, part);
            }
        }
    }

    /// Positions of a part, for tiles that are given as how many there are of a segment and their context: a multiple of
    /// [`SHORTEST_PART`] that makes at most `extra_items` more parts than there are tiles. Where the tiles are fewer than the
    /// device works on at once, so are the parts: what is left over would come when all others have ended.
    fn part<T: Iterator<Item = (usize, usize)>>(&self, tiles: &impl Fn() -> T) -> usize {
        let positions: usize = tiles().map(|(tiles, context)| tiles * context).sum();
        let mut part = positions.div_ceil(self.extra_items).next_multiple_of(SHORTEST_PART).max(SHORTEST_PART);
        let items = |part: usize| tiles().map(|(tiles, context)| tiles * context.div_ceil(part)).sum::<usize>();
        if items(usize::MAX) <= self.extra_items {
            while items(part) > self.extra_items {
                part += (part / 8).next_multiple_of(SHORTEST_PART);
            }
        }
        part
    }
}

/// The parts of one tile.
fn push(items: &mut Vec<AttentionItem>, [segment, first_row, rows]: [usize; 3], end: usize, part: usize) {
    let (place, parts) = (items.len() as u32, end.div_ceil(part) as u32);
    items.extend((0..parts).map(|index| AttentionItem {
        segment: segment as u32,
        first_row: first_row as u32,
        rows: rows as u32,
        begin: index * part as u32,
        end: ((index as usize + 1) * part).min(end) as u32,
        part: index,
        parts,
        place,
    }));
}

#[cfg(test)]
mod tests {
    use engine::backend::TreeMask;
    use proptest::prelude::*;

    use super::*;

    fn segment(rows: usize, start: usize, tree: bool) -> Segment {
        let tree = tree.then_some(TreeMask { committed: start, words: 0..rows });
        Segment { first_row: 0, rows, start, pages: 0..0, tree }
    }

    #[test]
    fn passes_attend_short_contexts_where_they_have_blocks_for_every_tile() {
        let near = |segments: &[(usize, usize)], group: usize, padded: usize| {
            let geometry = AttentionGeometry::new(&HeadGroups { query_heads: 8 * group, group, offset: 0 }, 8, 132);
            let mut input = StepInput::default();
            input.segments.extend(segments.iter().map(|(rows, start)| segment(*rows, *start, false)));
            let NearPasses { one_row, rows } = geometry.near(&input, padded);
            (one_row, rows)
        };
        assert_eq!(near(&[(1, 1023)], 4, 1), (true, true), "the last position within reach");
        assert_eq!(near(&[(1, 1024)], 4, 1), (false, false), "one beyond");
        assert_eq!(near(&[(1, 9); 4], 4, 4), (true, false), "two tiles of two rows have no room for four sequences");
        assert_eq!(near(&[(1, 9); 8], 4, 8), (true, false));
        assert_eq!(near(&[(1, 9); 9], 4, 16), (true, false));
        assert_eq!(near(&[(1, 9); 64], 4, 64), (true, false));
        assert_eq!(
            near(&[(1, 9); 65], 4, 128),
            (false, false),
            "more sequences than passes of single rows are recorded for"
        );
        assert_eq!(near(&[(4, 500), (4, 9)], 4, 8), (false, true));
        assert_eq!(near(&[(3, 500), (5, 9)], 4, 8), (false, false), "five tiles of two rows, and a grid of four");
        assert_eq!(near(&[(16, 500)], 4, 16), (false, true));
        assert_eq!(near(&[(17, 500)], 4, 24), (false, false));
        assert_eq!(near(&[(8, 500); 2], 4, 16), (false, true), "two tiles, in turns");
        assert_eq!(near(&[(4, 500); 3], 4, 16), (false, false), "three");
        assert_eq!(near(&[(4, 500); 4], 16, 16), (false, true), "four, each with blocks of its own");
        assert_eq!(near(&[(5, 500)], 16, 8), (false, true), "four rows a tile");
        let geometry = AttentionGeometry::new(&HeadGroups { query_heads: 32, group: 4, offset: 0 }, 8, 132);
        let reach = |committed| {
            let mut input = StepInput::default();
            let tree = Some(TreeMask { committed, words: 0..4 });
            input.segments.push(Segment { tree, ..segment(4, 500, false) });
            geometry.near(&input, 4).rows
        };
        assert!(reach(392) && !reach(391), "a tree of seven pages, and of one position more");
    }

    #[test]
    fn parts_run_together_where_tiles_do() {
        let parts = |sequences: usize, context: usize| {
            let geometry = AttentionGeometry::new(&HeadGroups { query_heads: 32, group: 4, offset: 0 }, 8, 132);
            let mut input = StepInput::default();
            input.segments.extend((0..sequences).map(|_| segment(1, context, false)));
            let (mut split, mut whole) = (Vec::new(), Vec::new());
            geometry.cut(&input, [&mut split, &mut whole]);
            split.len()
        };
        // 33 items fill 132 multiprocessors with two blocks of each of eight heads.
        assert_eq!([1, 8, 16, 32].map(|sequences| parts(sequences, 512)), [9, 24, 32, 32]);
        assert_eq!(parts(1, 32768), 33);
        assert_eq!(parts(4, 8192), 32);
        assert_eq!(parts(64, 512), 64);
    }

    proptest! {
        #[test]
        fn every_row_meets_every_position_that_it_may_see_once(
            segments in proptest::collection::vec((1usize..70, 0usize..3000, any::<bool>()), 1..12),
            group in 1usize..40,
            cached_heads in 1usize..9,
        ) {
            let groups = HeadGroups { query_heads: group * cached_heads, group, offset: 0 };
            let geometry = AttentionGeometry::new(&groups, cached_heads, 132);
            let mut input = StepInput::default();
            input.segments.extend(segments.iter().map(|(rows, start, tree)| segment(*rows, *start, *tree)));
            let (mut split, mut whole) = (Vec::new(), Vec::new());
            geometry.cut(&input, [&mut split, &mut whole]);
            let rows: usize = segments.iter().map(|(rows, ..)| rows).sum();
            prop_assert!(split.len() <= geometry.split_grid(rows), "{} items for {rows} rows", split.len());
            prop_assert!(whole.len() <= rows);
            prop_assert!(rows > SPLIT_ROWS || whole.is_empty(), "recorded passes have no items of this kind");
            for (index, (rows, start, tree)) in segments.iter().enumerate() {
                for row in 0..*rows {
                    let mine = |item: &&AttentionItem| {
                        let first = item.first_row as usize;
                        item.segment as usize == index && (first..first + item.rows as usize).contains(&row)
                    };
                    let items: Vec<_> = split.iter().chain(&whole).filter(mine).collect();
                    prop_assert!(!items.is_empty());
                    let mut next = 0;
                    for (part, item) in items.iter().enumerate() {
                        prop_assert_eq!((item.part as usize, item.parts as usize), (part, items.len()));
                        prop_assert_eq!(item.begin, next);
                        prop_assert!((item.begin as usize).is_multiple_of(PAGE) && item.begin < item.end);
                        next = item.end;
                    }
                    let needed = start + if *tree { *rows } else { row + 1 };
                    prop_assert!(next as usize >= needed && next as usize <= start + rows);
                }
            }
            for (at, item) in split.iter().enumerate() {
                prop_assert_eq!((item.place + item.part) as usize, at);
                prop_assert!(item.rows as usize * group.min(PAIRS) <= PAIRS);
            }
        }
    }
}
