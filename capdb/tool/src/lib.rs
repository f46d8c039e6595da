//! Everything about the capability database that needs no engine: schemas, validation, lints, diagnostics, scaffolding,
//! export, migration and comparison. The `capdb` binary is a thin shell around it.

pub mod answer;
pub mod case_run;
pub mod compare;
pub mod diagnostics;
pub mod export;
pub mod lint;
pub mod listing;
pub mod migrate;
pub mod patch;
pub mod scaffold;
pub mod schema;
pub mod show;
pub mod validate;
mod yaml_text;
