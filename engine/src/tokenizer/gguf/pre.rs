//! How byte-level tokenizers cut text into words, by the names of `tokenizer.ggml.pre`.
//!
//! Source: `llm_tokenizer_bpe` and `llama_vocab::impl::load` of llama.cpp. Patterns apply one after the other; text
//! between matches is a piece of its own.

pub(super) struct Rules {
    names: &'static [&'static str],
    pub patterns: &'static [&'static str],
    /// A word that is a token is that token, whatever the merges say.
    pub whole_words_first: bool,
    /// A beginning of sequence is added when the file does not say.
    pub bos_added: bool,
    /// Text is brought to Unicode's composed form first. llama.cpp leaves that out; the models were trained with it.
    pub composed: bool,
}

const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const QWEN_2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const DEEPSEEK_V3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

const GPT_4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const ALL: [Rules; 7] = [
    Rules {
        names: &["default"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT_2, r"\p{N}+", "[0-9][0-9][0-9]"],
        whole_words_first: false,
        bos_added: false,
        composed: false,
    },
    Rules {
        names: &["gpt-2", "phi-2", "olmo", "mpt", "jais"],
        patterns: &[GPT_2],
        whole_words_first: false,
        bos_added: false,
        composed: false,
    },
    Rules {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell"],
        patterns: &[r"\p{N}", GPT_2],
        whole_words_first: false,
        bos_added: false,
        composed: false,
    },
    Rules {
        names: &["llama-bpe", "llama3", "llama-v3"],
        patterns: &[LLAMA_3],
        whole_words_first: true,
        bos_added: true,
        composed: false,
    },
    Rules {
        names: &["qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"],
        patterns: &[QWEN_2],
        whole_words_first: false,
        bos_added: false,
        composed: true,
    },
    Rules {
        names: &["deepseek-v3"],
        patterns: &[r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_V3],
        whole_words_first: false,
        bos_added: false,
        composed: false,
    },
    Rules { names: &["gpt-4o"], patterns: &[GPT_4O], whole_words_first: false, bos_added: false, composed: false },
];

/// The rules of a name.
pub(super) fn rules(name: &str) -> Option<&'static Rules> {
    ALL.iter().find(|rules| rules.names.contains(&name))
}

/// Every name there are rules for.
pub(super) fn names() -> Vec<&'static str> {
    ALL.iter().flat_map(|rules| rules.names).copied().collect()
}
