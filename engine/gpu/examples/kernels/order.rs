//! A pipeline through the copy engine in small: what a race checker says about each way of ordering it.

use cudarc::driver::{LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};

use crate::rig::{Failure, Rig};

const SOURCE: &str = include_str!("order.cu");
const KINDS: [&str; 5] = ["one_lane", "every_lane", "fenced", "meeting", "none"];
const WARP: u32 = 32;
const TURNS: u32 = 64;

/// True if every word arrived, `none` aside, which waits for nothing. Errors: no such kind.
pub fn run(rig: &Rig, kinds: &[&str]) -> Result<bool, Failure> {
    if let Some(unknown) = kinds.iter().find(|kind| !KINDS.contains(kind)) {
        return Err(format!("order: no kind `{unknown}`; kinds are {}", KINDS.join(", ")).into());
    }
    let mut good = true;
    for kind in if kinds.is_empty() { &KINDS } else { kinds } {
        let wrong = wrong_words(rig, kind)?;
        println!("order {kind}: {wrong} of {} words are wrong", TURNS * WARP);
        good &= wrong == 0 || *kind == "none";
    }
    Ok(good)
}

fn wrong_words(rig: &Rig, kind: &str) -> Result<usize, Failure> {
    let options = CompileOptions { arch: Some("compute_90"), ..CompileOptions::default() };
    let module = rig.gpu.context.load_module(compile_ptx_with_opts(SOURCE, options)?)?;
    let kernel = module.load_function(&format!("order_{kind}"))?;
    let given: Vec<u32> = (0..TURNS * WARP).map(|word| word.wrapping_mul(2_654_435_761)).collect();
    let (from, to) = (rig.upload(&given)?, rig.poisoned(given.len() * size_of::<u32>())?);
    let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (2 * WARP, 1, 1), shared_mem_bytes: 0 };
    let mut builder = rig.gpu.stream.launch_builder(&kernel);
    builder.arg(&from.address).arg(&to.address).arg(&TURNS);
    // SAFETY: the kernel reads and writes `TURNS` times a warp's words, which is what both buffers hold.
    unsafe { builder.launch(config) }?;
    Ok(to.read::<u32>()?.iter().zip(&given).filter(|(actual, expected)| actual != expected).count())
}
