//! Every block type against values that the `gguf` Python package computed (`data/make_fixtures.py`).

use engine::weights::WeightType;
use engine::weights::dequantise::dequantise;
use serde_json::Value;

fn unhex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("is a string");
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("is hexadecimal");
    (0..text.len()).step_by(2).map(digit).collect()
}

#[test]
fn values_are_equal_bit_by_bit() {
    let vectors: Value = serde_json::from_str(include_str!("data/dequantise.json")).expect("is JSON");
    let kinds = [
        ("F16", WeightType::F16),
        ("BF16", WeightType::Bf16),
        ("Q8_0", WeightType::Q8_0),
        ("Q4_0", WeightType::Q4_0),
        ("Q4_1", WeightType::Q4_1),
        ("Q5_0", WeightType::Q5_0),
        ("Q5_1", WeightType::Q5_1),
        ("Q4_K", WeightType::Q4K),
        ("Q5_K", WeightType::Q5K),
        ("Q6_K", WeightType::Q6K),
    ];
    assert_eq!(vectors.as_object().map(|map| map.len()), Some(kinds.len()));
    for (name, kind) in kinds {
        let expected: Vec<u32> = unhex(&vectors[name]["values"])
            .chunks_exact(4)
            .map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
            .collect();
        let bytes = unhex(&vectors[name]["bytes"]);
        assert_eq!(kind.size(&[expected.len()]), Some(bytes.len()), "{name}");
        let mut values = vec![0.0; expected.len()];
        dequantise(kind).expect("is a weight type")(&bytes, &mut values);
        let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
        assert_eq!(bits, expected, "{name}");
    }
}

#[test]
fn plain_numbers_are_copied() {
    let bytes: Vec<u8> = [1.5_f32, -0.0, f32::MAX].iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut values = [0.0; 3];
    dequantise(WeightType::F32).expect("is a weight type")(&bytes, &mut values);
    assert_eq!(values.map(f32::to_bits), [1.5_f32, -0.0, f32::MAX].map(f32::to_bits));
    assert!([WeightType::I32, WeightType::I64, WeightType::Bool].iter().all(|kind| dequantise(*kind).is_none()));
}
