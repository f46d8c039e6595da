//! How the flags of SGLang and vLLM are understood: aliases (declared with the keys), switches that set a key, flags
//! that change nothing here, and flags that ask for what this engine does not have.

use clap::{Args, Command};
use serde_json::{Value, json};

use super::foreign::{AGREED, FOREIGN};
use super::options::Options;

/// What a spelling stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// A key, under its own name or an alias.
    Key(String),
    /// A switch without a value that sets a key.
    Toggle { key: String, set: Value },
    /// Changes nothing: says why.
    Idle(&'static str),
    /// Asks for what there is not: says what.
    Foreign(&'static str),
}

/// A switch of another server, the key that it sets, and the value as JSON.
const TOGGLES: &[(&str, &str, &str)] = &[
    ("no-enable-prefix-caching", "enable-prefix-caching", "false"),
    ("disable-radix-cache", "enable-prefix-caching", "false"),
    ("disable-custom-all-reduce", "allreduce", "\"nccl\""),
    ("enable-torch-symm-mem", "allreduce", "\"symmetric_memory\""),
    ("enable-flashinfer-allreduce-fusion", "fusion", "\"auto\""),
    ("enforce-disable-flashinfer-allreduce-fusion", "fusion", "\"unfused\""),
];

/// Switches that ask for what happens anyway.
const IDLE: &[(&str, &str)] = &[
    ("trust-remote-code", "no code of a model is ever run"),
    ("enable-metrics", "metrics are always on"),
    ("enable-chunked-prefill", "long prompts are always computed in chunks"),
    ("enable-mixed-chunk", "prompts and outputs always share steps"),
    ("async-scheduling", "the next step is always planned while one runs"),
    ("disable-log-stats", "statistics are not logged; they are at /metrics"),
    ("disable-log-requests", "requests are logged at the level debug only"),
    ("skip-server-warmup", "there is no warm-up request"),
    (
        "enable-deterministic-inference",
        "on the CPU an answer never depends on what it is computed with; on GPUs near ties can, since kernels for other \
         numbers of rows sum in another order",
    ),
    ("fail-on-environ-validation", "no setting comes from the environment"),
];

/// The keys as a command that knows their aliases.
fn keys() -> Command {
    Options::augment_args(Command::new("keys"))
}

/// What a spelling, without its dashes, stands for.
pub fn meaning(spelling: &str) -> Option<Meaning> {
    let command = keys();
    for argument in command.get_arguments() {
        let Some(name) = argument.get_long() else { continue };
        let aliases = argument.get_all_aliases().unwrap_or_default();
        if name == spelling || aliases.contains(&spelling) {
            return Some(Meaning::Key(name.to_owned()));
        }
    }
    if let Some((_, key, set)) = TOGGLES.iter().find(|(name, ..)| *name == spelling) {
        let set = serde_json::from_str(set).unwrap_or(json!(true));
        return Some(Meaning::Toggle { key: (*key).to_owned(), set });
    }
    if let Some((_, why)) = IDLE.iter().find(|(name, _)| *name == spelling) {
        return Some(Meaning::Idle(why));
    }
    FOREIGN.iter().find(|(name, _)| *name == spelling).map(|(_, why)| Meaning::Foreign(why))
}

/// Every spelling that sets a key.
pub fn names() -> Vec<String> {
    let aliases = aliases().into_iter().map(|(alias, _)| alias);
    let command = keys();
    let own = command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned));
    own.chain(aliases).collect()
}

/// Other spellings of keys, with the key: those with a value, then switches.
pub fn aliases() -> Vec<(String, String)> {
    let command = keys();
    let mut aliases = Vec::new();
    for argument in command.get_arguments() {
        let Some(name) = argument.get_long() else { continue };
        for alias in argument.get_all_aliases().unwrap_or_default() {
            aliases.push((alias.to_owned(), name.to_owned()));
        }
    }
    aliases.extend(TOGGLES.iter().map(|(name, key, _)| ((*name).to_owned(), (*key).to_owned())));
    aliases
}

