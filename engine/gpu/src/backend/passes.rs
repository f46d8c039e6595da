//! Which passes are recorded, and for what steps.

use engine::backend::{BackendError, PassKey};
use engine::types::Phase;

use super::CudaBackend;
use super::pending::Pending;
use super::step::FEW_ROWS;
use crate::device::{Reach, Recordings};
use crate::kernels::{NEAR_ROWS, NEAR_SEQUENCES};
use crate::step::{NearPasses, SPLIT_ROWS};

/// Row counts of recorded decode passes; above them, every multiple of the last one.
const RECORDED_ROWS: [usize; 9] = [1, 2, 4, 8, 16, 24, 32, 48, 64];

/// The recorded row count for `rows`.
pub(super) fn bucket(rows: usize) -> usize {
    let largest = RECORDED_ROWS[RECORDED_ROWS.len() - 1];
    RECORDED_ROWS.into_iter().find(|bucket| *bucket >= rows).unwrap_or_else(|| rows.next_multiple_of(largest))
}

/// Most rows of a pass that is recorded. Above, launching costs nothing beside the work; and a recorded pass of several
/// rows a sequence must have split all of them.
pub(super) fn most_recorded(phase: Phase) -> usize {
    match phase {
        Phase::Decode => FEW_ROWS,
        Phase::Verify | Phase::Draft => SPLIT_ROWS,
        Phase::Prefill => 0,
    }
}

impl CudaBackend {
    /// Passes whose rows all do the same; drafting ones may go several rounds over them.
    pub(super) fn records(key: PassKey) -> bool {
        let rounds = match key.phase {
            Phase::Decode | Phase::Verify => key.rows == key.logit_rows,
            Phase::Draft | Phase::Prefill => key.rows > 0 && key.logit_rows.is_multiple_of(key.rows),
        };
        rounds && (1..=most_recorded(key.phase)).contains(&key.rows)
    }

    /// For what steps a pass is recorded. Drafting may go several rounds in one pass and read what an earlier one wrote, which
    /// attention of short contexts would read too early.
    pub(super) fn reaches(&self, key: PassKey) -> &'static [Reach] {
        let rows = match key.phase {
            Phase::Decode => NEAR_SEQUENCES,
            Phase::Verify => NEAR_ROWS,
            Phase::Draft | Phase::Prefill => 0,
        };
        if key.rows <= rows && self.kernels.attends_near() { &[Reach::Any, Reach::Near] } else { &[Reach::Any] }
    }

    /// Which of a pass's recordings the steps that it reads are for.
    pub(super) fn reach(&self, phase: Phase) -> Reach {
        let near = |step: &NearPasses| match phase {
            Phase::Decode => step.one_row,
            Phase::Verify => step.rows,
            Phase::Draft | Phase::Prefill => false,
        };
        let attended = |(id, step)| !self.attended.contains(id) || near(step);
        if self.near.iter().all(attended) { Reach::Near } else { Reach::Any }
    }

    pub(super) fn record<E: From<BackendError>>(
        &mut self,
        key: PassKey,
        reach: Reach,
        body: &mut impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.recordings.begin(&self.gpu.stream)?;
        self.recording = Some(reach);
        let launched = body(self).and_then(|()| Ok(self.flush()?));
        self.recording = None;
        if launched.is_err() {
            self.pending = Pending::Nothing;
            self.lazy.clear();
            Recordings::abandon(&self.gpu.stream);
            return launched;
        }
        self.recordings.keep(&self.gpu.stream, key, reach)?;
        self.note_memory()?;
        // Recording allocates, and a rank must not wait on the device for one that does.
        self.meet()?;
        self.recordings.replay(key, reach)?;
        Ok(self.settle("record")?)
    }
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn buckets_hold_their_rows_and_little_more() {
        for rows in 1..=1024 {
            let bucket = bucket(rows);
            assert!(bucket >= rows && bucket < 2 * rows.max(64), "{rows} rows in {bucket}");
        }
        assert_eq!([1, 3, 17, 64, 65].map(bucket), [1, 4, 24, 64, 128]);
    }
}
