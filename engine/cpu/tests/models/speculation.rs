//! Verifying a tree of drafted tokens: tree mask, rotary positions by depth, and taps, against the reference
//! implementation of EAGLE.

use crate::support::{Chunk, Golden, Rig, assert_close};

#[test]
fn verify_logits_and_features_of_a_tree() {
    let golden = Golden::open("eagle3-tiny");
    for prompt in [0, 1] {
        let name = |tensor: &str| format!("tree.p{prompt}.c0.{tensor}");
        let mut rig = Rig::new(&golden, 4);
        rig.tap(vec![2, 4, 5]);
        let start = golden.prompts[prompt].len();
        rig.step(&[Chunk::plain(0, 0, &golden.prompts[prompt])]);
        let features = golden.floats(&name("features"));
        assert_close(&rig.taps(features.len()), &features, "features of the prompt");
        let (tokens, depths) = (golden.integers(&name("draft_tokens")), golden.integers(&name("tree_depths")));
        let tree = Some((&depths[..], golden.bytes_of(&name("tree_mask"))));
        // A sequence beside it, so that the tree's rows are not the first ones.
        let other = &golden.prompts[2];
        let logits = rig.step(&[Chunk::plain(1, 0, other), Chunk { sequence: 0, start, tokens: &tokens, tree }]);
        let own = &logits[other.len() * golden.config.vocabulary..];
        assert_close(own, &golden.floats(&name("verify_logits")), "logits of the tree");
        let features = golden.floats(&name("verify_features"));
        let rows = other.len() * 3 * golden.config.hidden;
        assert_close(&rig.taps(rows + features.len())[rows..], &features, "features of the tree");
    }
}
