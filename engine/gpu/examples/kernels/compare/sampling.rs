//! Tokens: the same ones as the engine's sampler, for every kind of row and parameter.

use std::sync::Arc;

use engine::sampler::{Counter, SamplerScratch, SamplerState};
use engine::types::{Sampling, SamplingParams};
use engine_cpu::kernels::Pool;
use engine_gpu::kernels::{self, Argmax, Choice, Sample, SampleRow};
use engine_gpu::step::NONE;

use super::Report;
use crate::random::Random;
use crate::rig::{Failure, Memory, Rig, launched};

pub fn run(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let pool = Pool::share(1)?;
    let kinds = [peaked, flat, tied, hostile];
    // Every vocabulary with every kind of row; few, some with more tokens near the top than fit into shared memory.
    let small = [(1, 1), (31, 3), (300, 0), (300, 2), (5000, 1)];
    let all = [1, 31, 300, 1000, 32_003, 128_256]
        .into_iter()
        .flat_map(|vocabulary| (0..4).map(move |kind| (vocabulary, kind)));
    let cases: Vec<(usize, usize)> = if rig.small { small.to_vec() } else { all.collect() };
    for (vocabulary, number) in cases {
        if rig.mine() {
            let (kind, temperatures) = (kinds[number], if rig.small { &[0.0, 1.0][..] } else { &[0.0, 0.3, 1.0, 2.5] });
            let rows = parameters(&mut rig.random, temperatures);
            let logits: Vec<f32> = (0..rows.len()).flat_map(|_| kind(&mut rig.random, vocabulary)).collect();
            let case = format!("{vocabulary}, row of kind {number}");
            argmax(rig, report, &pool, &case, vocabulary, &logits)?;
            sample(rig, report, &pool, &case, vocabulary, &logits, &rows)?;
        }
    }
    Ok(())
}

/// A few tokens far above the rest, as models give.
fn peaked(random: &mut Random, vocabulary: usize) -> Vec<f32> {
    let mut logits: Vec<f32> = random.values(vocabulary).iter().map(|value| 3.0 * value).collect();
    for _ in 0..vocabulary.min(60) {
        let token = random.below(vocabulary);
        logits[token] = 12.0 + 8.0 * random.value();
    }
    logits
}

/// Everything near the top, as random weights give.
fn flat(random: &mut Random, vocabulary: usize) -> Vec<f32> {
    random.values(vocabulary)
}

/// Many equal logits.
fn tied(random: &mut Random, vocabulary: usize) -> Vec<f32> {
    (0..vocabulary).map(|_| random.below(5) as f32 - 2.0).collect()
}

/// Zeros of both signs, infinities below, and what is not a number.
fn hostile(random: &mut Random, vocabulary: usize) -> Vec<f32> {
    let values = [0.0, -0.0, f32::NEG_INFINITY, f32::NAN, -1.5, -40.0, -100.0];
    let mut logits: Vec<f32> = (0..vocabulary).map(|_| values[random.below(values.len())]).collect();
    let token = random.below(vocabulary);
    logits[token] = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY][random.below(4)];
    logits
}

fn parameters(random: &mut Random, temperatures: &[f32]) -> Vec<(SamplingParams, u32)> {
    let mut rows = Vec::new();
    for &temperature in temperatures {
        for (top_k, top_p, min_p) in [
            (0, 1.0, 0.0),
            (1, 1.0, 0.0),
            (5, 1.0, 0.0),
            (50, 0.9, 0.0),
            (0, 0.5, 0.0),
            (0, 0.999, 0.05),
            (5000, 0.95, 0.0),
            (2, 0.1, 0.0),
        ] {
            let seed = random.next();
            rows.push((
                SamplingParams { temperature, top_k, top_p, min_p, seed, ..SamplingParams::default() },
                random.below(20) as u32,
            ));
        }
    }
    rows
}

/// What the engine chooses in each row.
fn all_expected(pool: &Pool, how: &[(SamplingParams, u32)], logits: &[f32]) -> Vec<u32> {
    let mut chosen = vec![NONE; how.len()];
    let vocabulary = logits.len() / how.len();
    pool.run_chunks(&mut chosen, 1, |row, chosen| {
        let (params, position) = &how[row];
        chosen.fill(expected(params, *position, &logits[row * vocabulary..][..vocabulary]));
    });
    chosen
}

