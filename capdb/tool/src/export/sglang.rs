//! SGLang's tables, keyed by the major number of the capability. Architectures that share it share a row, so the row holds
//! what all of them allow, and says where they differ.

use std::collections::BTreeMap;

use capdb::database::{Database, LookupError};
use capdb::quantity::Size;
use capdb::record::WorldSizes;

use super::python::{head, limits, origin, table, world_sizes};
use super::{Arch, archs};

/// A Python module with the tables of `all_reduce_utils.py` and `torch_symm_mem.py`.
pub fn sglang(database: &Database) -> Result<String, LookupError> {
    let archs = archs(database)?;
    let mut majors: BTreeMap<u32, Vec<&Arch>> = BTreeMap::new();
    for arch in &archs {
        let major = arch.capability.split('.').next().and_then(|major| major.parse().ok());
        majors.entry(major.unwrap_or_default()).or_default().push(arch);
    }
    let mut text = head("sglang", &database.index().manifest.data_version);
    text.push_str(&table(
        "TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES",
        "sglang/srt/distributed/device_communicators/all_reduce_utils.py; it compares with `<`, so its last byte differs",
        &rows(&majors, "/allreduce/symmetric_memory/max_message", shared_caps),
    ));
    text.push_str(&table(
        "_WORLD_SIZES_MULTIMEM",
        "TorchSymmMemCommunicator in sglang/srt/distributed/device_communicators/torch_symm_mem.py",
        &rows(&majors, "/allreduce/multimem/world_sizes", shared_multimem),
    ));
    Ok(text)
}

fn rows(
    majors: &BTreeMap<u32, Vec<&Arch>>,
    pointer: &str,
    row: impl Fn(&[&Arch]) -> Option<String>,
) -> Vec<(String, String, String)> {
    majors
        .iter()
        .filter_map(|(major, archs)| {
            let origins: Vec<String> = archs.iter().map(|arch| origin(&arch.id, &arch.resolved, pointer)).collect();
            Some((major.to_string(), row(archs)?, origins.join("; ")))
        })
        .collect()
}

/// The smallest limit at each world size that all of them have.
fn shared_caps(archs: &[&Arch]) -> Option<String> {
    let mut shared: Option<WorldSizes<Size>> = None;
    for arch in archs {
        let own = arch.resolved.allreduce().ok()?.symmetric_memory?.max_message?;
        shared = Some(match shared {
            None => own,
            Some(before) => before
                .into_iter()
                .filter_map(|(world_size, size)| Some((world_size, size.min(*own.get(&world_size)?))))
                .collect(),
        });
    }
    shared.map(|sizes| limits(&sizes))
}

/// World sizes that all of them list.
fn shared_multimem(archs: &[&Arch]) -> Option<String> {
    let mut shared: Option<Vec<u32>> = None;
    for arch in archs {
        let own = arch.resolved.allreduce().ok()?.multimem?.world_sizes?;
        shared = Some(match shared {
            None => own,
            Some(before) => before.into_iter().filter(|world_size| own.contains(world_size)).collect(),
        });
    }
    shared.map(|list| world_sizes(&list))
}
