//! Collectives between GPUs of one machine: NCCL, and our own kernels over symmetric memory.

mod group;
mod member;
mod nccl;
mod signals;

pub use group::GpuGroup;
pub use member::{Algorithm, GpuMember, fusion_name};
pub use nccl::NcclRank;
pub use signals::Fault;
