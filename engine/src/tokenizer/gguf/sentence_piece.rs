//! SentencePiece BPE with byte fallback: "llama".

use tokenizers::NormalizerWrapper;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{Prepend, Replace, Sequence};

use super::{Built, Defaults, Parts, Spelling, TokenizerError, from_weights, guard, kind};

/// Longest token that merges lead to, in bytes. Longer ones (runs of spaces, markup) are user-defined and matched whole.
const LONGEST: usize = 256;

pub(super) fn build(parts: &Parts) -> Result<Built, TokenizerError> {
    let scores = scores(parts)?;
    let ids = parts.ids();
    let merges = merges(parts, &scores, &ids);
    let space_first = parts.flag("add_space_prefix").unwrap_or(true);
    let unknown = parts.id("unknown_token_id")?.unwrap_or(0);
    let unknown = parts.tokens.get(unknown as usize).copied().unwrap_or_default().to_owned();
    let encoder = guard(parts.path, "is not a usable tokenizer", || {
        let builder = BPE::builder().vocab_and_merges(ids, merges).byte_fallback(true).fuse_unk(true);
        let mut encoder = tokenizers::Tokenizer::new(builder.unk_token(unknown).build()?);
        let spaces = NormalizerWrapper::Replace(Replace::new(" ", "▁")?);
        let steps = match space_first {
            true => vec![NormalizerWrapper::Prepend(Prepend::new("▁".to_owned())), spaces],
            false => vec![spaces],
        };
        encoder.with_normalizer(Some(Sequence::new(steps)))?;
        Ok(encoder)
    })?;
    let last = |id: u32| Some(id).filter(|id| (*id as usize) < parts.tokens.len());
    let defaults = Defaults { bos: last(1), eos: last(2), bos_added: true };
    Ok((encoder, Spelling::SentencePiece { first_space_dropped: space_first }, defaults))
}

fn scores(parts: &Parts) -> Result<Vec<f64>, TokenizerError> {
    const KEY: &str = "tokenizer.ggml.scores";
    let scores = parts.weights.numbers(KEY).map_err(from_weights)?;
    let scores = scores.ok_or_else(|| parts.fail(format!("metadata key `{KEY}` is missing")))?;
    if scores.len() != parts.tokens.len() {
        let (scores, tokens) = (scores.len(), parts.tokens.len());
        return Err(parts.fail(format!("metadata key `{KEY}` has {scores} entries, but there are {tokens} tokens")));
    }
    Ok(scores)
}

/// SentencePiece joins the neighbours whose union has the highest score. As ranked merges: every way to cut a token
/// into two tokens, best score first, then longer left and right parts (as transformers converts such models).
fn merges(parts: &Parts, scores: &[f64], ids: &Vocab) -> Vec<(String, String)> {
    let mut merges: Vec<(f64, &str, &str)> = Vec::new();
    for ((_, text, token_kind), score) in parts.numbered().zip(scores) {
        let reached = !matches!(token_kind, kind::CONTROL | kind::UNKNOWN | kind::USER_DEFINED | kind::BYTE);
        if !reached || text.len() > LONGEST {
            continue;
        }
        let cuts = text.char_indices().skip(1).map(|(at, _)| text.split_at(at));
        let mut own: Vec<(u32, u32, &str, &str)> =
            cuts.filter_map(|(left, right)| Some((*ids.get(left)?, *ids.get(right)?, left, right))).collect();
        own.sort_by_key(|(left, right, ..)| (*left, *right));
        merges.extend(own.into_iter().map(|(_, _, left, right)| (*score, left, right)));
    }
    let length = |text: &str| text.chars().count();
    merges.sort_by(|one, other| {
        let lengths = |merge: &(f64, &str, &str)| (length(merge.1), length(merge.2));
        other.0.total_cmp(&one.0).then_with(|| lengths(other).cmp(&lengths(one)))
    });
    merges.into_iter().map(|(_, left, right)| (left.to_owned(), right.to_owned())).collect()
}
