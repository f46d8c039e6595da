//! Attention that rotates and appends the step's own rows, against the kernels that do it one after the other, which
//! are compared with the CPU elsewhere: the same bits in the output and in the cache.

use engine::backend::StepInput;
use engine_gpu::kernels::{self, Angles, Attend, AttentionSpace, CachePlace, Fresh, HeadNorm, Near, RotateAppend};
use engine_gpu::step::{AttentionGeometry, PAGE};
use half::bf16;

use super::Report;
use super::attention::{Heads, PAGES, SHAPES, Sequence, Uploaded, fits, input, upload};
use crate::rig::{Failure, Memory, Rig, launched};

const EPSILON: f32 = 1e-6;
const POSITIONS: usize = 6000;
/// Every so many elements of a step's rows are negative zeros.
const SIGNED_ZEROS: usize = 29;
/// One rounding to bf16 in a few of the elements.
const ORDER: f64 = 3e-3;

/// Most rows of a sequence in a pass that is for short contexts, and most sequences.
const MOST_ROWS: usize = 16;
const MOST_SEQUENCES: usize = 64;
/// More heads that have kernels for short contexts: groups of one to sixteen.
const NEAR: [Heads; 5] = [
    Heads { query: 8, cached: 8, group: 1, offset: 0, width: 128 },
    Heads { query: 6, cached: 3, group: 2, offset: 0, width: 64 },
    Heads { query: 12, cached: 2, group: 8, offset: 4, width: 128 },
    Heads { query: 16, cached: 2, group: 8, offset: 0, width: 64 },
    Heads { query: 16, cached: 1, group: 16, offset: 0, width: 128 },
];
/// Steps of several rows over short contexts, at and off the edges of pages.
const NEAR_STEPS: [&[Sequence]; 18] = [
    &[(5, 505, true)],
    &[(6, 1018, false)],
    &[(7, 1, true)],
    &[(9, 640, false)],
    &[(10, 631, true)],
    &[(11, 768, true)],
    &[(12, 1012, true)],
    &[(13, 0, true)],
    &[(14, 95, false)],
    &[(15, 112, true)],
    &[(16, 512, false)],
    &[(16, 511, true)],
    &[(16, 623, true)],
    &[(16, 1008, false)],
    &[(16, 16, true)],
    &[(8, 100, true), (8, 1000, false)],
    &[(4, 512, true), (4, 9, false), (4, 640, true), (4, 1020, false)],
    &[(9, 700, false), (3, 0, true), (4, 48, true)],
];

/// What is rotated, and how.
#[derive(Clone, Copy, Debug)]
struct Turn {
    pairs: usize,
    interleaved: bool,
    normed: bool,
}

pub fn run(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let some: Vec<Sequence> = (0..8).map(|at| (1, 1023 - 120 * at, false)).collect();
    let many: Vec<Sequence> = (0..32).map(|at| (1, if at == 7 { 1000 } else { 7 * at }, false)).collect();
    let most: Vec<Sequence> = (0..64).map(|at| (1, if at == 20 { 1015 } else { at % 40 * 2 }, false)).collect();
    let long: Vec<Sequence> = (0..20).map(|at| (1, if at % 5 == 0 { 1023 - at } else { at }, false)).collect();
    let new = [(1, 0, false); 48];
    let any: [&[Sequence]; 23] = [
        &[(1, 600, false), (1, 300, false)],
        &[(2, 300, true)],
        &[(1, 0, false)],
        &[(1, 15, false)],
        &[(1, 16, false), (1, 511, false), (1, 63, false)],
        &[(1, 5000, false)],
        &[(4, 700, true), (3, 30, true), (3, 62, false)],
        &[(4, 60, true), (2, 14, false)],
        &[(1, 512, false)],
        &[(1, 1023, false)],
        &[(4, 513, false)],
        &[(4, 1000, true)],
        &[(16, 500, false)],
        &[(8, 250, true)],
        &[(16, 0, false)],
        &[(1, 512, false), (1, 0, false), (1, 1000, false), (1, 7, false), (1, 33, false), (1, 256, false)],
        &some,
        &many[..16],
        &many[..17],
        &many,
        &most,
        &long,
        &new,
    ];
    let small = rig.small;
    let short = SHAPES[..2].iter().chain(&NEAR).map(|heads| (*heads, &NEAR_STEPS[..]));
    let all = SHAPES.iter().map(|heads| (*heads, &any[..])).chain(short);
    for (which, (heads, steps)) in all.enumerate() {
        let half = heads.width / 2;
        let padded = heads.width.next_multiple_of(16);
        let cache = [0, 1].map(|_| rig.random.bf16(PAGES * heads.cached * PAGE * padded));
        let turns = [
            Turn { pairs: half, interleaved: false, normed: false },
            Turn { pairs: half / 2, interleaved: false, normed: true },
            Turn { pairs: half, interleaved: true, normed: true },
        ];
        for (number, turn) in turns.into_iter().enumerate() {
            let angles = Tables::new(rig, turn.pairs)?;
            for (at, sequences) in steps.iter().enumerate() {
                // A checker sees every two of heads, turn and step together, and not all three.
                let chosen = !small || fits(small, sequences) && (which + number + at).is_multiple_of(turns.len());
                if chosen && rig.mine() {
                    compare(rig, report, heads, (turn, &angles), &cache, sequences)?;
                }
            }
        }
    }
    Ok(())
}

