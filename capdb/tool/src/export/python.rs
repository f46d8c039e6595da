//! Python literals.

use std::fmt::Write as _;

use capdb::quantity::Size;
use capdb::record::WorldSizes;
use capdb::resolve::Resolved;

/// The head of a module: where the tables come from, and the units that they use.
pub(super) fn head(project: &str, data_version: &semver::Version) -> String {
    format!(
        "# Written by `capdb export --format {project}` from data version {data_version}; do not edit.\n\
         # Limits are bytes of the per-rank tensor, inclusive. The remark behind a row says what it rests on.\n\
         KiB = 1024\nMiB = 1024 * 1024\n"
    )
}

/// A dictionary with one row for each key.
pub(super) fn table(name: &str, remark: &str, rows: &[(String, String, String)]) -> String {
    let mut text = format!("\n# {remark}\n{name} = {{\n");
    for (key, row, origin) in rows {
        let _ = writeln!(text, "    {key}: {row},  # {origin}");
    }
    text.push_str("}\n");
    text
}

/// `{2: 64 * MiB, 4: 32 * MiB}`.
pub(super) fn limits(limits: &WorldSizes<Size>) -> String {
    let entries: Vec<String> =
        limits.iter().map(|(world_size, size)| format!("{world_size}: {}", size_of(*size))).collect();
    format!("{{{}}}", entries.join(", "))
}

/// The same in MiB, as a number that may have a point: `{2: 64, 8: 0.5}`.
pub(super) fn limits_in_mib(limits: &WorldSizes<Size>) -> String {
    let number = |size: Size| size.bytes() as f64 / f64::from(1 << 20);
    let entries: Vec<String> =
        limits.iter().map(|(world_size, size)| format!("{world_size}: {}", number(*size))).collect();
    format!("{{{}}}", entries.join(", "))
}

pub(super) fn world_sizes(list: &[u32]) -> String {
    format!("[{}]", list.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
}

fn size_of(size: Size) -> String {
    let bytes = size.bytes();
    match bytes.trailing_zeros() {
        20.. => format!("{} * MiB", bytes >> 20),
        10..20 => format!("{} * KiB", bytes >> 10),
        _ => bytes.to_string(),
    }
}

/// What the values below a pointer rest on: `upstream vllm-0.33.0-allreduce, arch/sm90.yaml:41`.
pub(super) fn origin(id: &str, resolved: &Resolved, pointer: &str) -> String {
    let Some(origin) = resolved.origin(pointer) else { return id.to_owned() };
    let source = origin.evidence.as_ref().map(|evidence| format!(" {}", evidence.source)).unwrap_or_default();
    format!("{id}: {}{source}, {origin}", origin.kind())
}
