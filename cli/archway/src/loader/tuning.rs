//! Which tuning a start uses.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use engine::files::is_there;
use engine::plan::tuning::{MachineFacts, lay_tuning};
use engine::plan::{Database, KernelTarget, Machine};
use engine_gpu::doctor::Survey;
use engine_gpu::library::{Library, require};

use crate::cache;
use crate::gpus::{compile_target, measured_kernels};

/// The word for no tuning.
pub const NONE: &str = "none";

/// Where `archway tune` writes what it measured for a record, and where a start on such a machine looks.
pub fn usual_file(record: &str) -> Result<PathBuf> {
    Ok(cache::data_folder("tuning")?.join(format!("{record}.yaml")))
}

/// Lays the wanted tuning over the database; without a wish, that of this machine's record if there is one. Gives the
/// file that was laid. Errors: a wished file that is not there or is none.
pub fn lay(database: Database, wish: Option<&str>, record: Option<&str>) -> Result<(Database, Option<PathBuf>)> {
    let file = match wish {
        Some(NONE) => None,
        Some(file) => Some(PathBuf::from(file)),
        None => record.and_then(|record| usual_file(record).ok()).filter(|file| is_there(file)),
    };
    let Some(file) = file else { return Ok((database, None)) };
    let laid = lay_tuning(database, Path::new(&file));
    let laid = laid.with_context(|| format!("--tuning {}; `--tuning none` serves without one", file.display()))?;
    Ok((laid, Some(file)))
}

/// What this machine is, for the comparison with a tuning's fingerprint.
pub fn facts(survey: &Survey, machine: &Machine, target: &KernelTarget, ranks: usize) -> MachineFacts {
    let (topology, multicast) = match machine {
        Machine::Gpu(gpu) if ranks > 1 => (gpu.host.topology, gpu.multicast()),
        _ => (None, None),
    };
    MachineFacts {
        gpu: survey.devices.first().map(|device| device.name.clone()),
        driver: survey.driver.clone(),
        nccl: require(Library::Nccl).ok().map(|found| found.version.clone()),
        kernels: compile_target(target).map(|target| measured_kernels(&target)),
        multicast,
        topology: topology.and_then(|topology| Some((u32::try_from(ranks).ok()?, topology))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_met_or_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("site.yaml");
        std::fs::write(&file, "schema: overlay/1\napplies_to: h200\n").unwrap();
        let wish = file.display().to_string();
        let (database, laid) = lay(Database::embedded(), Some(&wish), None).unwrap();
        assert_eq!((database.overlay().is_some(), laid), (true, Some(file)));
        assert_eq!(lay(Database::embedded(), Some("none"), Some("h200")).unwrap().1, None);
        assert_eq!(lay(Database::embedded(), None, None).unwrap().1, None);
        let missing = lay(Database::embedded(), Some("/nowhere/site.yaml"), None).unwrap_err();
        assert!(format!("{missing:#}").contains("/nowhere/site.yaml"), "{missing:#}");
    }
}
