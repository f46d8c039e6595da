//! Rotation, append, both in one, and moves of cached rows.

use engine_gpu::kernels::{self, Angles, Append, CachePlace, HeadNorm, MoveRows, Rotate, RotateAppend};
use engine_gpu::step::{Counts, NONE, PAGE};
use half::bf16;

use super::{ROUNDING, Report};
use crate::random::floats;
use crate::rig::{Failure, Memory, Rig, launched};

/// Two roundings, one of them of the norm, whose errors a rotation leaves as large as they are.
const TWO_ROUNDINGS: f64 = 2.0 * ROUNDING;
const POSITIONS: usize = 500;
const PAGES: usize = 6;
const EPSILON: f32 = 1e-6;

/// Heads of a row: queries, then keys, then values.
#[derive(Clone, Copy, Debug)]
struct Heads {
    queries: usize,
    cached: usize,
    width: usize,
    pairs: usize,
    interleaved: bool,
    normed: bool,
}

impl Heads {
    fn row(self) -> usize {
        (self.queries + 2 * self.cached) * self.width
    }

    fn padded(self) -> usize {
        self.width.next_multiple_of(16)
    }
}

/// Cosines and sines, on both sides.
struct Table {
    cosines: Vec<f32>,
    sines: Vec<f32>,
    device: [Memory; 2],
}

pub fn run(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let plain = Heads { queries: 32, cached: 8, width: 128, pairs: 64, interleaved: false, normed: false };
    for (rows, heads) in [
        (1, plain),
        (5, Heads { normed: true, ..plain }),
        (3, Heads { queries: 9, cached: 3, width: 64, pairs: 32, ..plain }),
        (2, Heads { queries: 4, cached: 2, width: 16, pairs: 8, interleaved: true, ..plain }),
        (7, Heads { queries: 5, cached: 1, width: 20, pairs: 6, normed: true, ..plain }),
        (70, Heads { queries: 4, cached: 2, width: 32, pairs: 16, ..plain }),
    ] {
        let angles: Vec<f32> = (0..POSITIONS * heads.pairs).map(|_| 3.0 * rig.random.value()).collect();
        let (cosines, sines): (Vec<f32>, Vec<f32>) = angles.iter().map(|angle| (angle.cos(), angle.sin())).unzip();
        let device = [rig.upload(&cosines)?, rig.upload(&sines)?];
        let table = Table { cosines, sines, device };
        compare(rig, report, rows, heads, &table)?;
    }
    for (layers, heads, padded) in [(1, 1, 16), (3, 8, 128), (2, 3, 80)] {
        moves(rig, report, [layers, heads, padded])?;
    }
    Ok(())
}

/// Rows that go to other places in every layer; the third move reads what the second has written.
fn moves(rig: &mut Rig, report: &mut Report, [layers, heads, padded]: [usize; 3]) -> Result<(), Failure> {
    let layer = PAGES * heads * PAGE * padded;
    let mut caches = [0, 1].map(|_| rig.random.bf16(layers * layer));
    let device = [rig.upload(&caches[0])?, rig.upload(&caches[1])?];
    let moves: [[u32; 2]; 4] = [[40, 3], [17, 18], [18, 90], [5, 5]];
    let counts = Counts { moves: moves.len() as u32, ..Counts::default() };
    let (device_counts, device_moves) = (rig.upload(&[counts])?, rig.upload(&moves)?);
    let arguments = MoveRows {
        counts: device_counts.address,
        moves: device_moves.address,
        cache: CachePlace {
            keys: device[0].address,
            values: device[1].address,
            heads: heads as u32,
            padded: padded as u32,
        },
        layer_stride: layer as u64,
        layers: layers as u32,
        reserved: 0,
    };
    // SAFETY: the buffers above are as large as the arguments say.
    launched(unsafe { kernels::move_rows(&rig.launcher, &rig.kernels, &arguments) })?;
    let place = |slot: u32, head: usize| ((slot as usize / PAGE * heads + head) * PAGE + slot as usize % PAGE) * padded;
    for (cache, device) in caches.iter_mut().zip(&device) {
        for (of_layer, [from, to], head) in (0..layers).flat_map(|of_layer| {
            moves.iter().flat_map(move |places| (0..heads).map(move |head| (of_layer, *places, head)))
        }) {
            let (from, to) = (of_layer * layer + place(from, head), of_layer * layer + place(to, head));
            cache.copy_within(from..from + padded, to);
        }
        report.equal(
            "move_rows",
            &format!("{layers} layers, {heads} heads of {padded}"),
            &device.read::<bf16>()?,
            cache,
        );
    }
    Ok(())
}

