//! Choosing tokens on the device: what [`engine::sampler`] chooses, bit for bit.

use bytemuck::{Pod, Zeroable};
use engine::sampler::{Counter, Draw, GREEDY_TEMPERATURE};
use engine::types::SamplingParams;

use super::launch::Shape;
use super::module::Module;
use super::{Kernel, KernelError, KernelSet, Launcher};

const ARGMAX_THREADS: u32 = 256;
/// Logits that a thread of `argmax` reads at least, so that a small vocabulary takes few blocks.
const LOGITS_EACH: u32 = 8;
const MOST_ARGMAX_BLOCKS: u32 = 64;
const SAMPLE_THREADS: u32 = 1024;

pub(super) struct SamplingKernels {
    argmax: Kernel,
    sample: Kernel,
}

impl SamplingKernels {
    pub fn load(module: &Module) -> Result<Self, KernelError> {
        Ok(Self { argmax: module.kernel("argmax", 0)?, sample: module.kernel("sample", 0)? })
    }
}

/// Where chosen tokens go: the smallest id with the largest logit of each row. The twin of `Choice` in
/// `kernels/include/tokens.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice {
    /// `[rows]` u64 of zeros; a launch leaves them zero.
    pub best: u64,
    /// `[rows]` u32 of zeros; a launch leaves them zero.
    pub arrivals: u64,
    /// `[rows]` u32; [`crate::step::NONE`] where the largest logit is not finite.
    pub tokens: u64,
    /// The same in page-locked memory of the host; 0 for none.
    pub host: u64,
    /// `[vocabulary]` u32, the token of each column; 0 where they are the same.
    pub columns: u64,
}

/// Chooses from logits in memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Argmax {
    /// `[rows, vocabulary]` f32.
    pub logits: u64,
    pub choice: Choice,
    pub vocabulary: u32,
    pub rows: u32,
}

/// # Safety
/// As this module says.
pub unsafe fn argmax(launcher: &Launcher, kernels: &KernelSet, argmax: &Argmax) -> Result<(), KernelError> {
    let blocks = argmax.vocabulary.div_ceil(ARGMAX_THREADS * LOGITS_EACH).clamp(1, MOST_ARGMAX_BLOCKS);
    let shape = Shape { grid: [blocks, argmax.rows], threads: ARGMAX_THREADS, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernels.sampling.argmax, shape, argmax) }
}

/// How one row's token is chosen: the twin of `SampleRow` in `kernels/include/tokens.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct SampleRow {
    /// `log2(e) / temperature`; 0 is greedy.
    pub scale: f32,
    pub min_p: f32,
    pub top_k: u32,
    pub repetition: f32,
    /// `floor(top_p * 2^32)`.
    pub top_p: u64,
    pub seed: u64,
    pub counter: [u32; 4],
    pub frequency: f32,
    pub presence: f32,
    /// The row's entries among the changes.
    pub first_change: u32,
    pub changes: u32,
}

impl SampleRow {
    /// As a draw of the engine says.
    pub fn of(draw: &Draw) -> Self {
        let Draw { params, counter, changes } = draw;
        Self::new(params, *counter, changes.start as u32, changes.len() as u32)
    }

    /// For a token of a request with these parameters.
    pub fn new(params: &SamplingParams, counter: Counter, first_change: u32, changes: u32) -> Self {
        let greedy = params.temperature < GREEDY_TEMPERATURE || params.top_k == 1;
        Self {
            scale: if greedy { 0.0 } else { std::f32::consts::LOG2_E / params.temperature },
            min_p: params.min_p,
            top_k: params.top_k,
            repetition: params.repetition_penalty,
            top_p: (f64::from(params.top_p) * (1u64 << 32) as f64) as u64,
            seed: params.seed,
            counter: [counter.position, counter.choice, counter.node, counter.draw],
            frequency: params.frequency_penalty,
            presence: params.presence_penalty,
            first_change,
            changes,
        }
    }
}

/// A token for each row, by its [`SampleRow`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// `[count, vocabulary]` f32.
    pub logits: u64,
    /// `[count]` [`SampleRow`].
    pub rows: u64,
    /// `[count]` u32; [`crate::step::NONE`] where the largest logit is not finite.
    pub tokens: u64,
    /// The same in page-locked memory of the host; 0 for none.
    pub host: u64,
    pub vocabulary: u32,
    pub count: u32,
}

/// # Safety
/// As this module says.
pub unsafe fn sample(launcher: &Launcher, kernels: &KernelSet, sample: &Sample) -> Result<(), KernelError> {
    let shape = Shape { grid: [sample.count, 1], threads: SAMPLE_THREADS, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernels.sampling.sample, shape, sample) }
}
