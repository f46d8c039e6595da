//! Planning a step: who gets rows, and pages for them.

use super::sequence::SequenceId;
use super::state::Scheduler;
use crate::types::Phase;

/// Share of the rows that stays free of decodes while prompts wait: one in this many.
const PREFILL_SHARE: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedEntry {
    pub sequence: SequenceId,
    pub phase: Phase,
    /// Input rows; a verify entry's width.
    pub rows: usize,
}

/// The next step, with pages reserved for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub(super) entries: Vec<PlannedEntry>,
    rows: usize,
    prefill_rows: usize,
    /// Sequences that took a slot, in order. Also those admitted again after a preemption.
    pub admitted: Vec<SequenceId>,
    /// Sequences that lost their pages and wait again.
    pub preempted: Vec<SequenceId>,
}

impl Plan {
    fn add(&mut self, sequence: SequenceId, phase: Phase, rows: usize) {
        self.entries.push(PlannedEntry { sequence, phase, rows });
        self.rows += rows;
        self.prefill_rows += if phase == Phase::Prefill { rows } else { 0 };
    }

    /// Takes a sequence that lost its pages out of the step.
    pub(super) fn remove(&mut self, sequence: SequenceId) {
        let removed = self.entries.extract_if(.., |entry| entry.sequence == sequence);
        for entry in removed {
            self.rows -= entry.rows;
            self.prefill_rows -= if entry.phase == Phase::Prefill { entry.rows } else { 0 };
        }
    }

    /// Prefill first, then verify, then decode; otherwise as planned.
    fn order(&mut self) {
        self.entries.sort_by_key(|entry| match entry.phase {
            Phase::Prefill => 0,
            Phase::Verify => 1,
            // No entry is ever a draft pass.
            Phase::Decode | Phase::Draft => 2,
        });
    }
}

impl Scheduler {
    /// Chooses the work of the next step and reserves its pages. May be called while a step is in flight.
    pub fn plan(&mut self) -> Plan {
        let mut plan = Plan::default();
        self.give_back_surplus();
        self.plan_decodes(&mut plan);
        self.plan_prefills(&mut plan);
        self.admit(&mut plan);
        plan.order();
        plan
    }

    /// Admits into a plan that was made while a step was in flight, after that step is committed.
    pub fn top_up(&mut self, plan: &mut Plan) {
        self.admit(plan);
        plan.order();
    }

    /// What verify entries reserved beyond their outcome. A step in flight may still need its reserve.
    fn give_back_surplus(&mut self) {
        for (_, id) in &self.running {
            let Some(sequence) = self.sequences.get_mut(id).filter(|sequence| sequence.flight.is_none()) else {
                continue;
            };
            let length = sequence.tokens.len();
            if let Some(place) = sequence.place.as_mut() {
                self.cache.shrink(&mut place.table, length);
            }
        }
    }

    fn plan_decodes(&mut self, plan: &mut Plan) {
        let context = self.config.context as usize;
        let mut ready: Vec<(u64, SequenceId)> = Vec::new();
        let mut prompts = !self.waiting.is_empty() && !self.slots.is_empty();
        for (_, id) in &self.running {
            let Some(sequence) = self.sequences.get(id) else { continue };
            match sequence.decodes() {
                true if sequence.allowance(context) > 0 && sequence.latest_start() < context => {
                    ready.push((sequence.served, *id));
                }
                // It ends for certain with the step in flight, or may; then there is nothing to plan yet.
                true => {}
                false => prompts = true,
            }
        }
        ready.sort_unstable();
        let rows = self.config.rows as usize;
        let limit = if prompts { rows - (rows / PREFILL_SHARE).max(1).min(rows - 1) } else { rows };
        for (_, id) in ready {
            let free = limit.saturating_sub(plan.rows);
            if free == 0 {
                break;
            }
            self.plan_decode(plan, id, free);
        }
    }

    fn plan_decode(&mut self, plan: &mut Plan, id: SequenceId, free: usize) {
        let context = self.config.context as usize;
        let Some(sequence) = self.sequences.get(&id).filter(|sequence| sequence.place.is_some()) else { return };
        let wanted = (sequence.verify_tokens.max(1) as usize).min(free).min(sequence.allowance(context));
        // A flight's longest outcome may leave less room than the shortest one did.
        let width = wanted.min(context.saturating_sub(sequence.latest_start())).max(1);
        if let Some(rows) = self.reserve(plan, id, width) {
            let phase = if rows > 1 { Phase::Verify } else { Phase::Decode };
            plan.add(id, phase, rows);
        }
    }

    fn plan_prefills(&self, plan: &mut Plan) {
        for (_, id) in &self.running {
            let Some(sequence) = self.sequences.get(id).filter(|sequence| !sequence.decodes()) else { continue };
            if sequence.remaining() > 0 {
                self.plan_chunk(plan, *id, sequence.remaining());
            }
        }
    }

    /// Rows for a prompt, as many as the step has left.
    pub(super) fn plan_chunk(&self, plan: &mut Plan, id: SequenceId, remaining: usize) {
        let rows = remaining.min(self.prefill_room(plan));
        if rows > 0 {
            plan.add(id, Phase::Prefill, rows);
        }
    }

    pub(super) fn prefill_room(&self, plan: &Plan) -> usize {
        let most = match self.config.max_prefill_rows {
            0 => usize::MAX,
            rows => rows as usize,
        };
        let left = (self.config.rows as usize).saturating_sub(plan.rows);
        left.min(most.saturating_sub(plan.prefill_rows))
    }
}
