//! Kernels on a GPU: `compare` holds every kernel against the CPU, `bench` measures them against the device's memory.
//!
//! Needs a GPU, so it is a program and no test: `cargo run -p engine-gpu --release --example kernels -- compare`.

mod bench;
mod compare;
mod random;
mod rig;

use std::process::ExitCode;

use rig::{HEADS, Rig};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        // Without dependent launch a race between kernels cannot hide behind it, nor a missing wait.
        ["compare", "serial", ..] => Rig::open(false, &HEADS).and_then(|rig| compare::run(rig, &words[2..])),
        ["compare", ..] => Rig::open(true, &HEADS).and_then(|rig| compare::run(rig, &words[1..])),
        ["bench", ..] => Rig::open(true, &[64, 128]).and_then(|rig| bench::run(rig, &words[1..])),
        _ => Err("usage: kernels compare [serial] [NAME…] | bench [NAME…]".into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
