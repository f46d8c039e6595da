//! The RMS norm between two products that has no kernel of its own: the product in front of it, and the one behind it.

use engine::model::Activation;
use engine::weights::{TensorView, WeightType};
use engine_cpu::kernels::{Compute, Pool, Precision};
use engine_gpu::kernels::{self, PREFERRED_OF_SOME, Product, SQUARES};
use half::bf16;

use super::product::linear;
use super::{ROUNDING, Report};
use crate::random::floats;
use crate::rig::{Failure, Memory, Rig, launched};

const EPSILON: f32 = 1e-5;
/// Sums in f32 in another order.
const SUMS: f64 = 1e-5;
/// One of the residual stream, one of its product with the norm's weight, one of the output. A gated product has the errors
/// of both of its factors.
const ROUNDINGS: f64 = 3.0 * ROUNDING;
/// At and off the edges of the kernels' rows.
const COUNTS: [usize; 10] = [1, 2, 7, 8, 9, 16, 17, 32, 33, 64];
/// Columns of the first product, width of the residual stream, rows of the second weight: small ones, whose weights go to
/// registers, and ones that are streamed, in front, behind, and both, of every form. No fewer outputs: errors are parts of the
/// largest, which of a handful may be small beside the factors that it is made of.
const SHAPES: [[usize; 3]; 10] = [
    [8, 16, 62],
    [40, 64, 66],
    [1536, 576, 1000],
    [576, 592, 200],
    [1032, 4096, 402],
    [512, 2048, 3334],
    [8192, 2048, 3072],
    [3584, 3840, 3600],
    [6912, 4160, 3900],
    [4352, 4352, 3900],
];

pub fn run(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let compute = Compute::new(Pool::new(8)?, Precision::Exact);
    for [inner, hidden, outputs] in SHAPES {
        let chain = Chain::new(rig, inner, hidden, outputs)?;
        for count in COUNTS.into_iter().filter(|count| *count <= 32 || hidden < 1000) {
            chain.compare(rig, report, &compute, count)?;
        }
    }
    Ok(())
}

struct Weights {
    stored: TensorView<'static>,
    bias: Vec<f32>,
    memory: Memory,
    device_bias: Memory,
}

impl Weights {
    fn new(rig: &mut Rig, rows: usize, columns: usize) -> Result<Self, Failure> {
        let stored = rig.random.matrix(WeightType::Bf16, rows, columns);
        let bias = rig.random.values(rows);
        let (memory, device_bias) = (rig.upload(&stored.bytes)?, rig.upload(&bias)?);
        Ok(Self { stored, bias, memory, device_bias })
    }

    /// The product of so many rows with these, without what stands around it.
    fn product(&self, input: u64, output: u64, count: usize) -> Product {
        Product {
            weight: self.memory.address,
            bias: self.device_bias.address,
            input,
            output,
            outputs: self.stored.shape[0] as u32,
            columns: self.stored.shape[1] as u32,
            count: count as u32,
            stride: self.stored.shape[0] as u32,
            epsilon: EPSILON,
            ..Product::default()
        }
    }

    fn on_cpu(&self, compute: &Compute, input: &[f32]) -> Vec<f32> {
        linear(compute, &self.stored, input, Some(&self.bias))
    }
}

struct Chain {
    front: Weights,
    behind: Weights,
    norm: Vec<f32>,
    device_norm: Memory,
}

/// What the product in front leaves.
struct Between {
    residual: Memory,
    scaled: Memory,
    squares: Memory,
}

impl Between {
    fn bits(&self) -> Result<[Vec<u16>; 3], Failure> {
        Ok([self.residual.read()?, self.scaled.read()?, self.squares.read()?])
    }
}

impl Chain {
    fn new(rig: &mut Rig, inner: usize, hidden: usize, outputs: usize) -> Result<Self, Failure> {
        let (front, behind) = (Weights::new(rig, hidden, inner)?, Weights::new(rig, outputs, hidden)?);
        let norm: Vec<f32> = rig.random.values(hidden).iter().map(|value| 1.0 + 0.5 * value).collect();
        let device_norm = rig.upload(&norm)?;
        Ok(Self { front, behind, norm, device_norm })
    }

