//! Model weights as named, typed byte ranges, whatever file they came from.

mod bytes;
mod error;
mod kind;
mod safetensors;
mod source;
mod table;

pub use bytes::{FileBytes, OpenFile, read_file};
pub use error::WeightError;
pub use kind::WeightType;
pub use safetensors::SafetensorsWeights;
pub use source::{TensorInfo, TensorView, WeightSource};
