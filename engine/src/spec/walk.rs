//! Which drafted tokens are kept.
//!
//! At each node on the way the target's own token is drawn, exactly as plain decoding would draw it at that position:
//! same parameters, same penalties along the path, same random counter. The child that holds this token is accepted and
//! the way goes on from it; without such a child the token is the last one. So every token is the one that plain
//! decoding gives, whatever was drafted: lossless for each seed, not only in distribution.

use super::tree::DraftTree;

/// The way through one tree while its rows of logits come in, in order of node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Accepted nodes, the root first.
    path: Vec<usize>,
    next: Option<usize>,
}

impl Walk {
    /// A way that begins at the root.
    pub fn new() -> Self {
        Self { path: Vec::new(), next: Some(0) }
    }

    /// The row at `node` decides about the next token.
    pub fn wants(&self, node: usize) -> bool {
        self.next == Some(node)
    }

    /// The token drawn at the wanted node.
    pub fn take(&mut self, tree: &DraftTree, token: u32) {
        let Some(node) = self.next else { return };
        self.path.push(node);
        self.next = tree.child(node, token);
    }

    /// Accepted nodes, the root first: as many as there are tokens.
    pub fn path(&self) -> &[usize] {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_follows_drawn_tokens_and_ends_where_none_was_drafted() {
        let tree = DraftTree { tokens: vec![5, 7, 8, 1, 2], parents: vec![0, 0, 0, 1, 1], depths: vec![0, 1, 1, 2, 2] };
        let walk = |tokens: &[u32]| {
            let (mut walk, mut tokens) = (Walk::new(), tokens.iter());
            for node in 0..tree.rows() {
                if walk.wants(node) {
                    walk.take(&tree, *tokens.next().unwrap());
                }
            }
            assert_eq!(tokens.next(), None);
            walk.path().to_vec()
        };
        assert_eq!(walk(&[7, 2, 3]), [0, 1, 4]);
        assert_eq!(walk(&[8, 1]), [0, 2]);
        assert_eq!(walk(&[1]), [0]);
    }
}
