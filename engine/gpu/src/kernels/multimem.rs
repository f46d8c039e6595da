//! Sums by multicast memory, and the simulated form of the same kernel.

use engine::collective::space::PACKET;

use super::allreduce::{AllReduceKernels, GroupView, Reduce, spread};
use super::launch::Shape;
use super::module::Module;
use super::{Kernel, KernelError, Launcher};

const NAMES: [&str; 3] = ["multimem_bf16", "multimem_f16", "multimem_f32"];
const SIMULATED: [&str; 3] = ["multimem_simulated_bf16", "multimem_simulated_f16", "multimem_simulated_f32"];

/// Where a group sums: a buffer behind each rank's window.
#[derive(Clone, Copy, Debug)]
pub struct BufferView {
    /// Bytes from a window's begin to its buffer.
    pub offset: u64,
    pub bytes: u64,
    /// The buffers of all ranks as one address; none in a group without multicast memory.
    pub multicast: Option<u64>,
}

pub(super) struct MultimemKernels {
    /// By element; none where the target has no such instructions.
    multicast: [Option<Kernel>; 3],
    simulated: [Kernel; 3],
}

impl MultimemKernels {
    pub fn load(module: &Module) -> Result<Self, KernelError> {
        let [a, b, c] = NAMES;
        let [d, e, f] = SIMULATED;
        Ok(Self {
            multicast: [module.optional(a, 0)?, module.optional(b, 0)?, module.optional(c, 0)?],
            simulated: [module.kernel(d, 0)?, module.kernel(e, 0)?, module.kernel(f, 0)?],
        })
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct MultimemArguments {
    group: GroupView,
    input: u64,
    output: u64,
    multicast: u64,
    buffer: u64,
    bytes: u64,
    aligned: u32,
    reserved: u32,
}

/// The sum over all ranks, of at most a buffer's bytes. Every rank calls it in the same order with the same size; `blocks`
/// may differ. Errors: a target without the instructions.
///
/// # Safety
/// As this module says; the group's and the buffer's addresses are those of a group in order, and the buffer is bound unless
/// the call is `simulated`.
pub unsafe fn multimem(
    launcher: &Launcher,
    kernels: &AllReduceKernels,
    simulated: bool,
    (group, buffer): (&GroupView, &BufferView),
    message: &Reduce,
    blocks: Option<[u32; 2]>,
) -> Result<(), KernelError> {
    let Reduce { element, input, output, bytes } = *message;
    let of = &kernels.multimem;
    let kernel = if simulated { Some(of.simulated[element as usize]) } else { of.multicast[element as usize] };
    let why = "this GPU's kernels were compiled without multicast instructions";
    let kernel =
        kernel.ok_or_else(|| KernelError::Shape { kernel: NAMES[element as usize], what: "a sum".to_owned(), why })?;
    if bytes > buffer.bytes {
        let what = format!("a message of {bytes} bytes and a buffer of {}", buffer.bytes);
        return Err(KernelError::Shape { kernel: kernel.name, what, why: "larger messages go in pieces" });
    }
    if bytes == 0 {
        return Ok(());
    }
    let aligned = u32::from(input.is_multiple_of(PACKET) && output.is_multiple_of(PACKET));
    let arguments = MultimemArguments {
        group: *group,
        input,
        output,
        multicast: buffer.multicast.unwrap_or(0),
        buffer: buffer.offset,
        bytes,
        aligned,
        reserved: 0,
    };
    let [grid, threads] = blocks.unwrap_or_else(|| spread(bytes.div_ceil(PACKET), launcher.multiprocessors));
    let shape = Shape { grid: [grid.clamp(1, launcher.multiprocessors), 1], threads, shared: 0 };
    // SAFETY: the caller's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernel, shape, &arguments) }
}
