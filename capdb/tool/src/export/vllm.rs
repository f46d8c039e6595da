//! vLLM's tables, keyed by the exact capability ("9.0"), and by its two digits as an integer for the fusion.

use std::collections::BTreeMap;

use capdb::database::{Database, LookupError};
use capdb::quantity::Size;
use capdb::record::WorldSizes;

use super::python::{head, limits, limits_in_mib, origin, table, world_sizes};
use super::{Arch, archs};

/// A Python module with the tables of `all_reduce_utils.py`, `symm_mem.py` and `allreduce_rms_fusion.py`.
pub fn vllm(database: &Database) -> Result<String, LookupError> {
    let archs = archs(database)?;
    let mut text = head("vllm", &database.index().manifest.data_version);
    let text_key = |arch: &Arch| format!("\"{}\"", arch.capability);
    let number_key = |arch: &Arch| arch.capability.replace('.', "");
    text.push_str(&table(
        "SYMM_MEM_ALL_REDUCE_MAX_SIZES",
        "vllm/distributed/device_communicators/all_reduce_utils.py",
        &rows(&archs, text_key, "/allreduce/symmetric_memory/max_message", |arch| caps(arch).map(|caps| limits(&caps))),
    ));
    text.push_str(&table(
        "CUSTOM_ALL_REDUCE_MAX_SIZES",
        "The same file; one-shot and two-shot together, as its kernel takes both",
        &rows(&archs, text_key, "/allreduce/two_shot/max_message", |arch| custom(arch).map(|sizes| limits(&sizes))),
    ));
    text.push_str(&table(
        "_WORLD_SIZES_MULTIMEM",
        "SymmMemCommunicator in vllm/distributed/device_communicators/symm_mem.py",
        &rows(&archs, text_key, "/allreduce/multimem/world_sizes", multimem),
    ));
    text.push_str(&table(
        "FI_ALLREDUCE_FUSION_MAX_SIZE_MB",
        "vllm/compilation/passes/fusion/allreduce_rms_fusion.py, in MiB",
        &rows(&archs, number_key, "/fusions/allreduce_residual_rmsnorm/max_message", |arch| {
            fused(arch).map(|sizes| limits_in_mib(&sizes))
        }),
    ));
    text.push_str(&table(
        "_FI_ALLREDUCE_ONE_SHOT_MAX_SIZES_MB",
        "The same file: up to here its one-shot kernel, in MiB",
        &rows(&archs, number_key, "/allreduce/one_shot/max_message", |arch| {
            one_shot(arch).map(|sizes| limits_in_mib(&sizes))
        }),
    ));
    Ok(text)
}

fn rows(
    archs: &[Arch],
    key: impl Fn(&Arch) -> String,
    pointer: &str,
    row: impl Fn(&Arch) -> Option<String>,
) -> Vec<(String, String, String)> {
    archs.iter().filter_map(|arch| Some((key(arch), row(arch)?, origin(&arch.id, &arch.resolved, pointer)))).collect()
}

fn caps(arch: &Arch) -> Option<WorldSizes<Size>> {
    arch.resolved.allreduce().ok()?.symmetric_memory?.max_message
}

fn one_shot(arch: &Arch) -> Option<WorldSizes<Size>> {
    arch.resolved.allreduce().ok()?.one_shot?.max_message
}

/// The larger of the two limits at each world size.
fn custom(arch: &Arch) -> Option<WorldSizes<Size>> {
    let allreduce = arch.resolved.allreduce().ok()?;
    let mut sizes: WorldSizes<Size> = BTreeMap::new();
    for block in [allreduce.one_shot?, allreduce.two_shot?] {
        for (world_size, size) in block.max_message? {
            sizes.entry(world_size).and_modify(|other| *other = (*other).max(size)).or_insert(size);
        }
    }
    Some(sizes)
}

fn multimem(arch: &Arch) -> Option<String> {
    arch.resolved.allreduce().ok()?.multimem?.world_sizes.map(|list| world_sizes(&list))
}

fn fused(arch: &Arch) -> Option<WorldSizes<Size>> {
    arch.resolved.fusions().ok()?.get("allreduce_residual_rmsnorm")?.max_message.clone()
}