/// Cosines and sines of any angles.
struct Tables {
    cosines: Memory,
    sines: Memory,
}

impl Tables {
    fn new(rig: &mut Rig, pairs: usize) -> Result<Self, Failure> {
        let angles: Vec<f32> = (0..POSITIONS * pairs).map(|_| 3.0 * rig.random.value()).collect();
        let (cosines, sines): (Vec<f32>, Vec<f32>) = angles.iter().map(|angle| (angle.cos(), angle.sin())).unzip();
        Ok(Self { cosines: rig.upload(&cosines)?, sines: rig.upload(&sines)? })
    }
}

/// Keys, values and output of one way.
struct Side {
    source: Memory,
    keys: Memory,
    values: Memory,
    output: Memory,
}

impl Side {
    fn new(rig: &Rig, source: &[bf16], cache: &[Vec<bf16>; 2], output: usize) -> Result<Self, Failure> {
        let [keys, values] = cache;
        Ok(Self {
            source: rig.upload(source)?,
            keys: rig.upload(keys)?,
            values: rig.upload(values)?,
            output: rig.poisoned(output * 2)?,
        })
    }

    fn place(&self, heads: Heads) -> CachePlace {
        let (keys, values) = (self.keys.address, self.values.address);
        CachePlace { keys, values, heads: heads.cached as u32, padded: heads.width.next_multiple_of(16) as u32 }
    }

    fn read(&self) -> Result<[Vec<u16>; 3], Failure> {
        Ok([self.output.read()?, self.keys.read()?, self.values.read()?])
    }
}

/// A step of `sequences`, on both sides.
struct Step {
    heads: Heads,
    geometry: AttentionGeometry,
    input: StepInput,
    uploaded: Uploaded,
}

fn compare(
    rig: &mut Rig,
    report: &mut Report,
    heads: Heads,
    (turn, tables): (Turn, &Tables),
    cache: &[Vec<bf16>; 2],
    sequences: &[Sequence],
) -> Result<(), Failure> {
    let step = Step::new(rig, heads, sequences)?;
    if step.uploaded.image.whole_items() > 0 {
        return Ok(());
    }
    let rows = step.input.rows();
    let mut source = rig.random.bf16((rows + 2) * heads.row());
    // Rotation keeps the sign of a zero, too.
    source.iter_mut().step_by(SIGNED_ZEROS).for_each(|value| *value = bf16::NEG_ZERO);
    let mut cache = cache.clone();
    cache.iter_mut().for_each(|side| poison(side, heads, &step.input));
    let weights = [rig.random_f32(heads.width)?, rig.random_f32(heads.width)?];
    let fresh = turn.fresh(heads, tables, &weights);
    let side = |rig: &Rig| Side::new(rig, &source, &cache, rows * heads.query * heads.width);
    let (apart, fused) = (side(rig)?, side(rig)?);
    step.rotate_append(rig, &fresh, &apart)?;
    step.attend(rig, (None, None), &apart, rows + 2)?;
    step.attend(rig, (Some(fresh), None), &fused, rows + 2)?;
    let (apart, fused) = (apart.read()?, fused.read()?);
    for (which, name) in ["fresh output", "fresh keys", "fresh values"].into_iter().enumerate() {
        report.equal(name, &format!("{heads:?} {turn:?} {sequences:?}"), &fused[which], &apart[which]);
    }
    // Rows of padding are part of what is launched.
    let padded = (rows + 2).min(if rows > MOST_ROWS { MOST_SEQUENCES } else { MOST_ROWS });
    for near in step.near(padded) {
        let side = side(rig)?;
        step.attend(rig, (Some(fresh), Some(near)), &side, padded)?;
        let side = side.read()?;
        let case = format!("{near:?} {heads:?} {turn:?} {sequences:?}");
        // Norms and weighted sums are added up in another order.
        report.near("near output", &case, &values(&side[0]), &values(&apart[0]), ORDER);
        report.near("near keys", &case, &numbers(&side[1]), &numbers(&apart[1]), ORDER);
        report.equal("near values", &case, &side[2], &apart[2]);
    }
    Ok(())
}

