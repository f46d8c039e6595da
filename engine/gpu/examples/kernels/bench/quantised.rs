//! Products with weights in blocks at the shapes of SmolLM2-135M: all of a layer one after the other, as a decode step has
//! them, each of its four alone, and the output projection.

use engine::model::Activation;
use engine::weights::WeightType;
use engine_gpu::kernels::{self, Format, QuantisedProduct};

use super::{Peak, time};
use crate::rig::{Failure, Memory, Rig, launched};

const HIDDEN: usize = 576;
const PROJECTED: usize = 960;
const INTERMEDIATE: usize = 1536;
const LAYERS: usize = 30;
const VOCABULARY: usize = 49152;

/// Rows of activations.
const COUNTS: [u32; 5] = [1, 2, 4, 8, 16];

/// Weights `[outputs, columns]` of every layer, and what the product does besides.
struct Part {
    name: &'static str,
    weights: Memory,
    /// Bytes of one layer's.
    bytes: usize,
    product: QuantisedProduct,
}

struct Buffers {
    residual: Memory,
    wide: Memory,
    factors: Memory,
}

pub fn run(rig: &mut Rig, peak: Peak) -> Result<(), Failure> {
    let buffers = Buffers {
        residual: rig.random_bf16(16 * HIDDEN)?,
        wide: rig.random_bf16(16 * INTERMEDIATE)?,
        factors: rig.upload(&vec![0.1f32; HIDDEN])?,
    };
    let parts = parts(rig, &buffers)?;
    let bytes: usize = parts.iter().map(|part| part.bytes).sum();
    for count in COUNTS {
        let each =
            time(rig, LAYERS, |layer| parts.iter().try_for_each(|part| launch(rig, Format::Q4_1, part, layer, count)))?;
        peak.line(&format!("Q4_1 products of a layer, M={count}"), each, bytes);
    }
    for part in &parts {
        for count in [1, 4, 16] {
            let each = time(rig, LAYERS, |layer| launch(rig, Format::Q4_1, part, layer, count))?;
            peak.line(&format!("Q4_1 {} M={count}", part.name), each, part.bytes);
        }
    }
    output(rig, peak, &buffers)
}

fn parts(rig: &mut Rig, buffers: &Buffers) -> Result<Vec<Part>, Failure> {
    let Buffers { residual, wide, factors } = buffers;
    let (residual, wide, norm) = (residual.address, wide.address, factors.address);
    let plain = QuantisedProduct { epsilon: 1e-5, ..QuantisedProduct::default() };
    let gate = kernels::gate_word(Activation::Silu);
    let mut part = |name, outputs: usize, columns: usize, product: QuantisedProduct| -> Result<Part, Failure> {
        let rows = if product.gate == 0 { outputs } else { 2 * outputs };
        let weight = rig.random.matrix(WeightType::Q4_1, rows * LAYERS, columns);
        let (outputs, columns, stride) = (outputs as u32, columns as u32, outputs as u32);
        let product = QuantisedProduct { outputs, columns, stride, ..product };
        Ok(Part { name, weights: rig.upload(&weight.bytes)?, bytes: weight.bytes.len() / LAYERS, product })
    };
    Ok(vec![
        part(
            "query, key, value",
            PROJECTED,
            HIDDEN,
            QuantisedProduct { input: residual, output: wide, norm, ..plain },
        )?,
        part("output", HIDDEN, HIDDEN, QuantisedProduct { input: wide, output: residual, add: 1, ..plain })?,
        part(
            "gate, up",
            INTERMEDIATE,
            HIDDEN,
            QuantisedProduct { input: residual, output: wide, norm, gate, ..plain },
        )?,
        part("down", HIDDEN, INTERMEDIATE, QuantisedProduct { input: wide, output: residual, add: 1, ..plain })?,
    ])
}

fn launch(rig: &Rig, format: Format, part: &Part, layer: usize, count: u32) -> Result<(), Failure> {
    let weight = part.weights.address + (layer * part.bytes) as u64;
    let product = QuantisedProduct { weight, count, ..part.product };
    // SAFETY: the buffers are as large as the arguments say.
    launched(unsafe { kernels::quantised_product(&rig.launcher, &rig.kernels, format, &product) })
}

/// Two projections in turns, together more than the cache holds.
fn output(rig: &mut Rig, peak: Peak, buffers: &Buffers) -> Result<(), Failure> {
    let weight = rig.random.matrix(WeightType::Q8_0, 2 * VOCABULARY, HIDDEN);
    let bytes = weight.bytes.len() / 2;
    let (weights, logits) = (rig.upload(&weight.bytes)?, rig.poisoned(16 * VOCABULARY * 4)?);
    let product = QuantisedProduct {
        input: buffers.residual.address,
        output: logits.address,
        norm: buffers.factors.address,
        outputs: VOCABULARY as u32,
        columns: HIDDEN as u32,
        stride: VOCABULARY as u32,
        float_output: 1,
        epsilon: 1e-5,
        ..QuantisedProduct::default()
    };
    let part = Part { name: "output projection", weights, bytes, product };
    for count in COUNTS {
        let each = time(rig, 16, |at| launch(rig, Format::Q8_0, &part, at % 2, count))?;
        peak.line(&format!("Q8_0 {} M={count}", part.name), each, bytes);
    }
    Ok(())
}
