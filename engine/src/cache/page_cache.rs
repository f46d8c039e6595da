//! Handing out pages, sharing prefixes, taking pages back.

use super::pool::PagePool;
use super::table::BlockTable;
use super::tree::{Content, Namespace, NodeId, PageKey, PrefixTree};
use super::{OutOfPages, PAGE_SIZE, Tokens, pages_for};
use crate::types::PageId;

/// A set of layers whose key-value rows live in the same pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheGroup {
    pub name: &'static str,
    /// A row depends on the token after it: a page can be shared only where that token is equal too.
    pub needs_next_token: bool,
}

impl CacheGroup {
    pub const TARGET: Self = Self { name: "target", needs_next_token: false };
    /// Of an EAGLE draft model.
    pub const DRAFT: Self = Self { name: "draft", needs_next_token: true };
}

#[derive(Clone, Debug)]
pub struct CacheConfig {
    pub pages: u32,
    /// All groups share each sequence's block table.
    pub groups: Vec<CacheGroup>,
}

/// Counts of pages by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    pub total: usize,
    pub free: usize,
    /// Held by at least one block table.
    pub held: usize,
    /// In the prefix tree, held or not.
    pub cached: usize,
}

#[derive(Debug)]
pub struct PageCache {
    pub(super) pool: PagePool,
    pub(super) tree: PrefixTree,
    groups: Vec<CacheGroup>,
    integrity_failures: u64,
    releases: u64,
}

impl PageCache {
    pub fn new(config: CacheConfig) -> Self {
        Self {
            pool: PagePool::new(config.pages),
            tree: PrefixTree::default(),
            groups: config.groups,
            integrity_failures: 0,
            releases: 0,
        }
    }

    pub fn groups(&self) -> &[CacheGroup] {
        &self.groups
    }

    /// Pages that can be had: free ones and idle ones.
    pub fn available(&self) -> usize {
        self.pool.free().len() + self.tree.idle()
    }

    pub fn usage(&self) -> CacheUsage {
        let (total, free) = (self.pool.len(), self.pool.free().len());
        CacheUsage { total, free, held: total - free - self.tree.idle(), cached: self.tree.len() }
    }

    /// Prefix hits whose page turned out to have been given away. Anything but 0 is a defect.
    pub fn integrity_failures(&self) -> u64 {
        self.integrity_failures
    }

    /// Grows whenever pages may have become available: a caller that found too few need not ask again before.
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// A table for a new sequence, with the longest cached prefix of `tokens` if `reuse` is set. At least the last
    /// token is left to compute: its row gives the first logits.
    pub fn open(&mut self, namespace: Namespace, tokens: &Tokens, reuse: bool) -> BlockTable {
        let mut table = BlockTable { namespace, pages: Vec::new(), nodes: Vec::new() };
        let Some(root) = self.tree.root(&table.namespace).filter(|_| reuse) else { return table };
        let mut parent = root;
        for index in 0..tokens.len().saturating_sub(1) / PAGE_SIZE {
            let Some((node, page)) = self.lookup(parent, tokens, index) else { break };
            if self.pool.holders(page) == 0 {
                self.tree.wake(node);
            }
            self.pool.hold(page);
            table.pages.push(page);
            table.nodes.push(node);
            parent = node;
        }
        table
    }

    /// The node that holds page `index` of `tokens` after `parent`, if its page still is what entered the tree.
    fn lookup(&mut self, parent: NodeId, tokens: &Tokens, index: usize) -> Option<(NodeId, PageId)> {
        let key = self.key(tokens, index)?;
        let node = self.tree.child(parent, key)?;
        let content = self.tree.content(node)?;
        if content.key == key && content.generation == self.pool.generation(content.page) {
            return Some((node, content.page));
        }
        self.integrity_failures += 1;
        None
    }

    /// None unless the page is full, and the token after it known where a group needs it.
    fn key(&self, tokens: &Tokens, index: usize) -> Option<PageKey> {
        let next = match self.groups.iter().any(|group| group.needs_next_token) {
            true => Some(tokens.get((index + 1) * PAGE_SIZE)?),
            false => None,
        };
        Some(PageKey { tokens: tokens.page(index)?, next })
    }

    /// Lets the table cover `positions` token positions. On error nothing has changed.
    pub fn grow(&mut self, table: &mut BlockTable, positions: usize) -> Result<(), OutOfPages> {
        let needed = pages_for(positions).saturating_sub(table.pages.len());
        let available = self.available();
        if needed > available {
            return Err(OutOfPages { needed, available });
        }
        for _ in 0..needed {
            match self.take() {
                Some(page) => table.pages.push(page),
                None => return Err(OutOfPages { needed, available }),
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Option<PageId> {
        while self.pool.free().is_empty() {
            let content = self.tree.evict()?;
            if content.generation == self.pool.generation(content.page) {
                self.pool.reclaim(content.page);
            }
        }
        self.pool.take()
    }

    /// Gives back the pages behind `positions` token positions: what a speculative step reserved and did not use.
    pub fn shrink(&mut self, table: &mut BlockTable, positions: usize) {
        let keep = pages_for(positions).max(table.nodes.len());
        while table.pages.len() > keep {
            self.give_back(table);
        }
    }

    fn give_back(&mut self, table: &mut BlockTable) {
        let Some(page) = table.pages.pop() else { return };
        let node = (table.nodes.len() > table.pages.len()).then(|| table.nodes.pop()).flatten();
        self.releases += 1;
        if self.pool.release(page) > 0 {
            return;
        }
        match node {
            Some(node) => self.tree.rest(node),
            None => self.pool.reclaim(page),
        }
    }

    /// Enters every full page below `written` positions into the prefix tree; all tokens up to there must be
    /// committed. Where an equal page is there already, the table holds that one from now on and its own becomes free.
    pub fn publish(&mut self, table: &mut BlockTable, tokens: &Tokens, written: usize) {
        while table.nodes.len() < (written / PAGE_SIZE).min(table.pages.len()) {
            let index = table.nodes.len();
            let Some(key) = self.key(tokens, index) else { return };
            let parent = match table.nodes.last() {
                Some(node) => *node,
                None => self.tree.root_or_insert(&table.namespace),
            };
            let page = table.pages[index];
            match self.lookup(parent, tokens, index) {
                Some((node, shared)) => self.adopt(table, node, shared),
                None if self.tree.child(parent, key).is_some() => return,
                None => {
                    let generation = self.pool.generation(page);
                    table.nodes.push(self.tree.insert(Content { parent, key, page, generation }));
                }
            }
        }
    }

    /// Replaces the table's first unpublished page by a node's page of equal content.
    fn adopt(&mut self, table: &mut BlockTable, node: NodeId, shared: PageId) {
        if self.pool.holders(shared) == 0 {
            self.tree.wake(node);
        }
        self.pool.hold(shared);
        let own = std::mem::replace(&mut table.pages[table.nodes.len()], shared);
        self.pool.release(own);
        self.pool.reclaim(own);
        self.releases += 1;
        table.nodes.push(node);
    }

    /// Takes a sequence's pages back. Published ones stay in the tree until their place is needed.
    pub fn close(&mut self, mut table: BlockTable) {
        while !table.pages.is_empty() {
            self.give_back(&mut table);
        }
    }
}
