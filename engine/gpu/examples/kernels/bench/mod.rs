//! Time of each kernel, as a part of what the device's memory allows, measured in the same run.
//!
//! A graph of many launches over different weights, more than the cache holds, replayed several times; the median
//! counts.

mod attention;
mod product;
mod quantised;
mod small;

use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{LaunchConfig, PushKernelArg};

use crate::rig::{Failure, Rig};

const READ: &str = include_str!("read.cu");
const READ_BYTES: usize = 4 << 30;
const ROUNDS: usize = 9;

/// Bytes per second of plain reading.
#[derive(Clone, Copy)]
pub struct Peak(f64);

impl Peak {
    /// A line of the table: microseconds, bytes per second, and part of the peak.
    pub fn line(self, name: &str, microseconds: f64, bytes: usize) {
        let rate = bytes as f64 / microseconds * 1e6;
        println!("{name:<34} {microseconds:>9.2} us {:>9.1} GB/s {:>6.3} of read", rate / 1e9, rate / self.0);
    }
}

/// Median microseconds of one of `count` launches that `launch` makes, by number, in a graph.
pub fn time(rig: &Rig, count: usize, launch: impl Fn(usize) -> Result<(), Failure>) -> Result<f64, Failure> {
    let stream = &rig.gpu.stream;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let launched = (0..count).try_for_each(&launch);
    // SAFETY: 0 is the value of "no flags".
    let none = unsafe { std::mem::transmute::<u32, CUgraphInstantiate_flags>(0) };
    let graph = stream.end_capture(none)?.ok_or("nothing was captured")?;
    launched?;
    graph.launch()?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let start = stream.record_event(flags)?;
        graph.launch()?;
        let end = stream.record_event(flags)?;
        stream.synchronize()?;
        times.push(f64::from(start.elapsed_ms(&end)?) * 1e3 / count as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[ROUNDS / 2])
}

fn read_peak(rig: &Rig) -> Result<Peak, Failure> {
    let module = rig.gpu.context.load_module(cudarc::nvrtc::compile_ptx(READ)?)?;
    let kernel = module.load_function("read_all")?;
    let (memory, out) = (rig.filled(READ_BYTES, 0x5a)?, rig.filled(4096 * 4, 0)?);
    let mut best = 0.0f64;
    for blocks in [2, 3, 4].map(|each| each * rig.gpu.multiprocessors) {
        let count = (READ_BYTES / 16) as u64;
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (512, 1, 1), shared_mem_bytes: 0 };
        let microseconds = time(rig, 1, |_| {
            let mut builder = rig.gpu.stream.launch_builder(&kernel);
            builder.arg(&memory.address).arg(&count).arg(&out.address);
            // SAFETY: the kernel reads `count` times 16 bytes and writes a word per block.
            unsafe { builder.launch(config) }?;
            Ok(())
        })?;
        best = best.max(READ_BYTES as f64 / microseconds * 1e6);
    }
    println!("read {:.1} GB/s", best / 1e9);
    Ok(Peak(best))
}

pub fn run(mut rig: Rig, names: &[&str]) -> Result<bool, Failure> {
    let peak = read_peak(&rig)?;
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    if wanted("product") {
        product::run(&mut rig, peak)?;
    }
    if wanted("quantised") {
        quantised::run(&mut rig, peak)?;
    }
    if wanted("attention") {
        attention::run(&mut rig, peak)?;
    }
    if wanted("small") {
        small::run(&mut rig, peak)?;
    }
    Ok(true)
}