fn rotated(heads: Heads, table: &Table, position: u32, block: &mut [f32]) {
    for pair in 0..heads.pairs {
        let (first, second) = if heads.interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + heads.pairs) };
        let at = position as usize * heads.pairs + pair;
        let (cosine, sine, left, right) = (table.cosines[at], table.sines[at], block[first], block[second]);
        block[first] = left * cosine - right * sine;
        block[second] = right * cosine + left * sine;
    }
}

/// Rows, and where they stand, on both sides.
struct Rows<'a> {
    count: usize,
    heads: Heads,
    table: &'a Table,
    buffer: Vec<bf16>,
    positions: Vec<u32>,
    slots: Vec<u32>,
    device_positions: Memory,
    device_slots: Memory,
    case: String,
}

/// Keys and values of all pages, poisoned.
struct Cache {
    keys: Memory,
    values: Memory,
}

impl Cache {
    fn new(rig: &Rig, heads: Heads) -> Result<Self, Failure> {
        let bytes = PAGES * heads.cached * PAGE * heads.padded() * 2;
        Ok(Self { keys: rig.poisoned(bytes)?, values: rig.poisoned(bytes)? })
    }

    fn place(&self, heads: Heads) -> CachePlace {
        let (keys, values) = (self.keys.address, self.values.address);
        CachePlace { keys, values, heads: heads.cached as u32, padded: heads.padded() as u32 }
    }
}

fn compare(rig: &mut Rig, report: &mut Report, count: usize, heads: Heads, table: &Table) -> Result<(), Failure> {
    let rows = Rows::new(rig, count, heads, table)?;
    rows.rotate(rig, report)?;
    rows.append(rig, report)?;
    rows.rotate_append(rig, report)
}

impl<'a> Rows<'a> {
    fn new(rig: &mut Rig, count: usize, heads: Heads, table: &'a Table) -> Result<Self, Failure> {
        let buffer = rig.random.bf16(count * heads.row());
        let positions: Vec<u32> = (0..count).map(|_| rig.random.below(POSITIONS) as u32).collect();
        // Every slot once, in no order; one row of several is padding.
        let mut slots: Vec<u32> = (0..count).map(|row| (row * 11 % (PAGES * PAGE)) as u32).collect();
        if count > 1 {
            slots[count / 2] = NONE;
        }
        let (device_positions, device_slots) = (rig.upload(&positions)?, rig.upload(&slots)?);
        let case = format!("{count} rows of {heads:?}");
        Ok(Self { count, heads, table, buffer, positions, slots, device_positions, device_slots, case })
    }

    fn angles(&self) -> Angles {
        let [cosines, sines] = [&self.table.device[0], &self.table.device[1]].map(|memory| memory.address);
        let (pairs, interleaved) = (self.heads.pairs as u32, u32::from(self.heads.interleaved));
        Angles { cosines, sines, pairs, interleaved }
    }

