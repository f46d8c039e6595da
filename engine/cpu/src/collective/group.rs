use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use engine::collective::{Operation, Site};
use engine::types::Patience;

use super::member::Member;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agenda {
    pub operation: Operation,
    pub site: Site,
    pub rows: usize,
    pub width: usize,
}

impl fmt::Display for Agenda {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, site, rows, width } = self;
        write!(formatter, "{} of {rows} x {width} at {}", operation.name(), site.name())
    }
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
        Member::new(Arc::clone(self), rank)
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

    /// Puts rank `rank`'s message where the others will read it.
    pub(super) fn publish(&self, rank: usize, turn: usize, values: &[f32]) {
        let mut message = self.messages[rank][turn].write().unwrap_or_else(PoisonError::into_inner);
        message.clear();
        message.extend_from_slice(values);
    }

    /// What every rank has published, in rank order.
    pub(super) fn messages(&self, turn: usize) -> impl Iterator<Item = RwLockReadGuard<'_, Vec<f32>>> {
        self.messages.iter().map(move |rank| rank[turn].read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns when every rank has come with the same agenda.
    pub(super) fn meet(&self, rank: usize, agenda: Agenda) -> Result<(), String> {
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
        let mut held = Some(meeting);
        let ended = Patience::new(self.deadline).wait(|slice| {
            let meeting = held.take().unwrap_or_else(|| self.meeting());
            let waited = self.everyone_came.wait_timeout_while(meeting, slice, |meeting| meeting.lasts(generation));
            let meeting = waited.unwrap_or_else(PoisonError::into_inner).0;
            if meeting.lasts(generation) {
                held = Some(meeting);
                return None;
            }
            Some(meeting)
        });
        let meeting = ended.unwrap_or_else(|| {
            let mut meeting = held.take().unwrap_or_else(|| self.meeting());
            meeting.poison = Some(meeting.absence(self.deadline));
            self.everyone_came.notify_all();
            meeting
        });
        meeting.poison.clone().map_or(Ok(()), Err)
    }
}

impl Meeting {
    /// Whether the call of this generation still waits for a rank.
    fn lasts(&self, generation: u64) -> bool {
        self.generation == generation && self.poison.is_none()
    }

    fn disagreement(&self) -> Option<String> {
        let first = self.came.first()?.as_ref()?;
        let (rank, other) = self.came.iter().flatten().enumerate().find(|(_, agenda)| *agenda != first)?;
        Some(format!("ranks disagree: rank 0 came to {first}, rank {rank} to {other}"))
    }

    fn absence(&self, deadline: Duration) -> String {
        let missing = self.came.iter().enumerate().filter(|(_, agenda)| agenda.is_none());
        let missing: Vec<String> = missing.map(|(rank, _)| rank.to_string()).collect();
        format!("rank {} stalled: the others waited {:.1} s", missing.join(", "), deadline.as_secs_f64())
    }
}
