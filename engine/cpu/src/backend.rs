//! [`Backend`] on the CPU: each operation unpacks its arguments and calls the module that computes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::backend::*;
use engine::sampler::{SamplerScratch, largest};

use crate::cache::Cache;
use crate::kernels::{Attention, CacheElement, Compute};
use crate::matrix::Matrix;
use crate::moe::{Experts, Routes};
use crate::rope::Rope;
use crate::step::Step;
use crate::{elementwise, latent, moe};

/// Activations in f32.
pub struct Buffer(pub(crate) Vec<f32>);

/// How a rank on the CPU stands for a device that works by itself: what runs such devices is tried with it.
#[derive(Clone, Debug, Default)]
pub struct Delay {
    /// How long choices that are kept cannot be taken, unless a step that follows has come by then.
    pub time: Duration,
    /// Counts steps that were given while another one's choices were not taken.
    pub followed: Arc<AtomicU64>,
}

/// One rank on the CPU.
pub struct CpuBackend {
    compute: Compute,
    cache: CacheElement,
    latent: latent::Scratch,
    moe: moe::Scratch,
    /// Chosen tokens.
    choices: Vec<u32>,
    /// Those that are kept, and when they may be taken.
    kept: VecDeque<(Vec<u32>, Instant)>,
    delay: Delay,
    sampler: SamplerScratch,
    marks: [Instant; 6],
}

impl CpuBackend {
    /// A rank that computes with these threads, instruction set and precision, and keeps keys and values as `cache`.
    pub fn new(compute: Compute, cache: CacheElement) -> Self {
        Self {
            compute,
            cache,
            latent: latent::Scratch::default(),
            moe: moe::Scratch::default(),
            choices: Vec::new(),
            kept: VecDeque::new(),
            delay: Delay::default(),
            sampler: SamplerScratch::new(),
            marks: [Instant::now(); 6],
        }
    }

    /// As a device that works by itself.
    pub fn delayed(self, delay: Delay) -> Self {
        Self { delay, ..self }
    }
}

impl Backend for CpuBackend {
    const ELEMENT_BYTES: usize = size_of::<f32>();

    type Buffer = Buffer;
    type Vector = Vec<f32>;
    type Linear = Matrix;
    type Experts = Experts;
    type LatentUp = latent::LatentUp;
    type Rope = Rope;
    type Cache = Cache;
    type Step = Step;
    type Routes = Routes;
    type Tokens = Vec<u32>;

