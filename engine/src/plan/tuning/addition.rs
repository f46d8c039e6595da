//! What one group of ranks adds to the record, and whether a database with the overlay then decides as was measured.

use std::fmt::Display;

use capdb::database::Database;
use capdb::decide::{AllReduceRequest, Decision, FusionRequest, HostFacts, Request, Shape, Table, decide};
use capdb::record::{AlgorithmId, AllReduce, Dtype, FusionId};

use super::conclude::{Fusing, Step, algorithm, fused_ladder, fusing, ladder};
use super::measurement::{Group, MeasurementError, NormPoint};
use super::write::size;

/// What one group adds to the record.
pub(super) struct Addition<'a> {
    pub group: &'a Group,
    /// Ladders that are not empty.
    pub ladders: Vec<(Dtype, Vec<Step>)>,
    /// The cap of symmetric memory, where the record's is lower than the ladders or missing.
    pub cap: Option<u64>,
    /// For each fused kernel that the record knows.
    pub fusing: Vec<(FusionId, Fusing)>,
    /// Of fused kernels of bf16; empty where the ladder of sums says the same.
    pub fused: Vec<Step>,
}

impl<'a> Addition<'a> {
    pub fn new(group: &'a Group, allreduce: &AllReduce, fusible: &[FusionId]) -> Self {
        let ladders: Vec<(Dtype, Vec<Step>)> = Dtype::ALL
            .iter()
            .map(|dtype| (*dtype, ladder(&group.sums, *dtype)))
            .filter(|(_, steps)| !steps.is_empty())
            .collect();
        let symmetric = ladders.iter().flat_map(|(_, steps)| steps).filter(|step| step.algorithm.is_symmetric());
        let highest = symmetric.map(|step| step.up_to).max();
        let caps = allreduce.symmetric_memory.as_ref().and_then(|block| block.max_message.as_ref());
        let cap = caps.and_then(|caps| caps.get(&group.world_size)).map(|size| size.bytes());
        let raised = highest.filter(|highest| caps.is_some() && cap.is_none_or(|cap| cap < *highest));
        let bf16 = ladders.iter().find(|(dtype, _)| *dtype == Dtype::Bf16).map_or(&[][..], |(_, steps)| steps);
        let fusing: Vec<_> = fusible.iter().map(|id| (*id, fusing(group, bf16, *id))).collect();
        let plain = fusing.iter().find(|(id, _)| *id == FusionId::ResidualRmsnorm);
        let mut fused = match plain {
            Some((_, Fusing::UpTo(limit))) => fused_ladder(group, *limit),
            _ => Vec::new(),
        };
        let same = |norm: &NormPoint| {
            let bytes = norm.bytes();
            algorithm(&fused, bytes).is_none_or(|own| algorithm(bf16, bytes) == Some(own))
        };
        if group.norms.iter().all(same) {
            fused.clear();
        }
        Self { group, cap: raised, fusing, fused, ladders }
    }

    pub fn lines(&self) -> Vec<String> {
        let Group { world_size, topology, .. } = self.group;
        let ladder = |(dtype, steps): &(Dtype, Vec<Step>)| {
            let steps: Vec<String> =
                steps.iter().map(|step| format!("{} to {}", step.algorithm, size(step.up_to))).collect();
            format!("{world_size} ranks on {topology}, {dtype}: {}", steps.join(", "))
        };
        let mut lines: Vec<String> = self.ladders.iter().map(ladder).collect();
        lines.extend(
            self.cap.map(|cap| format!("{world_size} ranks: symmetric memory takes messages to {}", size(cap))),
        );
        let what = |id: FusionId| match id {
            FusionId::ResidualRmsnorm => "residual and norm",
            FusionId::ResidualRmsnormFp8 => "residual, norm and fp8",
            FusionId::ResidualRmsnormNvfp4 => "residual, norm and nvfp4",
        };
        lines.extend(self.fusing.iter().filter_map(|(id, fusing)| match fusing {
            Fusing::UpTo(limit) => {
                let of = |step: &Step| format!("{} to {}", step.algorithm, size(step.up_to));
                let fused: Vec<String> = self.fused.iter().map(of).collect();
                let listed = *id == FusionId::ResidualRmsnorm && !fused.is_empty();
                let own = if listed { format!(": {}", fused.join(", ")) } else { String::new() };
                Some(format!("{world_size} ranks: {} in the same kernel to {}{own}", what(*id), size(*limit)))
            }
            Fusing::Never(bytes) => Some(format!(
                "{world_size} ranks: {} in a kernel of their own, faster from {} on",
                what(*id),
                size(*bytes)
            )),
            Fusing::Unmeasured if *id == FusionId::ResidualRmsnorm => {
                Some(format!("{world_size} ranks: fusing was not measured; the record's limit stays"))
            }
            Fusing::Unmeasured => None,
        }));
        lines
    }
}

