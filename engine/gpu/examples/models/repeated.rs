use std::borrow::Cow;

use engine::model::ModelConfig;
use engine::weights::{DummyWeights, TensorInfo, TensorView, WeightError, WeightSource, WeightType};

use crate::Failure;

/// Random weights that are made once: every matrix is the beginning of the largest one, so that loading takes no longer
/// than copying.
pub struct Repeated {
    matrix: Vec<u8>,
    vectors: DummyWeights,
}

impl Repeated {
    pub fn new(config: &ModelConfig) -> Result<Self, Failure> {
        let largest = [config.vocabulary.max(config.intermediate), config.hidden];
        let vectors = DummyWeights::new(0, "bfloat16");
        let tensor = vectors.tensor("repeated", &largest).map_err(|error| error.to_string())?;
        Ok(Self { matrix: tensor.bytes.into_owned(), vectors })
    }
}

impl WeightSource for Repeated {
    fn names(&self) -> Vec<String> {
        self.vectors.names()
    }

    fn info(&self, name: &str) -> Result<TensorInfo, WeightError> {
        self.vectors.info(name)
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, WeightError> {
        let bytes = WeightType::Bf16.size(shape).and_then(|size| self.matrix.get(..size));
        match bytes.filter(|_| shape.len() > 1) {
            Some(bytes) => {
                Ok(TensorView { kind: WeightType::Bf16, shape: shape.to_vec(), bytes: Cow::Borrowed(bytes) })
            }
            None => self.vectors.tensor(name, shape),
        }
    }
}
