//! Settings of the server: flags, a file with the same keys, and defaults; every value knows who set it.

mod alone;
mod bounds;
mod defaults;
mod file;
mod foreign;
mod layers;
mod options;
mod quantity;
pub mod schema;
mod speculative;
pub mod spellings;
mod words;

pub use alone::{hide_of_server, resolve_alone};
pub use layers::{Origin, Resolved, resolve};
pub use options::Options;
pub use quantity::Bytes;
pub use speculative::SpeculativeConfig;
pub use words::{
    AllReduce, CpuPrecision, Device, Fusion, LoadFormat, LogLevel, NumberType, SchedulingPolicy, Speculative,
};
