//! From kernel sources to cubins: the run-time compiler, a cache on disk, and packs for hosts that have a driver alone.
//!
//! What to compile for is data: a target's name and a truth value per feature, both from the database's record. The
//! sources see features as macros and never an architecture's number.

mod cache;
mod entry;
mod error;
mod nvrtc;
mod pack;
mod provider;
mod resources;
mod source;

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

pub use cache::Cache;
pub use entry::Compiled;
pub use error::CompileError;
pub use nvrtc::Nvrtc;
pub use pack::Pack;
pub use provider::{Origin, Provider};
pub use resources::{KernelResources, REGISTERS_PER_BLOCK};
pub use source::{Unit, padded_head, units};

/// What kernels are compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileTarget {
    /// As the compiler names it: `sm_90a`.
    pub target: String,
    /// Every feature of the record, true where it is native. The sources ask for `pdl`, `tma`, `clusters` and
    /// `setmaxnreg`.
    pub features: BTreeMap<String, bool>,
    /// Features that a probe of the machine decides on: kernels that are launched only where it says so ask for
    /// `ARCHWAY_MAY_HAVE_MULTICAST`, which holds for native ones too.
    pub probed: Vec<String>,
}

impl CompileTarget {
    /// The compiler's options for a unit.
    fn options(&self, unit: &Unit) -> Vec<String> {
        let mut options = vec![
            format!("--gpu-architecture={}", self.target),
            "--std=c++17".to_owned(),
            // Registers, spills and shared memory go to the log.
            "--ptxas-options=--verbose".to_owned(),
        ];
        options.extend(self.features.iter().map(|(feature, native)| {
            format!("--define-macro=ARCHWAY_HAS_{}={}", feature.to_uppercase(), u8::from(*native))
        }));
        let may = |feature: &String| format!("ARCHWAY_MAY_HAVE_{}", feature.to_uppercase());
        let native = self.features.iter().filter(|(_, native)| **native).map(|(feature, _)| feature);
        let asked = self.probed.iter().chain(native).map(may).filter(|macro_name| unit.text().contains(macro_name));
        options.extend(asked.map(|macro_name| format!("--define-macro={macro_name}=1")));
        options.extend(unit.head().map(|head| format!("--define-macro=ARCHWAY_HEAD={head}")));
        options.extend(unit.format().map(|format| format!("--define-macro=ARCHWAY_FORMAT={}", format.name())));
        options
    }

    /// Names what several units compile to, shortly: what is measured with these kernels is not true of others.
    pub fn digest(&self, units: &[&str]) -> String {
        let mut hash = Sha256::new();
        for unit in source::units(&[]).iter().filter(|unit| units.contains(&unit.name())) {
            hash.update(self.recipe(unit));
        }
        hex(&hash.finalize()).chars().take(12).collect()
    }

    /// Names what a unit compiles to, but for the compiler: a hash of sources and options.
    pub fn recipe(&self, unit: &Unit) -> String {
        let mut hash = Sha256::new();
        let mut add = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        for (name, text) in unit.files() {
            add(name);
            add(text);
        }
        self.options(unit).iter().for_each(|option| add(option));
        hex(&hash.finalize())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
