use std::collections::HashMap;
use std::sync::Arc;

use super::{AllGather, Call, CallCounters, CallKey, Collective, CollectiveError, CollectivePlan};
use super::{NO_FUSION, Operation, RankRows, Site};
use crate::backend::{AddNorm, Backend, BackendError, PassKey};
use crate::types::Phase;

/// Why a forward pass did not finish.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

/// What a model calls. Rank 0 counts for the group, so a count is a number of collectives and not of ranks.
pub struct Communicator<B: Backend> {
    /// None in a group of one rank: then a sum is what is there already, and nothing is counted because nothing ran.
    group: Option<Box<dyn Collective<B>>>,
    plan: Arc<CollectivePlan>,
    counters: Arc<CallCounters>,
    /// Calls of each pass that a device may replay without coming here again.
    passes: HashMap<PassKey, Vec<(CallKey, u64)>>,
    /// Calls of the pass that is being made.
    made: Vec<(CallKey, u64)>,
}

impl<B: Backend> Communicator<B> {
    /// A group of one.
    pub fn single() -> Self {
        Self::of(None, Arc::new(CollectivePlan::uniform("none")), Arc::default())
    }

    pub fn new(group: Box<dyn Collective<B>>, plan: Arc<CollectivePlan>, counters: Arc<CallCounters>) -> Self {
        Self::of(Some(group), plan, counters)
    }

    fn of(group: Option<Box<dyn Collective<B>>>, plan: Arc<CollectivePlan>, counters: Arc<CallCounters>) -> Self {
        Self { group, plan, counters, passes: HashMap::new(), made: Vec::new() }
    }

    pub fn rank(&self) -> usize {
        self.group.as_ref().map_or(0, |group| group.rank())
    }

    pub fn world_size(&self) -> usize {
        self.group.as_ref().map_or(1, |group| group.world_size())
    }

    /// Waits until every rank has come to this point.
    pub fn meet(&mut self) -> Result<(), BackendError> {
        self.group.as_mut().map_or(Ok(()), |group| group.meet())
    }

    /// [`Backend::pass`], with its calls counted also where the device replays what it recorded.
    pub fn pass(
        &mut self,
        backend: &mut B,
        key: PassKey,
        mut body: impl FnMut(&mut B, &mut Self) -> Result<(), PassError>,
    ) -> Result<(), PassError> {
        let mut ran = false;
        backend.pass(key, |backend| {
            // Every way of replaying a pass makes the same calls.
            self.made.clear();
            ran = true;
            body(backend, self)
        })?;
        if ran {
            self.passes.insert(key, std::mem::take(&mut self.made));
        } else if let Some(calls) = self.passes.get(&key) {
            calls.iter().for_each(|(key, count)| self.counters.add(key.clone(), *count));
        }
        Ok(())
    }

    /// Sums `rows` over all ranks, in place.
    pub fn all_reduce(
        &mut self,
        backend: &mut B,
        place: (Site, Phase),
        rows: RankRows<'_, B>,
    ) -> Result<(), PassError> {
        let bytes = rows.bytes();
        self.run(Operation::AllReduce, place, bytes, |group, call| group.all_reduce(backend, call, rows))
    }

    /// Sums the addend (`width` columns) over all ranks, adds it to the residual and normalises: what follows every
    /// attention and every MLP. One kernel where the plan chose a fusion.
    pub fn all_reduce_add_norm(
        &mut self,
        backend: &mut B,
        place: (Site, Phase),
        width: usize,
        arguments: AddNorm<'_, B>,
    ) -> Result<(), PassError> {
        let (operation, bytes) = (Operation::AllReduce, message_bytes(arguments.rows, width, B::ELEMENT_BYTES));
        let fusion = &self.plan.rung(operation, place.0, place.1, bytes).fusion;
        if self.group.is_some() && **fusion != *NO_FUSION {
            return self
                .run(operation, place, bytes, |group, call| group.all_reduce_add_norm(backend, call, arguments));
        }
        let rows = RankRows { buffer: &mut *arguments.addend, rows: arguments.rows, width };
        self.all_reduce(backend, place, rows)?;
        Ok(backend.add_rms_norm(arguments)?)
    }

    /// Lays the ranks' columns of logits side by side on every rank. In a group of one the input is the result: callers ask
    /// [`Communicator::world_size`] first, because there is no second buffer then.
    pub fn all_gather(
        &mut self,
        backend: &mut B,
        place: (Site, Phase),
        gather: AllGather<'_, B>,
    ) -> Result<(), PassError> {
        let bytes = message_bytes(gather.rows, gather.width, B::LOGIT_BYTES);
        self.run(Operation::AllGather, place, bytes, |group, call| group.all_gather(backend, call, gather))
    }

    /// Copies `rows` of rank `root` to all ranks.
    pub fn broadcast(
        &mut self,
        backend: &mut B,
        place: (Site, Phase),
        root: usize,
        rows: RankRows<'_, B>,
    ) -> Result<(), PassError> {
        let bytes = rows.bytes();
        self.run(Operation::Broadcast, place, bytes, |group, call| group.broadcast(backend, call, root, rows))
    }

    /// Makes one call as the plan says and counts it.
    fn run(
        &mut self,
        operation: Operation,
        (site, phase): (Site, Phase),
        bytes: u64,
        call: impl FnOnce(&mut dyn Collective<B>, Call<'_>) -> Result<(), CollectiveError>,
    ) -> Result<(), PassError> {
        let Some(group) = &mut self.group else { return Ok(()) };
        let rung = self.plan.rung(operation, site, phase, bytes);
        call(group.as_mut(), Call { operation, site, rung })?;
        if group.rank() == 0 {
            let key = CallKey::new(operation, site, phase, rung, bytes);
            self.counters.add(key.clone(), 1);
            match self.made.iter_mut().find(|(other, _)| *other == key) {
                Some((_, count)) => *count += 1,
                None => self.made.push((key, 1)),
            }
        }
        Ok(())
    }
}

pub(super) fn message_bytes(rows: usize, width: usize, element: usize) -> u64 {
    (rows * width * element) as u64
}
