//! The CUDA backend: one binary that also starts where there is no GPU. Libraries are loaded at run time, kernels are
//! compiled at run time for the target that the capability database names; the CPU backend is their oracle.

mod backend;
pub mod collective;
pub mod compile;
pub mod device;
pub mod doctor;
mod factory;
pub mod kernels;
pub mod library;
pub mod measure;
pub mod probe;
mod served;
pub mod step;
pub mod symmetric;

pub use backend::{Buffer, CudaBackend, KernelStore};
pub use factory::{CudaOptions, CudaRanks, MemoryBoard};
pub use served::{HEADS, LARGEST_HEAD, Unserved, head_dimension};
