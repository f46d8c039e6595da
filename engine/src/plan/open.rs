//! Opening the capability database, for callers that know no more of it than where it is.

use std::path::Path;

use capdb::database::Database;

use super::error::PlanError;

/// The database in a folder, or the copy inside the program.
pub fn open_database(folder: Option<&Path>) -> Result<Database, PlanError> {
    folder.map_or_else(|| Ok(Database::embedded()), |folder| Ok(Database::open(folder)?))
}
