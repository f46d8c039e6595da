//! One sequence in the mock's slot, and one entry of a step for it.

use super::answer::{History, logprobs};
use super::executor::UNWRITTEN;
use crate::cache::PAGE_SIZE;
use crate::types::{BatchEntry, EntryOutput, LogitsRows, PageId, Phase, Sampling};

pub(super) struct Slot {
    sampling: Sampling,
    /// Position at which the next rows must start.
    next: usize,
}

impl Slot {
    pub fn new(sampling: &Sampling, entry: &BatchEntry) -> Self {
        Self { sampling: sampling.clone(), next: entry.start as usize }
    }

    fn token(&self, position: usize) -> Option<u32> {
        match position.checked_sub(self.sampling.prompt.len()) {
            None => self.sampling.prompt.get(position).copied(),
            Some(index) => self.sampling.output.get(index).copied(),
        }
    }

    fn length(&self) -> usize {
        self.sampling.prompt.len() + self.sampling.output.len()
    }

    pub fn run(
        &mut self,
        entry: &BatchEntry,
        pages: &mut [[u32; PAGE_SIZE]],
        vocabulary: u32,
    ) -> Result<EntryOutput, String> {
        self.check(entry)?;
        let start = entry.start as usize;
        for (offset, token) in entry.tokens.iter().enumerate() {
            write(pages, &entry.pages, start + offset, *token);
        }
        self.next = start + entry.tokens.len();
        let mut output = EntryOutput::default();
        if entry.logits == LogitsRows::All {
            let last = self.next.min(self.sampling.prompt.len() - 1);
            let top = self.sampling.params.prompt_logprobs.ok_or("prompt logits were not asked for")?;
            let rows = (start + 1..=last).map(|position| logprobs(self.sampling.prompt[position], position, top));
            output.prompt_logprobs = rows.collect();
        }
        if entry.sample {
            let mut history = self.read_back(entry, pages)?;
            let accepted = match entry.phase {
                Phase::Verify => (history.bits() % u64::from(entry.verify_tokens)) as u32,
                Phase::Prefill | Phase::Decode | Phase::Draft => 0,
            };
            self.generate(entry, pages, vocabulary, &mut history, accepted, &mut output);
        }
        Ok(output)
    }

    /// Accepted tokens are written like inputs; what was drafted and not accepted leaves rubbish behind.
    fn generate(
        &mut self,
        entry: &BatchEntry,
        pages: &mut [[u32; PAGE_SIZE]],
        vocabulary: u32,
        history: &mut History,
        accepted: u32,
        output: &mut EntryOutput,
    ) {
        for index in 0..=accepted {
            let token = history.next(&self.sampling, self.sampling.output.len(), vocabulary);
            history.push(token.id);
            self.sampling.output.push(token.id);
            if index < accepted {
                write(pages, &entry.pages, self.next, token.id);
                self.next += 1;
            }
            output.tokens.push(token);
        }
        if entry.phase == Phase::Verify {
            let end = entry.start as usize + entry.verify_tokens as usize;
            (self.next..end).for_each(|position| write(pages, &entry.pages, position, UNWRITTEN - 1));
            output.drafted = entry.verify_tokens - 1;
            output.accepted = accepted;
        }
    }

    fn check(&self, entry: &BatchEntry) -> Result<(), String> {
        let start = entry.start as usize;
        if start != self.next {
            return Err(format!("rows start at {start}, but {} are written", self.next));
        }
        let tokens = start..start + entry.tokens.len();
        if !tokens.clone().map(|position| self.token(position)).eq(entry.tokens.iter().map(|token| Some(*token))) {
            return Err(format!("the tokens at {tokens:?} are not those of the sequence"));
        }
        if entry.sample != (tokens.end == self.length()) {
            return Err(format!("sampling is {} at {} of {} tokens", entry.sample, tokens.end, self.length()));
        }
        let single = entry.tokens.len() == 1;
        match entry.phase {
            Phase::Prefill if entry.verify_tokens == 0 => Ok(()),
            Phase::Decode if single && entry.verify_tokens == 0 && entry.begin.is_none() => Ok(()),
            Phase::Verify if single && entry.verify_tokens > 1 && entry.begin.is_none() => Ok(()),
            phase => Err(format!("{phase:?} with {} tokens, {} to verify", entry.tokens.len(), entry.verify_tokens)),
        }
    }

    /// The sequence's tokens as its pages hold them.
    fn read_back(&self, entry: &BatchEntry, pages: &[[u32; PAGE_SIZE]]) -> Result<History, String> {
        let mut history = History::new(&self.sampling);
        for position in 0..self.next {
            let page = entry.pages.get(position / PAGE_SIZE).ok_or("the pages do not cover the sequence")?;
            history.push(pages[page.0 as usize][position % PAGE_SIZE]);
        }
        Ok(history)
    }
}

fn write(pages: &mut [[u32; PAGE_SIZE]], table: &[PageId], position: usize, token: u32) {
    pages[table[position / PAGE_SIZE].0 as usize][position % PAGE_SIZE] = token;
}
