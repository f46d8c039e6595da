//! Attention over pages: against softmax written out, and the same for every batch, chunk, thread and instruction set.

use crate::random::Random;
use engine::backend::{Blocks, CacheLayout, CacheShape, HeadGroups, Segment, StepInput, TreeMask};
use engine_cpu::kernels::{Attention, CacheElement, Compute, Isa, KeyValueCache, KeyValueColumns, Pool, Precision};
use half::f16;

const POISON: f32 = 12345.0;

#[derive(Clone, Copy, Debug)]
struct Heads {
    query: usize,
    cached: usize,
    dimension: usize,
    /// Query heads of the model before this rank's first one.
    offset: usize,
    group: usize,
}

const PLAIN: Heads = Heads { query: 9, cached: 3, dimension: 64, offset: 0, group: 3 };
/// A rank whose first query head is the second of its group, with a head that no vector divides.
const SHIFTED: Heads = Heads { query: 5, cached: 2, dimension: 20, offset: 2, group: 4 };
const ODD: Heads = Heads { query: 2, cached: 2, dimension: 7, offset: 0, group: 1 };

impl Heads {
    fn row(self) -> usize {
        (self.query + 2 * self.cached) * self.dimension
    }

    fn blocks(self, first: usize, count: usize) -> Blocks {
        let width = self.dimension;
        Blocks { row: self.row(), offset: first * width, count, stride: width, width }
    }

    fn columns(self) -> KeyValueColumns {
        let key = self.blocks(self.query, self.cached);
        KeyValueColumns { key, value: self.blocks(self.query + self.cached, self.cached) }
    }

    fn cache(self, page_size: usize, element: CacheElement) -> KeyValueCache {
        let layout = CacheLayout::KeyValue { heads: self.cached, head_dimension: self.dimension };
        KeyValueCache::new(&CacheShape { layers: 2, pages: 24, page_size, layout }, element).unwrap()
    }
}

fn compute(threads: usize, isa: Isa) -> Compute {
    Compute::with_isa(Pool::new(threads).unwrap(), Precision::Exact, isa)
}

/// `rows` rows from position `start` on, in pages that are not in order.
fn step(rows: usize, start: usize, page_size: usize) -> StepInput {
    let pages: Vec<u32> = (0..(start + rows).div_ceil(page_size) as u32).map(|page| (page * 7 + 3) % 23).collect();
    let segment = Segment { first_row: 0, rows, start, pages: 0..pages.len(), tree: None };
    StepInput { segments: vec![segment], pages, ..StepInput::default() }
}

fn attend(compute: &Compute, heads: Heads, cache: &KeyValueCache, step: &StepInput, source: &[f32]) -> Vec<f32> {
    let groups = HeadGroups { query_heads: heads.query, group: heads.group, offset: heads.offset };
    let (query, scale) = (heads.blocks(0, heads.query), 0.3);
    let mut output = vec![POISON; source.len() / heads.row() * heads.query * heads.dimension];
    compute.attend(&Attention { step, source, query, groups, scale, cache, layer: 1 }, &mut output);
    output
}

/// One row by the definition, in f64. `rows[position]` is the whole row of that position.
fn expected(heads: Heads, rows: &[&[f32]], query: &[f32], sees: impl Fn(usize) -> bool, half: bool) -> Vec<f64> {
    let stored = |value: f32| f64::from(if half { f16::from_f32(value).to_f32() } else { value });
    let width = heads.dimension;
    let mut output = Vec::new();
    for head in 0..heads.query {
        let cached = (head + heads.offset) / heads.group;
        let key = (heads.query + cached) * width;
        let value = (heads.query + heads.cached + cached) * width;
        let visible: Vec<_> = (0..rows.len()).filter(|position| sees(*position)).collect();
        let score = |position: &usize| -> f64 {
            let dot: f64 =
                (0..width).map(|d| f64::from(query[head * width + d]) * stored(rows[*position][key + d])).sum();
            (dot * f64::from(0.3_f32)).exp()
        };
        let weights: Vec<f64> = visible.iter().map(score).collect();
        let total: f64 = weights.iter().sum();
        output.extend((0..width).map(|d| {
            let sum =
                visible.iter().zip(&weights).map(|(position, weight)| weight * stored(rows[*position][value + d]));
            sum.sum::<f64>() / total
        }));
    }
    output
}

fn assert_near(actual: &[f32], expected: &[f64], context: &str) {
    assert_eq!(actual.len(), expected.len(), "{context}");
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert!((f64::from(*actual) - expected).abs() < 2e-6, "{context} at {index}: {actual} and {expected}");
    }
}

