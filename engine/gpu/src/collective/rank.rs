//! [`Collective`] for GPUs: what the plan chose for a call, put into the rank's stream.

use std::sync::Arc;

use engine::backend::{AddNorm, BackendError};
use engine::collective::{AllGather, Call, Collective, CollectiveError, Operation, RankRows, Rung};

use super::calls;
use super::member::{Algorithm, GpuMember};
use super::self_test::self_test;
use super::shared::SharedGroup;
use crate::backend::CudaBackend;
use crate::device::{Allocation, Purpose};
use crate::kernels::{AllReduceKernels, Element, GatherColumns, NormOutput, Reduce, ReduceNorm, Shots};

/// Rows that one gather by NCCL brings side by side.
pub(super) const STAGED_ROWS: usize = 16;
const LOGIT: usize = size_of::<f32>();
const NCCL: &str = Algorithm::Nccl.name();

/// One rank's place in the group.
pub struct CudaRank {
    pub(super) member: GpuMember,
    pub(super) shared: Arc<SharedGroup>,
    /// `[ranks, STAGED_ROWS, width]` f32: where NCCL puts parts that are then laid side by side.
    pub(super) staging: Option<Allocation>,
}

/// Why a call was not launched, for a [`CollectiveError`].
type Reason = String;

impl CudaRank {
    /// Rank `rank` of a group: makes what it needs, waits for the others, and tests with them what the plan chose.
    /// Errors: no peer access, no memory, no NCCL where the plan wants it, or an algorithm that fails its test, which the
    /// group then knows ([`SharedGroup::failure`]).
    pub(crate) fn join(
        rank: usize,
        shared: &Arc<SharedGroup>,
        kernels: AllReduceKernels,
        backend: &mut CudaBackend,
    ) -> Result<Self, BackendError> {
        let (group, nccl) = shared.make(rank).map_err(refused)?;
        let gathers =
            |(operation, rung): (Operation, &Rung)| operation == Operation::AllGather && *rung.algorithm == *NCCL;
        let bytes = staging_bytes(group.ranks(), shared.options.vocabulary);
        let staging = shared
            .options
            .plan
            .rungs()
            .any(gathers)
            .then(|| Allocation::new(&backend.gpu().account, bytes, Purpose::Workspace, "gathers"));
        backend.gpu().account.charge(Purpose::Workspace, group.window_bytes());
        let member = GpuMember { group, rank, launcher: backend.launcher().clone(), kernels, nccl };
        let mut own = Self { member, shared: Arc::clone(shared), staging: staging.transpose()? };
        backend.join(rank, Arc::clone(shared))?;
        let tested = self_test(&mut own, backend).map_err(|failure| {
            let message = format!("rank {rank}: the self-test failed: {}", failure.message);
            shared.note_failure(failure);
            shared.poison(&message);
            refused(message)
        })?;
        tracing::info!(rank, tested, "collectives passed their self-test");
        Ok(own)
    }

    /// Launches one call, after what still waits on the backend. Errors: the group has ended, or the launch failed.
    fn run(
        &mut self,
        backend: &mut CudaBackend,
        call: Call<'_>,
        launch: impl FnOnce(&mut Self, &mut CudaBackend, Algorithm) -> Result<(), Reason>,
    ) -> Result<(), CollectiveError> {
        let run = || {
            if self.member.group.is_over() {
                return Err(self.shared.reason().unwrap_or_default());
            }
            let word = &call.rung.algorithm;
            let algorithm = Algorithm::parse(word)
                .ok_or_else(|| format!("GPUs have no algorithm `{word}`; the plan must name another"))?;
            backend.flush().map_err(|error| error.to_string())?;
            self.shared.count(self.member.rank, Some(calls::number(call.operation, call.site)));
            launch(self, backend, algorithm)
        };
        let (operation, site) = (call.operation, call.site);
        run().map_err(|message| CollectiveError { operation, site, message })
    }

