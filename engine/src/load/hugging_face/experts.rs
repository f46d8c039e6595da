//! Mixture of experts, and which layers have it.

use super::{ConfigError, Keys, bounds};
use crate::model::{LayerKind, MoeConfig, RouterScore};

/// Keys under which families store the number of routed experts.
const EXPERT_KEYS: [&str; 3] = ["n_routed_experts", "num_experts", "num_local_experts"];

pub(super) fn read(keys: &Keys, model_type: &str) -> Result<Option<MoeConfig>, ConfigError> {
    let count = keys.size_of_any(&EXPERT_KEYS, 0..=*bounds::EXPERTS.end())?.unwrap_or(0);
    let experts = match (count, model_type) {
        (0, "deepseek_v3" | "kimi_k2") => return Err(keys.missing("n_routed_experts")),
        (0, "qwen3_moe") => return Err(keys.missing("num_experts")),
        (0, _) => return Ok(None),
        (count, _) => count,
    };
    let experts_per_token = experts_per_token(keys, experts)?;
    let intermediate = match keys.optional_size("moe_intermediate_size", bounds::WIDTH)? {
        Some(intermediate) => intermediate,
        None => keys.size("intermediate_size", bounds::WIDTH)?,
    };
    let (shared_experts, shared_intermediate) = shared(keys, intermediate)?;
    let (groups, top_groups) = groups(keys, experts)?;
    let sigmoid = ["deepseek_v3", "kimi_k2", "glm4_moe", "glm_moe_dsa"].contains(&model_type);
    Ok(Some(MoeConfig {
        experts,
        experts_per_token,
        intermediate,
        shared_experts,
        shared_intermediate,
        score: score(keys, sigmoid)?,
        correction_bias: keys.text("topk_method")?.map_or(sigmoid, |method| method == "noaux_tc"),
        groups,
        top_groups,
        normalise: keys.flag("norm_topk_prob")?.unwrap_or(sigmoid || ["mixtral", "gpt_oss"].contains(&model_type)),
        scaling: match keys.optional_positive("routed_scaling_factor")? {
            None if sigmoid => return Err(keys.missing("routed_scaling_factor")),
            other => other.unwrap_or(1.0),
        },
    }))
}

fn experts_per_token(keys: &Keys, experts: usize) -> Result<usize, ConfigError> {
    let spellings = ["num_experts_per_tok", "experts_per_token"];
    let chosen = keys.size_of_any(&spellings, bounds::EXPERTS)?.ok_or_else(|| keys.missing(spellings[0]))?;
    if chosen > experts {
        return Err(keys.error(spellings[0], format_args!("is {chosen}, but there are {experts} experts")));
    }
    Ok(chosen)
}

/// Number of shared experts and the width of one.
fn shared(keys: &Keys, intermediate: usize) -> Result<(usize, usize), ConfigError> {
    if let Some(width) = keys.optional_size("shared_expert_intermediate_size", 0..=*bounds::WIDTH.end())? {
        return Ok((usize::from(width > 0), width));
    }
    let shared = keys.optional_size("n_shared_experts", 0..=*bounds::EXPERTS.end())?.unwrap_or(0);
    Ok((shared, if shared > 0 { intermediate } else { 0 }))
}

fn groups(keys: &Keys, experts: usize) -> Result<(usize, usize), ConfigError> {
    let groups = keys.optional_size("n_group", bounds::EXPERTS)?.unwrap_or(1);
    let top = keys.optional_size("topk_group", bounds::EXPERTS)?.unwrap_or(groups);
    if !experts.is_multiple_of(groups) {
        return Err(keys.error("n_group", format_args!("is {groups}, which does not divide the {experts} experts")));
    }
    if top > groups {
        return Err(keys.error("topk_group", format_args!("is {top}, but `n_group` is {groups}")));
    }
    Ok((groups, top))
}

