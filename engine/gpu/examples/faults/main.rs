//! Faults in the middle of serving: what the engine hears, and that it ends. Needs GPUs, so it is a program and not a test.
//!
//! `faults` writes to an illegal address; `faults stall` stops one of two ranks in a step; `faults pack FAULT FILE` writes
//! kernels with a planted fault for `archway … --kernels FILE`. Exit code 1: not heard, too late, or without its name.

mod kernel;
mod pack;
mod serve;
mod stall;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [] => kernel::run(),
        ["stall"] => stall::run(),
        ["pack", fault, file] => pack::write(fault, Path::new(file)),
        _ => {
            eprintln!("usage: faults [stall | pack FAULT FILE]; faults are {}", pack::FAULTS.join(", "));
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("FAILED: {failure}");
            ExitCode::from(1)
        }
    }
}