    fn gather_by_nccl(&self, backend: &CudaBackend, columns: &Columns) -> Result<(), Reason> {
        let Columns { input, output, rows, width, total } = *columns;
        let missing = || "NCCL was not loaded".to_owned();
        let nccl = self.member.nccl.as_ref().ok_or_else(missing)?;
        let (stream, ranks) = (self.member.launcher.stream(), self.member.group.ranks());
        let own = |rank: usize| width.min(total.saturating_sub(rank * width));
        if rows == 1 && total == ranks * width {
            // SAFETY: the input is this rank's part, and the output has room for all of them.
            return unsafe { nccl.all_gather(input, output, (width * LOGIT) as u64, stream) };
        }
        let staging = self.staging.as_ref().ok_or("no room was made to gather through NCCL")?;
        let each = (staging.bytes() / (ranks * width * LOGIT)).min(rows);
        if each == 0 {
            return Err(format!("rows of {total} columns are wider than what was planned"));
        }
        for first in (0..rows).step_by(each) {
            let count = each.min(rows - first);
            let block = count * width * LOGIT;
            let from = input + (first * own(self.member.rank) * LOGIT) as u64;
            // SAFETY: narrower parts stand in buffers as large as the widest one's; the staging holds all blocks.
            unsafe { nccl.all_gather(from, staging.pointer(), block as u64, stream)? };
            for rank in (0..ranks).filter(|rank| own(*rank) > 0) {
                let part = Part {
                    source: staging.pointer() + (rank * block) as u64,
                    target: output + (first * total * LOGIT) as u64,
                    rows: count,
                    width: own(rank) * LOGIT,
                    total: total * LOGIT,
                    offset: rank * width * LOGIT,
                };
                backend.copy_part(&part).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }
}

/// A gather in addresses and f32 columns.
#[derive(Clone, Copy)]
struct Columns {
    input: u64,
    output: u64,
    rows: usize,
    width: usize,
    total: usize,
}

/// Rows that go into a range of wider rows. Widths are in bytes, multiples of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub source: u64,
    pub target: u64,
    pub rows: usize,
    pub width: usize,
    pub total: usize,
    pub offset: usize,
}

impl Collective<CudaBackend> for CudaRank {
    fn rank(&self) -> usize {
        self.member.rank
    }

    fn world_size(&self) -> usize {
        self.member.group.ranks()
    }

    fn meet(&mut self) -> Result<(), BackendError> {
        self.shared.meet().map_err(refused)
    }

    fn all_reduce(
        &mut self,
        backend: &mut CudaBackend,
        call: Call<'_>,
        RankRows { buffer, rows, width }: RankRows<'_, CudaBackend>,
    ) -> Result<(), CollectiveError> {
        let number = calls::number(call.operation, call.site);
        self.run(backend, call, |own, _, algorithm| {
            let (data, bytes) = (buffer.pointer(), (rows * width) as u64 * Element::Bf16.bytes());
            let message = Reduce { element: Element::Bf16, input: data, output: data, bytes };
            // SAFETY: the buffer holds the rows by the model's promise; all ranks make the same calls.
            unsafe { own.member.all_reduce(algorithm, &message, number, None) }.map_err(|error| error.to_string())
        })
    }

    fn all_reduce_add_norm(
        &mut self,
        backend: &mut CudaBackend,
        call: Call<'_>,
        arguments: AddNorm<'_, CudaBackend>,
    ) -> Result<(), CollectiveError> {
        let number = calls::number(call.operation, call.site);
        let fusion = &call.rung.fusion;
        self.run(backend, call, |own, _, algorithm| {
            let shots = fused(algorithm, fusion)?;
            let AddNorm { addend, residual, weight, epsilon, output, rows } = arguments;
            let norm = ReduceNorm {
                element: Element::Bf16,
                format: NormOutput::Element,
                addend: addend.pointer(),
                residual: residual.pointer(),
                weight: weight.pointer(),
                output: output.pointer(),
                scale: 0,
                block_scales: 0,
                rows: rows as u32,
                width: weight.length() as u32,
                epsilon,
            };
            // SAFETY: rows are as wide as the weight by the model's promise; all ranks make the same calls.
            unsafe { own.member.all_reduce_norm(shots, &norm, number) }.map_err(|error| error.to_string())
        })
    }

