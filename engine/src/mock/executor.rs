//! The mock's executor: steps, delays, faults.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use super::entry::Slot;
use crate::cache::PAGE_SIZE;
use crate::executor::{Capacity, Executor, ExecutorError};
use crate::types::{Batch, Phase, StepOutput, chosen_index};

/// What goes wrong at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The step is refused before it starts.
    Submit,
    /// The step fails; others can follow.
    Step,
    /// The step fails and none can follow.
    Fatal,
    /// The executor panics.
    Panic,
    /// The step's output lacks an entry.
    Short,
}

#[derive(Clone, Debug)]
pub struct MockConfig {
    pub capacity: Capacity,
    /// From submission to the output.
    pub step_delay: Duration,
    /// Steps in flight, 1 or 2.
    pub depth: usize,
    /// Faults by the number of the step.
    pub faults: Vec<(u64, Fault)>,
}

impl MockConfig {
    pub fn new(pages: u32, slots: u32, rows: u32, context: u32, vocabulary: u32) -> Self {
        let page_size = PAGE_SIZE as u32;
        let capacity = Capacity { pages, page_size, slots, rows, context, vocabulary };
        Self { capacity, step_delay: Duration::ZERO, depth: 2, faults: Vec::new() }
    }
}

/// Content of a position that nobody has written.
pub(super) const UNWRITTEN: u32 = u32::MAX;

pub struct MockExecutor {
    config: MockConfig,
    pages: Vec<[u32; PAGE_SIZE]>,
    slots: Vec<Option<Slot>>,
    pending: VecDeque<(Batch, Instant)>,
    /// What each entry of the last step chose.
    chosen: Vec<Option<u32>>,
}

impl MockExecutor {
    pub fn new(config: MockConfig) -> Self {
        let Capacity { pages, slots, .. } = config.capacity;
        Self {
            pages: vec![[UNWRITTEN; PAGE_SIZE]; pages as usize],
            slots: (0..slots).map(|_| None).collect(),
            pending: VecDeque::new(),
            chosen: Vec::new(),
            config,
        }
    }

    fn fault(&self, step: u64) -> Option<Fault> {
        self.config.faults.iter().find(|(at, _)| *at == step).map(|(_, fault)| *fault)
    }

    fn check(&self, batch: &Batch) -> Result<(), String> {
        let capacity = &self.config.capacity;
        if batch.entries.is_empty() || batch.rows() > capacity.rows as usize {
            return Err(format!(
                "{} entries with {} rows, capacity {}",
                batch.entries.len(),
                batch.rows(),
                capacity.rows
            ));
        }
        let order = |phase| match phase {
            Phase::Prefill => 0,
            Phase::Verify => 1,
            Phase::Decode | Phase::Draft => 2,
        };
        if !batch.entries.is_sorted_by_key(|entry| order(entry.phase)) {
            return Err("entries are not ordered by phase".into());
        }
        let mut written = HashSet::new();
        for entry in &batch.entries {
            let first = entry.start as usize;
            let last = first + entry.tokens.len().max(entry.verify_tokens as usize) - 1;
            let touched =
                entry.pages.get(first / PAGE_SIZE..=last / PAGE_SIZE).ok_or("the pages do not cover the rows")?;
            if !touched.iter().all(|page| page.0 < capacity.pages && written.insert(*page)) {
                return Err("a page does not exist or is written by two entries".into());
            }
        }
        Ok(())
    }

    /// Puts what the step before chose in the place of tokens that name its entries.
    fn resolve(&self, batch: &mut Batch) -> Result<(), String> {
        for token in batch.entries.iter_mut().flat_map(|entry| &mut entry.tokens) {
            let Some(entry) = chosen_index(*token) else { continue };
            let known = self.chosen.get(entry).copied().flatten();
            *token = known.ok_or_else(|| format!("entry {entry} of the step before has chosen no token"))?;
        }
        Ok(())
    }

    fn run(&mut self, mut batch: Batch) -> Result<StepOutput, String> {
        self.resolve(&mut batch)?;
        self.check(&batch)?;
        for slot in &batch.retired {
            *self.slots.get_mut(slot.0 as usize).ok_or("a retired slot does not exist")? = None;
        }
        let mut output = StepOutput::default();
        for entry in &batch.entries {
            let state = self.slots.get_mut(entry.slot.0 as usize).ok_or("the slot does not exist")?;
            match (&state, &entry.begin) {
                (None, Some(sampling)) => *state = Some(Slot::new(sampling, entry)),
                (Some(_), Some(_)) => return Err(format!("slot {} begins while it is taken", entry.slot.0)),
                (None, None) => return Err(format!("slot {} was never begun", entry.slot.0)),
                (Some(_), None) => {}
            }
            let Some(slot) = state else { continue };
            output.entries.push(slot.run(entry, &mut self.pages, self.config.capacity.vocabulary)?);
        }
        self.chosen = output.entries.iter().map(|entry| entry.tokens.last().map(|token| token.id)).collect();
        Ok(output)
    }
}

impl Executor for MockExecutor {
    fn capacity(&self) -> Capacity {
        self.config.capacity
    }

    fn depth(&self) -> usize {
        self.config.depth
    }

    fn submit(&mut self, batch: Batch) -> Result<(), ExecutorError> {
        if self.pending.len() >= self.config.depth {
            return Err(breach(batch.step, "as many steps as can be are in flight already"));
        }
        if self.fault(batch.step) == Some(Fault::Submit) {
            return Err(ExecutorError { message: format!("mock: step {} was refused", batch.step), fatal: false });
        }
        let now = Instant::now();
        let begin = self.pending.back().map_or(now, |(_, due)| (*due).max(now));
        self.pending.push_back((batch, begin + self.config.step_delay));
        Ok(())
    }

    fn collect(&mut self) -> Result<StepOutput, ExecutorError> {
        let (batch, due) = self.pending.pop_front().ok_or_else(|| breach(0, "no step is in flight"))?;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let step = batch.step;
        let mut output = self.run(batch).map_err(|message| breach(step, &message))?;
        match self.fault(step) {
            Some(Fault::Step) => Err(ExecutorError { message: format!("mock: step {step} failed"), fatal: false }),
            Some(Fault::Fatal) => {
                Err(ExecutorError { message: format!("mock: step {step} failed for good"), fatal: true })
            }
            Some(Fault::Panic) => panic!("mock: step {step} panics"),
            Some(Fault::Short) => {
                output.entries.pop();
                Ok(output)
            }
            Some(Fault::Submit) | None => Ok(output),
        }
    }
}

fn breach(step: u64, message: &str) -> ExecutorError {
    ExecutorError { message: format!("mock: the contract is broken at step {step}: {message}"), fatal: true }
}
