//! `generation_config.json`: what the model's makers sample with.

use std::path::Path;

use super::keys::{Keys, bounds};
use super::{LoadError, json_object, read_text};
use crate::files::is_there;

/// Sampling defaults of a checkpoint; `None` where it says nothing. Meanings as in `SamplingParams`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    pub temperature: Option<f32>,
    pub top_k: Option<u32>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    /// Most output tokens.
    pub max_tokens: Option<u32>,
    /// Further tokens that end an output, beside those of the configuration.
    pub eos_tokens: Vec<u32>,
}

/// Reads the file beside a `config.json`, if there is one.
pub(super) fn read(folder: &Path, vocabulary: usize) -> Result<GenerationDefaults, LoadError> {
    let path = folder.join("generation_config.json");
    if !is_there(&path) {
        return Ok(GenerationDefaults::default());
    }
    let name = path.display().to_string();
    let map = json_object(&name, &read_text(&path)?)?;
    let keys = Keys::new(&name, "", &map);
    let number = |key| keys.optional_number(key).map(|number| number.map(|number| number as f32));
    let count = |key| {
        let count = keys.optional_size(key, 0..=*bounds::CONTEXT.end());
        count.map(|count| count.and_then(|count| u32::try_from(count).ok()))
    };
    // `do_sample: false` means greedy, whatever temperature stands beside it.
    let greedy = keys.flag("do_sample")? == Some(false);
    Ok(GenerationDefaults {
        temperature: if greedy { Some(0.0) } else { number("temperature")? },
        top_k: count("top_k")?,
        top_p: number("top_p")?,
        min_p: number("min_p")?,
        repetition_penalty: number("repetition_penalty")?,
        max_tokens: count("max_new_tokens")?,
        eos_tokens: keys.tokens("eos_token_id", vocabulary)?,
    })
}
