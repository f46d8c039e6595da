//! Model weights as named, typed byte ranges, whatever file they came from.

mod bytes;
pub mod dequantise;
mod dummy;
mod error;
mod gguf;
mod kind;
mod safetensors;
mod source;
mod table;

pub use bytes::{FileBytes, OpenFile, read_file};
pub use dummy::DummyWeights;
pub use error::WeightError;
pub use gguf::GgufWeights;
pub use kind::WeightType;
pub use safetensors::SafetensorsWeights;
pub use source::{TensorInfo, TensorView, WeightSource};
