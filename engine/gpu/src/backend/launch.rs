//! From operations to kernels.

use cudarc::driver::sys::CUdeviceptr;
use engine::backend::*;
use engine::types::Phase;
use engine::weights::WeightType;

use super::arguments::{arguments, place, stored_arguments};
use super::pending::{EmbedCall, NormCall, NormInput, Pending, ProductCall, RotateCall};
use super::types::{Element, Matrix, Run};
use super::{Buffer, CudaBackend};
use crate::device::{Reach, Shape};
use crate::kernels::{self, Format, Fresh, HeadNorm, Near};
use crate::step::AttentionGeometry;

/// Rows of a step up to which attention rotates and appends them, where a sequence may have several: a warp makes all new
/// rows of its page, one after the other.
const FRESH_ROWS: usize = 4;

/// Sizes of a step are far below 2^32.
pub(super) fn word(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn format(kind: WeightType) -> Result<Format, BackendError> {
    Format::of(kind).ok_or(BackendError::WeightType { operation: "linear", kind })
}

impl CudaBackend {
    /// Launches the operation that waits for the next one.
    pub(super) fn launch_pending(&mut self) -> Result<(), BackendError> {
        match std::mem::take(&mut self.pending) {
            Pending::Nothing => Ok(()),
            Pending::Embed(call) => self.launch_embed(&call),
            Pending::Product(call) => self.launch_product(&call),
            Pending::Norms(first, second) => {
                self.launch_norm_blocks(&first)?;
                second.map_or(Ok(()), |second| self.launch_norm_blocks(&second))
            }
            Pending::Rotation(norms, rotation) => {
                if let Some((first, second)) = norms {
                    self.launch_norm_blocks(&first)?;
                    self.launch_norm_blocks(&second)?;
                }
                self.launch_rotate(&rotation)
            }
            Pending::Appended(call) => {
                // SAFETY: the layout was checked when it was made; slots are those of the step's pages, which the cache
                // has.
                Ok(unsafe { kernels::rotate_append(&self.launcher, &self.kernels, &call) }?)
            }
        }
    }

    /// Whether our kernels for bf16 multiply so many rows with a matrix of this kind and of these rows and columns.
    pub(super) fn takes_small(&self, kind: WeightType, matrix: [usize; 2], rows: usize) -> bool {
        kind == WeightType::Bf16 && kernels::prefers(&self.launcher, &self.kernels, matrix.map(word), word(rows))
    }

    /// Whether a product is multiplied by them: they can do more than the product.
    pub(super) fn is_small(&self, call: &ProductCall) -> bool {
        self.takes_small(call.kind, [call.outputs, call.columns], call.rows)
    }

    /// The product of one run of a matrix.
    pub(super) fn product_call(
        weight: &Matrix,
        run: &Run,
        input: &Buffer,
        output: &Buffer,
        rows: usize,
        norm: Option<NormInput>,
    ) -> ProductCall {
        let wide = output.element == Element::F32;
        let width = if wide { size_of::<f32>() } else { Self::ELEMENT_BYTES };
        let at = |base: CUdeviceptr, bytes: usize| base + (run.first * bytes) as CUdeviceptr;
        let bias = weight.bias.as_ref();
        ProductCall {
            weight: run.memory.pointer(),
            kind: run.kind,
            bias: bias.map(|bias| [at(bias.wide.pointer(), size_of::<f32>()), at(bias.narrow.pointer(), 2)]),
            input: norm.map_or_else(|| input.memory.pointer(), |norm| norm.input),
            output: at(output.memory.pointer(), width),
            wide,
            rows,
            columns: weight.columns,
            outputs: run.rows,
            stride: weight.rows,
            norm,
            add: false,
            sum: None,
        }
    }

    pub(super) fn launch_product(&mut self, call: &ProductCall) -> Result<(), BackendError> {
        if call.is_stored() {
            return self.launch_stored(call.kind, &stored_arguments(call));
        }
        let stored = call.kind != WeightType::Bf16;
        if self.is_small(call) {
            // SAFETY: buffers and weights live as long as the backend's stream; sizes are those of the call.
            return Ok(unsafe { kernels::product(&self.launcher, &self.kernels, &arguments(call)) }?);
        }
        // The library's kernels wait for the one in front of them, which may have written the converted weights.
        let call = if stored { &self.widen(call)? } else { call };
        let ProductCall { rows, columns: input, outputs: out, stride, wide, .. } = *call;
        let shape = Shape { rows, input, out, stride, wide, bias: call.bias.is_some() };
        let bias = call.bias.map(|[f32, bf16]| if wide { f32 } else { bf16 });
        self.products.multiply(shape, call.weight, call.input, call.output, bias)
    }

    fn launch_stored(&self, kind: WeightType, product: &kernels::QuantisedProduct) -> Result<(), BackendError> {
        // SAFETY: buffers and weights live as long as the backend's stream; sizes are those of a product call.
        Ok(unsafe { kernels::quantised_product(&self.launcher, &self.kernels, format(kind)?, product) }?)
    }

    /// Converts a matrix in blocks to bf16, in the room that all of them share.
    fn widen(&mut self, call: &ProductCall) -> Result<ProductCall, BackendError> {
        let message = "no room was made for converted weights".to_owned();
        let room = self.widened.as_ref().ok_or(BackendError::Device { operation: "linear", message })?;
        let output = room.pointer();
        let (rows, columns) = (word(call.outputs), word(call.columns));
        let arguments = kernels::Dequantise { weight: call.weight, output, rows, columns };
        // SAFETY: the room is as large as the largest matrix in blocks.
        unsafe { kernels::dequantise(&self.launcher, &self.kernels, format(call.kind)?, &arguments) }?;
        Ok(ProductCall { weight: output, kind: WeightType::Bf16, ..*call })
    }

    /// The product and the activation of its output in one; false where no kernel does both.
    pub(super) fn launch_gated(
        &mut self,
        call: &ProductCall,
        activate: &Activate<'_, Self>,
    ) -> Result<bool, BackendError> {
        let fits = (call.is_stored() || self.is_small(call))
            && call.rows == activate.rows
            && call.output == activate.input.memory.pointer()
            && call.outputs == 2 * activate.width
            && call.outputs == call.stride
            && !call.wide;
        if !fits {
            return Ok(false);
        }
        let width = word(activate.width);
        let output = activate.output.memory.pointer();
        if call.is_stored() {
            let gate = kernels::gate_word(activate.activation);
            let product =
                kernels::QuantisedProduct { output, outputs: width, stride: width, gate, ..stored_arguments(call) };
            self.launch_stored(call.kind, &product)?;
            return Ok(true);
        }
        let product = kernels::Product { output, outputs: width, stride: width, ..arguments(call) };
        // SAFETY: buffers and weights live as long as the backend's stream; sizes are those of the call.
        unsafe { kernels::gated_product(&self.launcher, &self.kernels, activate.activation, &product) }?;
        Ok(true)
    }

    pub(super) fn launch_activate(&mut self, arguments: Activate<'_, Self>) -> Result<(), BackendError> {
        let Activate { activation, input, width, output, rows } = arguments;
        let (input, output) = (input.memory.pointer(), output.memory.pointer());
        let arguments = kernels::Activate { input, output, width: word(width), rows: word(rows) };
        // SAFETY: the buffers have room for so many rows by the model's promise.
        Ok(unsafe { kernels::activate(&self.launcher, &self.kernels, activation, &arguments) }?)
    }

    pub(super) fn embed_call(&self, arguments: &Embed<'_, Self>) -> Result<EmbedCall, BackendError> {
        let Embed { step, table, first, output, rows } = arguments;
        let [run] = table.runs.as_slice() else { panic!("an embedding is one stored matrix") };
        let embed = kernels::Embed {
            tokens: step.addresses().tokens,
            choices: self.choices.as_ref().map_or(0, |choices| choices.tokens.pointer()),
            table: run.memory.pointer(),
            output: output.memory.pointer(),
            first: word(*first),
            table_rows: word(table.rows),
            columns: word(table.columns),
            rows: word(*rows),
            norm: 0,
            scaled: 0,
            squares: 0,
        };
        Ok(EmbedCall { format: format(run.kind)?, embed })
    }

    pub(super) fn launch_embed(&self, call: &EmbedCall) -> Result<(), BackendError> {
        // SAFETY: the step has tokens for so many rows, and the outputs room for them.
        Ok(unsafe { kernels::embed(&self.launcher, &self.kernels, call.format, &call.embed) }?)
    }

    pub(super) fn launch_add_norm(&mut self, arguments: &AddNorm<'_, Self>) -> Result<(), BackendError> {
        let AddNorm { addend, residual, weight, epsilon, output, rows } = arguments;
        let norm = kernels::Norm {
            input: addend.memory.pointer(),
            residual: residual.memory.pointer(),
            weight: weight.memory.pointer(),
            output: output.memory.pointer(),
            width: word(weight.length),
            epsilon: *epsilon,
            rows: word(*rows),
        };
        // SAFETY: rows are as wide as the weight by the model's promise.
        Ok(unsafe { kernels::add_rms_norm(&self.launcher, &self.kernels, &norm) }?)
    }

    fn launch_norm_blocks(&mut self, call: &NormCall) -> Result<(), BackendError> {
        let NormCall { buffer, blocks, weight, epsilon, rows } = *call;
        let norm = kernels::NormBlocks {
            buffer,
            weight,
            row: word(blocks.row),
            offset: word(blocks.offset),
            count: word(blocks.count),
            stride: word(blocks.stride),
            width: word(blocks.width),
            rows: word(rows),
            epsilon,
        };
        // SAFETY: blocks lie inside the buffer's rows by the model's promise.
        Ok(unsafe { kernels::rms_norm_blocks(&self.launcher, &self.kernels, &norm) }?)
    }

    fn launch_rotate(&mut self, call: &RotateCall) -> Result<(), BackendError> {
        let rotate = kernels::Rotate {
            positions: call.positions,
            angles: call.angles,
            buffer: call.buffer,
            row: word(call.blocks.row),
            offset: word(call.blocks.offset),
            count: word(call.blocks.count),
            stride: word(call.blocks.stride),
            rows: word(call.rows),
            reserved: 0,
        };
        // SAFETY: blocks lie inside the buffer's rows, and positions inside the tables, by the model's promise.
        Ok(unsafe { kernels::rotate(&self.launcher, &self.kernels, &rotate) }?)
    }

    /// Norms of heads, rotation and append in one; none where the columns are not laid out for it.
    pub(super) fn rotate_append(
        norms: Option<(NormCall, NormCall)>,
        rotation: &RotateCall,
        append: &Append<'_, Self>,
    ) -> Option<kernels::RotateAppend> {
        let (blocks, key, Some(value)) = (&rotation.blocks, append.key, append.value) else { return None };
        let (width, cached) = (key.width, key.count);
        let queries = blocks.count.checked_sub(cached)?;
        let packed = |blocks: Blocks, first: usize, count: usize| {
            (blocks.offset, blocks.count, blocks.stride) == (first * width, count, width)
                && blocks.row == (queries + 2 * cached) * width
        };
        let normed = norms.is_none_or(|(first, second)| {
            packed(first.blocks, 0, queries) && packed(second.blocks, queries, cached) && first.blocks.width == width
        });
        let fits = rotation.buffer == append.source.memory.pointer()
            && rotation.rows == append.rows
            && packed(*blocks, 0, queries + cached)
            && packed(key, queries, cached)
            && packed(value, queries + cached, cached)
            && normed;
        if !fits {
            return None;
        }
        let norm = norms.map_or_else(HeadNorm::default, |(first, second)| HeadNorm {
            query: first.weight,
            key: second.weight,
            epsilon: first.epsilon,
            reserved: 0,
        });
        Some(kernels::RotateAppend {
            positions: rotation.positions,
            slots: append.step.addresses().slots,
            angles: rotation.angles,
            buffer: rotation.buffer,
            cache: place(append.cache, append.layer),
            norm,
            query_heads: word(queries),
            width: word(width),
            rows: word(append.rows),
            reserved: 0,
        })
    }

    pub(super) fn launch_append(&mut self, append: &Append<'_, Self>) -> Result<(), BackendError> {
        let Append { step, source, key, value, cache, layer, rows } = append;
        let value = value.unwrap_or_else(|| panic!("keys and values go to this cache"));
        let arguments = kernels::Append {
            slots: step.addresses().slots,
            source: source.memory.pointer(),
            cache: place(cache, *layer),
            row: word(key.row),
            key_offset: word(key.offset),
            key_stride: word(key.stride),
            value_offset: word(value.offset),
            value_stride: word(value.stride),
            width: word(key.width),
            rows: word(*rows),
            reserved: 0,
        };
        // SAFETY: columns lie inside the rows by the model's promise; slots are those of the step's pages.
        Ok(unsafe { kernels::append(&self.launcher, &self.kernels, &arguments) }?)
    }

    pub(super) fn launch_attend(&mut self, arguments: Attend<'_, Self>) -> Result<(), BackendError> {
        let Attend { step, source, query, groups, scale, cache, layer, ref output, rows } = arguments;
        let message = "attention before the step was allocated".to_owned();
        let room = self.attention.as_ref().ok_or(BackendError::Device { operation: "attend", message })?;
        let space = room.space();
        // A step is cut for one arrangement of heads; another one's would read the wrong items.
        let geometry = AttentionGeometry::new(&groups, cache.heads, self.gpu.multiprocessors as usize);
        if geometry != step.geometry {
            let message = "models whose heads are grouped differently cannot share a rank; use --device cpu".to_owned();
            return Err(BackendError::Device { operation: "attend", message });
        }
        let fresh = self.take_fresh(&arguments);
        if fresh.is_none() {
            self.launch_pending()?;
        }
        if self.recording.is_some() && matches!(self.phase, Phase::Decode | Phase::Verify) {
            self.attended.insert(step.id());
        }
        let near = match self.phase {
            Phase::Decode => Some(Near::OneRow),
            Phase::Verify => Some(Near::Rows),
            Phase::Draft | Phase::Prefill => None,
        };
        let attend = kernels::Attend {
            step: *step.addresses(),
            geometry: step.geometry,
            rows: word(rows),
            whole_items: word(step.whole_items()),
            source: source.memory.pointer(),
            query,
            groups,
            cache: place(cache, layer),
            scale,
            output: output.memory.pointer(),
            space,
            fresh,
            near: near.filter(|_| self.recording == Some(Reach::Near)),
        };
        // SAFETY: the step was filled with this geometry; the room was made for the largest step.
        Ok(unsafe { kernels::attend(&self.launcher, &self.kernels, &attend) }?)
    }

    /// The rotation and append that wait, if attention can do them: for the same rows of the same layer, and no more of a
    /// sequence than the kernel takes that splits the context.
    fn take_fresh(&mut self, attend: &Attend<'_, Self>) -> Option<Fresh> {
        let Pending::Appended(call) = self.pending else { return None };
        let same = call.buffer == attend.source.memory.pointer()
            && call.cache.keys == attend.cache.keys(attend.layer)
            && (call.rows, call.query_heads) == (word(attend.rows), word(attend.groups.query_heads))
            && attend.step.whole_items() == 0
            && (self.phase == Phase::Decode || attend.rows <= FRESH_ROWS || self.is_near(&call, attend));
        if !same {
            return None;
        }
        self.pending = Pending::Nothing;
        let key_offset = call.query_heads * call.width;
        let value_offset = key_offset + call.cache.heads * call.width;
        Some(Fresh { angles: call.angles, norm: call.norm, key_offset, value_offset })
    }

    /// Whether a pass is being recorded for steps of short contexts, and these heads have kernels for them.
    fn is_near(&self, call: &kernels::RotateAppend, attend: &Attend<'_, Self>) -> bool {
        let group = word(attend.groups.group);
        self.recording == Some(Reach::Near)
            && self.kernels.attends_near_with(call.cache.padded, call.angles.pairs, group)
    }

    pub(super) fn launch_add(
        &mut self,
        Add { addend, target, width, rows }: Add<'_, Self>,
    ) -> Result<(), BackendError> {
        let (addend, target) = (addend.memory.pointer(), target.memory.pointer());
        let add = kernels::Add { addend, target, elements: (rows * width) as u64 };
        // SAFETY: both buffers hold so many elements by the model's promise.
        Ok(unsafe { kernels::add(&self.launcher, &self.kernels, &add) }?)
    }

    pub(super) fn launch_gather(&mut self, arguments: Gather<'_, Self>) -> Result<(), BackendError> {
        let Gather { step, range, input, width, output } = arguments;
        let gather = kernels::Gather {
            rows: step.addresses().logit_rows + (range.start * size_of::<u32>()) as u64,
            input: input.memory.pointer(),
            output: output.memory.pointer(),
            width: word(width),
            count: word(range.len()),
        };
        if self.gather_lazily(gather)? {
            return Ok(());
        }
        self.ready(&[gather.input], &[gather.output])?;
        // SAFETY: the step's logit rows are rows of the input; the output has room for the range.
        Ok(unsafe { kernels::gather(&self.launcher, &self.kernels, &gather) }?)
    }

    pub(super) fn launch_copy_columns(&mut self, arguments: CopyColumns<'_, Self>) -> Result<(), BackendError> {
        let CopyColumns { source, width, target, target_width, offset, rows } = arguments;
        let copy = kernels::CopyColumns {
            source: source.memory.pointer(),
            target: target.memory.pointer(),
            width: word(width),
            target_width: word(target_width),
            offset: word(offset),
            rows: word(rows),
        };
        // SAFETY: both buffers hold so many rows by the model's promise.
        Ok(unsafe { kernels::copy_columns(&self.launcher, &self.kernels, &copy) }?)
    }

    pub(super) fn launch_move_rows(
        &mut self,
        MoveRows { step, cache }: MoveRows<'_, Self>,
    ) -> Result<(), BackendError> {
        let (addresses, layers) = (step.addresses(), cache.shape.layers);
        let arguments = kernels::MoveRows {
            counts: addresses.counts,
            moves: addresses.moves,
            cache: place(cache, 0),
            layer_stride: cache.layer_stride() as u64,
            layers: word(layers),
            reserved: 0,
        };
        // SAFETY: moves are between places of the cache's pages by the executor's promise.
        Ok(unsafe { kernels::move_rows(&self.launcher, &self.kernels, &arguments) }?)
    }

    /// The largest logit of each row: by the product that makes them, if it waits and can, or by a kernel of its own.
    pub(super) fn choose_largest(&mut self, arguments: &Choose<'_, Self>) -> Result<(), BackendError> {
        let Choose { logits, width, rows, vocabulary, place } = *arguments;
        let (actual, limit) = (place + rows, self.choices.as_ref().map_or(0, |choices| choices.places));
        let too_large = BackendError::StepTooLarge { what: "choices", actual, limit };
        let choices = self.choices.as_ref().filter(|_| actual <= limit).ok_or(too_large)?;
        let [tokens, host] = choices.at(place);
        let columns = vocabulary.map_or(0, |tokens| tokens.pointer());
        let (best, arrivals) = (choices.best.pointer(), choices.arrivals.pointer());
        let choice = kernels::Choice { best, arrivals, tokens, host, columns };
        let logits = logits.memory.pointer();
        if let Pending::Product(call) = self.pending
            && let Some(product) = self.choosing(&call, logits, [width, rows], choice)
        {
            self.pending = Pending::Nothing;
            // SAFETY: as below; buffers and weights live as long as the backend's stream, sizes are those of the call.
            return Ok(unsafe { kernels::product(&self.launcher, &self.kernels, &product) }?);
        }
        self.ready(&[logits], &[])?;
        let argmax = kernels::Argmax { logits, choice, vocabulary: word(width), rows: word(rows) };
        // SAFETY: there is room for so many choices from this place on, on both sides; the list of tokens has one for
        // each column by the model's promise.
        Ok(unsafe { kernels::argmax(&self.launcher, &self.kernels, &argmax) }?)
    }

    /// The product that waits, made to choose from all of its output; nothing where it cannot.
    fn choosing(
        &self,
        call: &ProductCall,
        logits: CUdeviceptr,
        [width, rows]: [usize; 2],
        choice: kernels::Choice,
    ) -> Option<kernels::Product> {
        let whole = call.output == logits && call.outputs == width && call.stride == width && call.rows == rows;
        let product = kernels::Product { choice, ..arguments(call) };
        (whole && self.is_small(call) && kernels::chooses(&self.launcher, &self.kernels, &product)).then_some(product)
    }
}