    fn all_gather(
        &mut self,
        backend: &mut CudaBackend,
        call: Call<'_>,
        gather: AllGather<'_, CudaBackend>,
    ) -> Result<(), CollectiveError> {
        let number = calls::number(call.operation, call.site);
        self.run(backend, call, |own, backend, algorithm| {
            let AllGather { input, output, rows, width, total } = gather;
            let (input, output) = (input.pointer(), output.pointer());
            if algorithm == Algorithm::Nccl {
                return own.gather_by_nccl(backend, &Columns { input, output, rows, width, total });
            }
            let bytes = |columns: usize| (columns * LOGIT) as u64;
            let (width, total) = (bytes(width), bytes(total));
            let message = GatherColumns { input, output, rows: rows as u64, width, total, root: None };
            // SAFETY: the input holds this rank's part and the output whole rows; all ranks make the same calls.
            unsafe { own.member.gather(&message, number) }.map_err(|error| error.to_string())
        })
    }

    fn broadcast(
        &mut self,
        backend: &mut CudaBackend,
        call: Call<'_>,
        root: usize,
        RankRows { buffer, rows, width }: RankRows<'_, CudaBackend>,
    ) -> Result<(), CollectiveError> {
        let number = calls::number(call.operation, call.site);
        self.run(backend, call, |own, _, algorithm| {
            let (data, bytes) = (buffer.pointer(), (rows * width) as u64 * Element::Bf16.bytes());
            if let (Algorithm::Nccl, Some(nccl)) = (algorithm, &own.member.nccl) {
                // SAFETY: the buffer holds the rows by the model's promise; all ranks make the same calls.
                return unsafe { nccl.broadcast(data, bytes, root, own.member.launcher.stream()) };
            }
            let root = Some(root as u32);
            let message = GatherColumns { input: data, output: data, rows: 1, width: bytes, total: bytes, root };
            // SAFETY: as above.
            unsafe { own.member.gather(&message, number) }.map_err(|error| error.to_string())
        })
    }
}

/// How a fusion is computed. Errors: a plan that names what there is no kernel for.
fn fused(algorithm: Algorithm, fusion: &str) -> Result<Shots, Reason> {
    let shots = algorithm.shots().filter(|_| fusion == super::fusion_name(NormOutput::Element));
    shots.ok_or_else(|| format!("there is no kernel `{fusion}` by {}; the plan must say `none`", algorithm.name()))
}

/// What NCCL's gathers need: rows of logits of all ranks.
pub(super) fn staging_bytes(ranks: usize, vocabulary: usize) -> usize {
    STAGED_ROWS * ranks * vocabulary.div_ceil(ranks) * LOGIT
}

pub(super) fn refused(message: String) -> BackendError {
    BackendError::Device { operation: "collective", message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fusions_with_a_kernel_are_launched() {
        let own = "allreduce_residual_rmsnorm";
        assert_eq!(fused(Algorithm::OneShot, own), Ok(Shots::One));
        assert_eq!(fused(Algorithm::TwoShot, own), Ok(Shots::Two));
        assert!(fused(Algorithm::Nccl, own).is_err_and(|reason| reason.contains("by nccl")));
        assert!(fused(Algorithm::OneShot, "allreduce_residual_rmsnorm_fp8").is_err());
    }

    #[test]
    fn staging_holds_the_parts_of_all_ranks() {
        assert_eq!(staging_bytes(2, 128_256), 16 * 128_256 * 4);
        assert_eq!(staging_bytes(3, 10), 16 * 12 * 4);
    }
}