/// Switches, for the schema: name, key, value.
pub fn is_toggle(name: &str) -> bool {
    TOGGLES.iter().any(|(toggle, ..)| *toggle == name)
}

/// Replaces the switches of other servers in a command line by our flags, and takes out what asks for what happens
/// anyway. Also returns a note for each.
pub fn translate(arguments: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (mut translated, mut notes) = (Vec::new(), Vec::new());
    let mut arguments = arguments.into_iter().peekable();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            translated.push(argument);
            break;
        }
        // vLLM's short form has two letters, which no parser of short flags can read.
        if argument == "-tp" {
            translated.push("--tensor-parallel-size".to_owned());
            continue;
        }
        let flag = argument.strip_prefix("--").unwrap_or_default();
        let (name, attached) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
        if let Some(why) = agreed(name, attached.or(arguments.peek().map(String::as_str))) {
            notes.push(format!("--{name} {why}"));
            if attached.is_none() {
                arguments.next();
            }
            continue;
        }
        match meaning(flag) {
            Some(Meaning::Toggle { key, set }) => {
                let set = set.as_str().map_or_else(|| set.to_string(), str::to_owned);
                notes.push(format!("{argument} is --{key}={set} here"));
                translated.push(format!("--{key}={set}"));
            }
            Some(Meaning::Idle(why)) => notes.push(format!("{argument} has no effect: {why}")),
            _ => translated.push(argument),
        }
    }
    translated.extend(arguments);
    (translated, notes)
}

/// Why this value of a flag changes nothing, if so.
fn agreed(name: &str, value: Option<&str>) -> Option<String> {
    let value = value?;
    let (.., why) = AGREED.iter().find(|(flag, agreed, _)| *flag == name && *agreed == value)?;
    Some(format!("{value} has no effect: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_name_real_keys_and_nothing_twice() {
        let own: Vec<String> = keys().get_arguments().filter_map(|key| key.get_long().map(str::to_owned)).collect();
        for (name, key, set) in TOGGLES {
            assert!(own.iter().any(|own| own == key), "{key}");
            assert!(serde_json::from_str::<Value>(set).is_ok(), "{set}");
            assert!(!own.iter().any(|own| own == name), "{name}");
        }
        let others = IDLE.iter().chain(FOREIGN).map(|(name, _)| (*name).to_owned());
        let mut all: Vec<String> = names().into_iter().chain(others).collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn switches_are_translated_up_to_the_double_dash() {
        let line = ["serve", "m", "-tp", "2", "--disable-radix-cache", "--enable-metrics", "--", "--enable-metrics"];
        let (translated, notes) = translate(line.map(str::to_owned).to_vec());
        let expected =
            ["serve", "m", "--tensor-parallel-size", "2", "--enable-prefix-caching=false", "--", "--enable-metrics"];
        assert_eq!(translated, expected);
        assert_eq!(notes.len(), 2);
    }

    #[test]
    fn values_that_ask_for_what_happens_anyway_are_taken_out() {
        let line = ["serve", "m", "--page-size", "16", "--pp-size=1", "--max-model-len", "auto", "--dp-size", "2"];
        let (translated, notes) = translate(line.map(str::to_owned).to_vec());
        assert_eq!(translated, ["serve", "m", "--dp-size", "2"]);
        assert_eq!(notes[1], "--pp-size 1 has no effect: only tensor parallelism is served");
        for (name, ..) in AGREED {
            assert!(matches!(meaning(name), Some(Meaning::Foreign(_) | Meaning::Key(_))), "{name}");
        }
    }

    /// The commonest flags of vLLM 0.33 and SGLang 0.5.23: each is a key, a switch, or refused with a reason.
    #[test]
    fn flags_of_both_servers_are_known() {
        let flags = include_str!("flags.txt");
        for flag in flags.split_whitespace() {
            assert!(meaning(flag).is_some(), "--{flag}");
        }
        assert!(flags.split_whitespace().count() > 100);
    }
}
