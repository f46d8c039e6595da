//! The database in other forms: one JSON document, and Python tables in the shapes that SGLang and vLLM keep.

mod python;
mod sglang;
mod vllm;

use capdb::database::{Database, LookupError};
use capdb::resolve::Resolved;
use serde_json::{Map, Value, json};

use crate::show;

pub use sglang::sglang;
pub use vllm::vllm;

/// Every record in merged form, with the lists beside them.
pub fn json(database: &Database) -> Result<Value, LookupError> {
    let index = database.index();
    let records = |ids: Vec<&String>| -> Result<Map<String, Value>, LookupError> {
        ids.into_iter().map(|id| Ok((id.clone(), show::to_json(&database.record(id)?)))).collect()
    };
    Ok(json!({
        "manifest": index.manifest,
        "order": index.order.order,
        "stack": index.stack,
        "sources": index.sources.sources,
        "archs": records(index.archs.keys().collect())?,
        "gpus": records(index.gpus.keys().collect())?,
    }))
}

/// An architecture on its way into a table.
struct Arch {
    id: String,
    /// `12.0`.
    capability: String,
    resolved: Resolved,
}

fn archs(database: &Database) -> Result<Vec<Arch>, LookupError> {
    let arch = |(id, entry): (&String, &capdb::assembly::ArchEntry)| {
        let resolved = database.record(id)?;
        Ok(Arch { id: id.clone(), capability: entry.compute_capability.clone(), resolved })
    };
    database.index().archs.iter().map(arch).collect()
}

#[cfg(test)]
mod tests;