    fn hidden(&self) -> usize {
        self.norm.len()
    }

    fn case(&self, count: usize) -> String {
        let [hidden, inner] = self.front.stored.shape[..] else { panic!("a matrix") };
        format!("{inner} to {hidden} to {}, {count} rows", self.behind.stored.shape[0])
    }

    fn compare(&self, rig: &mut Rig, report: &mut Report, compute: &Compute, count: usize) -> Result<(), Failure> {
        let input = rig.random.bf16(count * self.front.stored.shape[1]);
        let residual = rig.random.bf16(count * self.hidden());
        let device_input = rig.upload(&input)?;
        let between = self.launch_front(rig, &device_input, &residual, count)?;
        let mut sums = self.front.on_cpu(compute, &floats(&input));
        sums.iter_mut().zip(&residual).for_each(|(sum, before)| *sum += before.to_f32());
        self.compare_between(report, &between, &sums, count)?;
        let first = between.bits()?;
        for _ in 0..3 {
            let again = self.launch_front(rig, &device_input, &residual, count)?.bits()?;
            for (again, first) in again.iter().zip(&first) {
                report.equal("product with sum", &format!("{}, once more", self.case(count)), again, first);
            }
        }
        let mut normed = vec![0.0; sums.len()];
        compute.rms_norm(&sums, &self.norm, EPSILON, &mut normed);
        for gate in [None, Some(Activation::Silu), Some(Activation::Gelu)] {
            self.compare_behind(rig, report, compute, &between, &normed, gate)?;
        }
        self.compare_picked(rig, report, &between)
    }

