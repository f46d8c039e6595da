//! How much longer a `tokenizer.json` makes a text. Its steps come with a checkpoint, and twelve replacements of one letter
//! by ten make a terabyte of it: such a file is refused before it reads the first text.

use serde_json::Value;

use super::charsmap;

/// Times that replacements may make a text longer: three bytes for a space, and again for what stands for several of them.
const MOST_TIMES: usize = 16;
/// Times that SentencePiece's tables may make a text longer. Theirs make 33 bytes of three, of an Arabic ligature.
const MOST_MAPPED: usize = 16;
/// Bytes that may be put before a text.
const MOST_ADDED: usize = 1 << 10;
/// Tokens that may be put around a text.
const MOST_AROUND: usize = 64;

/// The largest growth of a text: `times` its length, and `added` bytes.
#[derive(Clone, Copy)]
struct Growth {
    times: usize,
    added: usize,
}

/// `normalizer` and `post_processor` as the file has them, null where it has none. Errors: one makes a text much longer, or
/// holds a damaged table.
pub(super) fn check(normalizer: &Value, post_processor: &Value) -> Result<(), String> {
    let mapped = mapped(normalizer).map_err(|error| format!("key `normalizer`: {error}"))?;
    if mapped > MOST_MAPPED {
        return Err(format!(
            "key `normalizer`: `precompiled_charsmap` makes a text up to {mapped} times as long; at most {MOST_MAPPED} times is accepted"
        ));
    }
    let Growth { times, added } = grown(normalizer, Growth { times: 1, added: 0 });
    if times > MOST_TIMES || added > MOST_ADDED {
        return Err(format!(
            "key `normalizer` makes a text up to {times} times as long, and {added} bytes longer; at most {MOST_TIMES} \
             times and {MOST_ADDED} bytes are taken"
        ));
    }
    let (copies, around) = copied(post_processor);
    if copies > 1 || around > MOST_AROUND {
        return Err(format!(
            "key `post_processor` takes a text {copies} times, with {around} tokens around it; once, with at most \
             {MOST_AROUND}, is taken"
        ));
    }
    Ok(())
}

/// What tables of replacements do, one after the other. They are bounded by themselves: what published ones do to one letter
/// would leave no room for other steps.
fn mapped(step: &Value) -> Result<usize, String> {
    match step["type"].as_str() {
        Some("Sequence") => {
            steps(step, "normalizers").try_fold(1, |times: usize, step| Ok(times.saturating_mul(mapped(step)?)))
        }
        Some("Precompiled") => charsmap::times(step["precompiled_charsmap"].as_str().unwrap_or_default()),
        _ => Ok(1),
    }
}

/// After a step, and those inside it. Steps that are not named change letters, not how many there are.
fn grown(step: &Value, before: Growth) -> Growth {
    let Growth { times, added } = before;
    let length = |value: &Value| value.as_str().map_or(0, str::len);
    match step["type"].as_str() {
        Some("Sequence") => steps(step, "normalizers").fold(before, |before, step| grown(step, before)),
        Some("Prepend") => Growth { times, added: added.saturating_add(length(&step["prepend"])) },
        Some("Replace") => {
            let content = length(&step["content"]);
            let factor = match length(&step["pattern"]["String"]) {
                // An expression, which may match one letter, or the place between two.
                0 => content + 1,
                pattern => content.div_ceil(pattern).max(1),
            };
            Growth { times: times.saturating_mul(factor), added: added.saturating_mul(factor) }
        }
        _ => before,
    }
}

/// How often the text itself stands in what a template makes of it, and how many tokens beside.
fn copied(step: &Value) -> (usize, usize) {
    match step["type"].as_str() {
        Some("Sequence") => steps(step, "processors").map(copied).fold((1, 0), |(copies, around), (times, more)| {
            (usize::saturating_mul(copies, times), usize::saturating_add(around, more))
        }),
        Some("TemplateProcessing") => {
            let pieces = step["single"].as_array().map_or(&[][..], Vec::as_slice);
            let text = pieces.iter().filter(|piece| piece.get("Sequence").is_some()).count();
            // A special token of the template stands for a list of ids.
            let lists = step["special_tokens"].as_object().into_iter().flat_map(|tokens| tokens.values());
            let longest = lists.filter_map(|token| token["ids"].as_array()).map(Vec::len).max().unwrap_or(1);
            (text, (pieces.len() - text).saturating_mul(longest))
        }
        _ => (1, 0),
    }
}

fn steps<'a>(step: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    step[key].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn replace(pattern: Value, content: &str) -> Value {
        json!({"type": "Replace", "pattern": pattern, "content": content})
    }

    fn normalizer(steps: Vec<Value>) -> Result<(), String> {
        check(&json!({"type": "Sequence", "normalizers": steps}), &Value::Null)
    }

    #[test]
    fn what_checkpoints_have_is_taken() {
        let space = || replace(json!({"String": " "}), "▁");
        let spaces = replace(json!({"Regex": " {2,}"}), "▁");
        assert_eq!(check(&Value::Null, &Value::Null), Ok(()));
        assert_eq!(normalizer(vec![json!({"type": "Prepend", "prepend": "▁"}), space()]), Ok(()));
        assert_eq!(normalizer(vec![json!({"type": "NFKC"}), spaces, space()]), Ok(()));
        let frame = json!({"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
            {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
             "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        ]});
        assert_eq!(check(&Value::Null, &frame), Ok(()));
    }

    #[test]
    fn tables_of_replacements_are_bounded_by_themselves() {
        let table = |letter: &str| {
            let table = super::charsmap::tests::encoded(letter, "e");
            json!({"type": "Precompiled", "precompiled_charsmap": table})
        };
        let spaces = || replace(json!({"Regex": " {2,}"}), "▁");
        assert_eq!(normalizer(vec![table("0123456789a"), spaces()]), Ok(()));
        for steps in [vec![table(&"a".repeat(17))], vec![table("abcde"), table("abcde")]] {
            assert!(normalizer(steps).unwrap_err().contains("`precompiled_charsmap` makes a text up to"));
        }
        let damaged = json!({"type": "Precompiled", "precompiled_charsmap": "AAA"});
        assert!(normalizer(vec![damaged]).unwrap_err().starts_with("key `normalizer`: `precompiled_charsmap`"));
    }

    #[test]
    fn what_makes_a_terabyte_of_a_letter_is_not() {
        let ten = || replace(json!({"String": "a"}), "aaaaaaaaaa");
        let inner = json!({"type": "Sequence", "normalizers": [ten(), ten()]});
        for steps in [
            vec![ten(); 12],
            vec![inner],
            vec![replace(json!({"Regex": ""}), "0123456789abcdef")],
            vec![json!({"type": "Prepend", "prepend": "a".repeat(2000)})],
            vec![json!({"type": "Prepend", "prepend": "a".repeat(500)}), ten()],
        ] {
            assert!(normalizer(steps.clone()).unwrap_err().contains("key `normalizer`"), "{steps:?}");
        }
        let text = || json!({"Sequence": {"id": "A", "type_id": 0}});
        let twice = json!({"type": "TemplateProcessing", "single": [text(), text()], "special_tokens": {}});
        let token = json!({"SpecialToken": {"id": "x", "type_id": 0}});
        let long = json!({"type": "TemplateProcessing", "single": [token, text()],
            "special_tokens": {"x": {"id": "x", "ids": vec![1; 1000], "tokens": vec!["x"; 1000]}}});
        for processor in [twice, long] {
            assert!(check(&Value::Null, &processor).unwrap_err().contains("key `post_processor`"), "{processor}");
        }
    }
}
