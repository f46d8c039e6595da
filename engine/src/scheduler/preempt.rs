//! Pages for running sequences, taken from others if need be.

use super::plan::Plan;
use super::sequence::SequenceId;
use super::state::Scheduler;

impl Scheduler {
    /// Pages for `width` rows of a running sequence. Falls back to one row, then preempts from the end of the ranks.
    /// Returns the rows that it got; None if it was itself the last in rank and now waits.
    pub(super) fn reserve(&mut self, plan: &mut Plan, id: SequenceId, width: usize) -> Option<usize> {
        for rows in [width, 1] {
            if self.try_reserve(id, rows) {
                return Some(rows);
            }
        }
        while let Some((_, victim)) = self.running.last().copied() {
            self.preempt(plan, victim);
            if victim == id {
                return None;
            }
            if self.try_reserve(id, 1) {
                return Some(1);
            }
        }
        None
    }

    fn try_reserve(&mut self, id: SequenceId, rows: usize) -> bool {
        let Some(sequence) = self.sequences.get_mut(&id) else { return false };
        let positions = sequence.latest_start() + rows;
        let Some(place) = sequence.place.as_mut() else { return false };
        self.cache.grow(&mut place.table, positions).is_ok()
    }

    fn preempt(&mut self, plan: &mut Plan, id: SequenceId) {
        let Some(mut sequence) = self.sequences.remove(&id) else { return };
        self.running.remove(&sequence.rank());
        self.waiting.insert(sequence.rank());
        self.vacate(&mut sequence);
        self.sequences.insert(id, sequence);
        plan.remove(id);
        plan.preempted.push(id);
        self.stats.preemptions += 1;
    }
}
