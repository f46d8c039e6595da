//! [`Backend`] on a GPU: each operation unpacks its arguments and launches a kernel, or waits for the next operation with which it
//! becomes one launch (`pending.rs`).
//!
//! Nothing waits for the device but [`Backend::read`], [`Backend::read_choices`] and [`Backend::take_choices`]; nothing allocates
//! after the first step's buffers are there.

use engine::backend::*;
use engine::types::Phase;

use super::draws::{self, DrawRoom};
use super::lazy::LazyNorm;
use super::passes::{bucket, most_recorded};
use super::pending::{NormCall, Pending, RotateCall, adjacent};
use super::read::Kept;
use super::rooms::Choices;
use super::{Absent, Buffer, Cache, CudaBackend, Element, Matrix, Rope, Step, Vector, absent};
use crate::device::{Allocation, Purpose};

impl Backend for CudaBackend {
    const ELEMENT_BYTES: usize = 2;

    type Buffer = Buffer;
    type Vector = Vector;
    type Linear = Matrix;
    type Experts = Absent;
    type LatentUp = Absent;
    type Rope = Rope;
    type Cache = Cache;
    type Step = Step;
    type Routes = ();
    type Tokens = Allocation;

    fn load_linear(&mut self, parts: &[MatrixPart<'_>], bias: Option<&[f32]>) -> Result<Matrix, BackendError> {
        self.load_matrix(parts, bias)
    }

    fn load_vector(&mut self, values: &[f32]) -> Result<Vector, BackendError> {
        self.widest_norm = self.widest_norm.max(values.len());
        Ok(Vector { memory: self.load_values(values, "load_vector")?, length: values.len() })
    }

    fn load_experts(&mut self, _: &[ExpertParts<'_>]) -> Result<Absent, BackendError> {
        Err(absent("load_experts", "mixtures of experts"))
    }

    fn load_latent_up(&mut self, _: LatentUpParts<'_>) -> Result<Absent, BackendError> {
        Err(absent("load_latent_up", "latent attention"))
    }

    fn load_rope(&mut self, table: &RopeTable) -> Result<Rope, BackendError> {
        self.load_angles(table)
    }

    fn load_tokens(&mut self, tokens: &[u32]) -> Result<Allocation, BackendError> {
        let bytes: &[u8] = bytemuck::cast_slice(tokens);
        let memory = Allocation::new(&self.gpu.account, bytes.len(), Purpose::Weights, "load_tokens")?;
        self.uploader.upload(bytes, memory.pointer())?;
        Ok(memory)
    }

    fn allocate_logits(&mut self, elements: usize) -> Result<Buffer, BackendError> {
        self.buffer(elements, Element::F32)
    }

    fn allocate_buffer(&mut self, elements: usize) -> Result<Buffer, BackendError> {
        self.buffer(elements, Element::Bf16)
    }

    fn allocate_cache(&mut self, shape: &CacheShape) -> Result<Cache, BackendError> {
        self.make_cache(shape)
    }

    fn allocate_step(&mut self, limits: &StepLimits, heads: Option<AttentionHeads>) -> Result<Step, BackendError> {
        self.make_step(limits, heads)
    }

    fn allocate_choices(&mut self, places: usize) -> Result<(), BackendError> {
        let choices = self.choices.insert(Choices::new(&self.gpu, places)?);
        self.kept = Some(Kept::new(&self.gpu, choices.at(0)[0], places)?);
        self.draws = Some(DrawRoom::new(&self.gpu, places)?);
        Ok(())
    }

    fn allocate_routes(&mut self, _: usize, _: usize) -> Result<(), BackendError> {
        Ok(())
    }

    fn upload(&mut self, step: &mut Step, input: &StepInput) -> Result<(), BackendError> {
        self.ready(&[], &[])?;
        if input.rows() > 0 {
            self.recordings.close();
        }
        // A step without rows is what passes are recorded on, of every size.
        let rows = input.rows();
        let padded = if rows == 0 { usize::MAX } else { bucket(rows) };
        // The blocks are those of the pass over several rows that would be replayed, of any size that was recorded.
        let key = PassKey { name: PassKey::TARGET, phase: Phase::Verify, rows, logit_rows: rows };
        let blocks = if rows == 0 { padded } else { self.padded(key).rows };
        self.near.insert(step.id(), step.geometry.near(input, blocks));
        step.upload(&self.gpu.stream, input, padded)
    }

    fn read(&mut self, buffer: &Buffer, from: usize, to: &mut [f32]) -> Result<(), BackendError> {
        self.read_elements(buffer, from, to)
    }

    fn padded(&self, key: PassKey) -> PassKey {
        if !Self::records(key) {
            return key;
        }
        // Buffers have room for what was recorded at start, not for more.
        self.recordings.padded(key).unwrap_or(key)
    }

    fn recorded_rows(&self, phase: Phase, most: usize) -> Vec<usize> {
        let most = most.min(most_recorded(phase));
        let mut rows: Vec<usize> = (1..=most).map(bucket).filter(|rows| *rows <= most).collect();
        rows.push(most);
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    fn pass<E: From<BackendError>>(
        &mut self,
        key: PassKey,
        mut body: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.flush()?;
        if self.recordings.replay(key, self.reach(key.phase))? {
            self.count_replay();
            return Ok(());
        }
        self.phase = key.phase;
        if !Self::records(key) || !self.recordings.is_open() {
            body(self)?;
            return Ok(self.flush()?);
        }
        self.reaches(key).iter().try_for_each(|reach| self.record(key, *reach, &mut body))
    }

    fn choose(&mut self, arguments: Choose<'_, Self>) -> Result<(), BackendError> {
        self.choose_largest(&arguments)
    }

    const MOST_CHANGES: usize = draws::MOST_CHANGES;

    fn draw(&mut self, arguments: DrawRows<'_, Self>) -> Result<(), BackendError> {
        self.flush()?;
        self.launch_draw(arguments)
    }

    fn read_choices(&mut self, from: usize, to: &mut [u32]) -> Result<(), BackendError> {
        self.read_chosen(from, to)
    }

    fn keep_choices(&mut self, places: usize) -> Result<(), BackendError> {
        self.ready(&[], &[])?;
        self.kept.as_mut().map_or(Ok(()), |kept| kept.keep(places, &self.gpu))
    }

    fn has_kept_choices(&mut self) -> Result<bool, BackendError> {
        self.kept.as_ref().map_or(Ok(true), Kept::has_come)
    }

    fn take_choices(&mut self, to: &mut [u32]) -> Result<(), BackendError> {
        self.kept.as_mut().map_or(Ok(()), |kept| kept.take(to))
    }

    fn mark(&mut self, mark: usize) -> Result<(), BackendError> {
        self.ready(&[], &[])?;
        self.marks.set(mark, &self.gpu)
    }

    fn seconds(&self, from: usize, to: usize) -> f64 {
        self.marks.seconds(from, to)
    }

    fn embed(&mut self, arguments: Embed<'_, Self>) -> Result<(), BackendError> {
        self.ready(&[], &[arguments.output.memory.pointer()])?;
        self.pending = Pending::Embed(self.embed_call(&arguments)?);
        Ok(())
    }

    fn rms_norm(&mut self, arguments: Norm<'_, Self>) -> Result<(), BackendError> {
        let Norm { input, weight, epsilon, output, rows } = arguments;
        let (input, output) = (input.memory.pointer(), output.memory.pointer());
        let lazy = LazyNorm::new(input, weight, epsilon, output, rows);
        if let Pending::Embed(call) = self.pending
            && let Some((call, lazy)) = self.beginning(&call, &lazy)
        {
            self.pending = Pending::Nothing;
            return self.embed_and_begin(&call, lazy);
        }
        self.ready(&[input], &[output])?;
        self.norm_later(lazy)
    }

    fn rms_norm_blocks(&mut self, arguments: NormBlocks<'_, Self>) -> Result<(), BackendError> {
        let NormBlocks { buffer, blocks, weight, epsilon, rows } = arguments;
        let weight = weight.memory.pointer();
        let call = NormCall { buffer: buffer.memory.pointer(), blocks, weight, epsilon, rows };
        match self.pending {
            Pending::Norms(first, None) if adjacent(&first.blocks, &call.blocks) && first.buffer == call.buffer => {
                self.pending = Pending::Norms(first, Some(call));
            }
            _ => {
                self.ready(&[call.buffer], &[call.buffer])?;
                self.pending = Pending::Norms(call, None);
            }
        }
        Ok(())
    }

    fn add_rms_norm(&mut self, arguments: AddNorm<'_, Self>) -> Result<(), BackendError> {
        self.add_norm(&arguments)
    }

    fn linear(&mut self, Product { weight, input, output, rows }: Product<'_, Self>) -> Result<(), BackendError> {
        self.launch_pending()?;
        let (from, to) = (input.memory.pointer(), output.memory.pointer());
        let norm = self.take_norm(weight, [from, to], rows);
        let reads: &[u64] = if norm.is_some() { &[] } else { &[from] };
        self.touch(reads, &[to])?;
        let call = |run| Self::product_call(weight, run, input, output, rows, norm);
        if let [run] = weight.runs.as_slice() {
            self.pending = Pending::Product(call(run));
            return Ok(());
        }
        weight.runs.iter().try_for_each(|run| self.launch_product(&call(run)))
    }

    fn rotate(&mut self, Rotate { step, rope, buffer, blocks, rows }: Rotate<'_, Self>) -> Result<(), BackendError> {
        let call = RotateCall {
            positions: step.addresses().positions,
            buffer: buffer.memory.pointer(),
            angles: rope.angles(),
            blocks,
            rows,
        };
        let norms = match self.pending {
            Pending::Norms(first, Some(second)) if first.buffer == call.buffer => Some((first, second)),
            _ => {
                self.ready(&[call.buffer], &[call.buffer])?;
                None
            }
        };
        self.pending = Pending::Rotation(norms, call);
        Ok(())
    }

    fn append(&mut self, arguments: Append<'_, Self>) -> Result<(), BackendError> {
        if let Pending::Rotation(norms, rotation) = self.pending
            && let Some(call) = Self::rotate_append(norms, &rotation, &arguments)
        {
            self.pending = Pending::Appended(call);
            return Ok(());
        }
        self.ready(&[arguments.source.memory.pointer()], &[])?;
        self.launch_append(&arguments)
    }

    fn attend(&mut self, arguments: Attend<'_, Self>) -> Result<(), BackendError> {
        self.touch(&[arguments.source.memory.pointer()], &[arguments.output.memory.pointer()])?;
        self.launch_attend(arguments)
    }

    fn attend_latent(&mut self, arguments: AttendLatent<'_, Self>) -> Result<(), BackendError> {
        match *arguments.up {}
    }

    fn activate(&mut self, arguments: Activate<'_, Self>) -> Result<(), BackendError> {
        self.touch(&[], &[arguments.output.memory.pointer()])?;
        if let Pending::Product(product) = self.pending
            && self.launch_gated(&product, &arguments)?
        {
            self.pending = Pending::Nothing;
            return Ok(());
        }
        self.ready(&[arguments.input.memory.pointer()], &[])?;
        self.launch_activate(arguments)
    }

    fn route(&mut self, _: Route<'_, Self>) -> Result<(), BackendError> {
        Err(absent("route", "mixtures of experts"))
    }

    fn mix(&mut self, arguments: Mix<'_, Self>) -> Result<(), BackendError> {
        match *arguments.experts {}
    }

    fn add(&mut self, arguments: Add<'_, Self>) -> Result<(), BackendError> {
        let (addend, target) = (arguments.addend.memory.pointer(), arguments.target.memory.pointer());
        self.ready(&[addend, target], &[target])?;
        self.launch_add(arguments)
    }

    fn gather(&mut self, arguments: Gather<'_, Self>) -> Result<(), BackendError> {
        self.launch_pending()?;
        self.launch_gather(arguments)
    }

    fn move_rows(&mut self, arguments: MoveRows<'_, Self>) -> Result<(), BackendError> {
        self.ready(&[], &[])?;
        self.launch_move_rows(arguments)
    }

    fn copy_columns(&mut self, arguments: CopyColumns<'_, Self>) -> Result<(), BackendError> {
        let (source, target) = (arguments.source.memory.pointer(), arguments.target.memory.pointer());
        self.ready(&[source, target], &[target])?;
        self.launch_copy_columns(arguments)
    }
}
