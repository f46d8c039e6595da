//! Pages of the key-value cache: who holds which, and which prefixes can be reused. Integers only.
//!
//! A page holds 16 consecutive positions in every layer of every cache group. A sequence's [`BlockTable`] lists its
//! pages in order; all groups (the target's and a draft model's) share the one table. A page is in one of three states:
//! - *free*;
//! - *held* by one or more block tables; only pages of the prefix tree are held by more than one;
//! - *idle*: in the prefix tree, held by nobody. Idle pages are handed out again when no free one is left, least
//!   recently used leaf first.
//!
//! The prefix tree has one node per page, found by (parent node, the page's 16 tokens): tokens are compared, never
//! only their hash. A page enters the tree when all its tokens are committed and written; where a group needs the
//! token after a row (EAGLE's draft does), that token is part of the key too. Holding a page implies holding every
//! page before it, so an idle page has only idle pages below it and all of them can be reclaimed.

mod error;
mod integrity;
mod page_cache;
mod pool;
mod table;
mod tokens;
mod tree;

#[cfg(test)]
mod tests;

pub use error::{IntegrityError, OutOfPages};
pub use page_cache::{CacheConfig, CacheGroup, CacheUsage, PageCache};
pub use table::BlockTable;
pub use tokens::Tokens;
pub use tree::Namespace;

/// Token positions in a page.
pub const PAGE_SIZE: usize = 16;

/// Pages that hold `positions` token positions.
pub const fn pages_for(positions: usize) -> usize {
    positions.div_ceil(PAGE_SIZE)
}
