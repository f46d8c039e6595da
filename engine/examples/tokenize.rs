//! Tokenizes a JSON list of strings from standard input with a model's tokenizer and writes, per string, its token ids
//! and the text that they decode to: for comparison with other tokenizers.
//!
//!     tokenize MODEL < texts.json

use std::io::Read;
use std::path::Path;

use engine::tokenizer::{Framing, Special, Tokenizer, TokenizerSettings};
use engine::weights::{GgufWeights, read_file};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = std::env::args().nth(1).ok_or("usage: tokenize MODEL < texts.json")?;
    let tokenizer = open(Path::new(&model))?;
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input)?;
    let texts: Vec<String> = serde_json::from_str(&input)?;
    let mut results = Vec::with_capacity(texts.len());
    for text in texts {
        let ids = tokenizer.encode(&text, Framing::Omitted)?;
        results.push(serde_json::json!({"ids": ids, "text": tokenizer.decode(&ids, Special::Kept)}));
    }
    println!("{}", serde_json::to_string(&results)?);
    Ok(())
}

/// The tokenizer of a `.gguf` file or of a `tokenizer.json`.
fn open(path: &Path) -> Result<Tokenizer, Box<dyn std::error::Error>> {
    if path.extension().is_some_and(|extension| extension == "gguf") {
        let weights = GgufWeights::open(path, read_file)?;
        return Ok(Tokenizer::from_gguf(&weights)?.ok_or("the file has no tokenizer")?);
    }
    let json = std::fs::read(path)?;
    Ok(Tokenizer::from_json(&path.display().to_string(), &json, &TokenizerSettings::default())?)
}
