//! The author form of every file of the database, as types. JSON Schemas are generated from them, so each doc comment
//! is read by people who edit YAML.

mod algorithm;
mod arch;
mod evidence;
mod files;
mod fusion;
mod gpu;
mod patch;
mod support;
mod words;

pub use algorithm::{Algorithm, AllReduce, Ladder, MessageTime, Rung, SymmetricMemory, WORLD_SIZE_LIMITS, WorldSizes};
pub use arch::{Alias, ArchRecord, Compile, DraftTree, Eagle3, Limits, Speculative};
pub use evidence::{Evidence, EvidenceKind, Reading};
pub use files::{
    FeatureWord, KnownBadStack, Manifest, OrderFile, Overlay, ReasonWord, Source, SourceKind, SourcesFile, StackFile,
    StackRange, VocabFile, Word, date_fault, is_date,
};
pub use fusion::Fusion;
pub use gpu::{GpuRecord, Link, Links};
pub use patch::{
    PatchCall, PatchCondition, PatchGate, PatchKernel, PatchKey, PatchNeed, PatchProject, PatchRecord, PatchRow,
    PatchTable, PatchValue,
};
pub use support::{KernelSupport, Support};
pub use words::{AlgorithmId, Dtype, FusionId, ReasonClass, Topology};
