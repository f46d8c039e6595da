//! What numbers may be, whoever set them.

use anyhow::{Result, ensure};
use engine::plan::MOST_ROWS;

use super::Options;
use super::layers::Origin;

/// Longest time that a setting may name, in seconds: a day.
const DAY: u64 = 24 * 3600;
/// More threads than a machine has processors several times over.
const THREADS: u64 = 1024;

/// Errors: a number lies outside its bounds; says who set it.
pub fn check(options: &Options, origin: impl Fn(&str) -> Option<Origin>) -> Result<()> {
    let wide = |number: Option<u32>| number.map(u64::from);
    let numbers = [
        ("threads", wide(options.threads), 1, THREADS),
        ("http-threads", wide(options.http_threads), 1, THREADS),
        ("max-num-seqs", wide(options.max_num_seqs), 1, MOST_ROWS as u64),
        ("max-num-batched-tokens", options.max_num_batched_tokens.map(|count| count.0), 1, MOST_ROWS as u64),
        ("step-timeout", options.step_timeout, 1, DAY),
        ("shutdown-timeout", options.shutdown_timeout, 0, DAY),
        ("sse-keep-alive-interval", options.sse_keep_alive_interval, 0, DAY),
    ];
    let by = |key: &str| origin(key).map_or_else(String::new, |origin| format!(" ({origin})"));
    for (key, number, least, most) in numbers {
        let Some(number) = number else { continue };
        ensure!((least..=most).contains(&number), "--{key} {number}{}: it must be {least} to {most}", by(key));
    }
    if let Some(share) = options.gpu_memory_utilization {
        let key = "gpu-memory-utilization";
        ensure!((0.01..=1.0).contains(&share), "--{key} {share}{}: it must be 0.01 to 1", by(key));
    }
    Ok(())
}
