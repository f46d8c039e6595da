//! The kernels: products with packed weights, attention over a paged cache, and the small operations between them.
//!
//! [`Compute`] is the front: a [`Pool`] of threads, an instruction set ([`Isa`], found at start) and a [`Precision`].
//! Weights are packed once into a [`QuantMatrix`].

mod activation;
mod attention;
mod compute;
mod elementwise;
mod format;
mod isa;
mod matrix;
mod memory;
mod pool;
mod product;
mod simd;

pub use attention::{Attention, CacheElement, KeyValueCache, KeyValueColumns};
pub use compute::{Compute, Precision};
pub use isa::Isa;
pub use matrix::QuantMatrix;
pub use pool::Pool;
