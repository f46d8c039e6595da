use engine::model::Activation;

use super::launch::{Shape, blocks};
use super::module::Module;
use super::{Kernel, KernelError, KernelSet, Launcher};

const THREADS: u32 = 256;

pub(super) struct ActivationKernels {
    silu: [Kernel; 2],
    gelu: [Kernel; 2],
}

impl ActivationKernels {
    pub fn load(module: &Module) -> Result<Self, KernelError> {
        Ok(Self {
            silu: [module.kernel("silu_multiply", 0)?, module.kernel("silu_multiply_narrow", 0)?],
            gelu: [module.kernel("gelu_multiply", 0)?, module.kernel("gelu_multiply_narrow", 0)?],
        })
    }
}

/// `output = activation(left half of input) * right half of input`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Activate {
    /// `[rows, 2 * width]` bf16.
    pub input: u64,
    /// `[rows, width]` bf16.
    pub output: u64,
    pub width: u32,
    pub rows: u32,
}

/// # Safety
/// As this module says.
pub unsafe fn activate(
    launcher: &Launcher,
    kernels: &KernelSet,
    activation: Activation,
    arguments: &Activate,
) -> Result<(), KernelError> {
    let wide = arguments.width.is_multiple_of(8);
    let [pieces, elements] = match activation {
        Activation::Silu => kernels.activation.silu,
        Activation::Gelu => kernels.activation.gelu,
    };
    let (kernel, each) = if wide { (pieces, 8) } else { (elements, 1) };
    let work = u64::from(arguments.rows) * u64::from(arguments.width / each);
    let shape = Shape { grid: [blocks(work, THREADS), 1], threads: THREADS, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernel, shape, arguments) }
}
