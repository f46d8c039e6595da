//! The pages of one sequence.

use super::tree::{Namespace, NodeId};
use crate::types::PageId;

/// A sequence's pages in order. Goes back to the cache with `PageCache::close`; dropping it leaks the pages, which
/// `PageCache::check_integrity` reports.
#[derive(Debug)]
pub struct BlockTable {
    pub(super) namespace: Namespace,
    pub(super) pages: Vec<PageId>,
    /// Tree nodes of the leading pages: those that are committed, written and shared.
    pub(super) nodes: Vec<NodeId>,
}

impl BlockTable {
    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// Leading pages that are in the prefix tree.
    pub fn published(&self) -> usize {
        self.nodes.len()
    }
}
