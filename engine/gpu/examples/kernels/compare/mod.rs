//! Every kernel against the CPU: random inputs, shapes at and off the edges of tiles, outputs that hold no numbers
//! before the launch.

mod attention;
mod chain;
mod fresh;
mod fused;
mod gated;
mod logits;
mod norm;
mod product;
mod rope;
mod rows;
mod sampling;

use std::collections::BTreeMap;

use engine_gpu::HEADS;
use half::bf16;

use crate::rig::{Failure, Rig, Share};

/// How far one rounding to bf16 is off at most, as a part of what is rounded: half a unit in the last of 8 bits (Higham,
/// "Accuracy and Stability of Numerical Algorithms", 2.1), so of any number of values in the Euclidean norm, too. A tenth
/// more is for what is in f32 before it: sums in another order, exponentials.
pub const ROUNDING: f64 = 1.1 / 256.0;

/// The Euclidean norm.
pub fn size(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}

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
    /// `|actual - expected| / |expected|` in the Euclidean norm within `tolerance`; a value that is not a number fails.
    pub fn near(&mut self, kernel: &str, case: &str, actual: &[f32], expected: &[f32], tolerance: f64) {
        self.near_of(kernel, case, actual, expected, [size(expected), tolerance]);
    }

    /// The same where errors are measured against another size than that of what is expected.
    pub fn near_of(&mut self, kernel: &str, case: &str, actual: &[f32], expected: &[f32], [of, tolerance]: [f64; 2]) {
        let difference: Vec<f32> = actual.iter().zip(expected).map(|(actual, expected)| actual - expected).collect();
        let error = size(&difference) / of.max(f64::MIN_POSITIVE);
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
        // A value that is not a number is the worst.
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
            println!("{kernel:<24} {cases:>6} {failed:>7} {worst:>10.2e} {tolerance:>10.1e}");
        }
        // A share may be so small that nothing falls to it: that is not a success.
        !self.kernels.is_empty() && self.kernels.values().all(|line| line.failed == 0)
    }
}

/// One operation's comparisons.
type Part = fn(&mut Rig, &mut Report) -> Result<(), Failure>;

/// Parts by name; the last say themselves what is which process's share, the first are one group of cases each.
const PARTS: [(&str, Part); 11] = [
    ("rows", rows::run),
    ("norm", norm::run),
    ("rope", rope::run),
    ("logits", logits::run),
    ("product", product::run),
    ("streamed", product::streamed),
    ("chain", chain::run),
    ("fused", fused::run),
    ("attention", attention::run),
    ("fresh", fresh::run),
    ("sampling", sampling::run),
];
const UNDIVIDED: usize = 4;

/// What is compared, and how.
pub struct Choice {
    /// Kernels start one after another: a missing wait cannot hide behind dependent launch, nor a race between kernels.
    serial: bool,
    /// Every kernel, but shapes that a checker of every access gets through in a minute.
    small: bool,
    share: Share,
    parts: Vec<(&'static str, Part)>,
}

impl Choice {
    /// From the command line's words. Errors: no part has that name.
    pub fn of(words: &[&str]) -> Result<Self, Failure> {
        let mut choice = Self { serial: false, small: false, share: Share::WHOLE, parts: Vec::new() };
        for word in words {
            match (*word, PARTS.iter().find(|(name, _)| name == word)) {
                ("serial", _) => choice.serial = true,
                ("small", _) => choice.small = true,
                (_, Some(part)) => choice.parts.push(*part),
                (word, None) if Share::of(word).is_some() => choice.share = Share::of(word).unwrap_or(Share::WHOLE),
                (_, None) => {
                    let names = PARTS.map(|(name, _)| name).join(", ");
                    return Err(format!("compare: no part and no share (1/2) `{word}`; parts are {names}").into());
                }
            }
        }
        if choice.parts.is_empty() {
            choice.parts.extend(PARTS);
        }
        Ok(choice)
    }

    /// Head dimensions whose kernels these parts need: attention's alone take long to compile.
    fn heads(&self) -> &'static [u32] {
        let attention = self.parts.iter().any(|(name, _)| ["attention", "fresh"].contains(name));
        if attention { &HEADS } else { &HEADS[..1] }
    }
}

/// True if all is well.
pub fn run(choice: &Choice) -> Result<bool, Failure> {
    let mut rig = Rig::open(!choice.serial, choice.heads())?;
    (rig.small, rig.share) = (choice.small, choice.share);
    let begun = std::time::Instant::now();
    let mut report = Report::default();
    for (name, part) in &choice.parts {
        let start = std::time::Instant::now();
        let whole = PARTS[..UNDIVIDED].iter().any(|(other, _)| other == name);
        if whole && !rig.mine() {
            continue;
        }
        part(&mut rig, &mut report).map_err(|error| format!("{name}: {error}"))?;
        println!("{name} after {:.1} s", start.elapsed().as_secs_f64());
    }
    println!("compared after {:.1} s", begun.elapsed().as_secs_f64());
    Ok(report.print())
}
