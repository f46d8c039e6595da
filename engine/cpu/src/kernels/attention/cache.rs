//! Pages of keys and values.

use bytemuck::Pod;
use engine::backend::{BackendError, Blocks, CacheLayout, CacheShape, Segment, StepInput};
use half::f16;

use crate::kernels::{
    memory::Buffer,
    simd::{LANES, Simd},
};

/// How a key or a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheElement {
    F32,
    /// Half the memory and half the reads; rounds to 11 bits.
    F16,
}

/// A stored element.
pub(crate) trait Element: 'static {
    type Stored: Pod + Send + Sync;

    fn store(value: f32) -> Self::Stored;
    fn load<S: Simd>(s: S, from: &[Self::Stored; LANES]) -> S::Floats;
}

impl Element for f32 {
    type Stored = f32;

    fn store(value: f32) -> f32 {
        value
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[f32; LANES]) -> S::Floats {
        s.load(from)
    }
}

/// IEEE half precision.
pub(crate) struct F16;

impl Element for F16 {
    type Stored = u16;

    fn store(value: f32) -> u16 {
        f16::from_f32(value).to_bits()
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[u16; LANES]) -> S::Floats {
        s.load_f16(from)
    }
}

/// Keys and values of all layers, in pages. A page of a head is stored in blocks of 16 positions, the last one
/// perhaps not full; dimensions are rounded up to 16.
pub struct KeyValueCache {
    shape: CacheShape,
    element: CacheElement,
    heads: usize,
    dimension: usize,
    layers: Vec<Layer>,
}

struct Layer {
    /// `[pages, heads, blocks, dimension, 16 positions]`.
    keys: Buffer,
    /// `[pages, heads, blocks, 16 positions, dimension]`.
    values: Buffer,
}

/// Where the keys and values of an append are in its source.
#[derive(Clone, Copy)]
pub struct KeyValueColumns {
    pub key: Blocks,
    pub value: Blocks,
}

impl KeyValueCache {
    /// Zeroed pages. Errors: a layout without keys and values per head, no memory.
    pub fn new(shape: &CacheShape, element: CacheElement) -> Result<Self, BackendError> {
        let operation = "allocate_cache";
        let CacheLayout::KeyValue { heads, head_dimension: dimension } = shape.layout else {
            let message = format!("there is no cache of keys and values for {:?}", shape.layout);
            return Err(BackendError::Device { operation, message });
        };
        let vectors = shape.pages * heads * shape.page_size.div_ceil(LANES) * dimension.next_multiple_of(LANES);
        let zeroed = || match element {
            CacheElement::F32 => Buffer::zeroed::<[f32; LANES]>(operation, vectors),
            CacheElement::F16 => Buffer::zeroed::<[u16; LANES]>(operation, vectors),
        };
        let layer = |_| Ok(Layer { keys: zeroed()?, values: zeroed()? });
        let layers = (0..shape.layers).map(layer).collect::<Result<_, BackendError>>()?;
        Ok(Self { shape: *shape, element, heads, dimension, layers })
    }

    pub fn element(&self) -> CacheElement {
        self.element
    }

    pub fn heads(&self) -> usize {
        self.heads
    }

    pub fn head_dimension(&self) -> usize {
        self.dimension
    }

    /// Writes a step's keys and values into the pages of its segments.
    ///
    /// # Panics
    /// If the source is too short, the blocks are not this cache's heads, or a page does not exist.
    pub fn append(&mut self, layer: usize, step: &StepInput, source: &[f32], columns: KeyValueColumns) {
        let blocks = (self.heads, self.dimension);
        assert_eq!((columns.key.count, columns.key.width), blocks, "a key per cached head");
        assert_eq!((columns.value.count, columns.value.width), blocks, "a value per cached head");
        for segment in &step.segments {
            match self.element {
                CacheElement::F32 => self.append_segment::<f32>(layer, step, segment, source, columns),
                CacheElement::F16 => self.append_segment::<F16>(layer, step, segment, source, columns),
            }
        }
    }

    fn append_segment<E: Element>(
        &mut self,
        layer: usize,
        step: &StepInput,
        segment: &Segment,
        source: &[f32],
        KeyValueColumns { key, value }: KeyValueColumns,
    ) {
        let pages = &step.pages[segment.pages.clone()];
        let padded = self.padded_dimension();
        for index in 0..segment.rows {
            let position = segment.start + index;
            let (page, slot) = (pages[position / self.shape.page_size] as usize, position % self.shape.page_size);
            for head in 0..self.heads {
                let block = self.first_block(page, head) + slot / LANES;
                let (row, lane) = (segment.first_row + index, slot % LANES);
                let keys = &mut self.layers[layer].keys.values_mut::<[E::Stored; LANES]>()[block * padded..][..padded];
                let from = &source[row * key.row + key.offset + head * key.stride..][..key.width];
                for (to, from) in keys.iter_mut().zip(from) {
                    to[lane] = E::store(*from);
                }
                let values = self.layers[layer].values.values_mut::<E::Stored>();
                let values = &mut values[(block * LANES + lane) * padded..][..padded];
                let from = &source[row * value.row + value.offset + head * value.stride..][..value.width];
                for (to, from) in values.iter_mut().zip(from) {
                    *to = E::store(*from);
                }
            }
        }
    }

