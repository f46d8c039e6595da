//! What kernels are told of calls that wait, and of caches.

use super::launch::word;
use super::pending::ProductCall;
use super::types::Cache;
use crate::kernels::{self, CachePlace};

/// Of a product with bf16 weights.
pub(super) fn arguments(call: &ProductCall) -> kernels::Product {
    kernels::Product {
        weight: call.weight,
        input: call.input,
        bias: call.bias.map_or(0, |[f32, _]| f32),
        output: call.output,
        outputs: word(call.outputs),
        columns: word(call.columns),
        count: word(call.rows),
        stride: word(call.stride),
        float_output: u32::from(call.wide),
        epsilon: call.norm.map_or(0.0, |norm| norm.epsilon),
        residual: call.sum.map_or(0, |sum| sum.residual),
        norm: call.sum.map_or(0, |sum| sum.weight),
        squares: call.sum.map_or(0, |sum| sum.squares),
        input_squares: call.norm.map_or(0, |norm| norm.squares),
        input_rows: call.norm.map_or(0, |norm| norm.rows),
        ..kernels::Product::default()
    }
}

/// Of one with weights as they are stored in blocks.
pub(super) fn stored_arguments(call: &ProductCall) -> kernels::QuantisedProduct {
    kernels::QuantisedProduct {
        weight: call.weight,
        input: call.input,
        bias: call.bias.map_or(0, |[f32, _]| f32),
        output: call.output,
        norm: call.norm.map_or(0, |norm| norm.weight),
        rows: call.norm.map_or(0, |norm| norm.rows),
        outputs: word(call.outputs),
        columns: word(call.columns),
        count: word(call.rows),
        stride: word(call.stride),
        float_output: u32::from(call.wide),
        gate: 0,
        add: u32::from(call.add),
        epsilon: call.norm.map_or(0.0, |norm| norm.epsilon),
    }
}

/// Where a layer's keys and values are.
pub(super) fn place(cache: &Cache, layer: usize) -> CachePlace {
    CachePlace {
        keys: cache.keys(layer),
        values: cache.values(layer),
        heads: word(cache.heads),
        padded: word(cache.padded),
    }
}
