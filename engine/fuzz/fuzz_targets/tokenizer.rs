#![no_main]

#[allow(dead_code, reason = "each target uses its own part")]
#[path = "../../tests/support/probe.rs"]
mod probe;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    probe::tokenizer(input);
});
