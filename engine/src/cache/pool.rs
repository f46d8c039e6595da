//! Physical pages: which are free, and how many block tables hold each of the others.

use crate::types::PageId;

#[derive(Debug)]
pub(super) struct PagePool {
    /// Last in, first out: a page that was just used may still be in a processor's cache.
    free: Vec<PageId>,
    pages: Vec<PageState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PageState {
    holders: u32,
    /// Counts how often the page became free: a holder that remembers an older number has lost it.
    generation: u32,
}

impl PagePool {
    pub fn new(pages: u32) -> Self {
        Self { free: (0..pages).rev().map(PageId).collect(), pages: vec![PageState::default(); pages as usize] }
    }

    pub fn len(&self) -> usize {
        self.pages.len()
    }

    pub fn free(&self) -> &[PageId] {
        &self.free
    }

    pub fn holders(&self, page: PageId) -> u32 {
        self.pages[page.0 as usize].holders
    }

    pub fn generation(&self, page: PageId) -> u32 {
        self.pages[page.0 as usize].generation
    }

    /// A free page, held once from now on.
    pub fn take(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        self.pages[page.0 as usize].holders = 1;
        Some(page)
    }

    pub fn hold(&mut self, page: PageId) {
        self.pages[page.0 as usize].holders += 1;
    }

    /// One holder fewer; returns how many are left. The page does not become free by this alone.
    pub fn release(&mut self, page: PageId) -> u32 {
        let state = &mut self.pages[page.0 as usize];
        debug_assert!(state.holders > 0, "page {} has no holder to release", page.0);
        state.holders = state.holders.saturating_sub(1);
        state.holders
    }

    /// Makes a page that nobody holds free.
    pub fn reclaim(&mut self, page: PageId) {
        let state = &mut self.pages[page.0 as usize];
        debug_assert_eq!(state.holders, 0, "page {} is held", page.0);
        state.generation = state.generation.wrapping_add(1);
        self.free.push(page);
    }
}
