//! Ranks as threads of one process that meet in shared memory. Each rank publishes its rows, all wait for each other,
//! then each reads what it needs: a sum is taken in rank order by every rank, so all get the same bits in every run.
//! Waits park. A rank that fails, panics or does not come in time poisons the group: every other rank gets an error.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use engine::backend::AddNorm;
use engine::collective::{AllGather, Call, Collective, CollectiveError, RankRows};

use crate::CpuBackend;

/// What all ranks of a group share.
pub struct RankGroup {
    /// How long a rank waits for the others before it gives the group up.
    deadline: Duration,
    meeting: Mutex<Meeting>,
    everyone_came: Condvar,
    /// Each rank's message. Two, used in turn: a rank can publish for the next call while others still read this one,
    /// and cannot come to the one after that before they are done.
    messages: Vec<[RwLock<Vec<f32>>; 2]>,
}

/// The call that ranks are coming to.
struct Meeting {
    /// Counts finished calls.
    generation: u64,
    /// What each rank that has come is about to do.
    came: Vec<Option<Agenda>>,
    poison: Option<String>,
}

/// Must be the same on every rank, or they would sum what does not belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Agenda {
    call: String,
    shape: (usize, usize),
}

/// One rank's place in its group.
pub struct Member {
    group: Arc<RankGroup>,
    rank: usize,
    /// Which of the two messages is this call's.
    turn: usize,
}

impl RankGroup {
    pub fn new(world_size: usize, deadline: Duration) -> Arc<Self> {
        let meeting = Meeting { generation: 0, came: vec![None; world_size], poison: None };
        let messages = (0..world_size).map(|_| Default::default()).collect();
        Arc::new(Self { deadline, meeting: Mutex::new(meeting), everyone_came: Condvar::new(), messages })
    }

    pub fn world_size(&self) -> usize {
        self.messages.len()
    }

    /// Rank `rank`'s place. Each is taken once.
    pub fn member(self: &Arc<Self>, rank: usize) -> Member {
        Member { group: Arc::clone(self), rank, turn: 0 }
    }

    /// Ends the group: every call from now on, and every wait in progress, returns an error with this message. The
    /// first message stays.
    pub fn poison(&self, message: &str) {
        self.meeting().poison.get_or_insert_with(|| message.to_owned());
        self.everyone_came.notify_all();
    }

    fn meeting(&self) -> MutexGuard<'_, Meeting> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when every rank has come with the same agenda.
    fn meet(&self, rank: usize, agenda: Agenda) -> Result<(), String> {
        let until = Instant::now() + self.deadline;
        let mut meeting = self.meeting();
        let generation = meeting.generation;
        meeting.came[rank] = Some(agenda);
        if meeting.came.iter().all(Option::is_some) {
            let disagreement = meeting.disagreement();
            meeting.poison = meeting.poison.take().or(disagreement);
            meeting.came.fill(None);
            meeting.generation += 1;
            self.everyone_came.notify_all();
        }
        while meeting.generation == generation && meeting.poison.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                meeting.poison = Some(meeting.absence(self.deadline));
                self.everyone_came.notify_all();
                break;
            }
            meeting = self.everyone_came.wait_timeout(meeting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        meeting.poison.clone().map_or(Ok(()), Err)
    }
}

impl Meeting {
    fn disagreement(&self) -> Option<String> {
        let first = self.came.first()?.as_ref()?;
        let (rank, other) = self.came.iter().flatten().enumerate().find(|(_, agenda)| *agenda != first)?;
        let (call, shape) = (&first.call, first.shape);
        Some(format!("rank 0 came to {call} of {shape:?} and rank {rank} to {} of {:?}", other.call, other.shape))
    }

    fn absence(&self, deadline: Duration) -> String {
        let missing = self.came.iter().enumerate().filter(|(_, agenda)| agenda.is_none());
        let missing: Vec<String> = missing.map(|(rank, _)| rank.to_string()).collect();
        format!("rank {} stalled: the others waited {:.1} s", missing.join(", "), deadline.as_secs_f64())
    }
}

impl Member {
    /// Puts this rank's message where the others will read it.
    fn publish(&self, values: &[f32]) {
        let mut message = self.group.messages[self.rank][self.turn].write().unwrap_or_else(PoisonError::into_inner);
        message.clear();
        message.extend_from_slice(values);
    }

    /// Waits until every rank has published, then gives their messages in rank order. To be read before the next
    /// message is published.
    fn meet(
        &mut self,
        call: Call<'_>,
        shape: (usize, usize),
    ) -> Result<impl Iterator<Item = RwLockReadGuard<'_, Vec<f32>>>, CollectiveError> {
        let turn = self.turn;
        self.turn = 1 - turn;
        let name = format!("{} at {}", call.operation.name(), call.site.name());
        let met = self.group.meet(self.rank, Agenda { call: name, shape });
        met.map_err(|message| CollectiveError { operation: call.operation, site: call.site, message })?;
        Ok(self.group.messages.iter().map(move |rank| rank[turn].read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Collective<CpuBackend> for Member {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.group.world_size()
    }

    fn all_reduce(
        &mut self,
        _: &mut CpuBackend,
        call: Call<'_>,
        RankRows { buffer, rows, width }: RankRows<'_, CpuBackend>,
    ) -> Result<(), CollectiveError> {
        let values = &mut buffer.0[..rows * width];
        self.publish(values);
        let messages = self.meet(call, (rows, width))?;
        values.fill(0.0);
        messages.for_each(|message| crate::elementwise::add(values, &message));
        Ok(())
    }

    fn all_reduce_add_norm(
        &mut self,
        _: &mut CpuBackend,
        call: Call<'_>,
        _: AddNorm<'_, CpuBackend>,
    ) -> Result<(), CollectiveError> {
        let message = format!("the CPU has no fusion `{}`; the plan must say `none`", call.rung.fusion);
        Err(CollectiveError { operation: call.operation, site: call.site, message })
    }

    fn all_gather(
        &mut self,
        _: &mut CpuBackend,
        call: Call<'_>,
        gather: AllGather<'_, CpuBackend>,
    ) -> Result<(), CollectiveError> {
        let AllGather { input, output, rows, width, total } = gather;
        let own = |rank: usize| width.min(total.saturating_sub(rank * width));
        self.publish(&input.0[..rows * own(self.rank)]);
        for (rank, message) in self.meet(call, (rows, total))?.enumerate().take_while(|(rank, _)| own(*rank) > 0) {
            for (row, columns) in message.chunks_exact(own(rank)).enumerate() {
                output.0[row * total + rank * width..][..columns.len()].copy_from_slice(columns);
            }
        }
        Ok(())
    }

    fn broadcast(
        &mut self,
        _: &mut CpuBackend,
        call: Call<'_>,
        root: usize,
        RankRows { buffer, rows, width }: RankRows<'_, CpuBackend>,
    ) -> Result<(), CollectiveError> {
        let values = &mut buffer.0[..rows * width];
        self.publish(if self.rank == root { values } else { &[] });
        if let Some(message) = self.meet(call, (rows, width))?.nth(root) {
            values.copy_from_slice(&message);
        }
        Ok(())
    }
}
