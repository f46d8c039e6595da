//! A tokenizer that does not lie beside the weights.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use engine::files::{LARGEST_TEXT, is_there, read_bounded, read_bounded_text};
use engine::tokenizer::{Tokenizer, TokenizerSettings};

/// Reads a `tokenizer.json`, or a folder with one and its `tokenizer_config.json`.
pub fn tokenizer(path: &str) -> Result<Arc<Tokenizer>> {
    let path = Path::new(path);
    let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
    let json =
        read_bounded(&file, LARGEST_TEXT).with_context(|| format!("--tokenizer: {} cannot be read", file.display()))?;
    let beside = file.with_file_name("tokenizer_config.json");
    let settings = match is_there(&beside) {
        true => {
            let text = read_bounded_text(&beside);
            let text = text.with_context(|| format!("--tokenizer: {} cannot be read", beside.display()))?;
            TokenizerSettings::parse(&beside.display().to_string(), &text)?
        }
        false => TokenizerSettings::default(),
    };
    Ok(Arc::new(Tokenizer::from_json(&file.display().to_string(), &json, &settings)?))
}