    fn launch_front(&self, rig: &Rig, input: &Memory, residual: &[bf16], count: usize) -> Result<Between, Failure> {
        let elements = count * self.hidden();
        let (scaled, squares) = (rig.poisoned(elements * 2)?, rig.poisoned(elements / SQUARES as usize * 4)?);
        let between = Between { residual: rig.upload(residual)?, scaled, squares };
        let product = Product {
            residual: between.residual.address,
            norm: self.device_norm.address,
            squares: between.squares.address,
            ..self.front.product(input.address, between.scaled.address, count)
        };
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::product(&rig.launcher, &rig.kernels, &product) })?;
        rig.gpu.context.synchronize()?;
        Ok(between)
    }

    fn compare_between(
        &self,
        report: &mut Report,
        between: &Between,
        sums: &[f32],
        count: usize,
    ) -> Result<(), Failure> {
        let case = self.case(count);
        let residual = between.residual.read::<bf16>()?;
        report.near_bf16("product with sum", &case, &residual, sums, ROUNDING);
        // What follows is of the sums as the device rounded them.
        let residual = floats(&residual);
        let scaled = residual.iter().zip(self.norm.iter().cycle()).map(|(value, norm)| bf16::from_f32(value * norm));
        let scaled: Vec<bf16> = scaled.collect();
        report.equal("product with sum", &format!("{case}, scaled"), &between.scaled.read::<bf16>()?, &scaled);
        let squares: Vec<f32> = residual.chunks_exact(SQUARES as usize).map(|values| squares(values) as f32).collect();
        report.near("product with sum", &format!("{case}, squares"), &between.squares.read::<f32>()?, &squares, SUMS);
        Ok(())
    }

    fn launch_behind(
        &self,
        rig: &Rig,
        input: [u64; 3],
        gate: Option<Activation>,
        count: usize,
    ) -> Result<Vec<f32>, Failure> {
        let [input, input_squares, input_rows] = input;
        let rows = self.behind.stored.shape[0];
        let outputs = if gate.is_some() { rows / 2 } else { rows };
        let output = rig.poisoned(count * outputs * if gate.is_some() { 2 } else { 4 })?;
        let plain = self.behind.product(input, output.address, count);
        let words = (outputs as u32, u32::from(gate.is_none()));
        let product = Product { outputs: words.0, stride: words.0, float_output: words.1, ..plain };
        let product = Product { input_squares, input_rows, ..product };
        // SAFETY: the buffers are as large as the arguments say.
        launched(unsafe {
            match gate {
                Some(gate) => kernels::gated_product(&rig.launcher, &rig.kernels, gate, &product),
                None => kernels::product(&rig.launcher, &rig.kernels, &product),
            }
        })?;
        Ok(if gate.is_some() { floats(&output.read::<bf16>()?) } else { output.read()? })
    }

    /// Against the same sums on the CPU, and against the norm of the sums that the CPU had.
    fn compare_behind(
        &self,
        rig: &mut Rig,
        report: &mut Report,
        compute: &Compute,
        between: &Between,
        normed: &[f32],
        gate: Option<Activation>,
    ) -> Result<(), Failure> {
        let count = normed.len() / self.hidden();
        let case = format!("{} {gate:?}", self.case(count));
        let input = [between.scaled.address, between.squares.address, 0];
        let actual = self.launch_behind(rig, input, gate, count)?;
        let again = self.launch_behind(rig, input, gate, count)?;
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        report.equal("scaled product", &format!("{case}, once more"), &bits(&again), &bits(&actual));
        let activated = |product: Vec<f32>| {
            let Some(gate) = gate else { return product };
            let outputs = self.behind.stored.shape[0] / 2;
            let mut output = vec![0.0; count * outputs];
            compute.activate(gate, &product, outputs, &mut output);
            output
        };
        let scaled = floats(&between.scaled.read::<bf16>()?);
        let factors = self.factors(&floats(&between.residual.read::<bf16>()?));
        let rows = scaled.chunks_exact(self.hidden()).zip(&factors);
        let scaled: Vec<f32> = rows.flat_map(|(row, factor)| row.iter().map(move |value| value * factor)).collect();
        let same = activated(self.behind.on_cpu(compute, &scaled));
        report.near("scaled product", &case, &actual, &same, if gate.is_some() { ROUNDING } else { SUMS });
        let whole = activated(self.behind.on_cpu(compute, normed));
        report.near(
            "product, norm, product",
            &case,
            &actual,
            &whole,
            if gate.is_some() { 2.0 * ROUNDINGS } else { ROUNDINGS },
        );
        Ok(())
    }

    /// Rows in another order are multiplied as they were in theirs.
    fn compare_picked(&self, rig: &mut Rig, report: &mut Report, between: &Between) -> Result<(), Failure> {
        let count = between.scaled.read::<bf16>()?.len() / self.hidden();
        let rows: Vec<u32> = (0..count as u32).rev().collect();
        let rows = rig.upload(&rows)?;
        let squares = between.squares.address;
        let actual = self.launch_behind(rig, [between.scaled.address, squares, rows.address], None, count)?;
        let plain = self.launch_behind(rig, [between.scaled.address, squares, 0], None, count)?;
        let plain: Vec<f32> = plain.chunks_exact(self.behind.stored.shape[0]).rev().flatten().copied().collect();
        let case = format!("{}, picked", self.case(count));
        if (9..=PREFERRED_OF_SOME as usize).contains(&count) {
            // What picks so many rows may be another kernel than what takes all of them.
            report.near("scaled product", &case, &actual, &plain, SUMS);
        } else {
            report.equal("scaled product", &case, &actual, &plain);
        }
        Ok(())
    }

    /// Inverse roots of the mean squares of rows.
    fn factors(&self, rows: &[f32]) -> Vec<f32> {
        let rows = rows.chunks_exact(self.hidden());
        let mean = rows.map(|row| squares(row) / self.hidden() as f64);
        mean.map(|mean| (mean + f64::from(EPSILON)).sqrt().recip() as f32).collect()
    }
}

fn squares(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum()
}
