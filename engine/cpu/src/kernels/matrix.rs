//! A weight matrix as the kernels want it.

use std::ops::Range;

use engine::{
    backend::{BackendError, MatrixPart},
    weights::WeightType,
};

use super::{
    format::{Block, Codes, Plain, Scales, TILE, with_block_format, with_plain_format},
    isa::{Isa, Work},
    memory::Buffer,
    product::tile_values,
    simd::{LANES, Simd},
};

/// What memory for weights is asked for by.
const LOAD: &str = "load_linear";

/// A weight matrix `[rows, columns]` (output features, input features), packed for the kernels in its own format: no
/// bit of a weight is changed, and the memory is that of the file, rounded up to 16 rows (Q4_K and Q5_K: 3 % more).
pub struct QuantMatrix {
    kind: WeightType,
    rows: usize,
    columns: usize,
    /// Codes of block formats, pairs of columns of plain ones.
    pub(super) codes: Buffer,
    pub(super) scales: Buffer,
}

impl QuantMatrix {
    /// Packs a rectangle of a tensor. If its columns cut through a block, it is kept as [`WeightType::F32`], with the
    /// same values.
    ///
    /// # Errors
    /// [`BackendError::WeightType`] for integer and boolean tensors, [`BackendError::Memory`].
    ///
    /// # Panics
    /// If the tensor has no rows and columns, if its bytes do not fit its shape, or the part is not inside it.
    pub fn pack(part: &MatrixPart<'_>) -> Result<Self, BackendError> {
        let (file, kind) = (FileRows::new(part), part.tensor.kind);
        let block = kind.block_elements();
        if !part.columns.start.is_multiple_of(block) || !part.columns.end.is_multiple_of(block) {
            return Self::pack_values(part);
        }
        let error = BackendError::WeightType { operation: "linear", kind };
        with_block_format!(
            kind,
            Format => pack_blocks::<Format>(&file, part),
            with_plain_format!(kind, Format => pack_plain::<Format>(&file, part), Err(error))
        )
    }

    /// A matrix of `f32` values, row by row.
    ///
    /// # Errors
    /// [`BackendError::Memory`].
    ///
    /// # Panics
    /// If there are not `rows * columns` values.
    pub fn from_f32(rows: usize, columns: usize, values: &[f32]) -> Result<Self, BackendError> {
        assert_eq!(values.len(), rows * columns, "values of a {rows} x {columns} matrix");
        let mut matrix = Self::zeroed::<super::format::F32>(WeightType::F32, rows, columns)?;
        let pairs = matrix.codes.values_mut::<[[f32; LANES]; 2]>();
        for (row, values) in values.chunks_exact(columns.max(1)).enumerate() {
            let panel = row / LANES * columns.div_ceil(2);
            for (column, value) in values.iter().enumerate() {
                pairs[panel + column / 2][column % 2][row % LANES] = *value;
            }
        }
        Ok(matrix)
    }

    pub fn kind(&self) -> WeightType {
        self.kind
    }

    /// Output features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input features.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Memory of the weights.
    pub fn bytes(&self) -> usize {
        self.codes.bytes() + self.scales.bytes()
    }

    /// Row `row` as `f32`, exactly as the file format defines it: an embedding lookup.
    ///
    /// # Panics
    /// If there is no such row, or `to` does not have [`QuantMatrix::columns`] elements.
    pub fn row(&self, row: usize, to: &mut [f32]) {
        assert!(row < self.rows, "row {row} of a matrix with {} rows", self.rows);
        assert_eq!(to.len(), self.columns, "a row has as many elements as the matrix has columns");
        with_block_format!(
            self.kind,
            Format => Isa::best().run(BlockRow::<Format> { matrix: self, row, to, format: std::marker::PhantomData }),
            with_plain_format!(self.kind, Format => Isa::best().run(PlainRow::<Format> { matrix: self, row, to, format: std::marker::PhantomData }), unreachable!("no such matrix is packed"))
        );
    }

    /// Panels of 16 rows.
    pub(super) fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Tiles of a panel in a block format.
    pub(super) fn tiles(&self) -> usize {
        self.columns / TILE
    }

    /// Pairs of columns of a panel in a plain format.
    pub(super) fn pairs(&self) -> usize {
        self.columns.div_ceil(2)
    }

    /// A panel's codes and scales.
    pub(super) fn panel<F: Block>(&self, panel: usize) -> (&[F::Codes], &[F::Scales]) {
        let tiles = self.tiles();
        let blocks = tiles / F::Scales::TILES;
        let codes = &self.codes.values::<F::Codes>()[panel * tiles..(panel + 1) * tiles];
        (codes, &self.scales.values::<F::Scales>()[panel * blocks..(panel + 1) * blocks])
    }

    /// A panel's pairs of columns.
    pub(super) fn plain_panel<F: Plain>(&self, panel: usize) -> &[F::Pair] {
        let pairs = self.pairs();
        &self.codes.values::<F::Pair>()[panel * pairs..(panel + 1) * pairs]
    }

    fn zeroed<F: Plain>(kind: WeightType, rows: usize, columns: usize) -> Result<Self, BackendError> {
        let pairs = rows.div_ceil(LANES) * columns.div_ceil(2);
        let (codes, scales) = (Buffer::zeroed::<F::Pair>(LOAD, pairs)?, Buffer::zeroed::<u8>(LOAD, 0)?);
        Ok(Self { kind, rows, columns, codes, scales })
    }

