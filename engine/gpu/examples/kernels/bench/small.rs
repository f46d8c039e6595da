//! The kernels between the products, at batch 1 and the width of Llama-3.1-8B, in a chain.

use engine::model::Activation;
use engine::sampler::Counter;
use engine::types::SamplingParams;
use engine_gpu::kernels::{
    self, Activate, Angles, Argmax, CachePlace, Choice, HeadNorm, Norm, RotateAppend, Sample, SampleRow,
};

use super::{Peak, time};
use crate::rig::{Failure, Rig, launched};

const HIDDEN: usize = 4096;
const VOCABULARY: usize = 128_256;
const CHAIN: usize = 64;

pub fn run(rig: &mut Rig, peak: Peak) -> Result<(), Failure> {
    let hidden = rig.random_bf16(8 * HIDDEN)?;
    let (residual, output) = (rig.random_bf16(8 * HIDDEN)?, rig.poisoned(8 * HIDDEN * 2)?);
    let weight = rig.upload(&vec![1.0f32; HIDDEN])?;
    for rows in [1, 8] {
        let norm = Norm {
            input: hidden.address,
            residual: residual.address,
            weight: weight.address,
            output: output.address,
            width: HIDDEN as u32,
            epsilon: 1e-5,
            rows,
        };
        let microseconds = time(rig, CHAIN, |_| {
            // SAFETY: the buffers above are as large as the arguments say.
            launched(unsafe { kernels::add_rms_norm(&rig.launcher, &rig.kernels, &norm) })
        })?;
        peak.line(&format!("add_rms_norm {rows} x 4096"), microseconds, 4 * 2 * HIDDEN * rows as usize);
    }
    rope(rig, peak)?;
    let gates = rig.random_bf16(2 * 14336)?;
    let activated = rig.poisoned(2 * 14336)?;
    let activate = Activate { input: gates.address, output: activated.address, width: 14336, rows: 1 };
    let microseconds = time(rig, CHAIN, |_| {
        // SAFETY: as above.
        launched(unsafe { kernels::activate(&rig.launcher, &rig.kernels, Activation::Silu, &activate) })
    })?;
    peak.line("activate 1 x 14336", microseconds, 3 * 2 * 14336);
    tokens(rig, peak)
}

fn rope(rig: &mut Rig, peak: Peak) -> Result<(), Failure> {
    let buffer = rig.random_bf16(6144)?;
    let (keys, values) = (rig.filled(8 * 16 * 128 * 2, 0)?, rig.filled(8 * 16 * 128 * 2, 0)?);
    let (positions, slots) = (rig.upload(&[3u32])?, rig.upload(&[3u32])?);
    let angles = rig.random_f32(4 * 64)?;
    let (cosines, sines) = (angles.address, angles.address);
    let arguments = RotateAppend {
        positions: positions.address,
        slots: slots.address,
        angles: Angles { cosines, sines, pairs: 64, interleaved: 0 },
        buffer: buffer.address,
        cache: CachePlace { keys: keys.address, values: values.address, heads: 8, padded: 128 },
        norm: HeadNorm::default(),
        query_heads: 32,
        width: 128,
        rows: 1,
        reserved: 0,
    };
    let microseconds = time(rig, CHAIN, |_| {
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::rotate_append(&rig.launcher, &rig.kernels, &arguments) })
    })?;
    peak.line("rotate_append 1 row of 8B", microseconds, 2 * 2 * 6144);
    Ok(())
}

fn tokens(rig: &mut Rig, peak: Peak) -> Result<(), Failure> {
    let mut logits: Vec<f32> = rig.random.values(VOCABULARY).iter().map(|value| 3.0 * value).collect();
    for token in 0..50 {
        logits[token * 2000] = 10.0 + 8.0 * rig.random.value();
    }
    let logits = rig.upload(&logits)?;
    let (tokens, best, arrivals) = (rig.poisoned(4)?, rig.filled(8, 0)?, rig.filled(4, 0)?);
    let choice = Choice { best: best.address, arrivals: arrivals.address, tokens: tokens.address, ..Choice::default() };
    let argmax = Argmax { logits: logits.address, choice, vocabulary: VOCABULARY as u32, rows: 1 };
    let microseconds = time(rig, CHAIN, |_| {
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::argmax(&rig.launcher, &rig.kernels, &argmax) })
    })?;
    peak.line("argmax of 128256", microseconds, 4 * VOCABULARY);
    for (name, top_k, top_p) in [
        ("sample of all", 0, 1.0),
        ("sample top_p 0.9", 0, 0.9),
        ("sample top_k 20", 20, 1.0),
        ("sample top_k 50, whole row", 50, 1.0),
    ] {
        let params = SamplingParams { temperature: 0.8, top_k, top_p, seed: 5, ..SamplingParams::default() };
        let counter = Counter { position: 0, choice: 0, node: 0, draw: 0 };
        let rows = rig.upload(&[SampleRow::new(&params, counter, 0, 0)])?;
        let sample = Sample {
            logits: logits.address,
            rows: rows.address,
            tokens: tokens.address,
            host: 0,
            vocabulary: VOCABULARY as u32,
            count: 1,
        };
        let microseconds = time(rig, CHAIN, |_| {
            // SAFETY: as above.
            launched(unsafe { kernels::sample(&rig.launcher, &rig.kernels, &sample) })
        })?;
        peak.line(name, microseconds, 4 * VOCABULARY);
    }
    Ok(())
}
