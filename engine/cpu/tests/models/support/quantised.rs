use engine::weights::{TensorInfo, TensorView, WeightError, WeightSource, WeightType};

use super::LoudWeights;

/// Random matrices in a block format: random codes under scales that keep the values around 0. Vectors are F32.
pub struct QuantisedWeights {
    kind: WeightType,
    vectors: LoudWeights,
}

impl QuantisedWeights {
    pub fn new(kind: WeightType) -> Self {
        Self { kind, vectors: LoudWeights::new(1) }
    }
}

impl WeightSource for QuantisedWeights {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Of any matrix.
    fn info(&self, _: &str) -> Result<TensorInfo, WeightError> {
        Ok(TensorInfo { kind: self.kind, shape: Vec::new() })
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, WeightError> {
        if shape.len() == 1 {
            return self.vectors.tensor(name, shape);
        }
        let mut state = name.bytes().fold(1u64, |state, byte| state.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let blocks = shape.iter().product::<usize>() / self.kind.block_elements();
        let bytes = (0..blocks).flat_map(|_| block(self.kind, &mut next)).collect::<Vec<u8>>();
        Ok(TensorView { kind: self.kind, shape: shape.to_vec(), bytes: bytes.into() })
    }
}

/// Random bytes with the block's scales overwritten, so that values have a spread of about 0.1.
fn block(kind: WeightType, next: &mut impl FnMut() -> u8) -> Vec<u8> {
    let mut block: Vec<u8> = (0..kind.block_bytes()).map(|_| next()).collect();
    let mut scale =
        |at: usize, value: f32| block[at..at + 2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes());
    match kind {
        WeightType::Q8_0 => scale(0, 0.1 / 73.0),
        WeightType::Q4_1 => {
            scale(0, 0.1 / 4.6);
            scale(2, -0.1 / 4.6 * 7.5);
        }
        WeightType::Q6K => {
            scale(208, 0.1 / 18.0 / 73.0);
        }
        other => panic!("no scale known for {other:?}"),
    }
    block
}
