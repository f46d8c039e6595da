//! Drafted tokens as a tree, and how it grows.
//!
//! The dynamic tree of EAGLE-2: each level expands the best nodes of the level before, and of all nodes seen the best
//! by cumulative log-probability are verified. A chain is the tree with one branch. Source: SafeAILab/EAGLE,
//! `cnets.py`, `topK_genrate`; sums of logarithms in place of products.

use super::shape::DraftShape;
use crate::backend::TreeMask;

/// A token that a draft row proposes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The target's id.
    pub token: u32,
    /// Natural logarithm of the draft's probability.
    pub log_probability: f32,
}

/// Tokens to verify: the root first, parents before children. Siblings are different tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftTree {
    pub tokens: Vec<u32>,
    /// Node of each node's parent; the root names itself.
    pub parents: Vec<usize>,
    /// Distance from the root.
    pub depths: Vec<u32>,
}

impl DraftTree {
    /// A root alone: nothing is drafted.
    pub fn root(token: u32) -> Self {
        Self { tokens: vec![token], parents: vec![0], depths: vec![0] }
    }

    /// Each of `tokens` the child of the one before it.
    pub fn chain(root: u32, tokens: impl IntoIterator<Item = u32>) -> Self {
        let tokens: Vec<u32> = std::iter::once(root).chain(tokens).collect();
        let (parents, depths) = (0..tokens.len()).map(|node| (node.saturating_sub(1), node as u32)).unzip();
        Self { tokens, parents, depths }
    }

    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// Every node is the child of the node before it: then plain causal attention is right.
    pub fn is_chain(&self) -> bool {
        self.parents.iter().enumerate().all(|(node, parent)| *parent == node.saturating_sub(1))
    }

    /// The child of `node` that holds `token`.
    pub fn child(&self, node: usize, token: u32) -> Option<usize> {
        (node + 1..self.rows()).find(|child| self.parents[*child] == node && self.tokens[*child] == token)
    }

    /// Appends the words of each row's visibility among the nodes: itself and its ancestors.
    pub fn mask(&self, words: &mut Vec<u64>) {
        let (row_words, first) = (TreeMask::row_words(self.rows()), words.len());
        words.resize(first + self.rows() * row_words, 0);
        for node in 0..self.rows() {
            let parent = self.parents[node];
            if parent != node {
                words.copy_within(
                    first + parent * row_words..first + (parent + 1) * row_words,
                    first + node * row_words,
                );
            }
            words[first + node * row_words + node / 64] |= 1 << (node % 64);
        }
    }
}

struct Node {
    score: f32,
    token: u32,
    /// Place in the pool; none for children of the root.
    parent: Option<usize>,
    /// Draft row that this node was the input of, if it was expanded.
    row: Option<usize>,
}

/// A tree while it is drafted. Every rank grows the same one from the same candidates.
pub struct TreeBuilder {
    shape: DraftShape,
    pool: Vec<Node>,
    /// Places in the pool of the nodes that are expanded next, best first.
    frontier: Vec<usize>,
    /// Draft rows so far: what the next level's rows are numbered from.
    rows: usize,
}

impl TreeBuilder {
    pub fn new(shape: DraftShape) -> Self {
        Self { shape, pool: Vec::new(), frontier: Vec::new(), rows: 0 }
    }

    /// Takes the candidates of the root, or those of every frontier node in turn (equally many, best first), and chooses
    /// the next frontier.
    pub fn grow(&mut self, candidates: &[Candidate]) {
        let parents: Vec<Option<usize>> =
            if self.pool.is_empty() { vec![None] } else { self.frontier.iter().copied().map(Some).collect() };
        let first = self.pool.len();
        let each = candidates.len() / parents.len();
        for (parent, candidates) in parents.into_iter().zip(candidates.chunks(each.max(1))) {
            let base = parent.map_or(0.0, |parent| self.pool[parent].score);
            self.pool.extend(candidates.iter().take(self.shape.topk).map(|candidate| Node {
                score: base + candidate.log_probability,
                token: candidate.token,
                parent,
                row: None,
            }));
        }
        self.frontier = self.best(first, self.shape.topk);
        for (place, node) in self.frontier.iter().enumerate() {
            self.pool[*node].row = Some(self.rows + place);
        }
        self.rows += self.frontier.len();
    }

    /// The best nodes from place `first` on, best first; of equal ones the earlier, so that parents precede children.
    fn best(&self, first: usize, count: usize) -> Vec<usize> {
        let mut places: Vec<usize> = (first..self.pool.len()).collect();
        places.sort_by(|left, right| self.pool[*right].score.total_cmp(&self.pool[*left].score).then(left.cmp(right)));
        places.truncate(count);
        places
    }

