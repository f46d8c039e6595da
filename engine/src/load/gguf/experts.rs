//! Mixture of experts in GGUF files.

use super::{ConfigError, Keys, bounds};
use crate::model::{LayerKind, MoeConfig, RouterScore};

pub(super) fn read(keys: &Keys, architecture: &str) -> Result<Option<MoeConfig>, ConfigError> {
    let experts = keys.optional_size("expert_count", 0..=*bounds::EXPERTS.end())?.unwrap_or(0);
    if experts == 0 {
        return if architecture == "qwen3moe" { Err(keys.missing("expert_count")) } else { Ok(None) };
    }
    let experts_per_token = keys.size("expert_used_count", bounds::EXPERTS)?;
    if experts_per_token > experts {
        let message = format!("is {experts_per_token}, but there are {experts} experts");
        return Err(keys.error("expert_used_count", message));
    }
    let intermediate = match keys.optional_size("expert_feed_forward_length", bounds::WIDTH)? {
        Some(intermediate) => intermediate,
        None => keys.size("feed_forward_length", bounds::WIDTH)?,
    };
    let shared_experts = keys.optional_size("expert_shared_count", 0..=*bounds::EXPERTS.end())?.unwrap_or(0);
    let shared_width = keys.optional_size("expert_shared_feed_forward_length", bounds::WIDTH)?;
    // 1 is softmax, 2 sigmoid; files older than the key are of softmax models.
    let sigmoid = keys.optional_size("expert_gating_func", 0..=4)? == Some(2);
    let groups = keys.optional_size("expert_group_count", bounds::EXPERTS)?.unwrap_or(1);
    Ok(Some(MoeConfig {
        experts,
        experts_per_token,
        intermediate,
        shared_experts,
        shared_intermediate: if shared_experts > 0 { shared_width.unwrap_or(intermediate) } else { 0 },
        score: if sigmoid { RouterScore::Sigmoid } else { RouterScore::Softmax },
        correction_bias: sigmoid,
        groups,
        top_groups: keys.optional_size("expert_group_used_count", bounds::EXPERTS)?.unwrap_or(groups),
        // llama.cpp normalises for these architectures without being told.
        normalise: keys.flag("expert_weights_norm")?.unwrap_or(["llama", "qwen3moe"].contains(&architecture)),
        scaling: keys.optional_positive("expert_weights_scale")?.unwrap_or(1.0),
    }))
}

/// Dense layers come first.
pub(super) fn layer_kinds(keys: &Keys, layers: usize, moe: bool) -> Result<Vec<LayerKind>, ConfigError> {
    let dense = keys.optional_size("leading_dense_block_count", 0..=*bounds::LAYERS.end())?.unwrap_or(0);
    let kind = |layer| if moe && layer >= dense { LayerKind::Moe } else { LayerKind::Dense };
    Ok((0..layers).map(kind).collect())
}
