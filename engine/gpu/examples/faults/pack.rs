//! A pack of kernels with a planted fault, under the names of sound ones: what a self-test is for. `archway serve --kernels
//! PACK` must find it and go around it, or refuse where it may not.

use std::path::Path;

use engine_gpu::compile::{CompileTarget, Nvrtc, Pack};
use engine_gpu::kernels::AllReduceKernels;

use crate::serve;

/// Features that no record has; the kernels' sources say what each does.
pub const FAULTS: [&str; 3] = ["fault_wrong_offset", "fault_stale_flag", "fault_dropped_rank"];

/// Units that sum; the gather and the checks stay sound.
const UNITS: [&str; 2] = ["allreduce", "allreduce_norm"];

pub fn write(fault: &str, path: &Path) -> Result<(), String> {
    let fault = FAULTS.into_iter().find(|known| *known == fault);
    let fault = fault.ok_or_else(|| format!("faults are {}", FAULTS.join(", ")))?;
    let (_, target) = serve::target()?;
    let name = target.targets.first().ok_or("the record names no target")?.clone();
    let sound = CompileTarget { target: name.clone(), features: target.features, probed: target.probed };
    let mut faulty = sound.clone();
    faulty.features.insert(fault.to_owned(), true);
    let compiler = Nvrtc::open().map_err(|error| error.to_string())?;
    let mut pack = Pack::default();
    for unit in AllReduceKernels::units().iter().filter(|unit| UNITS.contains(&unit.name())) {
        let compiled = compiler.compile(unit, &faulty).map_err(|error| error.to_string())?;
        pack.insert(sound.recipe(unit), unit.name(), &name, compiled);
    }
    pack.write(path).map_err(|error| error.to_string())?;
    println!("{}: {fault}", path.display());
    Ok(())
}
