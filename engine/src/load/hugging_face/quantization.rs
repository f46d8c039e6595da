//! `quantization_config`: what compressed weights cost, for planning.

use super::{ConfigError, Keys};
use crate::model::QuantizationConfig;

/// Methods that the reader understands, with the keys it takes the bits from.
const METHODS: &str = "fp8, fbgemm_fp8, compressed-tensors, awq, gptq, mxfp4, modelopt, modelopt_fp4, bitsandbytes";

const BITS: std::ops::RangeInclusive<u64> = 1..=16;
const GROUP: std::ops::RangeInclusive<u64> = 1..=1 << 20;

pub(super) fn read(
    keys: &Keys,
    outer: &Keys,
    unserved: &mut Vec<String>,
) -> Result<Option<QuantizationConfig>, ConfigError> {
    const KEY: &str = "quantization_config";
    let (owner, map) = match (keys.object(KEY)?, outer.object(KEY)?) {
        (Some(map), _) => (keys, map),
        (None, Some(map)) => (outer, map),
        (None, None) => return Ok(None),
    };
    let prefix = format!("{}{KEY}.", owner.prefix());
    let keys = Keys::new(owner.path(), &prefix, map);
    let method = keys.text("quant_method")?.ok_or_else(|| keys.missing("quant_method"))?;
    let (weight_bits, group) = bits(&keys, method)?;
    unserved
        .push(format!("`{prefix}quant_method` is \"{method}\"; weights in F32, F16, BF16 or GGUF blocks are served"));
    Ok(Some(QuantizationConfig { method: method.to_owned(), weight_bits, group, ignored: ignored(&keys)? }))
}

/// Bits of one weight and the weights that share a scale.
fn bits(keys: &Keys, method: &str) -> Result<(usize, Option<usize>), ConfigError> {
    match method {
        "fp8" | "fbgemm_fp8" => {
            let block = keys.list("weight_block_size")?.and_then(|sides| sides.last()?.as_u64());
            Ok((8, block.and_then(|side| usize::try_from(side).ok())))
        }
        "awq" | "gptq" => {
            let bits = keys.size_of_any(&["bits", "w_bit"], BITS)?.ok_or_else(|| keys.missing("bits"))?;
            // A group of -1 means one scale per output row.
            let whole_row = keys.value("group_size").is_some_and(|value| value.as_i64() == Some(-1));
            Ok((bits, if whole_row { None } else { keys.optional_size("group_size", GROUP)? }))
        }
        "compressed-tensors" => compressed_tensors(keys),
        "mxfp4" => Ok((4, Some(32))),
        "modelopt" | "modelopt_fp4" => match keys.text("quant_algo")? {
            Some("NVFP4") => Ok((4, Some(16))),
            Some("FP8") => Ok((8, None)),
            Some(other) => Err(keys.error("quant_algo", format_args!("is \"{other}\", but must be NVFP4 or FP8"))),
            None => Err(keys.missing("quant_algo")),
        },
        "bitsandbytes" => Ok((if keys.flag("load_in_4bit")?.unwrap_or(false) { 4 } else { 8 }, None)),
        other => Err(keys.error("quant_method", format_args!("is \"{other}\"; known are {METHODS}"))),
    }
}

/// The widest group decides: planning must not promise memory that is not there.
fn compressed_tensors(keys: &Keys) -> Result<(usize, Option<usize>), ConfigError> {
    let groups = keys.object("config_groups")?.ok_or_else(|| keys.missing("config_groups"))?;
    let mut widest: Option<(usize, Option<usize>)> = None;
    for (name, group) in groups {
        let prefix = format!("{}config_groups.{name}.weights.", keys.prefix());
        let Some(weights) = group.get("weights").and_then(|weights| weights.as_object()) else { continue };
        let weights = Keys::new(keys.path(), &prefix, weights);
        let found = (weights.size("num_bits", BITS)?, weights.optional_size("group_size", GROUP)?);
        widest = widest.filter(|other| other.0 >= found.0).or(Some(found));
    }
    widest.ok_or_else(|| keys.error("config_groups", "has no group with `weights`"))
}

fn ignored(keys: &Keys) -> Result<Vec<String>, ConfigError> {
    for key in ["ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers"] {
        if let Some(names) = keys.text_list(key)? {
            return Ok(names.into_iter().map(str::to_owned).collect());
        }
    }
    Ok(Vec::new())
}