impl Addition<'_> {
    /// A database with the overlay gives every message that was measured to the algorithm that its ladder names.
    pub fn verify(&self, database: &Database, record: &str) -> Result<(), MeasurementError> {
        let failed = |error: &dyn Display| MeasurementError::Contradiction(error.to_string());
        let resolved = database.record(record).map_err(|error| failed(&error))?;
        let table = Table::new(database.index(), &resolved).map_err(|error| failed(&error))?;
        let tuned = TunedTable { table, group: self.group };
        self.verify_sums(&tuned).and_then(|()| self.verify_fusions(&tuned)).map_err(MeasurementError::Contradiction)
    }

    fn verify_sums(&self, tuned: &TunedTable<'_>) -> Result<(), String> {
        for (dtype, steps) in &self.ladders {
            for sum in self.group.sums.iter().filter(|sum| sum.dtype == *dtype) {
                let decision = tuned.ask(*dtype, sum.bytes, FusionId::ResidualRmsnorm, FusionRequest::Unfused);
                let (want, found) = (algorithm(steps, sum.bytes), decision.algorithm);
                if want != found {
                    let (want, found) = (name(want), name(found));
                    return Err(format!("{} bytes of {dtype}: {want} was measured, {found} chosen", sum.bytes));
                }
            }
        }
        Ok(())
    }

    fn verify_fusions(&self, tuned: &TunedTable<'_>) -> Result<(), String> {
        let ask = |bytes: u64, id: FusionId| tuned.ask(Dtype::Bf16, bytes, id, FusionRequest::Auto);
        for norm in &self.group.norms {
            let (want, bytes) = (algorithm(&self.fused, norm.bytes()), norm.bytes());
            let found = ask(bytes, FusionId::ResidualRmsnorm).algorithm;
            if want.is_some() && want != found {
                let (want, found) = (name(want), name(found));
                return Err(format!("{bytes} bytes fused: {want} was measured, {found} chosen"));
            }
        }
        let fused = |bytes: u64, id: FusionId| ask(bytes, id).fusion.is_some();
        for (id, fusing) in &self.fusing {
            match fusing {
                Fusing::UpTo(limit) if !fused(*limit, *id) => {
                    return Err(format!("{limit} bytes are not fused ({id})"));
                }
                Fusing::Never(bytes) if fused(*bytes, *id) => return Err(format!("{bytes} bytes are fused ({id})")),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What a database with the overlay knows of a group's ranks.
struct TunedTable<'a> {
    table: Table,
    group: &'a Group,
}

impl TunedTable<'_> {
    fn ask(&self, dtype: Dtype, bytes: u64, id: FusionId, fusion: FusionRequest) -> Decision {
        let host = HostFacts { topology: Some(self.group.topology), multicast: Some(false), ..HostFacts::default() };
        let shape = Shape {
            world_size: self.group.world_size,
            dtype,
            message: Some(bytes),
            fusion: id,
            heads: None,
            pipeline_parallel: 1,
            workspace: None,
        };
        let request = Request { allreduce: AllReduceRequest::Auto, fusion, strict: true, ..Request::default() };
        decide(&self.table, &host, &shape, &request)
    }
}

fn name(id: Option<AlgorithmId>) -> &'static str {
    id.map_or("nothing", AlgorithmId::word)
}
