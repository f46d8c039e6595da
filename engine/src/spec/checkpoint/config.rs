//! `config.json` of a head: official, SpecForge's and NVIDIA's nested `eagle_config`, or the speculators layout.

use serde_json::{Map, Value};

use super::Toggles;
use crate::load::keys::{Keys, bounds};
use crate::load::{ConfigError, hugging_face};
use crate::model::{Activation, Attention, Family, LayerKind, ModelConfig};
use crate::spec::taps::TapIds;

/// What a configuration says.
pub(super) struct Shape {
    pub model: ModelConfig,
    pub toggles: Toggles,
    pub tap_ids: TapIds,
    pub target_hidden: Option<usize>,
    pub target_vocabulary: usize,
    pub warnings: Vec<String>,
    /// Whether `head_dim` was given.
    named_head_dimension: Option<usize>,
}

/// Keys of a head may lie at the top, in `eagle_config`, or in `transformer_layer_config`.
struct Places<'a> {
    top: Keys<'a>,
    eagle: Option<Keys<'a>>,
    layer: Keys<'a>,
}

/// Errors: a key that is missing or wrong, or a draft model of another kind, by name.
pub(super) fn read_config(path: &str, root: &Map<String, Value>) -> Result<Shape, ConfigError> {
    let top = Keys::new(path, "", root);
    let layer = top.object("transformer_layer_config")?;
    let eagle = top.object("eagle_config")?.map(|map| Keys::new(path, "eagle_config.", map));
    let places =
        Places { top, eagle, layer: layer.map_or(top, |map| Keys::new(path, "transformer_layer_config.", map)) };
    refuse_other_kinds(&places)?;
    refuse_quantised(&places)?;
    let mut warnings = warnings(&places)?;
    let [vocabulary, target_vocabulary] = vocabularies(&places)?;
    Ok(Shape {
        model: layer_config(&places, vocabulary, &mut warnings)?,
        toggles: Toggles {
            norm_before_residual: places.flag("norm_before_residual")?,
            norm_before_fc: places.flag("norm_before_fc")?,
            fc_norm: places.flag("fc_norm")? || places.flag("use_aux_norm")?,
            norm_output: places.flag("norm_output")?,
        },
        tap_ids: tap_ids(&places)?,
        target_hidden: places.size("target_hidden_size", bounds::WIDTH)?,
        target_vocabulary,
        warnings,
        named_head_dimension: places.layer.optional_size("head_dim", bounds::HEAD_WIDTH)?,
    })
}

/// The head's one layer as a model of its own.
fn layer_config(
    places: &Places<'_>,
    vocabulary: usize,
    warnings: &mut Vec<String>,
) -> Result<ModelConfig, ConfigError> {
    let layer = &places.layer;
    let heads = layer.size("num_attention_heads", bounds::HEADS)?;
    let hidden = layer.size("hidden_size", bounds::WIDTH)?;
    let attention = attention(layer, heads, hidden)?;
    let trained = layer.optional_size("max_position_embeddings", bounds::CONTEXT)?.unwrap_or(2048);
    let rope = hugging_face::rope::read(layer, "llama", &attention, trained, warnings)?;
    Ok(ModelConfig {
        family: Family::Llama,
        architecture: architecture(&places.top)?,
        layers: 1,
        hidden,
        heads,
        attention,
        intermediate: layer.size("intermediate_size", bounds::WIDTH)?,
        vocabulary,
        // The head follows its target as far as that goes.
        context: trained,
        norm_epsilon: layer.optional_positive("rms_norm_eps")?.unwrap_or(1e-6),
        rope,
        activation: activation(layer)?,
        mlp_bias: layer.flag("mlp_bias")?.unwrap_or(false),
        tied_embeddings: false,
        moe: None,
        layer_kinds: vec![LayerKind::Dense],
        dtype: "bfloat16".to_owned(),
        quantization: None,
        bos_token: None,
        eos_tokens: Vec::new(),
        unserved: Vec::new(),
    })
}

