//! Logits equal those of transformers, however the rows are cut into steps.

use crate::support::{Chunk, GOLDEN, Golden, Rig, assert_close};

#[test]
fn logits_of_whole_sequences() {
    for golden in GOLDEN.map(Golden::open) {
        let mut rig = Rig::new(&golden, 16);
        for index in 0..golden.prompts.len() {
            let (tokens, expected) = golden.teacher_forced(index);
            let logits = rig.step(&[Chunk::plain(index, 0, &tokens)]);
            assert_close(&logits, &expected, &format!("{}, prompt {index}", golden.name));
        }
    }
}

#[test]
fn logits_in_chunks_across_pages() {
    for golden in GOLDEN.map(Golden::open) {
        for (chunk, page_size) in [(1, 16), (5, 4), (7, 1)] {
            let mut rig = Rig::new(&golden, page_size);
            let (tokens, expected) = golden.teacher_forced(0);
            let starts = (0..tokens.len()).step_by(chunk);
            let chunks = tokens.chunks(chunk).zip(starts);
            let logits: Vec<f32> =
                chunks.flat_map(|(tokens, start)| rig.step(&[Chunk::plain(0, start, tokens)])).collect();
            assert_close(&logits, &expected, &format!("{} in chunks of {chunk}, pages of {page_size}", golden.name));
        }
    }
}

/// Two sequences at different places, one in large and one in small chunks: each must be as if it were alone, and
/// bit for bit so.
#[test]
fn sequences_in_one_batch_do_not_touch() {
    for golden in GOLDEN.map(Golden::open) {
        let (mut rig, mut alone) = (Rig::new(&golden, 4), Rig::new(&golden, 4));
        let [(first, expected), (second, other)] = [golden.teacher_forced(0), golden.teacher_forced(1)];
        let (mut logits, mut other_logits) = (Vec::new(), Vec::new());
        let starts = |tokens: &[u32], size| (0..tokens.len()).step_by(size);
        let mut large = first.chunks(6).zip(starts(&first, 6));
        let mut small = second.chunks(3).zip(starts(&second, 3));
        loop {
            let (mut chunks, mut rows) = (Vec::new(), 0);
            if let Some((tokens, start)) = large.next() {
                chunks.push(Chunk::plain(0, start, tokens));
                rows = tokens.len();
            }
            chunks.extend(small.next().map(|(tokens, start)| Chunk::plain(1, start, tokens)));
            let Some(chunk) = chunks.first() else { break };
            let single = (rows > 0).then(|| alone.step(&[Chunk::plain(0, chunk.start, chunk.tokens)]));
            let both = rig.step(&chunks);
            let (left, right) = both.split_at(rows * golden.config.vocabulary);
            assert_eq!(left, single.unwrap_or_default(), "{}: alone and in a batch", golden.name);
            logits.extend_from_slice(left);
            other_logits.extend_from_slice(right);
        }
        assert_close(&logits, &expected, golden.name);
        assert_close(&other_logits, &other, golden.name);
    }
}

#[test]
fn taps_are_the_residual_stream_between_layers() {
    for golden in GOLDEN.map(Golden::open) {
        let mut rig = Rig::new(&golden, 16);
        let (hidden, layers) = (golden.config.hidden, golden.config.layers);
        let boundaries: Vec<usize> = (0..layers).rev().collect();
        rig.tap(boundaries.clone());
        let rows = golden.residual(0).len() / hidden;
        let (tokens, _) = golden.teacher_forced(0);
        rig.step(&[Chunk::plain(0, 0, &tokens[..rows])]);
        let taps = rig.taps(rows * layers * hidden);
        for (place, boundary) in boundaries.into_iter().enumerate() {
            let columns = taps.chunks(layers * hidden).flat_map(|row| &row[place * hidden..(place + 1) * hidden]);
            let captured: Vec<f32> = columns.copied().collect();
            assert_close(&captured, &golden.residual(boundary), &format!("{}, boundary {boundary}", golden.name));
        }
    }
}