    /// Packs values instead of codes, where a part begins or ends inside a block.
    fn pack_values(part: &MatrixPart<'_>) -> Result<Self, BackendError> {
        let block = part.tensor.kind.block_elements();
        let columns = part.columns.start / block * block..part.columns.end.div_ceil(block) * block;
        let offset = part.columns.start - columns.start;
        let wide = Self::pack(&MatrixPart { tensor: part.tensor.clone(), rows: part.rows.clone(), columns })?;
        let mut row = vec![0.0; wide.columns];
        let mut values = Vec::with_capacity(part.rows.len() * part.columns.len());
        for index in 0..part.rows.len() {
            wide.row(index, &mut row);
            values.extend_from_slice(&row[offset..offset + part.columns.len()]);
        }
        Self::from_f32(part.rows.len(), part.columns.len(), &values)
    }
}

/// The bytes of a tensor, row by row.
struct FileRows<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
    kind: WeightType,
}

impl<'a> FileRows<'a> {
    fn new(part: &'a MatrixPart<'_>) -> Self {
        let MatrixPart { tensor, rows, columns } = part;
        let &[height, width] = tensor.shape.as_slice() else { panic!("a matrix of shape {:?}", tensor.shape) };
        assert!(rows.start <= rows.end && rows.end <= height, "rows {rows:?} of {height}");
        assert!(columns.start <= columns.end && columns.end <= width, "columns {columns:?} of {width}");
        assert!(width % tensor.kind.block_elements() == 0, "rows of {width} in whole blocks of {:?}", tensor.kind);
        let row_bytes = width / tensor.kind.block_elements() * tensor.kind.block_bytes();
        assert_eq!(tensor.bytes.len(), row_bytes * height, "bytes of a matrix of shape {:?}", tensor.shape);
        Self { bytes: &tensor.bytes, row_bytes, kind: tensor.kind }
    }

    /// The blocks or elements of part of a row.
    fn blocks(&self, row: usize, columns: &Range<usize>) -> std::slice::ChunksExact<'a, u8> {
        let (elements, bytes) = (self.kind.block_elements(), self.kind.block_bytes());
        let row = &self.bytes[row * self.row_bytes..(row + 1) * self.row_bytes];
        row[columns.start / elements * bytes..columns.end / elements * bytes].chunks_exact(bytes)
    }
}

fn pack_blocks<F: Block>(file: &FileRows<'_>, part: &MatrixPart<'_>) -> Result<QuantMatrix, BackendError> {
    let MatrixPart { rows, columns, .. } = part;
    let (tiles, blocks) = (columns.len() / TILE, columns.len() / TILE / F::Scales::TILES);
    let panels = rows.len().div_ceil(LANES);
    let mut matrix = QuantMatrix {
        kind: file.kind,
        rows: rows.len(),
        columns: columns.len(),
        codes: Buffer::zeroed::<F::Codes>(LOAD, panels * tiles)?,
        scales: Buffer::zeroed::<F::Scales>(LOAD, panels * blocks)?,
    };
    let (codes, scales) = (matrix.codes.values_mut::<F::Codes>(), matrix.scales.values_mut::<F::Scales>());
    for (index, row) in rows.clone().enumerate() {
        let (panel, lane) = (index / LANES, index % LANES);
        let codes = &mut codes[panel * tiles..(panel + 1) * tiles];
        let scales = &mut scales[panel * blocks..(panel + 1) * blocks];
        let to = codes.chunks_exact_mut(F::Scales::TILES).zip(scales);
        for (block, (codes, scales)) in file.blocks(row, columns).zip(to) {
            F::scales(block, scales, lane);
            for (tile, codes) in codes.iter_mut().enumerate() {
                codes.set(lane, &F::codes(block, tile));
            }
        }
    }
    Ok(matrix)
}

fn pack_plain<F: Plain>(file: &FileRows<'_>, part: &MatrixPart<'_>) -> Result<QuantMatrix, BackendError> {
    let MatrixPart { rows, columns, .. } = part;
    let mut matrix = QuantMatrix::zeroed::<F>(file.kind, rows.len(), columns.len())?;
    let pairs = matrix.pairs();
    let all = matrix.codes.values_mut::<F::Pair>();
    for (index, row) in rows.clone().enumerate() {
        let panel = &mut all[index / LANES * pairs..(index / LANES + 1) * pairs];
        for (column, element) in file.blocks(row, columns).enumerate() {
            F::set(&mut panel[column / 2], index % LANES, column % 2, element);
        }
    }
    Ok(matrix)
}

struct BlockRow<'a, F> {
    matrix: &'a QuantMatrix,
    row: usize,
    to: &'a mut [f32],
    format: std::marker::PhantomData<F>,
}

impl<F: Block> Work for BlockRow<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (codes, scales) = self.matrix.panel::<F>(self.row / LANES);
        let mut lanes = [0.0; LANES];
        for (index, to) in self.to.chunks_exact_mut(TILE).enumerate() {
            let scales = scales[index / F::Scales::TILES].tile(s, index % F::Scales::TILES);
            let groups = codes[index].groups(s);
            for (group, to) in to.chunks_exact_mut(4).enumerate() {
                for (to, values) in to.iter_mut().zip(tile_values::<S, F>(s, groups[group], group, &scales)) {
                    s.store(values, &mut lanes);
                    *to = lanes[self.row % LANES];
                }
            }
        }
    }
}

struct PlainRow<'a, F> {
    matrix: &'a QuantMatrix,
    row: usize,
    to: &'a mut [f32],
    format: std::marker::PhantomData<F>,
}

impl<F: Plain> Work for PlainRow<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let panel = self.matrix.plain_panel::<F>(self.row / LANES);
        let mut lanes = [[0.0; LANES]; 2];
        for (to, pair) in self.to.chunks_mut(2).zip(panel) {
            let (first, second) = F::load(s, pair);
            s.store(first, &mut lanes[0]);
            s.store(second, &mut lanes[1]);
            for (to, lanes) in to.iter_mut().zip(&lanes) {
                *to = lanes[self.row % LANES];
            }
        }
    }
}
