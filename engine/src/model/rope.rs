//! Rotary frequencies under the scaling rules of Hugging Face transformers, `modeling_rope_utils.py`.

use std::f64::consts::TAU;

use super::{RopeConfig, RopeScaling};
use crate::backend::RopeTable;

/// The table for positions below `positions`.
pub fn rope_table(config: &RopeConfig, positions: usize) -> RopeTable {
    let frequencies = (0..config.dimension / 2).map(|pair| frequency(config, pair)).collect();
    RopeTable { frequencies, factor: rotation_factor(&config.scaling), interleaved: config.interleaved, positions }
}

/// What the scores of latent attention are multiplied by for YaRN's temperature: the square of `mscale_all_dim`'s scale.
pub fn score_factor(scaling: &RopeScaling) -> f64 {
    match scaling {
        RopeScaling::Yarn { factor, mscale_all_dim, .. } if *mscale_all_dim != 0.0 => {
            yarn_scale(*factor, *mscale_all_dim).powi(2)
        }
        _ => 1.0,
    }
}

/// Radians per position of one pair.
fn frequency(config: &RopeConfig, pair: usize) -> f64 {
    let plain = config.theta.powf(-2.0 * pair as f64 / config.dimension as f64);
    match &config.scaling {
        RopeScaling::None => plain,
        RopeScaling::Linear { factor } => plain / factor,
        RopeScaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original_context } => {
            let turns = *original_context as f64 * plain / TAU;
            let kept = (turns - low_frequency_factor) / (high_frequency_factor - low_frequency_factor);
            blend(plain, *factor, kept.clamp(0.0, 1.0))
        }
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate, .. } => {
            let bound = |turns: f64| {
                let ratio = *original_context as f64 / (turns * TAU);
                config.dimension as f64 * ratio.ln() / (2.0 * config.theta.ln())
            };
            let (low, high) = (bound(*beta_fast), bound(*beta_slow));
            let (low, high) = if *truncate { (low.floor(), high.ceil()) } else { (low, high) };
            let (low, high) = (low.max(0.0), high.min(config.dimension as f64 - 1.0));
            let width = if low == high { 0.001 } else { high - low };
            blend(plain, *factor, 1.0 - ((pair as f64 - low) / width).clamp(0.0, 1.0))
        }
    }
}

/// `kept` of the plain frequency and the rest of the one stretched by `factor`.
fn blend(plain: f64, factor: f64, kept: f64) -> f64 {
    plain * kept + plain / factor * (1.0 - kept)
}

/// What cosine and sine are multiplied by.
fn rotation_factor(scaling: &RopeScaling) -> f64 {
    match scaling {
        RopeScaling::Yarn { attention_factor: Some(factor), .. } => *factor,
        RopeScaling::Yarn { factor, mscale, mscale_all_dim, .. } if *mscale != 0.0 && *mscale_all_dim != 0.0 => {
            yarn_scale(*factor, *mscale) / yarn_scale(*factor, *mscale_all_dim)
        }
        RopeScaling::Yarn { factor, .. } => yarn_scale(*factor, 1.0),
        _ => 1.0,
    }
}

fn yarn_scale(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

#[cfg(test)]
mod tests {
    use super::{rope_table, score_factor};
    use crate::model::{RopeConfig, RopeScaling};

    fn config(dimension: usize, theta: f64, scaling: RopeScaling) -> RopeConfig {
        RopeConfig { theta, scaling, interleaved: false, dimension }
    }

    fn yarn(mscale: f64, mscale_all_dim: f64) -> RopeScaling {
        RopeScaling::Yarn {
            factor: 40.0,
            original_context: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            mscale,
            mscale_all_dim,
            attention_factor: None,
            truncate: true,
        }
    }

    fn close(actual: &[f64], expected: &[f64]) {
        assert_eq!(actual.len(), expected.len());
        for (actual, expected) in actual.iter().zip(expected) {
            assert!((actual - expected).abs() < 1e-12 + 1e-9 * expected.abs(), "{actual} is not {expected}");
        }
    }

    /// Expected values: transformers' formulas, written out step by step in Python with f64.
    #[test]
    fn frequencies_follow_the_scaling_rules() {
        close(&rope_table(&config(8, 10_000.0, RopeScaling::None), 1).frequencies, &[1.0, 0.1, 0.01, 0.001]);
        let linear = RopeScaling::Linear { factor: 4.0 };
        close(&rope_table(&config(4, 10_000.0, linear), 1).frequencies, &[0.25, 0.0025]);
        let llama3 = RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_context: 8192,
        };
        close(
            &rope_table(&config(16, 500_000.0, llama3), 1).frequencies,
            &[
                1.0,
                0.19392274474868576,
                0.03760603093086393,
                0.007292664737217109,
                0.0005248461609929547,
                3.428102195952591e-05,
                6.647869871181235e-06,
                1.2891731721515574e-06,
            ],
        );
        close(
            &rope_table(&config(16, 10_000.0, yarn(1.0, 1.0)), 1).frequencies,
            &[
                1.0,
                0.31622776601683794,
                0.1,
                0.023914724805023366,
                0.005125,
                0.0008498621211702518,
                2.5e-05,
                7.905694150420947e-06,
            ],
        );
    }

    #[test]
    fn yarn_scales_rotation_and_scores() {
        let factor = |scaling| rope_table(&config(16, 10_000.0, scaling), 1).factor;
        close(&[factor(yarn(1.0, 1.0)), factor(yarn(0.0, 0.0))], &[1.0, 1.3688879454113936]);
        close(&[factor(yarn(1.0, 0.707))], &[1.3688879454113936 / 1.2608037774058554]);
        close(&[score_factor(&yarn(1.0, 0.707))], &[1.2608037774058554f64.powi(2)]);
        close(&[score_factor(&yarn(1.0, 0.0)), score_factor(&RopeScaling::None)], &[1.0, 1.0]);
    }
}