fn attention(layer: &Keys<'_>, heads: usize, hidden: usize) -> Result<Attention, ConfigError> {
    let key_value_heads = layer.optional_size("num_key_value_heads", bounds::HEADS)?.unwrap_or(heads);
    if !heads.is_multiple_of(key_value_heads) {
        let message = format!("is {key_value_heads}, which does not divide `num_attention_heads`, {heads}");
        return Err(layer.error("num_key_value_heads", message));
    }
    let head_dimension = layer.optional_size("head_dim", bounds::HEAD_WIDTH)?.unwrap_or(hidden / heads);
    let bias = layer.flag("attention_bias")?.or(layer.flag("qkv_bias")?).unwrap_or(false);
    let output_bias = layer.flag("attention_bias")?.unwrap_or(false);
    Ok(Attention::Grouped { key_value_heads, head_dimension, query_key_norm: false, bias, output_bias })
}

/// Tokens that the head can draft, and those of its target.
fn vocabularies(places: &Places<'_>) -> Result<[usize; 2], ConfigError> {
    let target = match places.top.optional_size("vocab_size", bounds::VOCABULARY)? {
        Some(size) => size,
        None => places.layer.size("vocab_size", bounds::VOCABULARY)?,
    };
    let own = places.size("draft_vocab_size", bounds::VOCABULARY)?.unwrap_or(target);
    if own > target {
        let message = format!("is {own}, more than the {target} tokens of the vocabulary");
        return Err(places.top.error("draft_vocab_size", message));
    }
    Ok([own, target])
}

