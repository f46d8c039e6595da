//! Collectives between GPUs of one machine: NCCL, and our own kernels over symmetric memory.

mod calls;
mod group;
mod member;
mod nccl;
mod rank;
mod self_test;
mod shared;
mod signals;
mod together;

pub use group::{Buffers, GpuGroup};
pub use member::{Algorithm, GpuMember, fusion_name};
pub use nccl::NcclRank;
pub use rank::CudaRank;
pub(crate) use rank::Part;
pub use self_test::SelfTestFailure;
pub use shared::{CollectiveOptions, SharedGroup};
pub use signals::Fault;
pub use together::{GaveUp, Together};
