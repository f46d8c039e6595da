//! The kernels through their public interface: against plain definitions, and the same bits for every batch, number of
//! threads and instruction set.

mod attention;
mod elementwise;
mod linear;
mod pool;
mod random;
mod support;
