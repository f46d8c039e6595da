//! Random weights, made tensor by tensor when asked for: benchmarks and capacity tests without a checkpoint.

use std::borrow::Cow;
use std::num::NonZero;
use std::thread;

use half::{bf16, f16};

use super::{TensorInfo, TensorView, WeightError, WeightSource, WeightType};

/// What stands for a file in messages.
const PATH: &str = "random weights";

/// Elements that are worth a thread.
const PART: usize = 1 << 18;
/// Standard deviation of a weight.
const SPREAD: f32 = 0.02;

/// Weights that depend on seed, name and position alone, so every rank sees the same ones. Any name of any shape
/// exists. Normalisation weights are 1; all others are close to normal around 0 with standard deviation 0.02.
pub struct DummyWeights {
    seed: u64,
    kind: WeightType,
}

impl DummyWeights {
    /// `dtype` is a configuration's: "bfloat16", "float16"; anything else gives F32.
    pub fn new(seed: u64, dtype: &str) -> Self {
        let kind = match dtype {
            "bfloat16" => WeightType::Bf16,
            "float16" => WeightType::F16,
            _ => WeightType::F32,
        };
        Self { seed, kind }
    }

    /// On as many threads as there are cores: every element depends on its place alone.
    fn fill(&self, name: &str, bytes: &mut [u8]) {
        let key = mix(self.seed ^ hash(name));
        let normalisation = name.ends_with("norm.weight");
        let width = self.kind.block_bytes();
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let part = (bytes.len() / width).div_ceil(threads).max(PART);
        thread::scope(|scope| {
            for (index, bytes) in bytes.chunks_mut(part * width).enumerate() {
                // A small tensor is made where it is asked for.
                let alone = threads == 1 || index == 0 && bytes.len() < part * width;
                let mut run = move || self.fill_part(key, normalisation, index * part, bytes);
                if alone {
                    run();
                } else {
                    scope.spawn(run);
                }
            }
        });
    }

    /// Elements from `first` on.
    fn fill_part(&self, key: u64, normalisation: bool, first: usize, bytes: &mut [u8]) {
        let value = |index: usize| if normalisation { 1.0 } else { SPREAD * normal(key, (first + index) as u64) };
        for (index, element) in bytes.chunks_exact_mut(self.kind.block_bytes()).enumerate() {
            match self.kind {
                WeightType::Bf16 => element.copy_from_slice(&bf16::from_f32(value(index)).to_le_bytes()),
                WeightType::F16 => element.copy_from_slice(&f16::from_f32(value(index)).to_le_bytes()),
                _ => element.copy_from_slice(&value(index).to_le_bytes()),
            }
        }
    }
}

impl WeightSource for DummyWeights {
    /// Empty: tensors exist by being asked for.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Always an error: a random tensor has the shape that is asked for.
    fn info(&self, name: &str) -> Result<TensorInfo, WeightError> {
        Err(WeightError::Missing { path: PATH.to_owned(), name: name.to_owned(), near: Vec::new() })
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, WeightError> {
        // A configuration may ask for more memory than there is; that must not end the process.
        let mut bytes = Vec::new();
        let size = self.kind.size(shape).filter(|size| bytes.try_reserve_exact(*size).is_ok());
        let size = size.ok_or_else(|| WeightError::File {
            path: PATH.to_owned(),
            message: format!("there is no memory for tensor `{name}` of shape {shape:?}"),
        })?;
        bytes.resize(size, 0);
        self.fill(name, &mut bytes);
        Ok(TensorView { kind: self.kind, shape: shape.to_vec(), bytes: Cow::Owned(bytes) })
    }
}

/// FNV-1a.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The finaliser of SplitMix64.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A number of mean 0 and variance 1: four uniform 16-bit numbers summed, whose variance is 4 / 12. Much cheaper than
/// a logarithm, and models of billions of weights are made this way.
fn normal(key: u64, index: u64) -> f32 {
    let bits = mix(key.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    (sum as f32 / 65536.0 - 2.0) * 3.0_f32.sqrt()
}
