//! The scheduler's state, and what goes in and out of it between steps.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::launch::InFlight;
use super::sequence::{Rank, Sequence, SequenceId};
use crate::cache::{BlockTable, CacheConfig, CacheUsage, IntegrityError, Namespace, PageCache, Tokens};
use crate::types::{Request, SlotId};

#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    pub cache: CacheConfig,
    /// Sequences that run at once.
    pub slots: u32,
    /// Rows of one step.
    pub rows: u32,
    /// Most prompt rows of one step; 0 means no limit but `rows`.
    pub max_prefill_rows: u32,
    /// Longest sequence; all the pages together must be able to hold one.
    pub context: u32,
    /// Token ids are below this.
    pub vocabulary: u32,
    pub end_tokens: Arc<[u32]>,
    /// Share pages between requests, not only between the outputs of one.
    pub prefix_cache: bool,
    /// Tokens that a new sequence verifies per step, root included; 0 and 1 mean plain decoding.
    pub verify_tokens: u32,
}

/// Counters and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerStats {
    pub running: usize,
    pub waiting: usize,
    pub usage: CacheUsage,
    pub steps: u64,
    pub preemptions: u64,
    pub prefix_queries: u64,
    pub prefix_hits: u64,
    pub prompt_tokens: u64,
    pub integrity_failures: u64,
}

#[derive(Debug)]
pub struct Scheduler {
    pub(super) config: SchedulerConfig,
    pub(super) cache: PageCache,
    pub(super) sequences: HashMap<SequenceId, Sequence>,
    pub(super) running: BTreeSet<Rank>,
    pub(super) waiting: BTreeSet<Rank>,
    pub(super) slots: Vec<SlotId>,
    /// Slots to report as retired with the next batch.
    pub(super) retired: Vec<SlotId>,
    /// Steps between launch and commit, in order: the second follows on the first.
    pub(super) in_flight: VecDeque<InFlight>,
    /// The waiting sequence that found too few pages, and the cache's count of releases then.
    pub(super) blocked: Option<(SequenceId, u64)>,
    pub(super) stats: SchedulerStats,
    /// Rows handed out so far, for turns among decodes.
    pub(super) turns: u64,
    next: u64,
}

impl Scheduler {
    pub fn new(config: SchedulerConfig) -> Self {
        Self {
            cache: PageCache::new(config.cache.clone()),
            sequences: HashMap::new(),
            running: BTreeSet::new(),
            waiting: BTreeSet::new(),
            slots: (0..config.slots).rev().map(SlotId).collect(),
            retired: Vec::new(),
            in_flight: VecDeque::new(),
            blocked: None,
            stats: SchedulerStats::default(),
            turns: 0,
            next: 0,
            config,
        }
    }

    /// Queues the `n` outputs of a request; returns their names in order of choice. The prompt must not be empty and
    /// must leave room for one more token in the context.
    pub fn submit(&mut self, request: &Request) -> Vec<SequenceId> {
        let leader = SequenceId(self.next);
        let mut end_tokens = request.params.stop_token_ids.clone();
        if !request.params.ignore_eos {
            end_tokens.extend(self.config.end_tokens.iter());
        }
        let end_tokens: Arc<[u32]> = end_tokens.into();
        let namespace = match self.config.prefix_cache {
            true => Namespace::Salt(request.cache_salt.clone()),
            false => Namespace::Private(leader.0),
        };
        (0..request.params.n)
            .map(|choice| {
                let sequence = self.sequence(request, choice, leader, namespace.clone(), end_tokens.clone());
                let id = sequence.id;
                self.waiting.insert(sequence.rank());
                self.sequences.insert(id, sequence);
                id
            })
            .collect()
    }

    fn sequence(
        &mut self,
        request: &Request,
        choice: u32,
        leader: SequenceId,
        namespace: Namespace,
        end_tokens: Arc<[u32]>,
    ) -> Sequence {
        let id = SequenceId(self.next);
        self.next += 1;
        Sequence {
            id,
            priority: request.priority,
            choice,
            leader,
            params: request.params.clone(),
            end_tokens,
            namespace,
            tokens: Tokens::new(request.prompt.clone()),
            computed: 0,
            place: None,
            flight: None,
            second: None,
            served: 0,
            verify_tokens: self.config.verify_tokens,
            prompt_logprobs: 0,
            cached: None,
        }
    }

    /// Ends a sequence wherever it is: waiting, running, or with rows in flight (their output is then dropped).
    /// Returns false if there is no such sequence.
    pub fn finish(&mut self, id: SequenceId) -> bool {
        let Some(mut sequence) = self.sequences.remove(&id) else { return false };
        self.waiting.remove(&sequence.rank());
        self.running.remove(&sequence.rank());
        self.vacate(&mut sequence);
        true
    }

    /// Gives slot and pages back.
    pub(super) fn vacate(&mut self, sequence: &mut Sequence) {
        let Some(place) = sequence.place.take() else { return };
        self.cache.close(place.table);
        self.slots.push(place.slot);
        if place.begun {
            self.retired.push(place.slot);
        }
        sequence.computed = 0;
        sequence.flight.iter_mut().chain(&mut sequence.second).for_each(|flight| flight.kept = false);
    }

    /// Sets how many tokens a sequence verifies per step from its next step on, root included.
    pub fn set_verify_tokens(&mut self, id: SequenceId, tokens: u32) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.verify_tokens = tokens;
        }
    }

    /// The same for every sequence, those to come included.
    pub fn set_all_verify_tokens(&mut self, tokens: u32) {
        if self.config.verify_tokens != tokens {
            self.config.verify_tokens = tokens;
            self.sequences.values_mut().for_each(|sequence| sequence.verify_tokens = tokens);
        }
    }

    /// Prompt tokens that came from the prefix cache when the sequence was first admitted; None before that.
    pub fn cached_tokens(&self, id: SequenceId) -> Option<u32> {
        self.sequences.get(&id)?.cached
    }

    /// Nothing runs, waits or is in flight.
    pub fn is_idle(&self) -> bool {
        self.sequences.is_empty() && self.in_flight.is_empty()
    }

    pub fn stats(&self) -> SchedulerStats {
        SchedulerStats {
            running: self.running.len(),
            waiting: self.waiting.len(),
            usage: self.cache.usage(),
            integrity_failures: self.cache.integrity_failures(),
            ..self.stats
        }
    }

    /// A full audit of pages, slots and queues, for tests and for an idle engine.
    pub fn check_integrity(&self) -> Result<(), IntegrityError> {
        let places = || self.sequences.values().filter_map(|sequence| sequence.place.as_ref());
        let tables = places().map(|place| &place.table);
        self.cache.check_integrity(tables.collect::<Vec<&BlockTable>>())?;
        let slots: BTreeSet<SlotId> = places().map(|place| place.slot).chain(self.slots.iter().copied()).collect();
        let listed = places().count() + self.slots.len();
        if slots.len() != self.config.slots as usize || listed != slots.len() {
            return Err(IntegrityError(format!("{listed} slots are listed, {} different ones", slots.len())));
        }
        for sequence in self.sequences.values() {
            let (runs, waits) = (self.running.contains(&sequence.rank()), self.waiting.contains(&sequence.rank()));
            if runs == waits || runs != sequence.place.is_some() {
                return Err(IntegrityError(format!("sequence {} runs: {runs}, waits: {waits}", sequence.id.0)));
            }
        }
        let queued = self.running.len() + self.waiting.len();
        if queued != self.sequences.len() {
            return Err(IntegrityError(format!("{queued} sequences are queued and {} exist", self.sequences.len())));
        }
        Ok(())
    }
}
