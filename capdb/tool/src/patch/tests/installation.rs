//! Small sources of our own in each shape, as installations in a temporary folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use capdb::database::Database;
use capdb::load::TextFile;
use capdb::record::{PatchProject, PatchRecord};

use crate::patch::{Card, Finding, Options, Plan, PlanError, Release, Report, check, plan, records};

pub const UTILS: &str = "sglang/srt/distributed/device_communicators/all_reduce_utils.py";
pub const SYMM: &str = "sglang/srt/distributed/device_communicators/torch_symm_mem.py";
pub const COMMUNICATOR: &str = "sglang/srt/layers/communicator.py";
pub const COMMON: &str = "sglang/srt/utils/common.py";

pub const SIZES: &str = include_str!(
    "../../../tests/installed/sglang-0.5.9/sglang/srt/distributed/device_communicators/all_reduce_utils.py"
);

pub const UNGUARDED: &str =
    include_str!("../../../tests/installed/sglang-0.5.9/sglang/srt/distributed/device_communicators/torch_symm_mem.py");

pub const GUARDED: &str = include_str!("../../../tests/installed/torch_symm_mem_guarded.py");

pub const GATE: &str = include_str!("../../../tests/installed/sglang-0.5.9/sglang/srt/layers/communicator.py");

pub const HELPERS: &str = include_str!("../../../tests/installed/sglang-0.5.9/sglang/srt/utils/common.py");

/// An installation of our own.
pub struct Installation(tempfile::TempDir);

impl Installation {
    pub fn new(version: &str, symm: &str) -> Self {
        let it = Self(tempfile::tempdir().unwrap());
        it.write("sglang/__init__.py", b"");
        let metadata = format!("Metadata-Version: 2.4\nName: sglang\nVersion: {version}\n\nText: no header\n");
        it.write("sglang-1.dist-info/METADATA", metadata.as_bytes());
        for (path, text) in [(UTILS, SIZES), (SYMM, symm), (COMMUNICATOR, GATE), (COMMON, HELPERS)] {
            it.write(path, text.as_bytes());
        }
        it
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, relative: &str, bytes: &[u8]) {
        let path = self.path().join(relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub fn release(&self) -> Release {
        Release::find(PatchProject::Sglang, self.path()).unwrap()
    }

    pub fn check(&self, gpu: &str) -> Report {
        check(&self.release(), &card(gpu), &embedded()).unwrap()
    }

    pub fn plan(&self, gpu: &str, options: &Options) -> Result<Plan, PlanError> {
        plan(&self.release(), &card(gpu), &embedded(), options)
    }

    pub fn text(&self, relative: &str) -> String {
        String::from_utf8(std::fs::read(self.path().join(relative)).unwrap()).unwrap()
    }

    /// Every file below the folder: path → bytes. Symbolic links are not followed.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let (mut files, mut folders) = (BTreeMap::new(), vec![self.path().to_path_buf()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                } else {
                    let name = entry.path().strip_prefix(self.path()).unwrap().display().to_string();
                    files.insert(name, std::fs::read(entry.path()).unwrap_or_default());
                }
            }
        }
        files
    }

    /// What a program prints that can import the installation's modules.
    pub fn python(&self, code: &str) -> String {
        let output = Command::new("python3")
            .args(["-c", code])
            .current_dir(self.path())
            .env_remove("PYTHONDONTWRITEBYTECODE")
            .output();
        let output = output.expect("python3 runs: the edited sources are imported by it");
        assert!(output.status.success(), "{code}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// The card of a machine where somebody measured a limit of symmetric memory for two ranks.
pub fn measured_card(gpu: &str, limit: &str) -> Card {
    let text = format!(
        "schema: overlay/1\napplies_to: {gpu}\nallreduce:\n  symmetric_memory:\n    max_message: {{2: {limit}}}\n    \
         evidence: {{kind: measured, source: h200-baselines}}\n"
    );
    let file = TextFile { path: "site.yaml".to_owned(), relative: "site.yaml".to_owned(), bytes: text.into_bytes() };
    Card::new(&Database::embedded().with_overlay(file).unwrap(), gpu).unwrap()
}

pub fn card(gpu: &str) -> Card {
    Card::new(&Database::embedded(), gpu).unwrap()
}

pub fn embedded() -> Vec<PatchRecord> {
    records(Database::embedded_files(), None).unwrap()
}

pub fn find<'a>(report: &'a Report, id: &str) -> &'a Finding {
    report.findings.iter().find(|finding| finding.id == id).unwrap()
}
