use engine::weights::{DummyWeights, TensorInfo, TensorView, WeightError, WeightSource};

/// Random weights large enough for attention and MLP to matter: what `DummyWeights` makes, ten times as large.
pub struct LoudWeights(DummyWeights);

impl LoudWeights {
    pub fn new(seed: u64) -> Self {
        Self(DummyWeights::new(seed, "float32"))
    }
}

impl WeightSource for LoudWeights {
    fn names(&self) -> Vec<String> {
        self.0.names()
    }

    fn info(&self, name: &str) -> Result<TensorInfo, WeightError> {
        self.0.info(name)
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, WeightError> {
        let tensor = self.0.tensor(name, shape)?;
        let factor = if name.ends_with("norm.weight") { 1.0 } else { 10.0 };
        let values = tensor.bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word) * factor);
        Ok(TensorView { bytes: values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>().into(), ..tensor })
    }
}
