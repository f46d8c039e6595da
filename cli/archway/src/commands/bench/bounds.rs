//! What the numbers of a benchmark may be.

use std::fmt::Display;
use std::ops::RangeInclusive;

use anyhow::{Result, ensure};

/// Tokens of a prompt or an answer: longer than any context.
pub const LENGTHS: RangeInclusive<usize> = 1..=1 << 20;
/// Requests, runs, connections.
pub const COUNTS: RangeInclusive<usize> = 1..=1 << 20;
/// Runs before the measured ones.
pub const WARMUPS: RangeInclusive<usize> = 0..=1 << 20;
/// Seconds: up to a day.
pub const SECONDS: RangeInclusive<f64> = 0.0..=86_400.0;
/// Requests in a second: from one in a quarter of an hour up to all at once.
pub const RATES: RangeInclusive<f64> = 1e-3..=f64::INFINITY;
/// Tokens of all prompts together, which lie in memory: a gigabyte.
const MOST_TOKENS: usize = 1 << 28;

/// Errors: a flag's number lies outside its bounds.
pub fn within<T: PartialOrd + Display>(flag: &str, number: T, bounds: &RangeInclusive<T>) -> Result<()> {
    let (least, most) = (bounds.start(), bounds.end());
    ensure!(bounds.contains(&number), "--{flag} {number}: it must be {least} to {most}");
    Ok(())
}

/// The same for prompts that are made: how many, and how long each is. `flags` name both.
pub fn prompts(flags: [&str; 2], count: usize, length: usize) -> Result<()> {
    within(flags[0], count, &COUNTS)?;
    within(flags[1], length, &LENGTHS)?;
    let all = count.saturating_mul(length);
    let [first, second] = flags;
    ensure!(all <= MOST_TOKENS, "--{first} {count} with --{second} {length}: {all} tokens, of which {MOST_TOKENS} fit");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_lies_in_no_bounds() {
        for number in [f64::NAN, -1.0, 1e300] {
            assert!(within("duration", number, &SECONDS).unwrap_err().to_string().contains("--duration"), "{number}");
        }
        assert!(within("request-rate", f64::INFINITY, &RATES).is_ok());
        assert!(within("request-rate", 0.0, &RATES).is_err());
        assert!(prompts(["num-prompts", "input-len"], 1 << 14, 1 << 14).is_ok());
        let said = prompts(["num-prompts", "input-len"], 1 << 20, 1 << 20).unwrap_err().to_string();
        assert!(said.contains("--num-prompts") && said.contains("--input-len"), "{said}");
    }
}
