//! Matrix products: every format, instruction set, precision, number of rows and of threads.

use crate::random::{KINDS, Random};
use crate::support::{Weight, weights, whole};
use engine::weights::{WeightType, dequantise::dequantise};
use engine_cpu::kernels::{Compute, Isa, Pool, Precision, QuantMatrix};

const POISON: f32 = 12345.0;

fn compute(threads: usize, precision: Precision, isa: Isa) -> Compute {
    Compute::with_isa(Pool::new(threads).unwrap(), precision, isa)
}

/// Odd sizes on purpose: columns that no vector divides, rows on and off the edge of a panel.
fn shapes(kind: WeightType) -> [(usize, usize); 3] {
    match kind.block_elements() {
        1 => [(1, 7), (16, 64), (37, 131)],
        block => [(1, block), (16, 2 * block), (37, 5 * block)],
    }
}

fn product(compute: &Compute, input: &[f32], weights: &[QuantMatrix], rows: usize) -> Vec<f32> {
    let width: usize = weights.iter().map(QuantMatrix::rows).sum();
    let mut output = vec![POISON; rows * width];
    compute.linear(input, weights, None, &mut output);
    output
}

#[test]
fn rows_are_what_the_format_defines() {
    for kind in KINDS {
        for (rows, columns) in shapes(kind) {
            let view = Random(1).matrix(kind, rows, columns);
            let matrix = QuantMatrix::pack(&whole(&view)).unwrap();
            let mut expected = vec![POISON; rows * columns];
            dequantise(kind).unwrap()(&view.bytes, &mut expected);
            assert_eq!(weights(&view).into_iter().map(Weight::value).collect::<Vec<_>>(), expected, "{kind:?}");
            let mut row = vec![POISON; columns];
            for (index, expected) in expected.chunks_exact(columns).enumerate() {
                matrix.row(index, &mut row);
                assert_eq!(row, expected, "{kind:?} {rows}x{columns} row {index}");
            }
        }
    }
}

#[test]
fn exact_products_are_within_rounding_of_the_true_sum() {
    for kind in KINDS {
        for (out, columns) in shapes(kind) {
            let mut random = Random(2);
            let view = random.matrix(kind, out, columns);
            let matrix = [QuantMatrix::pack(&whole(&view)).unwrap()];
            let input = random.values(13 * columns);
            let expected = weights(&view);
            for isa in Isa::available() {
                let output = product(&compute(1, Precision::Exact, isa), &input, &matrix, 13);
                for (index, actual) in output.iter().enumerate() {
                    let (row, column) = (index / out, index % out);
                    let terms = expected[column * columns..][..columns].iter().zip(&input[row * columns..]);
                    let terms: Vec<f64> =
                        terms.map(|(weight, value)| f64::from(weight.value()) * f64::from(*value)).collect();
                    let size: f64 = terms.iter().map(|term| term.abs()).sum();
                    let error = (f64::from(*actual) - terms.iter().sum::<f64>()).abs();
                    assert!(error <= size * 1e-6 * (columns as f64).sqrt(), "{kind:?} {} {index}: {error}", isa.name());
                }
            }
        }
    }
}

/// One output of the fast mode by its definition: per 32 columns an exact sum of whole numbers, then two fused
/// multiply-adds (Q6_K: one for each 16 columns).
fn fast_output(kind: WeightType, weights: &[Weight], input: &[f32]) -> f32 {
    let mut sum = 0.0_f32;
    for (weights, values) in weights.chunks_exact(32).zip(input.chunks_exact(32)) {
        let largest = values.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let scale = largest / 127.0;
        let codes: Vec<i32> = values.iter().map(|value| (value * (127.0 / largest)).round_ties_even() as i32).collect();
        if matches!(kind, WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4K | WeightType::Q5K) {
            let total: i32 = codes.iter().sum();
            sum = weights[0].offset.mul_add(scale * total as f32, sum);
        }
        let step = if kind == WeightType::Q6K { 16 } else { 32 };
        for (weights, codes) in weights.chunks_exact(step).zip(codes.chunks_exact(step)) {
            let dot: i32 = weights.iter().zip(codes).map(|(weight, code)| weight.code * code).sum();
            sum = (dot as f32).mul_add(weights[0].scale * scale, sum);
        }
    }
    sum
}

#[test]
fn fast_products_follow_their_definition_bit_by_bit_and_stay_near_the_true_sum() {
    for kind in KINDS.into_iter().filter(|kind| kind.block_elements() > 1) {
        for (out, columns) in shapes(kind) {
            let mut random = Random(3);
            let view = random.matrix(kind, out, columns);
            let matrix = [QuantMatrix::pack(&whole(&view)).unwrap()];
            let input = random.values(15 * columns);
            let weights = weights(&view);
            for isa in Isa::available() {
                let output = product(&compute(1, Precision::Fast, isa), &input, &matrix, 15);
                for (index, actual) in output.iter().enumerate() {
                    let (row, column) = (index / out, index % out);
                    let (weights, input) =
                        (&weights[column * columns..][..columns], &input[row * columns..][..columns]);
                    assert_eq!(*actual, fast_output(kind, weights, input), "{kind:?} {} {index}", isa.name());
                    // An activation is off by half a step of 1/127 of the largest, here at most 1.
                    let size: f64 = weights.iter().map(|weight| f64::from(weight.value()).abs()).sum();
                    let terms = weights.iter().zip(input);
                    let truth: f64 = terms.map(|(weight, value)| f64::from(weight.value()) * f64::from(*value)).sum();
                    assert!((f64::from(*actual) - truth).abs() <= size * (0.5 / 127.0) + 1e-4);
                }
            }
        }
    }
}

