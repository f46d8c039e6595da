//! JSON Schemas (draft 2020-12): generated from the record types, committed below `schemas/`, frozen by major version.

mod committed;
mod compatible;
mod shape;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

use capdb::cases::CasesFile;
use capdb::record::{
    ArchRecord, GpuRecord, Manifest, OrderFile, Overlay, PatchRecord, SourcesFile, StackFile, VocabFile,
};

pub use committed::{Finding, FindingKind, check, write};
pub use compatible::{Breakage, breakages};
pub use shape::Shape;

/// Major version of every schema that this program writes.
pub const MAJOR: u32 = capdb::load::SCHEMA_MAJOR;

/// A schema by its name in `schema: arch/1`.
#[derive(Clone, Copy, Debug)]
pub struct SchemaKind {
    pub name: &'static str,
    root: fn(SchemaGenerator) -> schemars::Schema,
}

/// Every schema, in the order in which they are listed.
pub const SCHEMAS: &[SchemaKind] = &[
    SchemaKind { name: "arch", root: root::<ArchRecord> },
    SchemaKind { name: "cases", root: root::<CasesFile> },
    SchemaKind { name: "gpu", root: root::<GpuRecord> },
    SchemaKind { name: "manifest", root: root::<Manifest> },
    SchemaKind { name: "order", root: root::<OrderFile> },
    SchemaKind { name: "overlay", root: root::<Overlay> },
    SchemaKind { name: "patch", root: root::<PatchRecord> },
    SchemaKind { name: "sources", root: root::<SourcesFile> },
    SchemaKind { name: "stack", root: root::<StackFile> },
    SchemaKind { name: "vocab", root: root::<VocabFile> },
];

fn root<T: JsonSchema>(generator: SchemaGenerator) -> schemars::Schema {
    generator.into_root_schema_for::<T>()
}

impl SchemaKind {
    pub fn by_name(name: &str) -> Option<&'static Self> {
        SCHEMAS.iter().find(|kind| kind.name == name)
    }

    /// The schema that the types of this program give.
    pub fn generate(&self) -> Value {
        (self.root)(SchemaSettings::draft2020_12().into_generator()).to_value()
    }

    /// Path below `schemas/`.
    pub fn path(&self) -> String {
        format!("{}/v{MAJOR}.schema.json", self.name)
    }

    /// The text of the committed file.
    pub fn text(&self) -> String {
        format!("{:#}\n", self.generate())
    }
}

#[cfg(test)]
mod tests;
