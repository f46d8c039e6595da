use super::format::{Format, names};
use super::launch::Shape;
use super::module::Module;
use super::{Kernel, KernelError, KernelSet, Launcher, SQUARES};

const THREADS: u32 = 512;
const NAMES: [&str; 11] = names!("embedding_");

pub(super) struct EmbeddingKernels {
    by_format: Vec<Kernel>,
}

impl EmbeddingKernels {
    pub fn load(module: &Module) -> Result<Self, KernelError> {
        Ok(Self { by_format: NAMES.iter().map(|name| module.kernel(name, 0)).collect::<Result<_, _>>()? })
    }
}

/// `output[row] = table[tokens[row] - first]` in bf16, zero where the token is outside of the table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Embed {
    /// `[rows]` u32: ids, or places among the choices ([`engine::backend::chosen`]).
    pub tokens: u64,
    /// u32; not read unless a token names a place.
    pub choices: u64,
    /// `[table_rows, columns]` in its format.
    pub table: u64,
    /// `[rows, columns]` bf16.
    pub output: u64,
    /// Token of the table's first row.
    pub first: u32,
    pub table_rows: u32,
    /// A multiple of 8.
    pub columns: u32,
    pub rows: u32,
    /// `[columns]` f32, or 0: the norm behind the rows is begun as a product does ([`super::Product`]). Columns are then a
    /// multiple of [`super::SQUARES`].
    pub norm: u64,
    /// `[rows, columns]` bf16, written: rows times `norm`.
    pub scaled: u64,
    /// `[rows, columns / SQUARES]` f32, written: sums of squares of neighbours.
    pub squares: u64,
}

/// # Safety
/// As this module says.
pub unsafe fn embed(
    launcher: &Launcher,
    kernels: &KernelSet,
    format: Format,
    embed: &Embed,
) -> Result<(), KernelError> {
    KernelError::unless_pieces("embedding", "a row of", embed.columns)?;
    if embed.norm != 0 && !embed.columns.is_multiple_of(SQUARES) {
        let (what, why) = (format!("{} columns", embed.columns), "a norm is begun of a multiple of 16");
        return Err(KernelError::Shape { kernel: "embedding", what, why });
    }
    let threads = (embed.columns / 8).next_multiple_of(32).min(THREADS);
    let shape = Shape { grid: [embed.rows, 1], threads, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernels.embedding.by_format[format.index()], shape, embed) }
}
