//! The CUDA backend: one binary that also starts where there is no GPU. Libraries are loaded at run time, kernels are
//! compiled at run time for the target that the capability database names; the CPU backend is their oracle.

pub mod compile;
pub mod device;
pub mod doctor;
pub mod kernels;
pub mod library;
pub mod step;
