//! How a model computes on one rank: coarse operations over buffers that the backend owns.
//!
//! A backend is one rank's device. It is made on the rank's own thread and stays there. Everything that allocates,
//! loads or compiles happens before the first step (`load_*`, `allocate_*`); the operations of a step allocate
//! nothing, depend on the host only through the uploaded [`Backend::Step`] and the row counts in their arguments, and
//! so can be captured into a graph. Shapes are the model's promise: an operation may panic on a mismatch, which no
//! input from outside can cause because the model checks shapes when it loads.

mod arguments;
mod error;
mod load;
mod pass;
mod step;

pub use arguments::{
    Activate, Add, AddNorm, Append, Attend, AttendLatent, AttentionHeads, Blocks, Choose, CopyColumns, DrawRows, Embed,
    Gather, HeadGroups, Mix, MoveRows, Norm, NormBlocks, Product, Rotate, Route,
};
pub use error::BackendError;
pub use load::{CacheLayout, CacheShape, ExpertParts, LatentUpParts, MatrixPart, RopeTable};
pub use pass::PassKey;
pub use step::{RowMove, Segment, StepInput, StepLimits, TreeMask};

pub use crate::types::{chosen, chosen_index};

use crate::types::Phase;

/// One rank's device. A buffer is a run of elements in the backend's activation type; each operation reads and writes
/// its beginning as a dense row-major matrix `[rows, width]`, with a width that its weights or its arguments give. So
/// layers of different widths share buffers, and no operation sees gaps between rows.
pub trait Backend: Sized + 'static {
    /// Bytes of one element of a [`Backend::Buffer`]; sizes the messages of collectives.
    const ELEMENT_BYTES: usize;
    /// The same of a buffer that [`Backend::allocate_logits`] made.
    const LOGIT_BYTES: usize = size_of::<f32>();

    /// Activations.
    type Buffer;
    /// A loaded vector: norm weights, router bias.
    type Vector;
    /// A loaded matrix `[out, in]` with an optional bias, in the format the backend prefers: blocks stay quantised.
    /// Its rows can also be looked up ([`Backend::embed`]), so that tied embeddings are stored once.
    type Linear;
    /// All experts of one layer.
    type Experts;
    /// The up-projection of latent attention, applied on either side of the scores.
    type LatentUp;
    /// Cosines and sines by position.
    type Rope;
    /// One cache group: key-value pages of every layer of one model.
    type Cache;
    /// The step's integers (tokens, positions, pages, masks) where the device reads them.
    type Step;
    /// Chosen experts and their weights, `[rows, experts_per_token]`.
    type Routes;
    /// A list of token ids.
    type Tokens;

    /// The parts one below the other as one matrix. `bias` has as many values as the matrix has rows.
    /// Errors: a weight type or a memory size that the device cannot take.
    fn load_linear(&mut self, parts: &[MatrixPart<'_>], bias: Option<&[f32]>) -> Result<Self::Linear, BackendError>;
    fn load_vector(&mut self, values: &[f32]) -> Result<Self::Vector, BackendError>;
    fn load_experts(&mut self, experts: &[ExpertParts<'_>]) -> Result<Self::Experts, BackendError>;
    fn load_latent_up(&mut self, parts: LatentUpParts<'_>) -> Result<Self::LatentUp, BackendError>;
    fn load_rope(&mut self, table: &RopeTable) -> Result<Self::Rope, BackendError>;
    fn load_tokens(&mut self, tokens: &[u32]) -> Result<Self::Tokens, BackendError>;

    /// Room for logits: a buffer that a product fills, and that [`Backend::read`] and [`Backend::choose`] read. A
    /// backend with narrow activations keeps logits in f32 all the same.
    fn allocate_logits(&mut self, elements: usize) -> Result<Self::Buffer, BackendError> {
        self.allocate_buffer(elements)
    }
    /// Zeroed; may be empty.
    fn allocate_buffer(&mut self, elements: usize) -> Result<Self::Buffer, BackendError>;
    fn allocate_cache(&mut self, shape: &CacheShape) -> Result<Self::Cache, BackendError>;
    /// `heads` are those of the model whose passes will read the step: some devices lay out attention's work by them.
    /// None where no attention over keys and values reads it.
    fn allocate_step(&mut self, limits: &StepLimits, heads: Option<AttentionHeads>)
    -> Result<Self::Step, BackendError>;
    /// Room for so many choices of [`Backend::choose`].
    fn allocate_choices(&mut self, places: usize) -> Result<(), BackendError>;
    fn allocate_routes(&mut self, rows: usize, experts_per_token: usize) -> Result<Self::Routes, BackendError>;

    /// Makes `input` the content of `step`. Errors: more rows, segments, pages or mask words than its limits.
    fn upload(&mut self, step: &mut Self::Step, input: &StepInput) -> Result<(), BackendError>;
    /// Waits for the device and copies elements, starting with `from`, to the host as f32.
    fn read(&mut self, buffer: &Self::Buffer, from: usize, to: &mut [f32]) -> Result<(), BackendError>;

    /// The pass that is run where `key` is asked for: devices that replay recorded passes have them for some sizes
    /// only, and compute a few rows more. Rows beyond those of the uploaded step read nothing and leave no trace in a
    /// cache; their results mean nothing.
    fn padded(&self, key: PassKey) -> PassKey {
        key
    }
    /// Row counts, up to `most`, for which the device records passes of a phase. They are recorded before the
    /// first step, on steps without rows.
    fn recorded_rows(&self, _phase: Phase, _most: usize) -> Vec<usize> {
        Vec::new()
    }
    /// Runs a pass: everything in `body` depends on the host only through the uploaded step and `key`. A device that
    /// records runs `body` the first time that it sees `key`, once for every way in which it may have to replay it, and
    /// replays what it recorded from then on.
    fn pass<E: From<BackendError>>(
        &mut self,
        _key: PassKey,
        mut body: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        body(self)
    }

    /// The largest logit of each of `rows` rows `[rows, width]`, the smallest id on a tie, for
    /// [`Backend::read_choices`] and for steps that say [`chosen`]. Part of a pass.
    fn choose(&mut self, arguments: Choose<'_, Self>) -> Result<(), BackendError>;
    /// Most changes that [`Backend::draw`] takes at once.
    const MOST_CHANGES: usize;
    /// Chooses again as each row's [`crate::sampler::Draw`] says, after [`Backend::choose`] of the same rows. Logits may
    /// be changed. Not part of a pass.
    fn draw(&mut self, arguments: DrawRows<'_, Self>) -> Result<(), BackendError>;
    /// Waits for the device and copies choices, starting with place `from`, to the host. `u32::MAX` stands for a row
    /// without a finite logit.
    fn read_choices(&mut self, from: usize, to: &mut [u32]) -> Result<(), BackendError>;
    /// Ends what the device is given for one step: the choices of the first places, as they are at this point, are kept for
    /// [`Backend::take_choices`], while the device goes on with the next step. Two steps' are kept at most.
    fn keep_choices(&mut self, places: usize) -> Result<(), BackendError>;
    /// Whether [`Backend::take_choices`] need not wait.
    fn has_kept_choices(&mut self) -> Result<bool, BackendError>;
    /// Waits until the device has come to the first point at which choices were kept that are not taken, and copies them to
    /// the host. Nothing is copied where none are kept.
    fn take_choices(&mut self, to: &mut [u32]) -> Result<(), BackendError>;
    /// Notes when the device comes to this point, for [`Backend::seconds`]. There are marks 0 to 5.
    fn mark(&mut self, mark: usize) -> Result<(), BackendError>;
    /// Seconds between two marks; the device has come to both.
    fn seconds(&self, from: usize, to: usize) -> f64;

    /// `output[row] = table[token[row] - first]`, zero where the token is outside the table. A token that is [`chosen`]
    /// is looked up among the choices first.
    fn embed(&mut self, arguments: Embed<'_, Self>) -> Result<(), BackendError>;
    /// `output = input / sqrt(mean(input^2) + epsilon) * weight`, mean over the row.
    fn rms_norm(&mut self, arguments: Norm<'_, Self>) -> Result<(), BackendError>;
    /// The same in place over each block of each row: query and key heads, or the latent part of a row.
    fn rms_norm_blocks(&mut self, arguments: NormBlocks<'_, Self>) -> Result<(), BackendError>;
    /// `residual += addend; output = rms_norm(residual)`.
    fn add_rms_norm(&mut self, arguments: AddNorm<'_, Self>) -> Result<(), BackendError>;
    /// `output = input * weight^T + bias`.
    fn linear(&mut self, arguments: Product<'_, Self>) -> Result<(), BackendError>;
    /// Rotary position embedding in place, at the step's positions.
    fn rotate(&mut self, arguments: Rotate<'_, Self>) -> Result<(), BackendError>;
    /// Writes the step's keys and values (or latents) into the pages of its segments.
    fn append(&mut self, arguments: Append<'_, Self>) -> Result<(), BackendError>;
    /// Softmax attention over the pages of each segment, for every phase; the step's own rows are appended already.
    fn attend(&mut self, arguments: Attend<'_, Self>) -> Result<(), BackendError>;
    /// Multi-head latent attention over cached latents.
    fn attend_latent(&mut self, arguments: AttendLatent<'_, Self>) -> Result<(), BackendError>;
    /// `output = activation(left half of input) * right half of input`.
    fn activate(&mut self, arguments: Activate<'_, Self>) -> Result<(), BackendError>;
    /// Chooses experts from router logits.
    fn route(&mut self, arguments: Route<'_, Self>) -> Result<(), BackendError>;
    /// `output = sum over chosen experts of weight * expert(input)`.
    fn mix(&mut self, arguments: Mix<'_, Self>) -> Result<(), BackendError>;
    /// `target += addend`.
    fn add(&mut self, arguments: Add<'_, Self>) -> Result<(), BackendError>;
    /// Picks the rows that need logits: `output[k] = input[logit_rows[range.start + k]]`.
    fn gather(&mut self, arguments: Gather<'_, Self>) -> Result<(), BackendError>;
    /// Copies whole rows into a column range of wider rows: how residual-stream taps are laid side by side.
    fn copy_columns(&mut self, arguments: CopyColumns<'_, Self>) -> Result<(), BackendError>;
    /// Copies cached rows of every layer as the step's moves say, one after the other: a later move may read the place
    /// that an earlier one has written, and must then see what was written.
    fn move_rows(&mut self, arguments: MoveRows<'_, Self>) -> Result<(), BackendError>;
}
