//! Attention over pages: decode, verify with trees, prompts, and all of them in one step.

use engine::backend::{Blocks, CacheLayout, CacheShape, HeadGroups, Segment, StepInput, StepLimits, TreeMask};
use engine_cpu::kernels::{Attention, CacheElement, Compute, KeyValueCache, KeyValueColumns, Pool, Precision};
use engine_gpu::kernels::{self, Append, Attend, AttentionSpace, CachePlace};
use engine_gpu::step::{AttentionGeometry, PAGE, StepCapacity, StepImage, StepLayout};
use half::bf16;

use super::Report;
use crate::random::{Random, floats};
use crate::rig::{Failure, Memory, Rig, launched};

/// Weights of the softmax are rounded to bf16 before they meet the values, and so is the output.
const TOLERANCE: f64 = 6e-3;
/// Factor of the scores.
const SCALE: f32 = 0.3;
/// A prime, and enough for the longest sequence.
pub const PAGES: usize = 331;

#[derive(Clone, Copy, Debug)]
pub struct Heads {
    pub query: usize,
    pub cached: usize,
    pub group: usize,
    pub offset: usize,
    pub width: usize,
}

impl Heads {
    pub fn row(self) -> usize {
        (self.query + 2 * self.cached) * self.width
    }

    pub fn blocks(self, first: usize, count: usize) -> Blocks {
        Blocks { row: self.row(), offset: first * self.width, count, stride: self.width, width: self.width }
    }

    fn columns(self) -> KeyValueColumns {
        let key = self.blocks(self.query, self.cached);
        KeyValueColumns { key, value: self.blocks(self.query + self.cached, self.cached) }
    }

    pub fn groups(self) -> HeadGroups {
        HeadGroups { query_heads: self.query, group: self.group, offset: self.offset }
    }
}

const LARGE: Heads = Heads { query: 32, cached: 8, group: 4, offset: 0, width: 128 };
pub const SHAPES: [Heads; 8] = [
    LARGE,
    Heads { query: 9, cached: 3, group: 3, width: 64, ..LARGE },
    Heads { query: 4, cached: 2, group: 2, width: 16, ..LARGE },
    Heads { query: 4, cached: 2, group: 2, width: 32, ..LARGE },
    Heads { query: 5, cached: 2, group: 4, offset: 2, width: 20 },
    Heads { query: 14, cached: 2, group: 7, width: 96, ..LARGE },
    Heads { query: 20, cached: 1, group: 20, width: 80, ..LARGE },
    Heads { query: 3, cached: 3, group: 1, width: 48, ..LARGE },
];

/// Rows of a sequence: how many, how many positions before them, whether they are a tree.
pub type Sequence = (usize, usize, bool);

pub fn run(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let compute = Compute::new(Pool::share(1)?, Precision::Exact);
    let steps: [&[Sequence]; 10] = [
        &[(1, 0, false)],
        // Parts in one cluster, and in two.
        &[(1, 600, false), (1, 300, false)],
        &[(1, 300, false), (1, 600, false)],
        &[(1, 15, false)],
        &[(1, 512, false)],
        &[(1, 5000, false)],
        &[(1, 700, false), (1, 16, false), (1, 33, false), (1, 0, false)],
        &[(4, 700, true), (8, 30, true), (3, 64, false)],
        &[(70, 0, false), (1, 300, false), (40, 120, false)],
        &[(200, 37, false)],
    ];
    let small = rig.small;
    for heads in SHAPES {
        for sequences in steps.into_iter().filter(|sequences| fits(small, sequences)) {
            if rig.mine() {
                compare(rig, report, &compute, heads, sequences)?;
            }
        }
    }
    Ok(())
}

/// Whether a step is compared where large ones are left out.
pub fn fits(small: bool, sequences: &[Sequence]) -> bool {
    !small || sequences.iter().all(|(_, start, _)| *start <= 1000)
}

/// The step, and one that fills the cache before it. Pages are in no order.
pub fn input(random: &mut Random, sequences: &[Sequence]) -> (StepInput, StepInput) {
    let (mut step, mut before) = (StepInput::default(), StepInput::default());
    let mut next_page = 0;
    for &(rows, start, tree) in sequences {
        let pages = (start + rows).div_ceil(PAGE);
        let range = step.pages.len()..step.pages.len() + pages;
        step.pages.extend((next_page..next_page + pages).map(|page| (page * 7 + 3) as u32 % PAGES as u32));
        next_page += pages;
        let mask = step.mask.len();
        if tree {
            // Each row sees itself and some of those before it.
            step.mask.extend((0..rows).map(|row| random.next() & ((1 << row) - 1) | 1 << row));
        }
        let tree = tree.then_some(TreeMask { committed: start, words: mask..step.mask.len() });
        let first_row = step.tokens.len();
        step.tokens.resize(first_row + rows, 0);
        step.positions.extend((start..start + rows).map(|position| position as u32));
        step.segments.push(Segment { first_row, rows, start, pages: range.clone(), tree });
        if start > 0 {
            let first_row = before.tokens.len();
            before.tokens.resize(first_row + start, 0);
            before.positions.extend(0..start as u32);
            before.segments.push(Segment { first_row, rows: start, start: 0, pages: range, tree: None });
        }
    }
    before.pages.clone_from(&step.pages);
    (step, before)
}

/// A step on the device.
pub struct Uploaded {
    pub image: StepImage,
    pub layout: StepLayout,
    pub memory: Memory,
}

