//! Two databases side by side: which values of the merged records differ, and which decisions.

mod decisions;
mod ladders;
mod values;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use capdb::database::{Database, LookupError};
use capdb::resolve::RecordError;
use serde::Serialize;

pub use decisions::DecisionChange;
pub use values::{Stated, ValueChange};

/// Everything that differs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Difference {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub values: Vec<ValueChange>,
    pub decisions: Vec<DecisionChange>,
}

/// Why two databases cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Compares every record, and the decisions of every record that both have.
pub fn compare(old: &Database, new: &Database) -> Result<Difference, CompareError> {
    let ids = |database: &Database| database.index().ids().into_iter().collect::<BTreeSet<String>>();
    let (before, after) = (ids(old), ids(new));
    let mut difference = Difference {
        added: after.difference(&before).cloned().collect(),
        removed: before.difference(&after).cloned().collect(),
        ..Difference::default()
    };
    for id in before.intersection(&after) {
        let pair = (old.record(id)?, new.record(id)?);
        values::compare(id, &pair.0, &pair.1, &mut difference.values);
        decisions::compare(id, (old.index(), &pair.0), (new.index(), &pair.1), &mut difference.decisions)?;
    }
    Ok(difference)
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.values.is_empty() && self.decisions.is_empty()
    }

    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (word, ids) in [("added", &self.added), ("removed", &self.removed)] {
            for id in ids {
                let _ = writeln!(text, "{word} record {id}");
            }
        }
        section(&mut text, "values", &self.values);
        section(&mut text, "decisions", &self.decisions);
        text
    }
}

fn section<T: std::fmt::Display>(text: &mut String, name: &str, lines: &[T]) {
    if !lines.is_empty() {
        let _ = writeln!(text, "{} {name} change", lines.len());
        for line in lines {
            // A line may have rows below it.
            let _ = writeln!(text, "  {}", line.to_string().replace('\n', "\n  "));
        }
    }
}

#[cfg(test)]
mod tests;
