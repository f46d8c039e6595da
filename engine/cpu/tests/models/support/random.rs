use engine::weights::{TensorInfo, TensorView, WeightError, WeightSource, WeightType};

/// Random weights of any shape, the same for the same name: a linear congruential generator, mean 0.
pub struct RandomWeights;

impl WeightSource for RandomWeights {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn info(&self, _: &str) -> Result<TensorInfo, WeightError> {
        Ok(TensorInfo { kind: WeightType::F32, shape: Vec::new() })
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, WeightError> {
        let count: usize = shape.iter().product();
        let scale = if shape.len() == 1 { 0.1 } else { (shape[1] as f32).sqrt().recip() * 2.0 };
        let base = if name.ends_with("norm.weight") { 1.0 } else { 0.0 };
        let mut state = name.bytes().fold(1u64, |state, byte| state.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            base + scale * ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
        };
        let bytes = (0..count).flat_map(|_| next().to_le_bytes()).collect::<Vec<u8>>();
        Ok(TensorView { kind: WeightType::F32, shape: shape.to_vec(), bytes: bytes.into() })
    }
}
