//! What numbers may be, whoever set them.

use anyhow::{Result, ensure};
use engine::plan::MOST_ROWS;

use super::Options;
use super::layers::Origin;

/// Longest time that a setting may name, in seconds: a day.
const DAY: u64 = 24 * 3600;
/// More threads than a machine has processors several times over.
const THREADS: u64 = 1024;

/// As many ranks as the database's limits speak of.
const RANKS: u64 = 1024;

/// Errors: a number lies outside its bounds; says who set it.
pub fn check(options: &Options, origin: impl Fn(&str) -> Option<Origin>) -> Result<()> {
    let wide = |number: Option<u32>| number.map(u64::from);
    let any = u64::MAX;
    let numbers = [
        ("threads", wide(options.threads), 1, THREADS),
        ("http-threads", wide(options.http_threads), 1, THREADS),
        ("max-num-seqs", wide(options.max_num_seqs), 1, MOST_ROWS as u64),
        ("max-num-batched-tokens", options.max_num_batched_tokens.map(|count| count.0), 1, MOST_ROWS as u64),
        ("step-timeout", options.step_timeout, 1, DAY),
        ("shutdown-timeout", options.shutdown_timeout, 0, DAY),
        ("sse-keep-alive-interval", options.sse_keep_alive_interval, 0, DAY),
        ("max-model-len", options.max_model_len.map(|count| count.0), 1, u64::from(u32::MAX)),
        ("max-total-tokens", options.max_total_tokens.map(|count| count.0), 1, any),
        ("kv-cache-memory-bytes", options.kv_cache_memory_bytes.map(|size| size.0), 1, any),
        ("max-message", options.max_message.map(|size| size.0), 1, any),
        ("max-body-size", options.max_body_size.map(|size| size.0), 1, any),
        ("max-outputs", wide(options.max_outputs), 1, u64::from(u32::MAX)),
        ("tensor-parallel-size", wide(options.tensor_parallel_size), 1, RANKS),
        ("mock-interval", options.mock_interval, 0, DAY * 1000),
    ];
    let by = |key: &str| origin(key).map_or_else(String::new, |origin| format!(" ({origin})"));
    for (key, number, least, most) in numbers {
        let Some(number) = number else { continue };
        let bounds = if most == any { format!("at least {least}") } else { format!("{least} to {most}") };
        ensure!((least..=most).contains(&number), "--{key} {number}{}: it must be {bounds}", by(key));
    }
    if let Some(share) = options.gpu_memory_utilization {
        let key = "gpu-memory-utilization";
        ensure!((0.01..=1.0).contains(&share), "--{key} {share}{}: it must be 0.01 to 1", by(key));
    }
    Ok(())
}
