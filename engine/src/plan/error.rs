//! Why no plan can be made at all. A plan that refuses is a plan: it says why.

use capdb::database::{LookupError, OpenError};
use capdb::resolve::RecordError;

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{0}; `capdb list` shows the products and architectures, `--capdb FOLDER` reads another database")]
    Lookup(LookupError),
    #[error("the database is damaged: {0}; `capdb validate` shows the place")]
    Record(RecordError),
    #[error(
        "tensor parallel size {tensor_parallel} needs more GPUs than the {count} given; raise --count or lower --tensor-parallel-size"
    )]
    TooFewDevices { tensor_parallel: usize, count: usize },
    #[error("{0}")]
    Shape(String),
}

// The messages hold those of the database; as sources they would be printed twice.
impl From<LookupError> for PlanError {
    fn from(error: LookupError) -> Self {
        Self::Lookup(error)
    }
}

impl From<RecordError> for PlanError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}
