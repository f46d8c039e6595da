//! Rotary embedding of GGUF files.

use super::{ConfigError, GgufWeights, Keys, LoadError, WeightSource, bounds};
use crate::model::{Attention, RopeConfig, RopeScaling};
use crate::weights::dequantise::dequantise;

/// Tensor of divisors, one per rotated pair, that converters write for Llama 3 instead of its scaling keys.
const DIVISORS: &str = "rope_freqs.weight";

pub(super) fn read(
    weights: &GgufWeights,
    keys: &Keys,
    attention: &Attention,
    context: usize,
    unserved: &mut Vec<String>,
) -> Result<RopeConfig, LoadError> {
    let theta = keys.optional_positive("rope.freq_base")?.unwrap_or(10_000.0);
    let (whole, interleaved) = match attention {
        Attention::Latent(latent) => (latent.rope_head_dimension, true),
        Attention::Grouped { head_dimension, .. } => (*head_dimension, false),
    };
    let dimension = keys.optional_size("rope.dimension_count", bounds::HEAD_WIDTH)?.unwrap_or(whole);
    if dimension > whole || dimension % 2 == 1 {
        let message = format!("is {dimension}, but must be even and at most {whole}");
        return Err(keys.error("rope.dimension_count", message).into());
    }
    let mut scaling = scaling(keys, context, unserved)?;
    if weights.contains(DIVISORS) {
        scaling = llama3(weights, theta, dimension)?.unwrap_or_else(|| {
            unserved.push(format!("tensor `{DIVISORS}` follows no formula that is served"));
            RopeScaling::None
        });
    }
    Ok(RopeConfig { theta, scaling, interleaved, dimension })
}

fn scaling(keys: &Keys, context: usize, unserved: &mut Vec<String>) -> Result<RopeScaling, ConfigError> {
    const FACTOR: &str = "rope.scaling.factor";
    match keys.text("rope.scaling.type")?.unwrap_or("none") {
        "none" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: keys.positive(FACTOR)? }),
        "yarn" => Ok(RopeScaling::Yarn {
            factor: keys.positive(FACTOR)?,
            original_context: keys
                .optional_size("rope.scaling.original_context_length", bounds::CONTEXT)?
                .unwrap_or(context),
            beta_fast: keys.optional_positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            beta_slow: keys.optional_positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            mscale: 0.0,
            // The converter stores a tenth of DeepSeek's `mscale_all_dim`.
            mscale_all_dim: keys.optional_number("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0) * 10.0,
            attention_factor: keys.optional_positive("rope.scaling.attn_factor")?,
            truncate: true,
        }),
        other => {
            unserved.push(format!("`rope.scaling.type` is \"{other}\"; none, linear and yarn are served"));
            Ok(RopeScaling::None)
        }
    }
}

/// Llama 3's scaling, if its formula with the published constants gives the file's divisors.
fn llama3(weights: &GgufWeights, theta: f64, dimension: usize) -> Result<Option<RopeScaling>, LoadError> {
    let view = weights.tensor(DIVISORS, &[dimension / 2])?;
    let mut divisors = vec![0.0; dimension / 2];
    match dequantise(view.kind) {
        Some(convert) => convert(&view.bytes, &mut divisors),
        None => return Ok(None),
    }
    let factor = divisors.iter().copied().fold(1.0_f32, f32::max);
    let (low_frequency_factor, high_frequency_factor, original_context) = (1.0, 4.0, 8192);
    let expected = |pair: usize| {
        let wavelength = std::f64::consts::TAU * theta.powf(2.0 * pair as f64 / dimension as f64);
        let turns = original_context as f64 / wavelength;
        let smooth = ((turns - low_frequency_factor) / (high_frequency_factor - low_frequency_factor)).clamp(0.0, 1.0);
        1.0 / ((1.0 - smooth) / f64::from(factor) + smooth)
    };
    let fits = divisors.iter().enumerate().all(|(pair, divisor)| {
        let expected = expected(pair);
        (f64::from(*divisor) - expected).abs() <= 1e-4 * expected
    });
    let factor = f64::from(factor);
    Ok(fits.then_some(RopeScaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original_context }))
}
