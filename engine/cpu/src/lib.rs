//! The CPU backend: every operation in f32, one set of threads per rank, ranks that meet in shared memory. It is the
//! oracle of every GPU kernel, so what it computes is written out plainly; speed comes from the kernels beneath.

mod backend;
mod cache;
mod collective;
mod elementwise;
mod factory;
pub mod kernels;
mod latent;
mod map;
mod matrix;
mod moe;
mod rope;
mod step;

pub use backend::{Buffer, CpuBackend, Delay};
pub use collective::RankGroup;
pub use factory::{CpuOptions, CpuRanks, SHARED_MEMORY, THREADS};
pub use map::map_file;
