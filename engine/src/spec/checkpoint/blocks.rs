//! A head's matrices in blocks of eight bits. A draft step reads little but its weights, and what is drafted need not be
//! exact: half the bytes are nearly twice the speed, and no token changes.

use std::borrow::Cow;
use std::sync::Arc;

use half::f16;

use super::HeadCheckpoint;
use crate::weights::dequantise::dequantise;
use crate::weights::{TensorInfo, TensorView, WeightError, WeightSource, WeightType};

/// Values that share a scale in `WeightType::Q8_0`.
const BLOCK: usize = 32;

struct BlockWeights(Arc<dyn WeightSource>);

impl HeadCheckpoint {
    /// The same head with its matrices in blocks (`Q8_0`: 8 bits a value, a scale for 32 of them), made when they load.
    pub fn in_blocks(mut self) -> Self {
        self.weights = Arc::new(BlockWeights(self.weights));
        self
    }
}

impl BlockWeights {
    /// Rows of an embedding are looked up and not multiplied; vectors stay as they are.
    fn converts(name: &str, kind: WeightType, shape: &[usize]) -> bool {
        let plain = matches!(kind, WeightType::F32 | WeightType::F16 | WeightType::Bf16);
        plain && name != "embed_tokens.weight" && shape.len() == 2 && shape[1].is_multiple_of(BLOCK)
    }
}

impl WeightSource for BlockWeights {
    fn names(&self) -> Vec<String> {
        self.0.names()
    }

    fn info(&self, name: &str) -> Result<TensorInfo, WeightError> {
        let info = self.0.info(name)?;
        let kind = if Self::converts(name, info.kind, &info.shape) { WeightType::Q8_0 } else { info.kind };
        Ok(TensorInfo { kind, ..info })
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, WeightError> {
        let tensor = self.0.tensor(name, shape)?;
        let Some(convert) = dequantise(tensor.kind).filter(|_| Self::converts(name, tensor.kind, shape)) else {
            return Ok(tensor);
        };
        let mut values = vec![0.0; shape.iter().product()];
        convert(&tensor.bytes, &mut values);
        let bytes: Vec<u8> = values.as_chunks::<BLOCK>().0.iter().flat_map(block).collect();
        Ok(TensorView { kind: WeightType::Q8_0, shape: shape.to_vec(), bytes: Cow::Owned(bytes) })
    }
}

/// Scale in f16, then the rounded multiples of it: ggml's `block_q8_0`.
fn block(values: &[f32; BLOCK]) -> [u8; 34] {
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let scale = f16::from_f32(largest / 127.0);
    let inverse = if scale.to_f32() > 0.0 { scale.to_f32().recip() } else { 0.0 };
    let mut block = [0; 34];
    block[..2].copy_from_slice(&scale.to_le_bytes());
    for (to, value) in block[2..].iter_mut().zip(values) {
        *to = (value * inverse).round().clamp(-127.0, 127.0) as i8 as u8;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_within_half_a_step() {
        let values: [f32; BLOCK] = std::array::from_fn(|at| (at as f32 - 11.3) * 0.037);
        let convert = dequantise(WeightType::Q8_0).unwrap();
        let mut back = [0.0; BLOCK];
        convert(&block(&values), &mut back);
        let step = 20.7 * 0.037 / 127.0;
        for (value, back) in values.iter().zip(back) {
            assert!((value - back).abs() < 0.6 * step, "{value} became {back}");
        }
        convert(&block(&[0.0; BLOCK]), &mut back);
        assert_eq!(back, [0.0; BLOCK]);
    }
}
