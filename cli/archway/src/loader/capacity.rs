//! How much an executor can hold.

use anyhow::{Context, Result, bail, ensure};
use engine::executor::Capacity;
use engine::model::ModelConfig;
use engine::plan::Plan;

use super::narrow;
use crate::settings::Options;

const PAGE_SIZE: u32 = 16;

/// A kind of device's usual sizes, where the user does not say otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Sequences that run at once.
    pub slots: u32,
    /// Rows of one step.
    pub rows: u32,
    /// Rows whose logits are computed at once.
    pub logit_rows: usize,
    /// Most bytes of the key-value cache.
    pub cache_bytes: u64,
}

/// What an executor is given: from the settings where they say it, else what the device's usual sizes and the plan's
/// memory allow. The plan says so where that holds less than a context.
pub fn of(
    options: &Options,
    plan: &mut Plan,
    config: &ModelConfig,
    (context, sizes): (u32, Sizes),
) -> Result<Capacity> {
    let slots = options.max_num_seqs.unwrap_or(sizes.slots).max(1);
    let rows =
        options.max_num_batched_tokens.map_or(Ok(sizes.rows), |count| narrow("max-num-batched-tokens", count.0))?;
    let page_bytes = (plan.memory.cache_bytes_per_token * u64::from(PAGE_SIZE)).max(1);
    let per_sequence = u64::from(context.div_ceil(PAGE_SIZE));
    let pages = match (options.max_total_tokens, options.kv_cache_memory_bytes) {
        (Some(_), Some(_)) => bail!("give --max-total-tokens or --kv-cache-memory-bytes, not both"),
        (Some(tokens), None) => tokens.0 / u64::from(PAGE_SIZE),
        (None, Some(bytes)) => bytes.0 / page_bytes,
        (None, None) => {
            let wanted = (u64::from(slots) * per_sequence).min(sizes.cache_bytes / page_bytes);
            wanted.max(per_sequence).min(plan.memory.pages)
        }
    };
    let flag = if options.max_total_tokens.is_some() { "--max-total-tokens" } else { "--kv-cache-memory-bytes" };
    ensure!(
        pages > 0,
        "the key-value cache holds no page of {PAGE_SIZE} tokens, and one takes {page_bytes} bytes; raise {flag}"
    );
    ensure!(
        pages <= plan.memory.pages,
        "a key-value cache of {pages} pages does not fit: there is memory for {}; lower {flag}",
        plan.memory.pages
    );
    let held = u32::try_from(pages.saturating_mul(u64::from(PAGE_SIZE))).unwrap_or(u32::MAX);
    if held < context {
        let set = options.max_total_tokens.is_some() || options.kv_cache_memory_bytes.is_some();
        let helps = if set { format!("raise {flag}") } else { "longer ones need more memory".to_owned() };
        plan.warnings.push(format!(
            "a prompt with its answer may have {held} tokens, fewer than the context of {context}: the key-value cache holds \
             no more; {helps}"
        ));
    }
    Ok(Capacity {
        pages: narrow("max-total-tokens", pages)?,
        page_size: PAGE_SIZE,
        slots,
        rows,
        context: context.min(held),
        vocabulary: u32::try_from(config.vocabulary).context("the vocabulary is too large")?,
    })
}
