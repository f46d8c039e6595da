//! Every kernel against the CPU: random inputs, shapes at and off the edges of tiles, outputs that hold no numbers
//! before the launch.

mod attention;
mod fresh;
mod fused;
mod logits;
mod norm;
mod product;
mod rope;
mod rows;
mod sampling;

use std::collections::BTreeMap;

use engine_gpu::HEADS;
use half::bf16;

use crate::rig::{Failure, Rig};

/// What differed, by kernel.
#[derive(Default)]
pub struct Report {
    kernels: BTreeMap<String, Line>,
}

#[derive(Default)]
struct Line {
    cases: usize,
    failed: usize,
    worst: f64,
    tolerance: f64,
}

impl Report {
    /// `|actual - expected| / |expected|` in the Euclidean norm within `tolerance`; a value that is no number fails.
    pub fn near(&mut self, kernel: &str, case: &str, actual: &[f32], expected: &[f32], tolerance: f64) {
        let sum = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let difference =
            actual.iter().zip(expected).map(|(actual, expected)| f64::from(*actual) - f64::from(*expected));
        let size = sum(&mut expected.iter().map(|value| f64::from(*value))).max(f64::MIN_POSITIVE);
        let error = sum(&mut difference.into_iter()) / size;
        let good = actual.len() == expected.len() && error <= tolerance;
        self.note(kernel, case, error, tolerance, good);
    }

    pub fn near_bf16(&mut self, kernel: &str, case: &str, actual: &[bf16], expected: &[f32], tolerance: f64) {
        self.near(kernel, case, &crate::random::floats(actual), expected, tolerance);
    }

    pub fn equal<T: PartialEq + std::fmt::Debug>(&mut self, kernel: &str, case: &str, actual: &[T], expected: &[T]) {
        let first = actual.iter().zip(expected).position(|(actual, expected)| actual != expected);
        let good = actual.len() == expected.len() && first.is_none();
        if let Some(at) = first {
            println!("{kernel} {case}: at {at}: {:?}, expected {:?}", actual[at], expected[at]);
        }
        self.note(kernel, case, if good { 0.0 } else { f64::INFINITY }, 0.0, good);
    }

    fn note(&mut self, kernel: &str, case: &str, error: f64, tolerance: f64, good: bool) {
        let line = self.kernels.entry(kernel.to_owned()).or_default();
        line.cases += 1;
        // A value that is no number is the worst.
        line.worst = if error.is_nan() { f64::INFINITY } else { line.worst.max(error) };
        line.tolerance = line.tolerance.max(tolerance);
        if !good {
            line.failed += 1;
            println!("FAILED {kernel} {case}: error {error:e}, at most {tolerance:e}");
        }
    }

    fn print(&self) -> bool {
        println!("{:<24} {:>6} {:>7} {:>10} {:>10}", "kernel", "cases", "failed", "worst", "at most");
        for (kernel, Line { cases, failed, worst, tolerance }) in &self.kernels {
            println!("{kernel:<24} {cases:>6} {failed:>7} {worst:>10.2e} {tolerance:>10.0e}");
        }
        self.kernels.values().all(|line| line.failed == 0)
    }
}

/// One operation's comparisons.
type Part = fn(&mut Rig, &mut Report) -> Result<(), Failure>;

const PARTS: [(&str, Part); 10] = [
    ("rows", rows::run),
    ("norm", norm::run),
    ("rope", rope::run),
    ("product", product::run),
    ("streamed", product::streamed),
    ("fused", fused::run),
    ("attention", attention::run),
    ("fresh", fresh::run),
    ("logits", logits::run),
    ("sampling", sampling::run),
];

/// What is compared, and how.
pub struct Choice {
    /// Kernels start one after another: a missing wait cannot hide behind dependent launch, nor a race between kernels.
    serial: bool,
    /// Every kernel, but shapes that a checker of every access gets through in a minute.
    small: bool,
    parts: Vec<(&'static str, Part)>,
}

impl Choice {
    /// From the command line's words. Errors: no part has that name.
    pub fn of(words: &[&str]) -> Result<Self, Failure> {
        let mut choice = Self { serial: false, small: false, parts: Vec::new() };
        for word in words {
            match (*word, PARTS.iter().find(|(name, _)| name == word)) {
                ("serial", _) => choice.serial = true,
                ("small", _) => choice.small = true,
                (_, Some(part)) => choice.parts.push(*part),
                (_, None) => {
                    let names = PARTS.map(|(name, _)| name).join(", ");
                    return Err(format!("compare: no part `{word}`; parts are {names}").into());
                }
            }
        }
        if choice.parts.is_empty() {
            choice.parts.extend(PARTS);
        }
        Ok(choice)
    }
}

/// True if all is well.
pub fn run(choice: &Choice) -> Result<bool, Failure> {
    let mut rig = Rig::open(!choice.serial, &HEADS)?;
    rig.small = choice.small;
    let mut report = Report::default();
    for (name, part) in &choice.parts {
        let start = std::time::Instant::now();
        part(&mut rig, &mut report).map_err(|error| format!("{name}: {error}"))?;
        println!("{name} after {:.1} s", start.elapsed().as_secs_f64());
    }
    Ok(report.print())
}
