//! Limits of numbers and texts, whether a flag, a file or a default sets them.

use anyhow::{Result, bail, ensure};
use engine::plan::MOST_ROWS;

use super::Options;
use super::layers::Origin;

/// Longest time that a setting may name, in seconds: a day.
const DAY: u64 = 24 * 3600;
/// More threads than a machine has processors several times over.
const THREADS: u64 = 1024;

/// As many ranks as the database's limits speak of.
const RANKS: u64 = 1024;

/// Errors: a number lies outside its bounds, or a text says nothing; says who set it.
pub fn check(options: &Options, origin: impl Fn(&str) -> Option<Origin>) -> Result<()> {
    let by = |key: &str| origin(key).map_or_else(String::new, |origin| format!(" ({origin})"));
    numbers(options, &by)?;
    texts(options, &by)
}

fn numbers(options: &Options, by: &dyn Fn(&str) -> String) -> Result<()> {
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

/// An empty text is most often a variable of a script that was not set.
fn texts(options: &Options, by: &dyn Fn(&str) -> String) -> Result<()> {
    let one = |text: &Option<String>| text.iter().cloned().collect::<Vec<_>>();
    let many = |texts: &Option<Vec<String>>| texts.clone().unwrap_or_default();
    let texts = [
        ("model", one(&options.model)),
        ("tokenizer", one(&options.tokenizer)),
        ("chat-template", one(&options.chat_template)),
        ("served-model-name", many(&options.served_model_name)),
        ("host", one(&options.host)),
        ("api-key", many(&options.api_key)),
        ("kernels", one(&options.kernels)),
        ("capdb", one(&options.capdb)),
        ("tuning", one(&options.tuning)),
        ("speculative-draft-model-path", one(&options.speculative_draft_model_path)),
    ];
    for (key, texts) in texts {
        let empty = texts.iter().any(|text| text.trim().is_empty());
        ensure!(!empty, "--{key}{}: it is empty; give one, or leave it out", by(key));
    }
    let keys = options.api_key.iter().flatten();
    // A key is not printed.
    let unsent = keys.into_iter().any(|key| key.trim() != key || key.chars().any(char::is_control));
    ensure!(
        !unsent,
        "--api-key{}: it begins or ends with a space, or has a line break; no header can carry such a key",
        by("api-key")
    );
    let names = options.served_model_name.iter().flatten();
    let odd = names.into_iter().find(|name| name.chars().any(char::is_control));
    ensure!(odd.is_none(), "--served-model-name{}: a name with control characters", by("served-model-name"));
    let mut names = many(&options.served_model_name);
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("--served-model-name{}: `{}` is there twice", by("served-model-name"), pair[0]);
    }
    Ok(())
}
