//! A new architecture from one command: a record that inherits everything, and cases for what it inherits.

mod cases;
mod record;

use capdb::assembly::{Assembly, normalise};
use capdb::cases::AskError;
use capdb::database::{Database, LookupError, OpenError};
use capdb::load::{FileKind, Loaded, TextFile};
use capdb::resolve::{Origin, Resolved};
use serde_json::{Value, json};

use crate::validate::suggest;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct NewArch {
    pub id: String,
    pub parent: String,
    pub compute_capability: String,
    /// For display; the id when `None`.
    pub name: Option<String>,
}

/// Why nothing can be written.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    #[error("`{0}` is not an id: lower-case letters and digits, with single hyphens between them, e.g. sm130")]
    BadId(String),
    #[error("`{0}` is not a compute capability: major and minor number, e.g. 13.0")]
    BadCapability(String),
    #[error("the id `{id}` says another capability than {capability}")]
    Mismatch { id: String, capability: String },
    #[error("`{name}` belongs to the record `{owner}` already ({file})")]
    Taken { name: String, owner: String, file: String },
    #[error("there is no architecture `{parent}` to extend; {hint}")]
    UnknownParent { parent: String, hint: String },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("the record that would be written cannot be used: {0}")]
    Broken(String),
}

/// Files to write, and what their author should know.
#[derive(Debug)]
pub struct Scaffold {
    pub files: Vec<TextFile>,
    /// Dotted path, value and origin of everything that comes from a parent.
    pub inherited: Vec<(String, String, Origin)>,
    pub to_measure: Vec<String>,
}

/// Makes the files for a new architecture. Writes nothing.
pub fn new_arch(files: &[TextFile], new: &NewArch) -> Result<Scaffold, ScaffoldError> {
    let (assembly, _) = Assembly::new(files.iter().cloned().map(Loaded::read).collect());
    check(&assembly, new)?;
    let parent = assembly.resolve(&new.parent).map_err(|failure| ScaffoldError::Broken(failure.to_string()))?;
    let record = file(FileKind::Arch, new, record::text(&assembly, &parent, new));
    let mut all = files.to_vec();
    all.push(record.clone());
    let database = Database::from_files(all)?;
    let resolved = database.record(&new.id)?;
    let cases = file(FileKind::Cases, new, cases::text(&database, &resolved, new)?);
    Ok(Scaffold { files: vec![record, cases], inherited: inherited(&resolved), to_measure: to_measure(&resolved) })
}

fn file(kind: FileKind, new: &NewArch, text: String) -> TextFile {
    let relative = format!("{}/{}.yaml", kind.schema(), new.id);
    TextFile { path: relative.clone(), relative, bytes: text.into_bytes() }
}

fn check(assembly: &Assembly, new: &NewArch) -> Result<(), ScaffoldError> {
    let index = &assembly.index;
    let well_formed = new.id.split('-').enumerate().all(|(index, part)| {
        let letter = index > 0 || part.starts_with(|c: char| c.is_ascii_lowercase());
        letter && !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    });
    if !well_formed {
        return Err(ScaffoldError::BadId(new.id.clone()));
    }
    let digits = |part: &str, most: usize| (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let capability = new.compute_capability.split_once('.');
    if !capability.is_some_and(|(major, minor)| digits(major, 3) && digits(minor, 2)) {
        return Err(ScaffoldError::BadCapability(new.compute_capability.clone()));
    }
    let numbered = new.id.strip_prefix("sm").is_some_and(|rest| digits(rest, 5));
    if numbered && normalise(&new.id) != normalise(&new.compute_capability) {
        return Err(ScaffoldError::Mismatch { id: new.id.clone(), capability: new.compute_capability.clone() });
    }
    for name in [&new.id, &new.compute_capability] {
        if let Some(owner) = index.id_of(name) {
            let file =
                index.archs.get(owner).map(|entry| &entry.file).or(index.gpus.get(owner).map(|entry| &entry.file));
            let file = file.cloned().unwrap_or_default();
            return Err(ScaffoldError::Taken { name: name.clone(), owner: owner.to_owned(), file });
        }
    }
    if !index.archs.contains_key(&new.parent) {
        let known: Vec<&str> = index.archs.keys().map(String::as_str).collect();
        return Err(ScaffoldError::UnknownParent {
            parent: new.parent.clone(),
            hint: suggest::hint(&new.parent, &known).0,
        });
    }
    Ok(())
}

fn inherited(resolved: &Resolved) -> Vec<(String, String, Origin)> {
    let about = ["/evidence", "/readings", "_evidence", "/note"];
    resolved
        .origins
        .iter()
        .filter(|(pointer, origin)| origin.inherited && !about.iter().any(|part| pointer.contains(part)))
        .map(|(pointer, origin)| {
            let value = resolved.value.pointer(pointer).map(crate::yaml_text::flow).unwrap_or_default();
            (pointer[1..].replace('/', "."), value, origin.clone())
        })
        .collect()
}

/// What nobody knows about a new architecture, in the order in which it is worth finding out.
fn to_measure(resolved: &Resolved) -> Vec<String> {
    let mut list = vec![
        "compile.min_toolkit and compile.min_driver: ask the toolkit's release notes; the parent's are written for now"
            .to_owned(),
        "features: run the probes on the card; `multicast` and `peer_access` belong to the machine".to_owned(),
        "limits.shared_memory_per_block_optin: ask the driver".to_owned(),
    ];
    let allreduce = resolved.allreduce().unwrap_or_default();
    for (name, block) in
        [("one_shot", &allreduce.one_shot), ("two_shot", &allreduce.two_shot), ("multimem", &allreduce.multimem)]
    {
        let limits = block.as_ref().and_then(|block| block.max_message.clone()).unwrap_or_default();
        let world_sizes: Vec<String> = limits.keys().map(u32::to_string).collect();
        if !world_sizes.is_empty() {
            list.push(format!("allreduce.{name}.max_message at {} ranks: `archway tune`", world_sizes.join(", ")));
        }
    }
    list.push("allreduce.preferred: which algorithm up to which size, per topology: `archway tune`".to_owned());
    for name in resolved.fusions().unwrap_or_default().keys() {
        list.push(format!("fusions.{name}: run its self-test and measure its limit"));
    }
    list.push("speculative.eagle3: verify sizes that cost about as much as a decode step".to_owned());
    list
}

impl Scaffold {
    pub fn to_json(&self) -> Value {
        let inherited: Vec<Value> = self
            .inherited
            .iter()
            .map(|(path, value, origin)| json!({"path": path, "value": value, "from": origin.layer, "at": origin.to_string()}))
            .collect();
        let files: Vec<&str> = self.files.iter().map(|file| file.relative.as_str()).collect();
        json!({"files": files, "inherited": inherited, "to_measure": self.to_measure})
    }
}

#[cfg(test)]
mod tests;
