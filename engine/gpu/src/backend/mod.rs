//! [`Backend`](engine::backend::Backend) on a GPU: one rank's device, kernels and memory. `operations.rs` implements the trait; the
//! other files hold what its operations do, by what they work on.

mod arguments;
mod attention;
mod choose;
mod cut;
mod draws;
mod group;
mod heads;
mod launch;
mod lazy;
mod load;
mod operations;
mod passes;
mod pending;
mod products;
mod read;
mod ready;
mod rooms;
mod step;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use engine::backend::{Backend, BackendError};
use engine::plan::KernelTarget;
use engine::types::Phase;

use crate::collective::SharedGroup;
use crate::device::{Allocation, Gpu, MemoryReport, Pinned, Products, Purpose, Reach, Recordings, Uploader};
use crate::kernels::{Launcher, PREFERRED_PRODUCT_ROWS};
use crate::step::NearPasses;
use draws::DrawRoom;
use lazy::LazyNorm;
use pending::Pending;
use read::Kept;
use ready::Kernels;
use rooms::{AttentionRoom, Choices, Marks};

pub use ready::KernelStore;
pub(crate) use ready::collective_kernels;
pub use step::Step;
pub use types::{Absent, Buffer, Cache, Element, Matrix, Rope, Vector};

/// Bytes of the buffer through which results come to the host.
const READBACK: usize = 8 << 20;

/// Rows of activations that our own products take with any matrix.
const SMALL_ROWS: usize = PREFERRED_PRODUCT_ROWS as usize;

/// One rank on a GPU.
pub struct CudaBackend {
    // Fields are dropped in order: recordings and handles before the memory that they use.
    recordings: Recordings,
    products: Products,
    kernels: Kernels,
    launcher: Launcher,
    uploader: Uploader,
    readback: Pinned,
    choices: Option<Choices>,
    kept: Option<Kept>,
    draws: Option<DrawRoom>,
    marks: Marks,
    /// bf16 room for one matrix in blocks, for cuBLASLt.
    widened: Option<Allocation>,
    /// Elements of the largest matrix in blocks.
    widest: usize,
    attention: Option<AttentionRoom>,
    /// Sums of squares that a product leaves for the one behind the norm.
    squares: Option<Allocation>,
    /// Elements of the longest vector; norms' weights are among them.
    widest_norm: usize,
    /// Padded dimension of the widest cached head.
    widest_head: usize,
    pending: Pending,
    lazy: Vec<LazyNorm>,
    /// A pass is being recorded, for steps of this reach.
    recording: Option<Reach>,
    /// Which passes may attend each step's last input as one of short contexts.
    near: BTreeMap<CUdeviceptr, NearPasses>,
    /// Steps that recorded passes attend.
    attended: BTreeSet<CUdeviceptr>,
    /// Of the pass that is under way, or of the last one.
    phase: Phase,
    note: Box<dyn Fn(MemoryReport)>,
    /// This rank's number, and the group in which it waits for others; none for a single rank.
    group: Option<(usize, Arc<SharedGroup>)>,
    gpu: Gpu,
}

impl CudaBackend {
    /// Opens a device and begins to make its kernels ready, attention's for these head dimensions. Errors: a missing
    /// library, a driver that is too old, no such device; kernels that do not compile are an error of what follows.
    /// `note` is told what the memory is used for whenever that changes before the first step.
    pub fn open(
        ordinal: usize,
        target: &KernelTarget,
        head_dimensions: &[u32],
        store: &KernelStore,
        note: Box<dyn Fn(MemoryReport)>,
    ) -> Result<Self, BackendError> {
        let gpu = Gpu::open(ordinal)?;
        let kernels = Kernels::begin(&gpu, target, head_dimensions, store)?;
        let dependent = target.features.get("pdl").copied().unwrap_or(false);
        let launcher = Launcher::new(gpu.stream.clone(), dependent, gpu.multiprocessors);
        Ok(Self {
            recordings: Recordings::default(),
            products: Products::new(&gpu.stream, &gpu.account)?,
            kernels,
            launcher,
            uploader: Uploader::new(&gpu.stream)?,
            readback: Pinned::new(&gpu.context, READBACK)?,
            choices: None,
            kept: None,
            draws: None,
            marks: Marks::new(&gpu)?,
            widened: None,
            widest: 0,
            attention: None,
            squares: None,
            widest_norm: 0,
            widest_head: 0,
            pending: Pending::Nothing,
            lazy: Vec::new(),
            recording: None,
            near: BTreeMap::new(),
            attended: BTreeSet::new(),
            phase: Phase::Prefill,
            note,
            group: None,
            gpu,
        })
    }

    fn note_memory(&self) -> Result<(), BackendError> {
        let report = self.gpu.account.report()?;
        let (passes, milliseconds) = (self.recordings.count(), self.recordings.spent().as_millis() as u64);
        (self.note)(MemoryReport { passes, milliseconds, ..report });
        Ok(())
    }

    fn zeroed(&self, bytes: usize, purpose: Purpose, operation: &'static str) -> Result<Allocation, BackendError> {
        Allocation::zeroed(&self.gpu.stream, &self.gpu.account, bytes, purpose, operation)
    }

    fn buffer(&self, elements: usize, element: Element) -> Result<Buffer, BackendError> {
        let width = if element == Element::F32 { size_of::<f32>() } else { Self::ELEMENT_BYTES };
        let memory = self.zeroed(elements * width, Purpose::Activations, "allocate_buffer")?;
        Ok(Buffer { memory, elements, element })
    }
}

fn absent(operation: &'static str, what: &str) -> BackendError {
    BackendError::Device {
        operation,
        message: format!("the CUDA backend does not compute {what} yet; use --device cpu"),
    }
}