    /// Queries and keys in place.
    fn rotate(&self, rig: &Rig, report: &mut Report) -> Result<(), Failure> {
        let heads = self.heads;
        let device = rig.upload(&self.buffer)?;
        let rotate = Rotate {
            positions: self.device_positions.address,
            angles: self.angles(),
            buffer: device.address,
            row: heads.row() as u32,
            offset: 0,
            count: (heads.queries + heads.cached) as u32,
            stride: heads.width as u32,
            rows: self.count as u32,
            reserved: 0,
        };
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::rotate(&rig.launcher, &rig.kernels, &rotate) })?;
        let expected = self.rotated(|_, _| ());
        report.near_bf16("rotate", &self.case, &device.read::<bf16>()?, &expected, ROUNDING);
        Ok(())
    }

    /// The rows with queries and keys rotated; `before` is done to each of these heads first.
    fn rotated(&self, before: impl Fn(usize, &mut [f32])) -> Vec<f32> {
        let heads = self.heads;
        let mut rows = floats(&self.buffer);
        for (row, values) in rows.chunks_exact_mut(heads.row()).enumerate() {
            for (head, block) in values.chunks_exact_mut(heads.width).take(heads.queries + heads.cached).enumerate() {
                before(head, block);
                rotated(heads, self.table, self.positions[row], block);
            }
        }
        rows
    }

    /// Keys and values, not rotated.
    fn append(&self, rig: &Rig, report: &mut Report) -> Result<(), Failure> {
        let (heads, cache) = (self.heads, Cache::new(rig, self.heads)?);
        let source = rig.upload(&self.buffer)?;
        let append = Append {
            slots: self.device_slots.address,
            source: source.address,
            cache: cache.place(heads),
            row: heads.row() as u32,
            key_offset: (heads.queries * heads.width) as u32,
            key_stride: heads.width as u32,
            value_offset: ((heads.queries + heads.cached) * heads.width) as u32,
            value_stride: heads.width as u32,
            width: heads.width as u32,
            rows: self.count as u32,
            reserved: 0,
        };
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::append(&rig.launcher, &rig.kernels, &append) })?;
        let untouched = floats(&self.buffer);
        let part = |first| cached(heads, &untouched, first, &self.slots);
        report.equal("append", &self.case, &bits(&cache.keys)?, &part(heads.queries));
        report.equal("append", &self.case, &bits(&cache.values)?, &part(heads.queries + heads.cached));
        Ok(())
    }

    fn rotate_append(&self, rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
        let heads = self.heads;
        let weights: [Vec<f32>; 2] =
            [0, 1].map(|_| rig.random.values(heads.width).iter().map(|value| 1.0 + 0.5 * value).collect());
        let device_weights = [rig.upload(&weights[0])?, rig.upload(&weights[1])?];
        let address = |which: usize| if heads.normed { device_weights[which].address } else { 0 };
        let (device, cache) = (rig.upload(&self.buffer)?, Cache::new(rig, heads)?);
        let arguments = RotateAppend {
            positions: self.device_positions.address,
            slots: self.device_slots.address,
            angles: self.angles(),
            buffer: device.address,
            cache: cache.place(heads),
            norm: HeadNorm { query: address(0), key: address(1), epsilon: EPSILON, reserved: 0 },
            query_heads: heads.queries as u32,
            width: heads.width as u32,
            rows: self.count as u32,
            reserved: 0,
        };
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::rotate_append(&rig.launcher, &rig.kernels, &arguments) })?;
        let expected = self.rotated(|head, block| {
            if heads.normed {
                normalise(block, &weights[usize::from(head >= heads.queries)]);
            }
        });
        self.compare_fused(report, &floats(&device.read::<bf16>()?), &cache, &expected)
    }

    fn compare_fused(
        &self,
        report: &mut Report,
        actual: &[f32],
        cache: &Cache,
        expected: &[f32],
    ) -> Result<(), Failure> {
        let (heads, case, slots) = (self.heads, &self.case, &self.slots);
        let queries = |values: &[f32]| -> Vec<f32> {
            values.chunks_exact(heads.row()).flat_map(|row| row[..heads.queries * heads.width].to_vec()).collect()
        };
        report.near("rotate_append queries", case, &queries(actual), &queries(expected), TWO_ROUNDINGS);
        let written = |bits: Vec<u16>, expected: &[u16]| -> (Vec<f32>, Vec<f32>) {
            let pairs = bits.iter().zip(expected).filter(|(_, expected)| **expected != u16::MAX);
            let float = |bits: &u16| bf16::from_bits(*bits).to_f32();
            pairs.map(|(actual, expected)| (float(actual), float(expected))).unzip()
        };
        let (actual, wanted) = written(bits(&cache.keys)?, &cached(heads, expected, heads.queries, slots));
        report.near("rotate_append keys", case, &actual, &wanted, TWO_ROUNDINGS);
        let wanted = cached(heads, expected, heads.queries + heads.cached, slots);
        report.equal("rotate_append values", case, &bits(&cache.values)?, &wanted);
        Ok(())
    }
}

/// RMS norm of a head.
fn normalise(block: &mut [f32], weight: &[f32]) {
    let mean = block.iter().map(|value| value * value).sum::<f32>() / block.len() as f32;
    let factor = (mean + EPSILON).sqrt().recip();
    block.iter_mut().zip(weight).for_each(|(value, weight)| *value *= factor * weight);
}

fn bits(memory: &Memory) -> Result<Vec<u16>, Failure> {
    memory.read()
}

/// The cache after the rows' heads from `first` on were written, as bits; poison where nothing was.
fn cached(heads: Heads, source: &[f32], first: usize, slots: &[u32]) -> Vec<u16> {
    let mut cache = vec![u16::MAX; PAGES * heads.cached * PAGE * heads.padded()];
    for (row, slot) in slots.iter().enumerate().filter(|(_, slot)| **slot != NONE) {
        for head in 0..heads.cached {
            let from = row * heads.row() + (first + head) * heads.width;
            let (page, within) = (*slot as usize / PAGE, *slot as usize % PAGE);
            let to = ((page * heads.cached + head) * PAGE + within) * heads.padded();
            for column in 0..heads.padded() {
                let value = if column < heads.width { source[from + column] } else { 0.0 };
                cache[to + column] = bf16::from_f32(value).to_bits();
            }
        }
    }
    cache
}
