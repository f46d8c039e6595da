//! Paged caches: keys and values per head as the kernels keep them, or latents.

use engine::backend::{BackendError, Blocks, CacheLayout, CacheShape};

use crate::kernels::{CacheElement, KeyValueCache, KeyValueColumns};
use crate::step::Step;

/// One cache group of one rank.
pub enum Cache {
    KeyValue(KeyValueCache),
    Latent(LatentCache),
}

impl Cache {
    /// Errors: no memory for it. Latents are kept in f32 whatever `element` says.
    pub fn new(shape: &CacheShape, element: CacheElement) -> Result<Self, BackendError> {
        reserve(shape, element)?;
        if let CacheLayout::Latent { latent, rope } = shape.layout {
            return Ok(Self::Latent(LatentCache::new(shape, latent + rope)));
        }
        KeyValueCache::new(shape, element).map(Self::KeyValue)
    }

    /// Copies one row in every layer. Places are `page * page_size + position in the page`.
    pub fn move_row(&mut self, from: usize, to: usize) {
        match self {
            Self::KeyValue(cache) => cache.move_row(from, to),
            Self::Latent(cache) => cache.move_row(from, to),
        }
    }

    /// Writes the step's rows: keys and values, or latents as keys alone.
    pub fn append(&mut self, step: &Step, source: &[f32], (key, value): (Blocks, Option<Blocks>), layer: usize) {
        match (self, value) {
            (Self::KeyValue(cache), Some(value)) => {
                cache.append(layer, &step.input, source, KeyValueColumns { key, value });
            }
            (Self::Latent(cache), None) => cache.append(layer, step, source, key),
            _ => panic!("keys and values go to a cache of keys and values, latents to one of latents"),
        }
    }
}

/// Asks for the cache's memory in one piece and gives it back: some of the allocations that follow end the process if they
/// fail, and a cache that is too large is to be an error that says how large.
fn reserve(shape: &CacheShape, element: CacheElement) -> Result<(), BackendError> {
    let element = match (element, shape.layout) {
        (CacheElement::F16, CacheLayout::KeyValue { .. }) => 2,
        _ => size_of::<f32>(),
    };
    // Rows and pages are rounded up to 16.
    let padded = CacheShape { page_size: shape.page_size.next_multiple_of(16), ..padded(*shape) };
    let bytes = u128::from(padded.page_elements() as u64) * shape.pages as u128 * element as u128;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let room = Vec::<u8>::new().try_reserve_exact(bytes);
    room.map_err(|_| BackendError::Memory { operation: "allocate_cache", bytes })
}

fn padded(shape: CacheShape) -> CacheShape {
    let layout = match shape.layout {
        CacheLayout::KeyValue { heads, head_dimension } => {
            CacheLayout::KeyValue { heads, head_dimension: head_dimension.next_multiple_of(16) }
        }
        latent => latent,
    };
    CacheShape { layout, ..shape }
}

/// Latents of all layers, `[pages, page_size, width]` each: what multi-head latent attention reads as its keys and, but
/// for the rotated part, as its values.
pub struct LatentCache {
    layers: Vec<Vec<f32>>,
    page_size: usize,
    width: usize,
}

impl LatentCache {
    fn new(shape: &CacheShape, width: usize) -> Self {
        let values = || vec![0.0; shape.pages * shape.page_size * width];
        Self { layers: (0..shape.layers).map(|_| values()).collect(), page_size: shape.page_size, width }
    }

    /// First element of a position of the sequence that owns `pages`.
    fn index(&self, pages: &[u32], position: usize) -> usize {
        let (page, slot) = (pages[position / self.page_size] as usize, position % self.page_size);
        (page * self.page_size + slot) * self.width
    }

    /// A latent and its rotated key.
    pub fn row(&self, layer: usize, pages: &[u32], position: usize) -> &[f32] {
        let from = self.index(pages, position);
        &self.layers[layer][from..from + self.width]
    }

    fn move_row(&mut self, from: usize, to: usize) {
        for layer in &mut self.layers {
            layer.copy_within(from * self.width..(from + 1) * self.width, to * self.width);
        }
    }

    fn append(&mut self, layer: usize, step: &Step, source: &[f32], columns: Blocks) {
        assert_eq!((columns.count, columns.width), (1, self.width), "one latent per position");
        for segment in &step.input.segments {
            for view in step.views(segment) {
                let from = view.row * columns.row + columns.offset;
                let to = self.index(view.pages, view.position);
                self.layers[layer][to..to + self.width].copy_from_slice(&source[from..from + self.width]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_latents_leave_the_others_alone() {
        let layout = CacheLayout::Latent { latent: 3, rope: 2 };
        let shape = CacheShape { layers: 2, pages: 2, page_size: 4, layout };
        let mut cache = LatentCache::new(&shape, 5);
        cache.layers.iter_mut().for_each(|layer| layer.iter_mut().zip(0u16..).for_each(|(to, at)| *to = f32::from(at)));
        cache.move_row(6, 1);
        for layer in 0..2 {
            for position in 0..8 {
                let from = if position == 1 { 6 } else { position };
                let expected: Vec<f32> = (0..5).map(|column| (from * 5 + column) as f32).collect();
                assert_eq!(cache.row(layer, &[0, 1], position), expected);
            }
        }
    }
}