pub fn upload(rig: &Rig, geometry: &AttentionGeometry, step: &StepInput) -> Result<Uploaded, Failure> {
    let segments = step.segments.len().max(8);
    let limits = StepLimits { rows: step.rows() + 3, segments, pages: step.pages.len(), mask_words: 64 };
    let layout = StepLayout::new(StepCapacity::new(&limits, geometry));
    let mut image = StepImage::new(layout, *geometry);
    image.fill(step, step.rows() + 2)?;
    let mut words = image.words().to_vec();
    words.resize(layout.words(), u32::MAX);
    let memory = rig.upload(&words)?;
    Ok(Uploaded { image, layout, memory })
}

fn compare(
    rig: &mut Rig,
    report: &mut Report,
    compute: &Compute,
    heads: Heads,
    sequences: &[Sequence],
) -> Result<(), Failure> {
    let (step, before) = input(&mut rig.random, sequences);
    let geometry = AttentionGeometry::new(&heads.groups(), heads.cached, rig.gpu.multiprocessors as usize);
    let padded = heads.width.next_multiple_of(16);
    let bytes = PAGES * heads.cached * PAGE * padded * 2;
    let (keys, values) = (rig.poisoned(bytes)?, rig.poisoned(bytes)?);
    let cache =
        CachePlace { keys: keys.address, values: values.address, heads: heads.cached as u32, padded: padded as u32 };
    let layout = CacheLayout::KeyValue { heads: heads.cached, head_dimension: heads.width };
    let shape = CacheShape { layers: 1, pages: PAGES, page_size: PAGE, layout };
    let mut reference = KeyValueCache::new(&shape, CacheElement::F32).expect("a cache of keys and values");

    for input in [&before, &step].into_iter().filter(|input| input.rows() > 0) {
        let source = rig.random.bf16(input.rows() * heads.row());
        reference.append(0, input, &floats(&source), heads.columns());
        // Two rows of padding.
        let padded_source: Vec<bf16> = source.iter().copied().chain(vec![bf16::NAN; 2 * heads.row()]).collect();
        let (device_source, uploaded) = (rig.upload(&padded_source)?, upload(rig, &geometry, input)?);
        append(rig, heads, cache, &device_source, &uploaded, input.rows())?;
        if std::ptr::eq(input, &step) {
            let (step, source) = (&step, &floats(&source));
            let filled =
                Filled { heads, geometry, cache, reference: &reference, step, source, device_source, uploaded };
            filled.compare(rig, report, compute, &format!("{heads:?} {sequences:?}"))?;
        }
    }
    Ok(())
}

/// A cache that holds everything up to the end of a step, on both sides, and the step's rows.
struct Filled<'a> {
    heads: Heads,
    geometry: AttentionGeometry,
    cache: CachePlace,
    reference: &'a KeyValueCache,
    step: &'a StepInput,
    source: &'a [f32],
    device_source: Memory,
    uploaded: Uploaded,
}

impl Filled<'_> {
    fn compare(&self, rig: &Rig, report: &mut Report, compute: &Compute, case: &str) -> Result<(), Failure> {
        let heads = self.heads;
        // Two rows of padding.
        let (elements, rows) = (self.step.rows() * heads.query * heads.width, self.step.rows() + 2);
        let output = rig.poisoned(elements * 2)?;
        let padded = self.cache.padded as usize;
        let workspace = rig.poisoned(AttentionSpace::workspace_bytes(&self.geometry, rows, padded))?;
        let arrivals = rig.filled(AttentionSpace::arrivals_bytes(&self.geometry, rows), 0)?;
        let attend = Attend {
            step: self.uploaded.layout.addresses(self.uploaded.memory.address),
            geometry: self.geometry,
            rows: rows as u32,
            whole_items: self.uploaded.image.whole_items() as u32,
            source: self.device_source.address,
            query: heads.blocks(0, heads.query),
            groups: heads.groups(),
            cache: self.cache,
            scale: SCALE,
            output: output.address,
            space: AttentionSpace { workspace: workspace.address, arrivals: arrivals.address },
            fresh: None,
            near: None,
        };
        let mut expected = vec![0.0; elements];
        compute.attend(&self.attention(), &mut expected);
        let mut first = Vec::new();
        // The second run finds what the first left in the workspace.
        for run in 0..2 {
            // SAFETY: the buffers above are as large as the arguments say.
            launched(unsafe { kernels::attend(&rig.launcher, &rig.kernels, &attend) })?;
            let actual = output.read::<bf16>()?;
            report.near_bf16("attend", case, &actual, &expected, TOLERANCE);
            if run == 1 {
                report.equal("attend, twice", case, &actual, &first);
            }
            first = actual;
        }
        let zeros = arrivals.read::<u32>()?;
        report.equal("attend arrivals", case, &zeros, &vec![0; zeros.len()]);
        Ok(())
    }

    /// The same for the CPU.
    fn attention(&self) -> Attention<'_> {
        Attention {
            step: self.step,
            source: self.source,
            query: self.heads.blocks(0, self.heads.query),
            groups: self.heads.groups(),
            scale: SCALE,
            cache: self.reference,
            layer: 0,
        }
    }
}

fn append(
    rig: &Rig,
    heads: Heads,
    cache: CachePlace,
    source: &Memory,
    step: &Uploaded,
    rows: usize,
) -> Result<(), Failure> {
    let KeyValueColumns { key, value } = heads.columns();
    let append = Append {
        slots: step.layout.addresses(step.memory.address).slots,
        source: source.address,
        cache,
        row: heads.row() as u32,
        key_offset: key.offset as u32,
        key_stride: key.stride as u32,
        value_offset: value.offset as u32,
        value_stride: value.stride as u32,
        width: heads.width as u32,
        rows: rows as u32 + 2,
        reserved: 0,
    };
    // SAFETY: the source has two rows of padding, whose slots are none.
    launched(unsafe { kernels::append(&rig.launcher, &rig.kernels, &append) })
}