    /// Copies one row of every head in every layer. Places are `page * page_size + position in the page`.
    ///
    /// # Panics
    /// If a place does not exist.
    pub fn move_row(&mut self, from: usize, to: usize) {
        match self.element {
            CacheElement::F32 => self.move_row_of::<f32>(from, to),
            CacheElement::F16 => self.move_row_of::<F16>(from, to),
        }
    }

    fn move_row_of<E: Element>(&mut self, from: usize, to: usize) {
        let (size, padded, heads, page_blocks) =
            (self.shape.page_size, self.padded_dimension(), self.heads, self.page_blocks());
        let block = |place: usize, head: usize| (place / size * heads + head) * page_blocks + place % size / LANES;
        for head in 0..heads {
            let blocks = (block(from, head), block(to, head));
            let lanes = (from % size % LANES, to % size % LANES);
            for layer in &mut self.layers {
                let keys = layer.keys.values_mut::<[E::Stored; LANES]>();
                for dimension in 0..padded {
                    keys[blocks.1 * padded + dimension][lanes.1] = keys[blocks.0 * padded + dimension][lanes.0];
                }
                let values = layer.values.values_mut::<E::Stored>();
                let (from, to) = (blocks.0 * LANES + lanes.0, blocks.1 * LANES + lanes.1);
                values.copy_within(from * padded..(from + 1) * padded, to * padded);
            }
        }
    }

    /// Elements of a stored key or value.
    pub(super) fn padded_dimension(&self) -> usize {
        self.dimension.next_multiple_of(LANES)
    }

    /// Blocks of 16 positions in a page of one head.
    pub(super) fn page_blocks(&self) -> usize {
        self.shape.page_size.div_ceil(LANES)
    }

    pub(super) fn page_size(&self) -> usize {
        self.shape.page_size
    }

    fn first_block(&self, page: usize, head: usize) -> usize {
        (page * self.heads + head) * self.page_blocks()
    }

    /// A block's keys: a vector of 16 positions per dimension.
    pub(super) fn keys<E: Element>(
        &self,
        layer: usize,
        page: usize,
        head: usize,
        block: usize,
    ) -> &[[E::Stored; LANES]] {
        let padded = self.padded_dimension();
        let first = (self.first_block(page, head) + block) * padded;
        &self.layers[layer].keys.values::<[E::Stored; LANES]>()[first..first + self.dimension]
    }

    /// A block's values: the vectors of position 0, then those of position 1, and so on to 15.
    pub(super) fn values<E: Element>(
        &self,
        layer: usize,
        page: usize,
        head: usize,
        block: usize,
    ) -> &[[E::Stored; LANES]] {
        let padded = self.padded_dimension();
        let first = (self.first_block(page, head) + block) * padded;
        &self.layers[layer].values.values::<[E::Stored; LANES]>()[first..first + padded]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that say which position, column and kind they are of.
    fn cache(element: CacheElement, page_size: usize) -> KeyValueCache {
        let layout = CacheLayout::KeyValue { heads: 2, head_dimension: 3 };
        let mut cache = KeyValueCache::new(&CacheShape { layers: 2, pages: 3, page_size, layout }, element).unwrap();
        let rows = 2 * page_size;
        let source: Vec<f32> = (0..rows * 12).map(|at| at as f32).collect();
        let segment = Segment { first_row: 0, rows, start: 0, pages: 0..2, tree: None };
        let step = StepInput { segments: vec![segment], pages: vec![2, 0], ..StepInput::default() };
        let blocks = |offset| Blocks { row: 12, offset, count: 2, stride: 3, width: 3 };
        for layer in 0..2 {
            cache.append(layer, &step, &source, KeyValueColumns { key: blocks(0), value: blocks(6) });
        }
        cache
    }

    fn row<E: Element>(cache: &KeyValueCache, layer: usize, place: usize) -> Vec<E::Stored> {
        let (page, slot) = (place / cache.page_size(), place % cache.page_size());
        let (block, lane) = (slot / LANES, slot % LANES);
        let heads = (0..2).flat_map(|head| {
            let keys = cache.keys::<E>(layer, page, head, block).iter().map(move |key| key[lane]);
            keys.chain(cache.values::<E>(layer, page, head, block)[lane][..3].iter().copied())
        });
        heads.collect()
    }

    fn moves<E: Element<Stored: PartialEq + std::fmt::Debug>>(element: CacheElement) {
        for page_size in [4, 16, 20] {
            let (mut cache, before) = (self::cache(element, page_size), self::cache(element, page_size));
            // The second move reads what the first one has written, and pages differ.
            let (first, second) = (2 * page_size + 3, 2);
            cache.move_row(first, second);
            cache.move_row(second, page_size + 1);
            for layer in 0..2 {
                for place in 0..3 * page_size {
                    let from = if place == second || place == page_size + 1 { first } else { place };
                    let (actual, expected) = (row::<E>(&cache, layer, place), row::<E>(&before, layer, from));
                    assert_eq!(actual, expected, "place {place}, layer {layer}, pages of {page_size}");
                }
            }
        }
    }

    #[test]
    fn moved_rows_are_those_of_every_head_and_layer() {
        moves::<f32>(CacheElement::F32);
        moves::<F16>(CacheElement::F16);
    }
}
