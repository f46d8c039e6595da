//! Which database a command speaks of.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use capdb::database::{Database, LookupError};
use capdb::load::TextFile;
use capdb::resolve::Resolved;
use capdb_tool::validate;

/// `--db`, before or after the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Source {
    /// Folder of the database [default: ./capdb/data if it is there, else the copy inside this program].
    #[arg(long, global = true, value_name = "DIR")]
    pub db: Option<PathBuf>,
}

/// `--overlay`, for commands that answer with what a machine would use.
#[derive(Clone, Debug, clap::Args)]
pub struct OverlayArgs {
    /// Site overlay, e.g. one that `archway tune` wrote, laid over the database.
    #[arg(long, value_name = "FILE")]
    pub overlay: Option<PathBuf>,
}

impl OverlayArgs {
    /// Lays the overlay over a database, if one was given.
    pub fn lay(&self, database: Database) -> Result<Database> {
        let Some(path) = &self.overlay else { return Ok(database) };
        let file = validate::read_file(path)?;
        database.with_overlay(file).with_context(|| format!("--overlay {}", path.display()))
    }
}

impl Source {
    /// The folder, or `None` for the copy inside the program.
    pub fn folder(&self) -> Result<Option<PathBuf>> {
        if let Some(folder) = &self.db {
            if !folder.is_dir() {
                bail!("--db {}: there is no such folder", folder.display());
            }
            return Ok(Some(folder.clone()));
        }
        let usual = Path::new("capdb/data");
        Ok(usual.join("MANIFEST.yaml").is_file().then(|| usual.to_path_buf()))
    }

    pub fn open(&self) -> Result<Database> {
        match self.folder()? {
            Some(folder) => Database::open(&folder).with_context(|| format!("database {}", folder.display())),
            None => Ok(Database::embedded()),
        }
    }

    /// A record by id, alias or capability; an unknown one with the nearest that is known.
    pub fn record(&self, database: &Database, id: &str) -> Result<Resolved> {
        database.record(id).map_err(|error| match &error {
            LookupError::Unknown { known, .. } => {
                match validate::suggest::nearest(id, known.iter().map(String::as_str)) {
                    Some(near) => anyhow!("there is no record `{id}`; did you mean `{near}`?"),
                    None => error.into(),
                }
            }
            LookupError::Broken { .. } => error.into(),
        })
    }

    /// The YAML files.
    pub fn files(&self) -> Result<Vec<TextFile>> {
        match self.folder()? {
            Some(folder) => Ok(validate::folder_files(&folder)?),
            None => Ok(Database::embedded_files()),
        }
    }
}