fn score(keys: &Keys, sigmoid: bool) -> Result<RouterScore, ConfigError> {
    match keys.text("scoring_func")? {
        Some("sigmoid") => Ok(RouterScore::Sigmoid),
        Some("softmax") => Ok(RouterScore::Softmax),
        Some(other) => Err(keys.error("scoring_func", format_args!("is \"{other}\", but must be sigmoid or softmax"))),
        None => Ok(if sigmoid { RouterScore::Sigmoid } else { RouterScore::Softmax }),
    }
}

/// Which layers are mixtures. Three conventions: a list of kinds, a number of dense layers at the start, and Qwen's
/// step with exceptions.
pub(super) fn layer_kinds(keys: &Keys, layers: usize, moe: bool) -> Result<Vec<LayerKind>, ConfigError> {
    if !moe {
        return Ok(vec![LayerKind::Dense; layers]);
    }
    let dense_start = keys.optional_size("first_k_dense_replace", 0..=*bounds::LAYERS.end())?.unwrap_or(0);
    let frequency = match keys.value("moe_layer_freq") {
        // A list holds one 0 or 1 per layer.
        Some(value) if value.is_array() => return listed_frequency(keys, layers),
        _ => keys.optional_size("moe_layer_freq", bounds::LAYERS)?.unwrap_or(1),
    };
    let step = keys.optional_size("decoder_sparse_step", bounds::LAYERS)?.unwrap_or(1);
    let dense_only = keys.list("mlp_only_layers")?.unwrap_or_default();
    if let Some(wrong) = dense_only.iter().find(|item| item.as_u64().is_none_or(|layer| layer >= layers as u64)) {
        return Err(keys.error("mlp_only_layers", format_args!("holds {wrong}, but there are {layers} layers")));
    }
    let kind = |layer: usize| {
        let sparse = layer >= dense_start
            && layer.is_multiple_of(frequency)
            && (layer + 1).is_multiple_of(step)
            && !dense_only.iter().any(|item| item.as_u64() == Some(layer as u64));
        if sparse { LayerKind::Moe } else { LayerKind::Dense }
    };
    let kinds: Vec<LayerKind> = (0..layers).map(kind).collect();
    let Some(listed) = listed_kinds(keys, layers)? else { return Ok(kinds) };
    if keys.has("first_k_dense_replace") && listed != kinds {
        return Err(keys.error("mlp_layer_types", format_args!("contradicts `first_k_dense_replace`, {dense_start}")));
    }
    Ok(listed)
}

fn listed_kinds(keys: &Keys, layers: usize) -> Result<Option<Vec<LayerKind>>, ConfigError> {
    let Some(types) = keys.text_list("mlp_layer_types")? else { return Ok(None) };
    if types.len() != layers {
        let message = format!("has {} entries, but `num_hidden_layers` is {layers}", types.len());
        return Err(keys.error("mlp_layer_types", message));
    }
    let kinds = types.iter().map(|name| match *name {
        "dense" => Ok(LayerKind::Dense),
        "sparse" => Ok(LayerKind::Moe),
        other => Err(keys.error("mlp_layer_types", format_args!("holds \"{other}\", but must hold dense or sparse"))),
    });
    kinds.collect::<Result<_, _>>().map(Some)
}

fn listed_frequency(keys: &Keys, layers: usize) -> Result<Vec<LayerKind>, ConfigError> {
    let list = keys.list("moe_layer_freq")?.unwrap_or_default();
    if list.len() != layers {
        let message = format!("has {} entries, but `num_hidden_layers` is {layers}", list.len());
        return Err(keys.error("moe_layer_freq", message));
    }
    let kinds = list.iter().map(|item| match item.as_u64() {
        Some(0) => Ok(LayerKind::Dense),
        Some(1) => Ok(LayerKind::Moe),
        _ => Err(keys.error("moe_layer_freq", "must hold only 0 and 1 when it is a list")),
    });
    kinds.collect()
}
