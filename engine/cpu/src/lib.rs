//! CPU backend.

pub mod kernels;
mod map;

pub use map::map_file;
