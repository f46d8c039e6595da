//! What can go wrong with pages.

/// Not enough pages, even after dropping every idle one. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needed} more pages are needed and {available} can be had")]
pub struct OutOfPages {
    pub needed: usize,
    pub available: usize,
}

/// The bookkeeping contradicts itself: a defect of the engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page cache is inconsistent: {0}")]
pub struct IntegrityError(pub String);
