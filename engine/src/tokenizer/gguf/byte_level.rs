//! Byte-level BPE: "gpt2".

use std::collections::HashSet;

use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

use super::{Built, Defaults, Parts, Spelling, TokenizerError, from_weights, guard, pre};

pub(super) fn build(parts: &Parts) -> Result<Built, TokenizerError> {
    let name = parts.weights.text("tokenizer.ggml.pre").map_err(from_weights)?.unwrap_or("default");
    let Some(rules) = pre::rules(name) else {
        let known = pre::names().join(", ");
        let message = format!("metadata key `tokenizer.ggml.pre` is \"{name}\"; known are {known}");
        return Err(parts.fail(message));
    };
    let merges = merges(parts)?;
    let encoder = guard(parts.path, "is not a usable tokenizer", || {
        let builder = BPE::builder().vocab_and_merges(parts.ids(), merges).ignore_merges(rules.whole_words_first);
        let mut encoder = tokenizers::Tokenizer::new(builder.build()?);
        if rules.composed {
            encoder.with_normalizer(Some(NFC))?;
        }
        let mut steps = Vec::new();
        for pattern in rules.patterns {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            steps.push(PreTokenizerWrapper::Split(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?));
        }
        steps.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, false)));
        encoder.with_pre_tokenizer(Some(Sequence::new(steps)));
        Ok(encoder)
    })?;
    Ok((encoder, Spelling::ByteLevel, Defaults { bos: None, eos: None, bos_added: rules.bos_added }))
}

/// The merges, each checked to join two tokens to a third one.
fn merges(parts: &Parts) -> Result<Vec<(String, String)>, TokenizerError> {
    const KEY: &str = "tokenizer.ggml.merges";
    let texts = parts.weights.texts(KEY).map_err(from_weights)?;
    let texts = texts.ok_or_else(|| parts.fail(format!("metadata key `{KEY}` is missing")))?;
    let tokens: HashSet<&str> = parts.tokens.iter().copied().collect();
    let mut merges = Vec::with_capacity(texts.len());
    let mut joined = String::new();
    for (index, text) in texts.iter().enumerate() {
        // A token may start with a space in files of old converters, so the border is the first one after that.
        let border = text.char_indices().skip(1).find(|(_, character)| *character == ' ');
        let pair = border.map(|(border, _)| (&text[..border], &text[border + 1..]));
        let pair = pair.filter(|(left, right)| {
            joined.clear();
            joined.extend([*left, *right]);
            tokens.contains(left) && tokens.contains(right) && tokens.contains(joined.as_str())
        });
        let Some((left, right)) = pair else {
            return Err(parts.fail(format!(
                "metadata key `{KEY}`[{index}] is \"{text}\", which does not join two tokens to a third"
            )));
        };
        merges.push((left.to_owned(), right.to_owned()));
    }
    Ok(merges)
}
