//! Norms, activations and softmax against their definitions, on every instruction set.

use crate::random::Random;
use engine::model::Activation;
use engine_cpu::kernels::{Compute, Isa, Pool, Precision};

const POISON: f32 = 12345.0;

fn computes() -> Vec<Compute> {
    let compute = |threads, isa| Compute::with_isa(Pool::new(threads).unwrap(), Precision::Exact, isa);
    Isa::available().into_iter().flat_map(|isa| [compute(1, isa), compute(3, isa)]).collect()
}

fn assert_near(actual: &[f32], expected: impl Iterator<Item = f64>, tolerance: f64) {
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(*actual) - expected).abs() / expected.abs().max(1e-3);
        assert!(error <= tolerance, "{index}: {actual} and {expected}");
    }
}

/// Runs on every instruction set and number of threads, and asks for equal bits.
fn same_everywhere(run: impl Fn(&Compute) -> Vec<f32>) -> Vec<f32> {
    let mut results = computes().into_iter().map(|compute| (compute.isa().name(), run(&compute)));
    let (_, first) = results.next().unwrap();
    for (name, result) in results {
        assert_eq!(result, first, "{name}");
    }
    first
}

#[test]
fn rms_norm_divides_by_the_root_of_the_mean_square() {
    // The last one is large enough for several threads.
    for (rows, width) in [(1, 576), (3, 64), (5, 7), (2, 33), (70, 577)] {
        let (input, weight) = (Random(21).values(rows * width), Random(22).values(width));
        let output = same_everywhere(|compute| {
            let mut output = vec![POISON; rows * width];
            compute.rms_norm(&input, &weight, 1e-5, &mut output);
            output
        });
        for (input, output) in input.chunks_exact(width).zip(output.chunks_exact(width)) {
            let mean = input.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>() / width as f64;
            let scale = (mean + f64::from(1e-5_f32)).sqrt().recip();
            let expected =
                input.iter().zip(&weight).map(|(value, weight)| f64::from(*value) * scale * f64::from(*weight));
            assert_near(output, expected, 2e-6);
        }
    }
}

#[test]
fn add_rms_norm_is_the_sum_and_then_the_norm() {
    let (rows, width) = (4, 45);
    let (addend, before, weight) = (Random(23).values(180), Random(24).values(180), Random(25).values(width));
    let sum: Vec<f32> = addend.iter().zip(&before).map(|(addend, value)| value + addend).collect();
    for compute in computes() {
        let (mut residual, mut output, mut expected) = (before.clone(), vec![POISON; 180], vec![POISON; rows * width]);
        compute.add_rms_norm(&addend, &mut residual, &weight, 1e-6, &mut output);
        compute.rms_norm(&sum, &weight, 1e-6, &mut expected);
        assert_eq!((residual, output), (sum.clone(), expected));
    }
}

#[test]
fn gates_follow_their_definitions_over_the_whole_range() {
    for (activation, width) in [(Activation::Silu, 1536), (Activation::Gelu, 1536), (Activation::Silu, 13)] {
        let rows = 20;
        let mut input = Random(26).values(rows * 2 * width);
        for row in input.chunks_exact_mut(2 * width) {
            row[..width].iter_mut().for_each(|gate| *gate *= 20.0);
            row[..4].copy_from_slice(&[0.0, -200.0, 200.0, -88.0]);
        }
        let output = same_everywhere(|compute| {
            let mut output = vec![POISON; rows * width];
            compute.activate(activation, &input, width, &mut output);
            output
        });
        for (input, output) in input.chunks_exact(2 * width).zip(output.chunks_exact(width)) {
            let expected = input[..width].iter().zip(&input[width..]).map(|(gate, up)| {
                let (gate, up) = (f64::from(*gate), f64::from(*up));
                let inner = match activation {
                    Activation::Silu => gate,
                    Activation::Gelu => 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3)),
                };
                gate / (1.0 + (-inner).exp()) * up
            });
            assert_near(output, expected, 3e-6);
        }
    }
}

#[test]
fn softmax_sums_to_one_and_keeps_the_ratios() {
    for width in [1, 15, 16, 100, 49_152] {
        let values: Vec<f32> = Random(27).values(2 * width).iter().map(|value| value * 50.0).collect();
        let output = same_everywhere(|compute| {
            let mut output = values.clone();
            compute.softmax(&mut output, width);
            output
        });
        for (values, output) in values.chunks_exact(width).zip(output.chunks_exact(width)) {
            let largest = f64::from(values.iter().copied().fold(f32::MIN, f32::max));
            let total: f64 = values.iter().map(|value| (f64::from(*value) - largest).exp()).sum();
            let expected = values.iter().map(|value| (f64::from(*value) - largest).exp() / total);
            assert_near(output, expected, 1e-5);
            assert!((output.iter().map(|value| f64::from(*value)).sum::<f64>() - 1.0).abs() < 1e-5);
        }
    }
}

#[test]
fn what_is_not_a_number_stays_in_its_row() {
    for compute in computes() {
        let mut values = Random(28).values(3 * 40);
        values[50] = f32::NAN;
        let mut output = vec![POISON; 120];
        compute.rms_norm(&values, &[1.0; 40], 1e-5, &mut output);
        assert!(output[40..80].iter().all(|value| value.is_nan()));
        assert!(output[..40].iter().chain(&output[80..]).all(|value| value.is_finite()));
        let mut gated = vec![POISON; 60];
        compute.activate(Activation::Silu, &values, 20, &mut gated);
        assert!(gated[20 + 10].is_nan() && gated.iter().filter(|value| value.is_nan()).count() == 1);
        compute.softmax(&mut values, 40);
        assert!(values[40..80].iter().all(|value| value.is_nan()));
    }
}