#[test]
fn every_row_sees_itself_and_what_was_before() {
    for (heads, page_size) in [(PLAIN, 16), (SHIFTED, 16), (ODD, 16), (PLAIN, 4), (SHIFTED, 40)] {
        for element in [CacheElement::F32, CacheElement::F16] {
            let source = Random(11).values(70 * heads.row());
            let rows: Vec<&[f32]> = source.chunks_exact(heads.row()).collect();
            let mut cache = heads.cache(page_size, element);
            let step = step(70, 0, page_size);
            cache.append(1, &step, &source, heads.columns());
            for isa in Isa::available() {
                let output = attend(&compute(2, isa), heads, &cache, &step, &source);
                for (row, output) in output.chunks_exact(heads.query * heads.dimension).enumerate() {
                    let expected = expected(heads, &rows[..=row], rows[row], |_| true, element == CacheElement::F16);
                    assert_near(output, &expected, &format!("{heads:?} {page_size} {element:?} {} {row}", isa.name()));
                }
            }
        }
    }
}

#[test]
fn a_row_is_the_same_in_chunks_steps_and_batches_on_any_threads_and_instructions() {
    let heads = PLAIN;
    let source = Random(12).values(70 * heads.row());
    let scalar = compute(1, Isa::available().pop().unwrap());
    let whole_step = step(70, 0, 16);
    let mut whole_cache = heads.cache(16, CacheElement::F32);
    whole_cache.append(1, &whole_step, &source, heads.columns());
    let whole = attend(&scalar, heads, &whole_cache, &whole_step, &source);
    let width = heads.query * heads.dimension;
    for isa in Isa::available() {
        for threads in [1, 2, 5] {
            let compute = compute(threads, isa);
            // In chunks, as a prompt and then decode steps.
            let mut cache = heads.cache(16, CacheElement::F32);
            let mut start = 0;
            for rows in [1, 33, 13, 1, 1, 1, 20] {
                let step = step(rows, start, 16);
                let source = &source[start * heads.row()..(start + rows) * heads.row()];
                cache.append(1, &step, source, heads.columns());
                let output = attend(&compute, heads, &cache, &step, source);
                assert_eq!(output, whole[start * width..(start + rows) * width], "{} {threads} {start}", isa.name());
                start += rows;
            }
            // Two sequences in one step: the same cache read by both, at different lengths.
            let mut both = step(1, 69, 16);
            both.segments.push(Segment { first_row: 1, start: 20, ..both.segments[0].clone() });
            let rows: Vec<f32> =
                [69, 20].iter().flat_map(|row| &source[row * heads.row()..][..heads.row()]).copied().collect();
            let output = attend(&compute, heads, &cache, &both, &rows);
            assert_eq!(output[..width], whole[69 * width..70 * width]);
            assert_eq!(output[width..], whole[20 * width..21 * width]);
        }
    }
}

#[test]
fn a_tree_row_sees_its_ancestors_alone() {
    let heads = SHIFTED;
    let source = Random(13).values(26 * heads.row());
    let rows: Vec<&[f32]> = source.chunks_exact(heads.row()).collect();
    let mut cache = heads.cache(16, CacheElement::F32);
    cache.append(1, &step(20, 0, 16), &source[..20 * heads.row()], heads.columns());
    // Root, two children, a child of each, and one more child of the root.
    let mask: Vec<u64> = vec![0b1, 0b11, 0b101, 0b1011, 0b10101, 0b100001];
    let mut tree = step(6, 20, 16);
    tree.segments[0].tree = Some(TreeMask { committed: 20, words: 0..6 });
    tree.mask.clone_from(&mask);
    let drafted = &source[20 * heads.row()..];
    cache.append(1, &tree, drafted, heads.columns());
    for isa in Isa::available() {
        let output = attend(&compute(1, isa), heads, &cache, &tree, drafted);
        for (row, output) in output.chunks_exact(heads.query * heads.dimension).enumerate() {
            let sees = |position: usize| position < 20 || mask[row] >> (position - 20) & 1 == 1;
            assert_near(output, &expected(heads, &rows, rows[20 + row], sees, false), &format!("{} {row}", isa.name()));
        }
    }
}

#[test]
fn what_lies_behind_a_sequence_in_its_last_page_is_never_read() {
    let heads = ODD;
    let source = Random(14).values(16 * heads.row());
    let mut cache = heads.cache(16, CacheElement::F32);
    // An earlier owner of the page left values that are not numbers.
    cache.append(1, &step(16, 0, 16), &vec![f32::NAN; 16 * heads.row()], heads.columns());
    let ours = step(3, 0, 16);
    cache.append(1, &ours, &source[..3 * heads.row()], heads.columns());
    for isa in Isa::available() {
        let output = attend(&compute(1, isa), heads, &cache, &ours, &source[..3 * heads.row()]);
        assert!(output.iter().all(|value| value.is_finite()), "{}", isa.name());
    }
}

#[test]
fn latents_have_no_keys_and_values() {
    let layout = CacheLayout::Latent { latent: 8, rope: 4 };
    assert!(KeyValueCache::new(&CacheShape { layers: 1, pages: 1, page_size: 16, layout }, CacheElement::F32).is_err());
}