    /// Levels that are still to be drafted after `done` of them.
    pub fn goes_on(&self, done: usize) -> bool {
        done < self.shape.steps
    }

    /// Rows of the next draft pass, best first: token, and the draft row that gave it (none: the last committed row).
    pub fn frontier(&self) -> impl Iterator<Item = (u32, Option<usize>)> + '_ {
        self.frontier.iter().map(|place| {
            let node = &self.pool[*place];
            (node.token, node.parent.and_then(|parent| self.pool[parent].row))
        })
    }

    /// Draft rows of all levels, those of the next pass included.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Appends each frontier row's visibility among all draft rows: its ancestors' and its own.
    pub fn mask(&self, words: &mut Vec<u64>) {
        let row_words = TreeMask::row_words(self.rows);
        for place in &self.frontier {
            let first = words.len();
            words.resize(first + row_words, 0);
            let mut node = Some(*place);
            while let Some(place) = node {
                if let Some(row) = self.pool[place].row {
                    words[first + row / 64] |= 1 << (row % 64);
                }
                node = self.pool[place].parent;
            }
        }
    }

    /// The best nodes under `root`.
    pub fn finish(&self, root: u32) -> DraftTree {
        let mut chosen = self.best(0, self.shape.verify_tokens - 1);
        chosen.sort_unstable();
        let mut tree = DraftTree::root(root);
        for place in &chosen {
            let node = &self.pool[*place];
            // A parent's score is at least its child's, so it was chosen before.
            let parent = node.parent.map_or(Some(0), |parent| Some(chosen.binary_search(&parent).ok()? + 1));
            let Some(parent) = parent.filter(|parent| *parent < tree.rows()) else { continue };
            tree.depths.push(tree.depths[parent] + 1);
            tree.parents.push(parent);
            tree.tokens.push(node.token);
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(list: &[(u32, f32)]) -> Vec<Candidate> {
        list.iter()
            .map(|(token, log_probability)| Candidate { token: *token, log_probability: *log_probability })
            .collect()
    }

    #[test]
    fn the_best_nodes_of_all_levels_are_kept_with_their_parents() {
        let mut builder = TreeBuilder::new(DraftShape::new(2, 2, 5).unwrap());
        builder.grow(&candidates(&[(7, -0.1), (8, -2.0)]));
        assert_eq!(builder.frontier().collect::<Vec<_>>(), [(7, None), (8, None)]);
        builder.grow(&candidates(&[(1, -0.2), (2, -0.3), (3, -0.1), (4, -9.0)]));
        assert_eq!(builder.frontier().collect::<Vec<_>>(), [(1, Some(0)), (2, Some(0))]);
        let tree = builder.finish(5);
        assert_eq!(tree.tokens, [5, 7, 8, 1, 2], "8 and 3 are equal in no other way than by score");
        assert_eq!((tree.parents.as_slice(), tree.depths.as_slice()), (&[0, 0, 0, 1, 1][..], &[0, 1, 1, 2, 2][..]));
        assert!(!tree.is_chain());
        assert_eq!((tree.child(1, 2), tree.child(1, 3), tree.child(0, 8)), (Some(4), None, Some(2)));
        let mut words = Vec::new();
        tree.mask(&mut words);
        assert_eq!(words, [0b1, 0b11, 0b101, 0b1011, 0b10011]);
    }

    #[test]
    fn equal_scores_never_orphan_a_child() {
        let mut builder = TreeBuilder::new(DraftShape::new(3, 2, 4).unwrap());
        builder.grow(&candidates(&[(1, 0.0), (2, 0.0)]));
        builder.grow(&candidates(&[(3, 0.0), (4, 0.0), (5, 0.0), (6, 0.0)]));
        builder.grow(&candidates(&[(3, 0.0), (4, 0.0), (5, 0.0), (6, 0.0)]));
        assert_eq!(builder.finish(9).tokens, [9, 1, 2, 3]);
        assert_eq!(builder.rows(), 6);
        let mut words = Vec::new();
        builder.mask(&mut words);
        assert_eq!(words, [0b010101, 0b100101], "rows 2 and 3 are children of row 0, rows 4 and 5 of row 2");
    }

    #[test]
    fn a_chain_needs_no_mask() {
        let mut builder = TreeBuilder::new(DraftShape::chain(3));
        (1..=3).for_each(|token| builder.grow(&candidates(&[(token, 0.0)])));
        let tree = builder.finish(0);
        assert_eq!(tree.tokens, [0, 1, 2, 3]);
        assert!(tree.is_chain() && DraftTree::root(3).is_chain());
    }
}
