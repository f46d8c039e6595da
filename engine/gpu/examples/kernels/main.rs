//! Kernels on a GPU: `compare` holds every kernel against the CPU, `bench` measures them against the device's memory,
//! `order` runs a small pipeline for a race checker to judge, `compile` leaves the kernels where the others find them.
//!
//! Needs a GPU, so it is a program and no test: `cargo run -p engine-gpu --release --example kernels -- compare`.

mod bench;
mod compare;
mod compile;
mod order;
mod random;
mod rig;

use std::process::ExitCode;

use engine_gpu::HEADS;
use rig::{Rig, Share};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["compare", ref rest @ ..] => compare::Choice::of(rest).and_then(|choice| compare::run(&choice)),
        ["compile"] => compile::compile(&HEADS, Share::WHOLE).map(|_| true),
        ["compile", word] => {
            let share =
                Share::of(word).ok_or_else(|| format!("compile: `{word}` is not a share, as 1/2 is one").into());
            share.and_then(|share| compile::compile(&HEADS, share)).map(|_| true)
        }
        ["order", ref kinds @ ..] => Rig::open(false, &[]).and_then(|rig| order::run(&rig, kinds)),
        ["bench", ..] => Rig::open(true, &[64, 128]).and_then(|rig| bench::run(rig, &words[1..])),
        _ => {
            Err("usage: kernels compare [serial] [small] [I/N] [NAME…] | compile [I/N] | order [KIND…] | bench [NAME…]"
                .into())
        }
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
