//! Paged caches. A page of a layer holds, per cached head, a key or a value for each of its positions.

use engine::backend::{BackendError, Blocks, CacheLayout, CacheShape};

use crate::backend::zeroed;
use crate::step::Step;

/// One cache group of one rank.
pub struct Cache {
    shape: CacheShape,
    layers: Vec<LayerCache>,
}

/// One layer's pages: `[pages, heads, page_size, width]`.
struct LayerCache {
    keys: Vec<f32>,
    /// Empty for latents, whose keys are their values.
    values: Vec<f32>,
}

/// Which of a layer's two stores.
#[derive(Clone, Copy)]
pub enum Store {
    Key,
    Value,
}

impl Cache {
    /// Errors: no memory for it.
    pub fn new(shape: CacheShape) -> Result<Self, BackendError> {
        let (keys, values) = match shape.layout {
            CacheLayout::KeyValue { heads, head_dimension } => (heads * head_dimension, heads * head_dimension),
            CacheLayout::Latent { latent, rope } => (latent + rope, 0),
        };
        let allocate = |width| {
            let positions = shape.pages.checked_mul(shape.page_size);
            zeroed("allocate_cache", positions.and_then(|positions| positions.checked_mul(width)))
        };
        let layer = |_| Ok(LayerCache { keys: allocate(keys)?, values: allocate(values)? });
        Ok(Self { shape, layers: (0..shape.layers).map(layer).collect::<Result<_, _>>()? })
    }

    /// Heads of one position, and the width of each.
    fn heads(&self) -> (usize, usize) {
        match self.shape.layout {
            CacheLayout::KeyValue { heads, head_dimension } => (heads, head_dimension),
            CacheLayout::Latent { latent, rope } => (1, latent + rope),
        }
    }

    /// First element of a head at a position of the sequence that owns `pages`.
    fn index(&self, pages: &[u32], position: usize, head: usize) -> usize {
        let (heads, width) = self.heads();
        let (page, slot) = (pages[position / self.shape.page_size] as usize, position % self.shape.page_size);
        ((page * heads + head) * self.shape.page_size + slot) * width
    }

    /// A key, a value or a latent row.
    pub fn read(&self, layer: usize, store: Store, pages: &[u32], position: usize, head: usize) -> &[f32] {
        let (from, width) = (self.index(pages, position, head), self.heads().1);
        let layer = &self.layers[layer];
        match store {
            Store::Key => &layer.keys[from..from + width],
            Store::Value => &layer.values[from..from + width],
        }
    }

    /// Writes the columns `blocks` of each row of `source`, a head per block.
    pub fn append(&mut self, layer: usize, store: Store, step: &Step, source: &[f32], blocks: Blocks) {
        let (heads, width) = self.heads();
        assert_eq!((blocks.count, blocks.width), (heads, width), "a block per cached head");
        for segment in &step.input.segments {
            for view in step.views(segment) {
                for head in 0..heads {
                    let from = view.row * blocks.row + blocks.offset + head * blocks.stride;
                    let to = self.index(view.pages, view.position, head);
                    let layer = &mut self.layers[layer];
                    let target = match store {
                        Store::Key => &mut layer.keys,
                        Store::Value => &mut layer.values,
                    };
                    target[to..to + width].copy_from_slice(&source[from..from + width]);
                }
            }
        }
    }
}
