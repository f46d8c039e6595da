//! Norms and activations.

use engine::model::Activation;

use super::{
    compute::{Compute, WORTH_SHARING},
    isa::Work,
    simd::{LANES, Simd},
};

impl Compute {
    /// `output = input / sqrt(mean(input^2) + epsilon) * weight`, the mean over a row of `weight.len()`.
    ///
    /// # Panics
    /// If input and output are not equally many whole rows.
    pub fn rms_norm(&self, input: &[f32], weight: &[f32], epsilon: f32, output: &mut [f32]) {
        assert!(
            !weight.is_empty() && input.len() == output.len() && input.len().is_multiple_of(weight.len()),
            "whole rows"
        );
        let chunk = self.rows_together(input.len(), weight.len());
        self.pool.run_chunks(output, chunk, |index, output| {
            let input = &input[index * chunk..][..output.len()];
            self.isa.run(RmsNorm { input, weight, epsilon, output });
        });
    }

    /// `residual += addend`, then [`Compute::rms_norm`] of the residual.
    ///
    /// # Panics
    /// As [`Compute::rms_norm`].
    pub fn add_rms_norm(&self, addend: &[f32], residual: &mut [f32], weight: &[f32], epsilon: f32, output: &mut [f32]) {
        assert!(addend.len() == residual.len(), "as many addends as values");
        for (residual, addend) in residual.iter_mut().zip(addend) {
            *residual += addend;
        }
        self.rms_norm(residual, weight, epsilon, output);
    }

    /// `output[rows, width] = activation(gate) * up`, where a row of `input` is `width` of gate, then `width` of up.
    /// Gelu is its tanh form (`gelu_pytorch_tanh`).
    ///
    /// # Panics
    /// If input and output are not equally many whole rows.
    pub fn activate(&self, activation: Activation, input: &[f32], width: usize, output: &mut [f32]) {
        assert!(width > 0 && output.len().is_multiple_of(width) && input.len() == 2 * output.len(), "whole rows");
        let chunk = self.rows_together(input.len(), 2 * width) / 2;
        self.pool.run_chunks(output, chunk, |index, output| {
            let input = &input[2 * index * chunk..][..2 * output.len()];
            for (input, output) in input.chunks_exact(2 * width).zip(output.chunks_exact_mut(width)) {
                let (gate, up) = input.split_at(width);
                self.isa.run(Activate { activation, gate, up, output });
            }
        });
    }

    /// Softmax of each row of `width` values, in place.
    ///
    /// # Panics
    /// If the values are not whole rows.
    pub fn softmax(&self, values: &mut [f32], width: usize) {
        assert!(width > 0 && values.len().is_multiple_of(width), "whole rows");
        let chunk = self.rows_together(values.len(), width);
        self.pool.run_chunks(values, chunk, |_, values| {
            for row in values.chunks_exact_mut(width) {
                self.isa.run(Softmax { row });
            }
        });
    }

    /// How many values, in whole rows, one thread takes at a time; all of them if the others are not worth waking.
    fn rows_together(&self, values: usize, width: usize) -> usize {
        let rows = values / width;
        let each = if values < WORTH_SHARING { rows } else { rows.div_ceil(4 * self.pool.threads()) };
        each.max(1) * width
    }
}

/// Calls `$body` for every 16 elements of the slices, then once more for the rest, in vectors filled up with zeros.
macro_rules! for_vectors {
    (($($input:ident),+) -> $output:ident, |$s:ident, $($value:ident),+| $body:expr) => {{
        let whole = $output.len() / LANES;
        let (output, output_rest) = $output.as_chunks_mut::<LANES>();
        for (index, output) in output.iter_mut().enumerate() {
            $(let $value = $s.load(&$input.as_chunks::<LANES>().0[index]);)+
            $s.store($body, output);
        }
        if !output_rest.is_empty() {
            $(let $value = load_rest($s, &$input[whole * LANES..]);)+
            let mut lanes = [0.0; LANES];
            $s.store($body, &mut lanes);
            output_rest.copy_from_slice(&lanes[..output_rest.len()]);
        }
    }};
}

#[inline(always)]
fn load_rest<S: Simd>(s: S, rest: &[f32]) -> S::Floats {
    let mut lanes = [0.0; LANES];
    lanes[..rest.len()].copy_from_slice(rest);
    s.load(&lanes)
}

struct RmsNorm<'a> {
    input: &'a [f32],
    weight: &'a [f32],
    epsilon: f32,
    output: &'a mut [f32],
}

impl Work for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { weight, epsilon, .. } = self;
        let width = weight.len();
        for (input, output) in self.input.chunks_exact(width).zip(self.output.chunks_exact_mut(width)) {
            let (chunks, rest) = input.as_chunks::<LANES>();
            let mut squares = load_rest(s, rest);
            squares = s.mul(squares, squares);
            for chunk in chunks {
                let values = s.load(chunk);
                squares = s.fma(values, values, squares);
            }
            let scale = s.splat(1.0 / (s.sum(squares) / width as f32 + epsilon).sqrt());
            for_vectors!((input, weight) -> output, |s, value, weight| s.mul(s.mul(value, scale), weight));
        }
    }
}

struct Activate<'a> {
    activation: Activation,
    gate: &'a [f32],
    up: &'a [f32],
    output: &'a mut [f32],
}

impl Work for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { gate, up, output, .. } = self;
        match self.activation {
            Activation::Silu => {
                for_vectors!((gate, up) -> output, |s, gate, up| s.mul(swish(s, gate, gate), up));
            }
            Activation::Gelu => {
                for_vectors!((gate, up) -> output, |s, gate, up| s.mul(swish(s, gate, gelu_inner(s, gate)), up));
            }
        }
    }
}

/// `value / (1 + e^-inner)`.
#[inline(always)]
fn swish<S: Simd>(s: S, value: S::Floats, inner: S::Floats) -> S::Floats {
    s.div(value, s.add(s.splat(1.0), s.exp(s.sub(s.splat(0.0), inner))))
}

/// `(1 + tanh(x)) / 2` is the logistic function of `2 x`; this is gelu's `2 x`.
#[inline(always)]
fn gelu_inner<S: Simd>(s: S, value: S::Floats) -> S::Floats {
    const FACTOR: f32 = 1.595_769;
    let cube = s.mul(s.mul(value, value), value);
    s.mul(s.splat(FACTOR), s.fma(s.splat(0.044_715), cube, value))
}

struct Softmax<'a> {
    row: &'a mut [f32],
}

impl Work for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let row = self.row;
        let mut largest = s.splat(f32::NEG_INFINITY);
        let (chunks, rest) = row.as_chunks::<LANES>();
        for chunk in chunks {
            largest = s.max(largest, s.load(chunk));
        }
        let largest = rest.iter().copied().fold(s.largest(largest), f32::max);
        let (mut sum, limit) = (s.splat(0.0), s.splat(largest));
        let (chunks, rest) = row.as_chunks_mut::<LANES>();
        for chunk in chunks {
            let weight = s.exp(s.sub(s.load(chunk), limit));
            s.store(weight, chunk);
            sum = s.add(sum, weight);
        }
        let mut lanes = [f32::NEG_INFINITY; LANES];
        lanes[..rest.len()].copy_from_slice(rest);
        let weight = s.exp(s.sub(s.load(&lanes), limit));
        s.store(weight, &mut lanes);
        rest.copy_from_slice(&lanes[..rest.len()]);
        let inverse = 1.0 / s.sum(s.add(sum, weight));
        for value in row {
            *value *= inverse;
        }
    }
}
