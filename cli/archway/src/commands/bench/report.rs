//! What all benchmarks print.

use anyhow::Result;
use serde::Serialize;

use crate::numbers::Summary;

/// Prints `value` as JSON on stdout.
pub fn json(value: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// A title in the middle of a line.
pub fn title(text: &str, fill: char) {
    let left = 50_usize.saturating_sub(text.chars().count() + 2) / 2;
    let line: String = std::iter::repeat_n(fill, left).collect();
    let text = format!("{line} {text} {line}");
    println!("{text}{}", if text.chars().count() < 50 { fill.to_string() } else { String::new() });
}

/// A label and a number, aligned.
pub fn row(label: &str, number: f64) {
    println!("{:<40}{number:<10.2}", format!("{label}:"));
}

pub fn count(label: &str, number: u64) {
    println!("{:<40}{number:<10}", format!("{label}:"));
}

/// Mean, median and percentiles of one measure in milliseconds.
pub fn distribution(name: &str, short: &str, summary: &Summary) {
    title(name, '-');
    row(&format!("Mean {short} (ms)"), summary.mean);
    row(&format!("Median {short} (ms)"), summary.median);
    row(&format!("P90 {short} (ms)"), summary.p90);
    row(&format!("P99 {short} (ms)"), summary.p99);
}
