//! The prefix tree: which page holds which tokens after which prefix.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::PAGE_SIZE;
use crate::types::PageId;

/// Index of a node in the tree's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeId(pub u32);

/// Pages are shared only within a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Namespace {
    /// All requests with this cache salt.
    Salt(Option<Arc<str>>),
    /// The outputs of one request alone.
    Private(u64),
}

/// What a page holds, given its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    pub tokens: [u32; PAGE_SIZE],
    /// The token after the page, where a cache group needs it.
    pub next: Option<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub place: Place,
    pub children: u32,
    /// No block table holds the page.
    pub idle: bool,
    pub last_used: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Place {
    Root(Namespace),
    Page(Content),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    pub parent: NodeId,
    pub key: PageKey,
    pub page: PageId,
    /// Generation of the page when it entered the tree.
    pub generation: u32,
}

#[derive(Debug, Default)]
pub(super) struct PrefixTree {
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    children: HashMap<(NodeId, PageKey), NodeId>,
    roots: HashMap<Namespace, NodeId>,
    /// Idle nodes without children, by last use.
    leaves: BTreeSet<(u64, NodeId)>,
    /// Number of idle nodes.
    idle: usize,
    clock: u64,
}

impl PrefixTree {
    pub fn idle(&self) -> usize {
        self.idle
    }

    /// Number of pages in the tree.
    pub fn len(&self) -> usize {
        self.children.len()
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)?.as_ref()
    }

    pub fn content(&self, id: NodeId) -> Option<Content> {
        match self.node(id)?.place {
            Place::Page(content) => Some(content),
            Place::Root(_) => None,
        }
    }

    pub fn entries(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().zip(0u32..).filter_map(|(node, id)| Some((NodeId(id), node.as_ref()?)))
    }

    pub fn leaves(&self) -> &BTreeSet<(u64, NodeId)> {
        &self.leaves
    }

    pub fn root(&self, namespace: &Namespace) -> Option<NodeId> {
        self.roots.get(namespace).copied()
    }

    pub fn child(&self, parent: NodeId, key: PageKey) -> Option<NodeId> {
        self.children.get(&(parent, key)).copied()
    }

    pub fn root_or_insert(&mut self, namespace: &Namespace) -> NodeId {
        if let Some(root) = self.root(namespace) {
            return root;
        }
        let root = self.occupy(Place::Root(namespace.clone()));
        self.roots.insert(namespace.clone(), root);
        root
    }

    /// Adds a held page. The parent must be held too, or be a root.
    pub fn insert(&mut self, content: Content) -> NodeId {
        let id = self.occupy(Place::Page(content));
        self.children.insert((content.parent, content.key), id);
        if let Some(parent) = self.node_mut(content.parent) {
            parent.children += 1;
        }
        id
    }

    fn occupy(&mut self, place: Place) -> NodeId {
        let node = Some(Node { place, children: 0, idle: false, last_used: self.clock });
        if let Some(id) = self.vacant.pop() {
            self.nodes[id.0 as usize] = node;
            return id;
        }
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0 as usize)?.as_mut()
    }

    /// The page of an idle node is held again.
    pub fn wake(&mut self, id: NodeId) {
        let Some(node) = self.node_mut(id) else { return };
        node.idle = false;
        let last_used = node.last_used;
        self.leaves.remove(&(last_used, id));
        self.idle -= 1;
    }

    /// Nobody holds the node's page any more. Call it for the end of a path first, so that ends are evicted first.
    pub fn rest(&mut self, id: NodeId) {
        self.clock += 1;
        let clock = self.clock;
        let Some(node) = self.node_mut(id) else { return };
        node.idle = true;
        node.last_used = clock;
        if node.children == 0 {
            self.leaves.insert((clock, id));
        }
        self.idle += 1;
    }

    /// Removes the least recently used idle leaf.
    pub fn evict(&mut self) -> Option<Content> {
        let (_, id) = self.leaves.pop_first()?;
        let content = self.content(id)?;
        self.nodes[id.0 as usize] = None;
        self.vacant.push(id);
        self.idle -= 1;
        self.children.remove(&(content.parent, content.key));
        self.lose_child(content.parent);
        Some(content)
    }

    fn lose_child(&mut self, id: NodeId) {
        let Some(node) = self.node_mut(id) else { return };
        node.children -= 1;
        if node.children > 0 {
            return;
        }
        let leaf = (node.last_used, id);
        match &node.place {
            Place::Page(_) if node.idle => {
                self.leaves.insert(leaf);
            }
            Place::Page(_) => {}
            Place::Root(namespace) => {
                let namespace = namespace.clone();
                self.roots.remove(&namespace);
                self.nodes[id.0 as usize] = None;
                self.vacant.push(id);
            }
        }
    }
}
