//! Every tensor that the draft model will ask for, so that a bad file is known before the target's weights load.

use super::HeadCheckpoint;
use crate::model::Attention;
use crate::weights::WeightError;

/// Errors: a tensor that is missing, misshapen, or in a type that cannot be read.
pub(super) fn check(head: &HeadCheckpoint) -> Result<(), WeightError> {
    for (name, shape) in needed(head) {
        head.weights.tensor(&name, &shape)?;
    }
    Ok(())
}

fn needed(head: &HeadCheckpoint) -> Vec<(String, Vec<usize>)> {
    let (config, toggles) = (&head.config, head.toggles);
    let (hidden, middle, taps) = (config.hidden, config.intermediate, head.taps.boundaries.len());
    let mut needed: Vec<(String, Vec<usize>)> = Vec::new();
    let mut add = |name: &str, shape: &[usize]| needed.push((name.to_owned(), shape.to_vec()));
    add("fc.weight", &[hidden, taps * head.target_hidden]);
    add("norm.weight", &[hidden]);
    for norm in ["input_layernorm", "hidden_norm", "post_attention_layernorm"] {
        add(&format!("midlayer.{norm}.weight"), &[hidden]);
    }
    for (name, rows, columns) in
        [("gate_proj", middle, hidden), ("up_proj", middle, hidden), ("down_proj", hidden, middle)]
    {
        add(&format!("midlayer.mlp.{name}.weight"), &[rows, columns]);
        if config.mlp_bias {
            add(&format!("midlayer.mlp.{name}.bias"), &[rows]);
        }
    }
    if let Attention::Grouped { key_value_heads, head_dimension, bias, output_bias, .. } = config.attention {
        let (query, cached) = (config.heads * head_dimension, key_value_heads * head_dimension);
        for (name, rows, columns, bias) in [
            ("q_proj", query, 2 * hidden, bias),
            ("k_proj", cached, 2 * hidden, bias),
            ("v_proj", cached, 2 * hidden, bias),
            ("o_proj", hidden, query, output_bias),
        ] {
            add(&format!("midlayer.self_attn.{name}.weight"), &[rows, columns]);
            if bias {
                add(&format!("midlayer.self_attn.{name}.bias"), &[rows]);
            }
        }
    }
    if head.own_output {
        add("lm_head.weight", &[config.vocabulary, hidden]);
    }
    if head.own_embedding {
        add("embed_tokens.weight", &[head.target_vocabulary, hidden]);
    }
    if head.fc_bias {
        add("fc.bias", &[hidden]);
    }
    if toggles.norm_before_fc {
        add("input_norm.weight", &[taps * head.target_hidden]);
    }
    for tap in 0..if toggles.fc_norm { taps } else { 0 } {
        add(&format!("fc_norm.{tap}.weight"), &[head.target_hidden]);
    }
    needed
}
