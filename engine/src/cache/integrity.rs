//! A full audit of the bookkeeping, for tests and for an idle engine.

use std::collections::{BTreeSet, HashMap};

use super::tree::{Content, Node, NodeId, Place};
use super::{BlockTable, IntegrityError, PageCache};
use crate::types::PageId;

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(IntegrityError(format!($($message)+)));
        }
    };
}

impl PageCache {
    /// Checks every page and every node against `tables`, which must be all the open ones: each page is free, held as
    /// often as it is listed, or idle in the tree, and nothing else.
    pub fn check_integrity<'a>(&self, tables: impl IntoIterator<Item = &'a BlockTable>) -> Result<(), IntegrityError> {
        let mut holders: HashMap<PageId, u32> = HashMap::new();
        for table in tables {
            self.check_table(table)?;
            table.pages.iter().for_each(|page| *holders.entry(*page).or_default() += 1);
        }
        let in_tree = self.check_tree()?;
        let free: BTreeSet<PageId> = self.pool.free().iter().copied().collect();
        ensure!(free.len() == self.pool.free().len(), "a page is free twice");
        for page in (0..self.pool.len() as u32).map(PageId) {
            let held = holders.get(&page).copied().unwrap_or(0);
            let counted = self.pool.holders(page);
            ensure!(held == counted, "page {} is listed {held} times and counted {counted} times", page.0);
            let cached = in_tree.contains_key(&page);
            let states = usize::from(free.contains(&page)) + usize::from(held > 0 || cached);
            ensure!(states == 1, "page {} is lost or both free and used", page.0);
            ensure!(held <= 1 || cached, "page {} is shared outside of the tree", page.0);
        }
        Ok(())
    }

    fn check_table(&self, table: &BlockTable) -> Result<(), IntegrityError> {
        ensure!(table.nodes.len() <= table.pages.len(), "a table has more nodes than pages");
        let distinct: BTreeSet<_> = table.pages.iter().collect();
        ensure!(distinct.len() == table.pages.len(), "a table lists a page twice");
        let mut parent = self.tree.root(&table.namespace);
        for (node, page) in table.nodes.iter().zip(&table.pages) {
            let content = self.tree.content(*node);
            ensure!(content.is_some_and(|content| content.page == *page), "a table's node has another page");
            ensure!(content.map(|content| content.parent) == parent, "a table's nodes are not a path");
            parent = Some(*node);
        }
        Ok(())
    }

    /// Pages of the tree with their nodes.
    fn check_tree(&self) -> Result<HashMap<PageId, NodeId>, IntegrityError> {
        let mut pages = HashMap::new();
        let mut children: HashMap<NodeId, u32> = HashMap::new();
        let mut leaves = BTreeSet::new();
        let mut idle = 0;
        for (id, node) in self.tree.entries() {
            let Place::Page(content) = &node.place else { continue };
            self.check_node(id, node, content)?;
            ensure!(pages.insert(content.page, id).is_none(), "page {} is in the tree twice", content.page.0);
            *children.entry(content.parent).or_default() += 1;
            idle += usize::from(node.idle);
            if node.idle && node.children == 0 {
                leaves.insert((node.last_used, id));
            }
        }
        for (id, node) in self.tree.entries() {
            let counted = children.get(&id).copied().unwrap_or(0);
            ensure!(counted == node.children, "node {} counts {} children and has {counted}", id.0, node.children);
            if let Place::Root(namespace) = &node.place {
                ensure!(self.tree.root(namespace) == Some(id) && counted > 0, "root {} is stale", id.0);
            }
        }
        ensure!(idle == self.tree.idle(), "{idle} nodes are idle and {} are counted", self.tree.idle());
        ensure!(pages.len() == self.tree.len(), "the tree's index and its nodes differ in number");
        ensure!(&leaves == self.tree.leaves(), "the list of idle leaves is wrong");
        Ok(pages)
    }

    fn check_node(&self, id: NodeId, node: &Node, content: &Content) -> Result<(), IntegrityError> {
        ensure!(self.tree.child(content.parent, content.key) == Some(id), "node {} cannot be found by its key", id.0);
        let current = self.pool.generation(content.page);
        ensure!(current == content.generation, "node {} has lost its page {}", id.0, content.page.0);
        let holders = self.pool.holders(content.page);
        ensure!(node.idle == (holders == 0), "node {} is idle: {}, with {holders} holders", id.0, node.idle);
        let parent = self.tree.node(content.parent);
        ensure!(parent.is_some_and(|parent| node.idle || !parent.idle), "node {} is held below an idle one", id.0);
        Ok(())
    }
}
