//! GGUF tensor names and the Hugging Face names that they stand for.

/// Parts of a layer: GGUF word, Hugging Face path.
const LAYER_PARTS: [(&str, &str); 14] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("exp_probs_b", "mlp.gate.e_score_correction_bias"),
    ("rope_freqs", "self_attn.rope_freqs"),
];

/// Tensors that hold one matrix per expert, stacked along their first dimension.
const STACKED: [(&str, &str); 3] =
    [("ffn_gate_exps", "gate_proj"), ("ffn_up_exps", "up_proj"), ("ffn_down_exps", "down_proj")];

/// What a GGUF tensor is called here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Name {
    One(String),
    /// `prefix` + expert number + `suffix`.
    PerExpert {
        prefix: String,
        suffix: String,
    },
}

/// The Hugging Face name. A name outside the scheme stays as it is.
pub(super) fn hugging_face(name: &str) -> Name {
    let whole = match name {
        "token_embd.weight" => Some("model.embed_tokens.weight"),
        "output_norm.weight" => Some("model.norm.weight"),
        "output.weight" => Some("lm_head.weight"),
        _ => None,
    };
    if let Some(whole) = whole {
        return Name::One(whole.to_owned());
    }
    layer_name(name).unwrap_or_else(|| Name::One(name.to_owned()))
}

/// `blk.N.PART.KIND`, where KIND is `weight` or `bias`.
fn layer_name(name: &str) -> Option<Name> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let (part, kind) = rest.split_once('.')?;
    let layer: u32 = layer.parse().ok()?;
    if let Some((_, matrix)) = STACKED.iter().find(|(word, _)| *word == part) {
        let prefix = format!("model.layers.{layer}.mlp.experts.");
        return Some(Name::PerExpert { prefix, suffix: format!(".{matrix}.{kind}") });
    }
    let (_, path) = LAYER_PARTS.iter().find(|(word, _)| *word == part)?;
    let whole = if part == "exp_probs_b" {
        format!("model.layers.{layer}.{path}")
    } else {
        format!("model.layers.{layer}.{path}.{kind}")
    };
    Some(Name::One(whole))
}

#[cfg(test)]
mod tests {
    use super::{Name, hugging_face};

    #[test]
    fn names_are_translated() {
        let cases = [
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias"),
            ("blk.17.ffn_norm.weight", "model.layers.17.post_attention_layernorm.weight"),
            ("blk.3.ffn_gate_inp.weight", "model.layers.3.mlp.gate.weight"),
            ("blk.3.exp_probs_b.bias", "model.layers.3.mlp.gate.e_score_correction_bias"),
            ("rope_freqs.weight", "rope_freqs.weight"),
            ("blk.x.attn_q.weight", "blk.x.attn_q.weight"),
            ("blk.3.attn_unknown.weight", "blk.3.attn_unknown.weight"),
        ];
        for (gguf, expected) in cases {
            assert_eq!(hugging_face(gguf), Name::One(expected.to_owned()));
        }
        let expected =
            Name::PerExpert { prefix: "model.layers.2.mlp.experts.".to_owned(), suffix: ".up_proj.weight".to_owned() };
        assert_eq!(hugging_face("blk.2.ffn_up_exps.weight"), expected);
    }
}
