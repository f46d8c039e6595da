//! [`Backend`] on the CPU: each operation unpacks its arguments and calls the module that computes.

use engine::backend::*;

use crate::cache::{Cache, Store};
use crate::kernels::Compute;
use crate::matrix::Matrix;
use crate::moe::{Experts, Routes};
use crate::rope::Rope;
use crate::step::Step;
use crate::{attention, elementwise, latent, moe};

/// Activations in f32.
pub struct Buffer(pub(crate) Vec<f32>);

/// One rank on the CPU.
pub struct CpuBackend {
    compute: Compute,
    scores: Vec<f32>,
    latent: latent::Scratch,
    moe: moe::Scratch,
}

impl CpuBackend {
    /// A rank that computes with these threads, instruction set and precision.
    pub fn new(compute: Compute) -> Self {
        Self { compute, scores: Vec::new(), latent: latent::Scratch::default(), moe: moe::Scratch::default() }
    }
}

/// Zeroed memory. `None` elements are more than can be counted.
pub(crate) fn zeroed(operation: &'static str, elements: Option<usize>) -> Result<Vec<f32>, BackendError> {
    let mut values = Vec::new();
    let count = elements.filter(|elements| values.try_reserve_exact(*elements).is_ok());
    let bytes = elements.and_then(|elements| elements.checked_mul(size_of::<f32>())).unwrap_or(usize::MAX);
    values.resize(count.ok_or(BackendError::Memory { operation, bytes })?, 0.0);
    Ok(values)
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

    fn allocate_buffer(&mut self, elements: usize) -> Result<Buffer, BackendError> {
        Ok(Buffer(zeroed("allocate_buffer", Some(elements))?))
    }

    fn allocate_cache(&mut self, shape: &CacheShape) -> Result<Cache, BackendError> {
        Cache::new(*shape)
    }

    fn allocate_step(&mut self, limits: &StepLimits) -> Result<Step, BackendError> {
        Ok(Step::new(*limits))
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

    fn embed(&mut self, Embed { step, table, first, output, rows }: Embed<'_, Self>) -> Result<(), BackendError> {
        let tokens = &step.input.tokens[..rows];
        for (token, output) in tokens.iter().zip(output.0.chunks_exact_mut(table.columns)) {
            match (*token as usize).checked_sub(first).filter(|row| *row < table.rows) {
                Some(row) => table.row(row, output),
                None => output.fill(0.0),
            }
        }
        Ok(())
    }

    fn rms_norm(&mut self, Norm { input, weight, epsilon, output, rows }: Norm<'_, Self>) -> Result<(), BackendError> {
        let width = weight.len();
        let (input, output) = (input.0.chunks_exact(width), output.0.chunks_exact_mut(width));
        for (input, output) in input.zip(output).take(rows) {
            elementwise::rms_norm(input, weight, epsilon, output);
        }
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
        elementwise::add(&mut residual.0[..elements], &addend.0[..elements]);
        self.rms_norm(Norm { input: residual, weight, epsilon, output, rows })
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

    fn append(&mut self, arguments: Append<'_, Self>) -> Result<(), BackendError> {
        let Append { step, source, key, value, cache, layer, .. } = arguments;
        cache.append(layer, Store::Key, step, &source.0, key);
        if let Some(value) = value {
            cache.append(layer, Store::Value, step, &source.0, value);
        }
        Ok(())
    }

    fn attend(&mut self, arguments: Attend<'_, Self>) -> Result<(), BackendError> {
        let Attend { step, source, query, groups, scale, cache, layer, output, .. } = arguments;
        let problem = attention::Problem { step, source: &source.0, query, groups, scale, cache, layer };
        attention::attend(&problem, &mut self.scores, &mut output.0);
        Ok(())
    }

    fn attend_latent(&mut self, arguments: AttendLatent<'_, Self>) -> Result<(), BackendError> {
        let AttendLatent { step, source, query, up, scale, cache, layer, output, .. } = arguments;
        let problem = latent::Problem { step, source: &source.0, query, up, scale, cache, layer };
        latent::attend(&problem, &mut self.latent, &mut output.0);
        Ok(())
    }

    fn activate(&mut self, arguments: Activate<'_, Self>) -> Result<(), BackendError> {
        let Activate { activation, input, width, output, rows } = arguments;
        let (input, output) = (input.0.chunks_exact(2 * width), output.0.chunks_exact_mut(width));
        for (input, output) in input.zip(output).take(rows) {
            elementwise::gate(activation, input, output);
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
}
