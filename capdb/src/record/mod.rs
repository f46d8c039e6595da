//! The author form of every file of the database, as types. JSON Schemas are generated from them, so each doc comment
//! is read by people who edit YAML.

mod algorithm;
mod arch;
mod date;
mod evidence;
mod fusion;
mod gpu;
mod manifest;
mod order;
mod overlay;
mod patch;
mod source;
mod stack;
mod support;
mod vocab;
mod words;

pub use algorithm::{Algorithm, AllReduce, Ladder, MessageTime, Rung, SymmetricMemory, WORLD_SIZE_LIMITS, WorldSizes};
pub use arch::{Alias, ArchRecord, Compile, DraftTree, Eagle3, Limits, Speculative};
pub use date::{date_fault, is_date};
pub use evidence::{Evidence, EvidenceKind, Reading};
pub use fusion::Fusion;
pub use gpu::{GpuRecord, Link, Links};
pub use manifest::Manifest;
pub use order::OrderFile;
pub use overlay::Overlay;
pub use patch::{
    PatchCall, PatchCondition, PatchGate, PatchKernel, PatchKey, PatchNeed, PatchProject, PatchRecord, PatchRow,
    PatchTable, PatchValue,
};
pub use source::{Source, SourceKind, SourcesFile};
pub use stack::{KnownBadStack, StackFile, StackRange};
pub use support::{KernelSupport, Support};
pub use vocab::{FeatureWord, ReasonWord, VocabFile, Word};
pub use words::{AlgorithmId, Dtype, FusionId, ReasonClass, Topology};
