//! Rotary embedding: `rope_theta` with `rope_scaling`, or `rope_parameters` as transformers 5 writes it.

use serde_json::{Map, Value};

use super::{ConfigError, Keys, bounds};
use crate::model::{Attention, RopeConfig, RopeScaling};

pub(crate) fn read(
    keys: &Keys,
    model_type: &str,
    attention: &Attention,
    trained_context: usize,
    unserved: &mut Vec<String>,
) -> Result<RopeConfig, ConfigError> {
    let (key, map) = parameters(keys)?;
    let prefix = format!("{}{key}.", keys.prefix());
    let parameters = Keys::new(keys.path(), &prefix, map);
    let theta = match parameters.optional_positive("rope_theta")? {
        Some(theta) => theta,
        None => keys.optional_positive("rope_theta")?.unwrap_or(10_000.0),
    };
    let scaling = scaling(&parameters, trained_context, unserved)?;
    let (dimension, latent) = match attention {
        Attention::Latent(latent) => (latent.rope_head_dimension, true),
        Attention::Grouped { head_dimension, .. } => (partial(keys, &parameters, *head_dimension)?, false),
    };
    let interleaved = keys.flag("rope_interleave")?.unwrap_or(latent || model_type == "glm4");
    Ok(RopeConfig { theta, scaling, interleaved, dimension })
}

/// The object that describes the scaling, with its key. Models with several kinds of layers nest one object per kind;
/// the one of full attention stands for the model.
fn parameters<'a>(keys: &Keys<'a>) -> Result<(&'static str, &'a Map<String, Value>), ConfigError> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    for key in ["rope_parameters", "rope_scaling"] {
        let Some(map) = keys.object(key)? else { continue };
        let nested = map.get("full_attention").and_then(Value::as_object);
        return Ok((key, nested.unwrap_or(map)));
    }
    Ok(("rope_scaling", &EMPTY))
}

/// Rotated dimensions of a head of which only a part is rotated.
fn partial(keys: &Keys, parameters: &Keys, head_dimension: usize) -> Result<usize, ConfigError> {
    let (keys, factor) = match parameters.optional_positive("partial_rotary_factor")? {
        Some(factor) => (parameters, factor),
        None => (keys, keys.optional_positive("partial_rotary_factor")?.unwrap_or(1.0)),
    };
    let dimension = (head_dimension as f64 * factor) as usize;
    if factor > 1.0 || dimension == 0 || dimension % 2 == 1 {
        let message = format!("is {factor}: {dimension} of {head_dimension} dimensions cannot be rotated in pairs");
        return Err(keys.error("partial_rotary_factor", message));
    }
    Ok(dimension)
}

fn scaling(keys: &Keys, trained_context: usize, unserved: &mut Vec<String>) -> Result<RopeScaling, ConfigError> {
    let kind = match keys.text("rope_type")? {
        Some(kind) => kind,
        None => keys.text("type")?.unwrap_or("default"),
    };
    match kind {
        "default" | "none" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: keys.positive("factor")? }),
        "llama3" => Ok(RopeScaling::Llama3 {
            factor: keys.positive("factor")?,
            low_frequency_factor: keys.positive("low_freq_factor")?,
            high_frequency_factor: keys.positive("high_freq_factor")?,
            original_context: keys.size("original_max_position_embeddings", bounds::CONTEXT)?,
        }),
        "yarn" => yarn(keys, trained_context),
        other => {
            unserved.push(format!("rotary scaling is \"{other}\"; default, linear, llama3 and yarn are served"));
            Ok(RopeScaling::None)
        }
    }
}

fn yarn(keys: &Keys, trained_context: usize) -> Result<RopeScaling, ConfigError> {
    let original = keys.optional_size("original_max_position_embeddings", bounds::CONTEXT)?;
    Ok(RopeScaling::Yarn {
        factor: keys.positive("factor")?,
        original_context: original.unwrap_or(trained_context),
        beta_fast: keys.optional_positive("beta_fast")?.unwrap_or(32.0),
        beta_slow: keys.optional_positive("beta_slow")?.unwrap_or(1.0),
        mscale: keys.optional_number("mscale")?.unwrap_or(0.0),
        mscale_all_dim: keys.optional_number("mscale_all_dim")?.unwrap_or(0.0),
        attention_factor: keys.optional_positive("attention_factor")?,
        truncate: keys.flag("truncate")?.unwrap_or(true),
    })
}

/// Users who switch YaRN on by hand add the scaling and leave `max_position_embeddings` as it was: the stretched
/// length is what the model was made for.
pub(super) fn context(rope: &RopeConfig, trained: usize) -> usize {
    match rope.scaling {
        RopeScaling::Yarn { factor, original_context, .. } => {
            trained.max(((original_context as f64 * factor) as usize).min(*bounds::CONTEXT.end() as usize))
        }
        _ => trained,
    }
}