impl Places<'_> {
    fn all(&self) -> impl Iterator<Item = &Keys<'_>> {
        [Some(&self.top), self.eagle.as_ref()].into_iter().flatten()
    }

    fn flag(&self, key: &str) -> Result<bool, ConfigError> {
        for keys in self.all() {
            if let Some(value) = keys.flag(key)? {
                return Ok(value);
            }
        }
        Ok(false)
    }

    fn size(&self, key: &str, range: std::ops::RangeInclusive<u64>) -> Result<Option<usize>, ConfigError> {
        for keys in self.all() {
            if let Some(value) = keys.optional_size(key, range.clone())? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

impl Shape {
    /// The true head dimension is that of the query projection: some configurations name another one.
    pub fn set_head_dimension(&mut self, query_rows: Option<usize>) -> Result<(), String> {
        let Attention::Grouped { head_dimension, .. } = &mut self.model.attention else { return Ok(()) };
        let (Some(rows), heads) = (query_rows, self.model.heads) else {
            return Err("has no `midlayer.self_attn.q_proj.weight`, so it is not an EAGLE-3 head".to_owned());
        };
        if !rows.is_multiple_of(2 * heads) {
            return Err(format!("has {rows} query rows, which {heads} heads cannot share in even parts"));
        }
        let actual = rows / heads;
        if let Some(named) = self.named_head_dimension.filter(|named| *named != actual) {
            self.warnings.push(format!("`head_dim` is {named}, but the weights have {actual}; the weights are right"));
        }
        *head_dimension = actual;
        if self.model.rope.dimension != actual {
            self.model.rope.dimension = actual;
        }
        Ok(())
    }
}

fn architecture(top: &Keys) -> Result<String, ConfigError> {
    let names = top.text_list("architectures")?.unwrap_or_default();
    Ok(names.first().copied().unwrap_or("an EAGLE-3 head").to_owned())
}

/// Draft models that look like EAGLE-3 and are not.
fn refuse_other_kinds(places: &Places) -> Result<(), ConfigError> {
    let (top, layer) = (&places.top, &places.layer);
    let name = architecture(top)?;
    if layer.has("kv_lora_rank") || top.has("kv_lora_rank") || name.contains("Deepseek") {
        let message = format!(
            "is \"{name}\": a head with latent attention (MLA), which is not served; use a head with \
            grouped-query attention for this target"
        );
        return Err(top.error("architectures", message));
    }
    for keys in places.all() {
        if keys.flag("parallel_drafting")?.unwrap_or(false) || keys.has("ptd_token_id") || keys.has("mask_token_id") {
            let message = "belongs to a parallel-drafting head (P-EAGLE), which is not EAGLE-3 and not served";
            return Err(keys.error("parallel_drafting", message));
        }
        if keys.flag("use_aux_hidden_state")? == Some(false) {
            let message = "is false: the head reads one hidden state, as EAGLE-1 and 2 do; an EAGLE-3 head is needed";
            return Err(keys.error("use_aux_hidden_state", message));
        }
    }
    if name.contains("Eagle") && !name.contains('3') {
        return Err(
            top.error("architectures", format!("is \"{name}\", an EAGLE-1 or 2 head; an EAGLE-3 head is needed"))
        );
    }
    if let Some(config) = top.object("speculators_config")?
        && let Some(algorithm) = config.get("algorithm").and_then(Value::as_str)
        && algorithm != "eagle3"
    {
        return Err(top.error("speculators_config.algorithm", format!("is \"{algorithm}\"; an EAGLE-3 head is needed")));
    }
    match layer.optional_size("num_hidden_layers", bounds::LAYERS)?.filter(|layers| *layers != 1) {
        Some(layers) => Err(layer.error("num_hidden_layers", format!("is {layers}; heads of one layer are served"))),
        None => Ok(()),
    }
}

/// Draft heads are small and kept as they are: a key that says otherwise was left there by mistake, or the weights are not numbers
/// that this engine reads.
fn refuse_quantised(places: &Places) -> Result<(), ConfigError> {
    for keys in places.all().chain([&places.layer]) {
        if keys.object("quantization_config")?.is_some() {
            let message = "is about a quantised head; heads in F32, F16 or BF16 are served. If the weights are plain, take the key out";
            return Err(keys.error("quantization_config", message));
        }
    }
    Ok(())
}

/// What this engine does otherwise than the configuration says; output stays right, acceptance may fall.
fn warnings(places: &Places) -> Result<Vec<String>, ConfigError> {
    let mut warnings = Vec::new();
    let window = places.layer.text_list("layer_types")?.unwrap_or_default().contains(&"sliding_attention");
    if window {
        warnings.push("`layer_types` asks for sliding attention; this head's layer sees the whole context".to_owned());
    }
    if places.layer.has("logit_scale") || places.top.has("logit_scale") {
        warnings.push("`logit_scale` is not applied to draft scores; which tree is drafted may differ".to_owned());
    }
    Ok(warnings)
}

fn activation(keys: &Keys) -> Result<Activation, ConfigError> {
    match keys.text("hidden_act")?.unwrap_or("silu") {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu" => Ok(Activation::Gelu),
        other => Err(keys.error("hidden_act", format!("is \"{other}\"; \"silu\" and \"gelu\" are served"))),
    }
}

/// The ids of the taps, wherever they are named, and their number where only that is.
fn tap_ids(places: &Places) -> Result<TapIds, ConfigError> {
    const KEY: &str = "eagle_aux_hidden_state_layer_ids";
    for keys in [places.eagle.as_ref(), Some(&places.top)].into_iter().flatten() {
        let Some(list) = keys.list(KEY)? else { continue };
        let id = |value: &Value| value.as_u64().filter(|id| *id <= *bounds::LAYERS.end()).map(|id| id as usize);
        let ids: Option<Vec<usize>> = list.iter().map(id).collect();
        let ids = ids.filter(|ids| !ids.is_empty());
        let ids = ids.ok_or_else(|| keys.error(KEY, "must be a list of layer numbers"))?;
        return Ok(TapIds { key: Some(format!("{}{KEY}", keys.prefix())), ids });
    }
    Ok(TapIds::default())
}
