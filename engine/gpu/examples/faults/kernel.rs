//! A kernel that writes to address 0, launched while a model decodes. The driver then fails every call of the process, and
//! the executor must say so within a second, fatally, and end without a panic.

use std::time::Instant;

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

use crate::serve::{decode, single};

/// Writes one word to the address that it is given.
const WRITE: &str = ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry write(.param .u64 to) {\n.reg .u64 %a;\n\
                     ld.param.u64 %a, [to];\nst.global.u32 [%a], 1;\nret;\n}\n";

pub fn run() -> Result<(), String> {
    let mut executor = single()?;
    for step in 0..4 {
        decode(&mut executor, step).map_err(|error| format!("before the fault: {error}"))?;
    }
    fault()?;
    let start = Instant::now();
    let heard = (4..12).find_map(|step| decode(&mut executor, step).err());
    let heard = heard.ok_or("eight steps after the fault, and no error")?;
    let seconds = start.elapsed().as_secs_f64();
    println!("after {seconds:.3} s: {heard} (fatal: {})", heard.fatal);
    if !heard.fatal || seconds > 1.0 {
        return Err("a fault must be fatal, within a second".to_owned());
    }
    let again = decode(&mut executor, 12).err().ok_or("a step ran after a fatal fault")?;
    println!("the next step: {again}");
    let start = Instant::now();
    drop(executor);
    println!("ended in {:.3} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn fault() -> Result<(), String> {
    let failed = |error: cudarc::driver::DriverError| error.to_string();
    let context = CudaContext::new(0).map_err(failed)?;
    let function = context.load_module(Ptx::from_src(WRITE)).and_then(|module| module.load_function("write"));
    let function = function.map_err(failed)?;
    let stream = context.new_stream().map_err(failed)?;
    let address = 0_u64;
    // SAFETY: none: the fault is what is wanted, and nothing of this process uses the device afterwards.
    let launched = unsafe { stream.launch_builder(&function).arg(&address).launch(LaunchConfig::for_num_elems(1)) };
    launched.map(drop).map_err(failed)
}
