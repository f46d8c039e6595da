//! A step's integers as kernels read them: the twin of `kernels/include/step.cuh`.
//!
//! One allocation of 32-bit words on the device, written by one copy a step. Arrays lie at fixed places, so that a
//! captured graph finds them again; what a step uses of the last one, the pages, decides how much is copied.

mod attention;
mod image;
mod layout;

pub use attention::{AttentionGeometry, NearPasses, SPLIT_ROWS};
pub use image::StepImage;
pub use layout::{StepAddresses, StepCapacity, StepLayout};

use bytemuck::{Pod, Zeroable};

/// Positions in a page of the cache.
pub const PAGE: usize = 16;

/// No slot, no tree.
pub const NONE: u32 = u32::MAX;

/// How much of each array is in use.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Counts {
    pub rows: u32,
    pub segments: u32,
    pub logit_rows: u32,
    pub split_items: u32,
    pub whole_items: u32,
    pub moves: u32,
    pub reserved: [u32; 2],
}

/// Rows of one sequence. See [`engine::backend::Segment`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct SegmentWords {
    pub first_row: u32,
    pub rows: u32,
    pub start: u32,
    pub first_page: u32,
    /// [`NONE`] without a tree.
    pub committed: u32,
    /// In 64-bit words of the mask.
    pub first_word: u32,
    pub row_words: u32,
    pub reserved: u32,
}

/// Rows of one segment against part of the context.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct AttentionItem {
    pub segment: u32,
    pub first_row: u32,
    pub rows: u32,
    pub begin: u32,
    pub end: u32,
    pub part: u32,
    pub parts: u32,
    /// Index of part 0 in the items, and in the workspace.
    pub place: u32,
}
