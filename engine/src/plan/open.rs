//! Opening the capability database, for callers that know no more of it than where it is; and what the database's own
//! reading keeps to with files and terminals, for all others.

use std::path::Path;

use capdb::database::Database;
/// The rest of the engine keeps to the same, and does not import `capdb`.
pub use capdb::files::{is_there, open_regular, read_up_to};
pub use capdb::printable::printable;

use super::error::PlanError;

/// The database in a folder, or the copy inside the program.
pub fn open_database(folder: Option<&Path>) -> Result<Database, PlanError> {
    folder.map_or_else(|| Ok(Database::embedded()), |folder| Ok(Database::open(folder)?))
}
