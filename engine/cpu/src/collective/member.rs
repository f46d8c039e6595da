use std::sync::{Arc, RwLockReadGuard};

use engine::backend::AddNorm;
use engine::collective::{AllGather, Call, Collective, CollectiveError, RankRows};

use super::group::{Agenda, RankGroup};
use crate::CpuBackend;

/// One rank's place in its group.
pub struct Member {
    group: Arc<RankGroup>,
    rank: usize,
    /// Which of the two messages is this call's.
    turn: usize,
}

impl Member {
    pub(super) fn new(group: Arc<RankGroup>, rank: usize) -> Self {
        Self { group, rank, turn: 0 }
    }

    /// Publishes this rank's message, waits until every rank has done so, and gives all messages in rank order.
    fn exchange<'s>(
        &'s mut self,
        call: Call<'_>,
        (rows, width): (usize, usize),
        values: &[f32],
    ) -> Result<impl Iterator<Item = RwLockReadGuard<'s, Vec<f32>>> + use<'s>, CollectiveError> {
        let (turn, Call { operation, site, .. }) = (self.turn, call);
        self.turn = 1 - turn;
        self.group.publish(self.rank, turn, values);
        let met = self.group.meet(self.rank, Agenda { operation, site, rows, width });
        met.map_err(|message| CollectiveError { operation, site, message })?;
        Ok(self.group.messages(turn))
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
        let messages = self.exchange(call, (rows, width), values)?;
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
        let messages = self.exchange(call, (rows, total), &input.0[..rows * own(self.rank)])?;
        for (rank, message) in messages.enumerate().take_while(|(rank, _)| own(*rank) > 0) {
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
        let mine = if self.rank == root { &*values } else { &[] };
        if let Some(message) = self.exchange(call, (rows, width), mine)?.nth(root) {
            values.copy_from_slice(&message);
        }
        Ok(())
    }
}