fn expected(params: &SamplingParams, position: u32, logits: &[f32]) -> u32 {
    let sampling = Sampling {
        params: Arc::new(params.clone()),
        choice: 0,
        prompt: Arc::from([]),
        output: vec![0; position as usize],
        end_tokens: Arc::from([]),
    };
    let state = SamplerState::new(&sampling);
    let chosen = state.sample(&mut logits.to_vec(), &mut SamplerScratch::new());
    chosen.map_or(NONE, |token| token.id)
}

fn argmax(
    rig: &Rig,
    report: &mut Report,
    pool: &Pool,
    case: &str,
    vocabulary: usize,
    logits: &[f32],
) -> Result<(), Failure> {
    let rows = logits.len() / vocabulary;
    let (memory, room) = (rig.upload(logits)?, ChoiceRoom::new(rig, rows, vocabulary)?);
    let (vocabulary, words) = (vocabulary as u32, rows as u32);
    let arguments = Argmax { logits: memory.address, choice: room.choice(), vocabulary, rows: words };
    let greedy = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    let expected = all_expected(pool, &vec![(greedy, 0); rows], logits);
    let expected: Vec<u32> = expected.into_iter().map(ChoiceRoom::token).collect();
    for _ in 0..2 {
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::argmax(&rig.launcher, &rig.kernels, &arguments) })?;
        room.compare(report, "argmax", case, &expected)?;
    }
    Ok(())
}

/// Where a kernel puts what it chooses: on the device and, as its second place, on the host. Columns stand for other tokens.
pub struct ChoiceRoom {
    best: Memory,
    arrivals: Memory,
    tokens: Memory,
    host: Memory,
    columns: Memory,
}

impl ChoiceRoom {
    pub fn new(rig: &Rig, rows: usize, vocabulary: usize) -> Result<Self, Failure> {
        let columns: Vec<u32> = (0..vocabulary as u32).map(Self::token).collect();
        Ok(Self {
            best: rig.filled(rows * 8, 0)?,
            arrivals: rig.filled(rows * 4, 0)?,
            tokens: rig.poisoned(rows * 4)?,
            host: rig.poisoned(rows * 4)?,
            columns: rig.upload(&columns)?,
        })
    }

    /// The token of a column.
    pub fn token(column: u32) -> u32 {
        if column == NONE { NONE } else { 2 * column + 1 }
    }

    pub fn choice(&self) -> Choice {
        Choice {
            best: self.best.address,
            arrivals: self.arrivals.address,
            tokens: self.tokens.address,
            host: self.host.address,
            columns: self.columns.address,
        }
    }

    /// After a launch: the tokens in both places, and counters that are as they were.
    pub fn compare(
        &self,
        report: &mut Report,
        kernel: &'static str,
        case: &str,
        expected: &[u32],
    ) -> Result<(), Failure> {
        report.equal(kernel, case, &self.tokens.read::<u32>()?, expected);
        report.equal(kernel, case, &self.host.read::<u32>()?, expected);
        report.equal(kernel, case, &self.best.read::<u64>()?, &vec![0; expected.len()]);
        report.equal(kernel, case, &self.arrivals.read::<u32>()?, &vec![0; expected.len()]);
        Ok(())
    }
}

fn sample(
    rig: &Rig,
    report: &mut Report,
    pool: &Pool,
    case: &str,
    vocabulary: usize,
    logits: &[f32],
    rows: &[(SamplingParams, u32)],
) -> Result<(), Failure> {
    let how: Vec<SampleRow> = rows
        .iter()
        .map(|(params, position)| {
            SampleRow::new(params, Counter { position: *position, choice: 0, node: 0, draw: 0 }, 0, 0)
        })
        .collect();
    let (memory, device_rows, tokens) = (rig.upload(logits)?, rig.upload(&how)?, rig.poisoned(rows.len() * 4)?);
    let host = rig.poisoned(rows.len() * 4)?;
    let arguments = Sample {
        logits: memory.address,
        rows: device_rows.address,
        tokens: tokens.address,
        host: host.address,
        vocabulary: vocabulary as u32,
        count: rows.len() as u32,
    };
    // SAFETY: the buffers above are as large as the arguments say.
    launched(unsafe { kernels::sample(&rig.launcher, &rig.kernels, &arguments) })?;
    let expected = all_expected(pool, rows, logits);
    report.equal("sample", case, &tokens.read::<u32>()?, &expected);
    report.equal("sample", case, &host.read::<u32>()?, &expected);
    Ok(())
}
