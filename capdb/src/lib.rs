//! The capability database: what each GPU architecture can do, as data with evidence, and the decision made from it.
//!
//! `record` holds the author form, `yaml` reads files strictly, `resolve` merges parents and products into one record
//! whose every value knows its origin, `decide` is the pure decision.

pub mod assembly;
pub mod blocks;
pub mod cases;
pub mod database;
pub mod decide;
pub mod files;
pub mod load;
pub mod overlay;
pub mod printable;
pub mod problem;
pub mod quantity;
pub mod ranges;
pub mod record;
pub mod resolve;
pub mod typed;
pub mod yaml;