#[test]
fn a_row_is_the_same_alone_and_in_a_batch_on_any_threads_and_instructions() {
    for kind in KINDS {
        let (out, columns) = shapes(kind)[2];
        let mut random = Random(4);
        let views = [random.matrix(kind, out, columns), random.matrix(kind, 48, columns)];
        let matrices = views.map(|view| QuantMatrix::pack(&whole(&view)).unwrap());
        for precision in [Precision::Exact, Precision::Fast] {
            let input = random.values(29 * columns);
            let alone = compute(1, precision, Isa::available().pop().unwrap());
            let expected: Vec<f32> =
                input.chunks_exact(columns).flat_map(|row| product(&alone, row, &matrices, 1)).collect();
            for isa in Isa::available() {
                for threads in [1, 2, 5] {
                    let compute = compute(threads, precision, isa);
                    for rows in [1, 2, 3, 8, 17, 29] {
                        let output = product(&compute, &input[..rows * columns], &matrices, rows);
                        let expected = &expected[..rows * (out + 48)];
                        assert_eq!(output, expected, "{kind:?} {precision:?} {} {threads} {rows}", isa.name());
                    }
                }
            }
        }
    }
}

#[test]
fn a_part_has_the_values_of_its_rows_and_columns() {
    for kind in KINDS {
        let block = kind.block_elements();
        let (rows, columns) = (40, 4 * block.max(8));
        let view = Random(5).matrix(kind, rows, columns);
        let all: Vec<f32> = weights(&view).into_iter().map(Weight::value).collect();
        // On block edges, then across them.
        for range in [block.max(8)..3 * block.max(8), 3..columns - 5] {
            let mut part = whole(&view);
            (part.rows, part.columns) = (5..38, range.clone());
            let matrix = QuantMatrix::pack(&part).unwrap();
            assert_eq!((matrix.rows(), matrix.columns()), (33, range.len()));
            let kept = block == 1 || range.start % block == 0;
            assert_eq!(matrix.kind(), if kept { kind } else { WeightType::F32 });
            let mut row = vec![POISON; range.len()];
            for index in 0..33 {
                matrix.row(index, &mut row);
                assert_eq!(row, all[(index + 5) * columns..][range.clone()], "{kind:?} {range:?}");
            }
        }
    }
}

#[test]
fn a_bias_is_added_to_every_row() {
    let mut random = Random(6);
    let view = random.matrix(WeightType::F32, 20, 9);
    let matrix = [QuantMatrix::pack(&whole(&view)).unwrap()];
    let (input, bias) = (random.values(3 * 9), random.values(20));
    let compute = compute(2, Precision::Exact, Isa::best());
    let without = product(&compute, &input, &matrix, 3);
    let mut with = vec![POISON; 60];
    compute.linear(&input, &matrix, Some(&bias), &mut with);
    for index in 0..60 {
        assert_eq!(with[index], without[index] + bias[index % 20]);
    }
}

#[test]
fn activations_that_are_not_finite_show_in_their_own_row_alone() {
    let view = Random(7).matrix(WeightType::Q4_1, 16, 64);
    let matrix = [QuantMatrix::pack(&whole(&view)).unwrap()];
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut input = Random(8).values(3 * 64);
        input[64 + 40] = bad;
        for isa in Isa::available() {
            let output = product(&compute(1, Precision::Fast, isa), &input, &matrix, 3);
            assert!(output[16..32].iter().all(|value| value.is_nan()), "{bad} {}", isa.name());
            assert!(output[..16].iter().chain(&output[32..]).all(|value| value.is_finite()));
        }
    }
}

#[test]
fn activations_at_both_ends_of_the_range_are_computed() {
    let view = Random(9).matrix(WeightType::Q8_0, 16, 64);
    let matrix = [QuantMatrix::pack(&whole(&view)).unwrap()];
    for isa in Isa::available() {
        let compute = compute(1, Precision::Fast, isa);
        assert_eq!(product(&compute, &[0.0; 64], &matrix, 1), [0.0; 16]);
        assert_eq!(product(&compute, &[1e-38; 64], &matrix, 1), [0.0; 16], "too small to have a scale");
        let expected = product(&compute, &[1.0; 64], &matrix, 1);
        let large = product(&compute, &[2_f32.powi(100); 64], &matrix, 1);
        assert_eq!(large, expected.iter().map(|value| value * 2_f32.powi(100)).collect::<Vec<_>>());
    }
}

#[test]
fn no_rows_are_no_work() {
    for kind in KINDS {
        let view = Random(10).matrix(kind, 3, 256);
        let matrix = [QuantMatrix::pack(&whole(&view)).unwrap()];
        for precision in [Precision::Exact, Precision::Fast] {
            assert!(product(&compute(2, precision, Isa::best()), &[], &matrix, 0).is_empty());
        }
    }
}

#[test]
fn integers_and_booleans_are_refused() {
    for kind in [WeightType::I32, WeightType::I64, WeightType::Bool] {
        let bytes = vec![0; 6 * kind.block_bytes()].into();
        let view = engine::weights::TensorView { kind, shape: vec![2, 3], bytes };
        let error = QuantMatrix::pack(&whole(&view)).err().unwrap();
        assert!(error.to_string().contains(&kind.to_string()), "{error}");
    }
}