    fn load_linear(&mut self, parts: &[MatrixPart<'_>], bias: Option<&[f32]>) -> Result<Matrix, BackendError> {
        Matrix::load(parts, bias)
    }

    fn load_vector(&mut self, values: &[f32]) -> Result<Vec<f32>, BackendError> {
        Ok(values.to_vec())
    }

    fn load_experts(&mut self, experts: &[ExpertParts<'_>]) -> Result<Experts, BackendError> {
        Experts::load(experts)
    }

    fn load_latent_up(&mut self, parts: LatentUpParts<'_>) -> Result<latent::LatentUp, BackendError> {
        latent::LatentUp::load(&parts)
    }

    fn load_rope(&mut self, table: &RopeTable) -> Result<Rope, BackendError> {
        Ok(Rope::new(table))
    }

    fn load_tokens(&mut self, tokens: &[u32]) -> Result<Vec<u32>, BackendError> {
        Ok(tokens.to_vec())
    }

    fn allocate_buffer(&mut self, elements: usize) -> Result<Buffer, BackendError> {
        let mut values = Vec::new();
        let error = |_| BackendError::Memory { operation: "allocate_buffer", bytes: elements * Self::ELEMENT_BYTES };
        values.try_reserve_exact(elements).map_err(error)?;
        values.resize(elements, 0.0);
        Ok(Buffer(values))
    }

    fn allocate_cache(&mut self, shape: &CacheShape) -> Result<Cache, BackendError> {
        Cache::new(shape, self.cache)
    }

    fn allocate_step(&mut self, limits: &StepLimits, _: Option<AttentionHeads>) -> Result<Step, BackendError> {
        Ok(Step::new(*limits))
    }

    fn allocate_choices(&mut self, places: usize) -> Result<(), BackendError> {
        self.choices.resize(places, u32::MAX);
        Ok(())
    }

    fn allocate_routes(&mut self, rows: usize, experts_per_token: usize) -> Result<Routes, BackendError> {
        Ok(Routes::new(rows, experts_per_token))
    }

    fn upload(&mut self, step: &mut Step, input: &StepInput) -> Result<(), BackendError> {
        step.upload(input)
    }

    fn read(&mut self, buffer: &Buffer, from: usize, to: &mut [f32]) -> Result<(), BackendError> {
        to.copy_from_slice(&buffer.0[from..from + to.len()]);
        Ok(())
    }

    fn choose(&mut self, arguments: Choose<'_, Self>) -> Result<(), BackendError> {
        let Choose { logits, width, rows, vocabulary, place } = arguments;
        let rows = logits.0.chunks_exact(width).take(rows);
        for (row, choice) in rows.zip(&mut self.choices[place..]) {
            let column = largest(row);
            let token = column.map(|column| vocabulary.map_or(column, |tokens| tokens[column as usize]));
            *choice = token.unwrap_or(u32::MAX);
        }
        Ok(())
    }

    const MOST_CHANGES: usize = usize::MAX;

    fn draw(&mut self, arguments: DrawRows<'_, Self>) -> Result<(), BackendError> {
        let DrawRows { logits, width, draws, changes, place } = arguments;
        let rows = logits.0.chunks_exact_mut(width).zip(draws);
        for ((row, draw), choice) in rows.zip(&mut self.choices[place..]) {
            *choice = draw.choose(row, changes, &mut self.sampler).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    fn read_choices(&mut self, from: usize, to: &mut [u32]) -> Result<(), BackendError> {
        to.copy_from_slice(&self.choices[from..from + to.len()]);
        Ok(())
    }

    fn keep_choices(&mut self, places: usize) -> Result<(), BackendError> {
        self.delay.followed.fetch_add(u64::from(!self.kept.is_empty()), Ordering::Relaxed);
        self.kept.push_back((self.choices[..places].to_vec(), Instant::now() + self.delay.time));
        Ok(())
    }

    fn has_kept_choices(&mut self) -> Result<bool, BackendError> {
        Ok(self.kept.len() != 1 || self.kept.front().is_none_or(|(_, due)| Instant::now() >= *due))
    }

    fn take_choices(&mut self, to: &mut [u32]) -> Result<(), BackendError> {
        let Some((choices, due)) = self.kept.pop_front() else { return Ok(()) };
        if self.kept.is_empty() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        to.copy_from_slice(&choices[..to.len()]);
        Ok(())
    }

    fn mark(&mut self, mark: usize) -> Result<(), BackendError> {
        self.marks[mark] = Instant::now();
        Ok(())
    }

    fn seconds(&self, from: usize, to: usize) -> f64 {
        (self.marks[to] - self.marks[from]).as_secs_f64()
    }

    fn embed(&mut self, Embed { step, table, first, output, rows }: Embed<'_, Self>) -> Result<(), BackendError> {
        let tokens = &step.input.tokens[..rows];
        for (token, output) in tokens.iter().zip(output.0.chunks_exact_mut(table.columns)) {
            let token = chosen_index(*token).map_or(*token, |place| self.choices[place]);
            match (token as usize).checked_sub(first).filter(|row| *row < table.rows) {
                Some(row) => table.row(row, output),
                None => output.fill(0.0),
            }
        }
        Ok(())
    }

    fn rms_norm(&mut self, Norm { input, weight, epsilon, output, rows }: Norm<'_, Self>) -> Result<(), BackendError> {
        let elements = rows * weight.len();
        self.compute.rms_norm(&input.0[..elements], weight, epsilon, &mut output.0[..elements]);
        Ok(())
    }

    fn rms_norm_blocks(&mut self, arguments: NormBlocks<'_, Self>) -> Result<(), BackendError> {
        let NormBlocks { buffer, blocks, weight, epsilon, rows } = arguments;
        elementwise::for_each_block(&mut buffer.0, blocks, rows, |_, block| {
            elementwise::rms_norm_in_place(block, weight, epsilon);
        });
        Ok(())
    }

    fn add_rms_norm(&mut self, arguments: AddNorm<'_, Self>) -> Result<(), BackendError> {
        let AddNorm { addend, residual, weight, epsilon, output, rows } = arguments;
        let elements = rows * weight.len();
        let (addend, residual) = (&addend.0[..elements], &mut residual.0[..elements]);
        self.compute.add_rms_norm(addend, residual, weight, epsilon, &mut output.0[..elements]);
        Ok(())
    }

    fn linear(&mut self, Product { weight, input, output, rows }: Product<'_, Self>) -> Result<(), BackendError> {
        weight.multiply(&self.compute, &input.0, &mut output.0, rows);
        Ok(())
    }

    fn rotate(&mut self, arguments: Rotate<'_, Self>) -> Result<(), BackendError> {
        let Rotate { step, rope, buffer, blocks, rows } = arguments;
        elementwise::for_each_block(&mut buffer.0, blocks, rows, |row, block| {
            rope.rotate(step.input.positions[row] as usize, block);
        });
        Ok(())
    }

    fn append(
        &mut self,
        Append { step, source, key, value, cache, layer, .. }: Append<'_, Self>,
    ) -> Result<(), BackendError> {
        cache.append(step, &source.0, (key, value), layer);
        Ok(())
    }

    fn attend(&mut self, arguments: Attend<'_, Self>) -> Result<(), BackendError> {
        let Attend { step, source, query, groups, scale, cache, layer, output, rows } = arguments;
        let Cache::KeyValue(cache) = cache else { panic!("grouped attention reads keys and values") };
        let attention = Attention { step: &step.input, source: &source.0, query, groups, scale, cache, layer };
        self.compute.attend(&attention, &mut output.0[..rows * query.count * query.width]);
        Ok(())
    }

    fn attend_latent(&mut self, arguments: AttendLatent<'_, Self>) -> Result<(), BackendError> {
        let AttendLatent { step, source, query, up, scale, cache, layer, output, .. } = arguments;
        let Cache::Latent(cache) = cache else { panic!("latent attention reads latents") };
        let problem = latent::Problem { step, source: &source.0, query, up, scale, cache, layer };
        latent::attend(&problem, &mut self.latent, &mut output.0);
        Ok(())
    }

    fn activate(&mut self, arguments: Activate<'_, Self>) -> Result<(), BackendError> {
        let Activate { activation, input, width, output, rows } = arguments;
        // A rank may have no part of an MLP.
        if width > 0 {
            let (input, output) = (&input.0[..2 * rows * width], &mut output.0[..rows * width]);
            self.compute.activate(activation, input, width, output);
        }
        Ok(())
    }

    fn route(&mut self, Route { config, logits, bias, routes, rows }: Route<'_, Self>) -> Result<(), BackendError> {
        for (row, logits) in logits.0.chunks_exact(config.experts).take(rows).enumerate() {
            routes.choose(row, config, logits, bias.map(Vec::as_slice), &mut self.moe);
        }
        Ok(())
    }

    fn mix(&mut self, arguments: Mix<'_, Self>) -> Result<(), BackendError> {
        let Mix { experts, activation, input, width, routes, output, rows } = arguments;
        let (input, output) = (&input.0[..rows * width], &mut output.0[..rows * width]);
        experts.mix(&self.compute, routes, activation, input, &mut self.moe, output);
        Ok(())
    }

    fn add(&mut self, Add { addend, target, width, rows }: Add<'_, Self>) -> Result<(), BackendError> {
        elementwise::add(&mut target.0[..rows * width], &addend.0[..rows * width]);
        Ok(())
    }

    fn gather(&mut self, Gather { step, range, input, width, output }: Gather<'_, Self>) -> Result<(), BackendError> {
        let rows = &step.input.logit_rows[range];
        for (row, output) in rows.iter().zip(output.0.chunks_exact_mut(width)) {
            output.copy_from_slice(&input.0[*row as usize * width..(*row as usize + 1) * width]);
        }
        Ok(())
    }

    fn copy_columns(&mut self, arguments: CopyColumns<'_, Self>) -> Result<(), BackendError> {
        let CopyColumns { source, width, target, target_width, offset, rows } = arguments;
        let (source, target) = (source.0.chunks_exact(width), target.0.chunks_exact_mut(target_width));
        for (source, target) in source.zip(target).take(rows) {
            target[offset..offset + width].copy_from_slice(source);
        }
        Ok(())
    }

    fn move_rows(&mut self, MoveRows { step, cache }: MoveRows<'_, Self>) -> Result<(), BackendError> {
        for RowMove { from, to } in &step.input.moves {
            cache.move_row(*from as usize, *to as usize);
        }
        Ok(())
    }
}