impl Turn {
    fn fresh(self, heads: Heads, tables: &Tables, [query, key]: &[Memory; 2]) -> Fresh {
        let (pairs, interleaved) = (self.pairs as u32, u32::from(self.interleaved));
        let norm = HeadNorm { query: query.address, key: key.address, epsilon: EPSILON, reserved: 0 };
        Fresh {
            angles: Angles { cosines: tables.cosines.address, sines: tables.sines.address, pairs, interleaved },
            norm: if self.normed { norm } else { HeadNorm::default() },
            key_offset: (heads.query * heads.width) as u32,
            value_offset: ((heads.query + heads.cached) * heads.width) as u32,
        }
    }
}

/// What nobody writes is not a number: positions behind the ends of sequences, in pages that they have.
fn poison(cache: &mut [bf16], heads: Heads, step: &StepInput) {
    let padded = heads.width.next_multiple_of(16);
    for segment in &step.segments {
        let end = segment.start + segment.rows;
        let Some(page) = step.pages[segment.pages.clone()].get(end / PAGE) else { continue };
        for head in 0..heads.cached {
            let first = (*page as usize * heads.cached + head) * PAGE * padded;
            cache[first + end % PAGE * padded..first + PAGE * padded].fill(bf16::NAN);
        }
    }
}

/// With zeros where there is no number.
fn numbers(bits: &[u16]) -> Vec<f32> {
    values(bits).into_iter().map(|value| if value.is_nan() { 0.0 } else { value }).collect()
}

fn values(bits: &[u16]) -> Vec<f32> {
    bits.iter().map(|bits| bf16::from_bits(*bits).to_f32()).collect()
}

impl Step {
    fn new(rig: &mut Rig, heads: Heads, sequences: &[Sequence]) -> Result<Self, Failure> {
        let (input, _) = input(&mut rig.random, sequences);
        let geometry = AttentionGeometry::new(&heads.groups(), heads.cached, rig.gpu.multiprocessors as usize);
        let uploaded = upload(rig, &geometry, &input)?;
        Ok(Self { heads, geometry, input, uploaded })
    }

    /// The kernels for short contexts that take a pass of so many rows, padding included.
    fn near(&self, padded: usize) -> impl Iterator<Item = Near> {
        let passes = self.geometry.near(&self.input, padded);
        [passes.one_row.then_some(Near::OneRow), passes.rows.then_some(Near::Rows)].into_iter().flatten()
    }

    fn rotate_append(&self, rig: &Rig, fresh: &Fresh, side: &Side) -> Result<(), Failure> {
        let addresses = self.uploaded.layout.addresses(self.uploaded.memory.address);
        let arguments = RotateAppend {
            positions: addresses.positions,
            slots: addresses.slots,
            angles: fresh.angles,
            buffer: side.source.address,
            cache: side.place(self.heads),
            norm: fresh.norm,
            query_heads: self.heads.query as u32,
            width: self.heads.width as u32,
            rows: self.input.rows() as u32 + 2,
            reserved: 0,
        };
        // SAFETY: the source has two rows of padding, whose slots are none.
        launched(unsafe { kernels::rotate_append(&rig.launcher, &rig.kernels, &arguments) })
    }

    fn attend(
        &self,
        rig: &Rig,
        (fresh, near): (Option<Fresh>, Option<Near>),
        side: &Side,
        rows: usize,
    ) -> Result<(), Failure> {
        let (heads, padded) = (self.heads, self.heads.width.next_multiple_of(16));
        let workspace = rig.poisoned(AttentionSpace::workspace_bytes(&self.geometry, rows, padded))?;
        let arrivals = rig.filled(AttentionSpace::arrivals_bytes(&self.geometry, rows), 0)?;
        let attend = Attend {
            step: self.uploaded.layout.addresses(self.uploaded.memory.address),
            geometry: self.geometry,
            rows: rows as u32,
            whole_items: 0,
            source: side.source.address,
            query: heads.blocks(0, heads.query),
            groups: heads.groups(),
            cache: side.place(heads),
            scale: 0.3,
            output: side.output.address,
            space: AttentionSpace { workspace: workspace.address, arrivals: arrivals.address },
            fresh,
            near,
        };
        // SAFETY: the buffers above are as large as the arguments say, and live until the device is done.
        launched(unsafe { kernels::attend(&rig.launcher, &rig.kernels, &attend) })?;
        Ok(rig.gpu.context.synchronize()?)
    }
}
