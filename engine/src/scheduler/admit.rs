//! Taking sequences from the queue.

use std::ops::Bound;

use super::plan::Plan;
use super::sequence::{Place, Rank, SequenceId};
use super::state::Scheduler;
use crate::cache::{PAGE_SIZE, pages_for};

/// Whether a waiting sequence can start.
enum Admission {
    Admitted,
    /// Its leader is computing the prompt that it will share.
    AwaitsLeader,
    Blocked,
}

impl Scheduler {
    /// Admits in rank order while rows, slots and pages last. Not in a step that preempted: its victims come first.
    pub(super) fn admit(&mut self, plan: &mut Plan) {
        let mut after = Bound::Unbounded;
        while plan.preempted.is_empty() && !self.slots.is_empty() && self.prefill_room(plan) > 0 {
            let Some(rank) = self.waiting.range((after, Bound::Unbounded)).next().copied() else { return };
            match self.try_admit(plan, rank) {
                Admission::Admitted | Admission::AwaitsLeader => after = Bound::Excluded(rank),
                Admission::Blocked => return,
            }
        }
    }

    fn try_admit(&mut self, plan: &mut Plan, rank: Rank) -> Admission {
        let id = rank.1;
        let Some(sequence) = self.sequences.get(&id) else { return Admission::Blocked };
        if sequence.flight.is_some() || self.blocked == Some((id, self.cache.releases())) {
            return Admission::Blocked;
        }
        if sequence.follows_leader() && self.computes_prompt(sequence.leader) {
            return Admission::AwaitsLeader;
        }
        if !self.place(id) {
            self.blocked = Some((id, self.cache.releases()));
            return Admission::Blocked;
        }
        self.waiting.remove(&rank);
        self.running.insert(rank);
        plan.admitted.push(id);
        if let Some(sequence) = self.sequences.get(&id) {
            let remaining = sequence.remaining();
            self.plan_chunk(plan, id, remaining);
        }
        Admission::Admitted
    }

    fn computes_prompt(&self, leader: SequenceId) -> bool {
        self.sequences.get(&leader).is_some_and(|leader| leader.place.is_some() && !leader.prompt_computed())
    }

    /// Gives a waiting sequence its pages and a slot; false if the pages do not suffice.
    fn place(&mut self, id: SequenceId) -> bool {
        let Some(sequence) = self.sequences.get_mut(&id) else { return false };
        let reuse = !sequence.wants_prompt_logprobs();
        let mut table = self.cache.open(sequence.namespace.clone(), &sequence.tokens, reuse);
        let hit = table.pages().len();
        let length = sequence.tokens.len();
        let needed = pages_for(length) - hit;
        let fits = needed + self.running.len() <= self.cache.available();
        let grown = fits && self.cache.grow(&mut table, length).is_ok();
        let slot = if grown { self.slots.pop() } else { None };
        let Some(slot) = slot else {
            self.cache.close(table);
            return false;
        };
        sequence.computed = hit * PAGE_SIZE;
        sequence.place = Some(Place { slot, table, begun: false });
        if sequence.cached.is_none() {
            let prompt = sequence.tokens.prompt().len() as u64;
            sequence.cached = Some((hit * PAGE_SIZE) as u32);
            // The other outputs share the leader's prompt, which is no news about the cache.
            let leads = sequence.id == sequence.leader;
            self.stats.prompt_tokens += if leads { prompt } else { 0 };
            if leads && reuse && self.config.prefix_cache {
                self.stats.prefix_queries += prompt;
                self.stats.prefix_hits += (hit * PAGE_SIZE) as u64;
            }
        }
        true
    }
}
