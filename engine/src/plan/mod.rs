//! The plan: one explicit answer, before weights load, to what will run where and why.
//!
//! The only module that imports `capdb`. Once a plan exists nobody asks what GPU this is: the rest of the engine reads
//! a [`CollectivePlan`] and numbers.

mod build;
mod device;
mod error;
mod kernels;
mod machine;
mod memory;
mod open;
mod prediction;
mod render;
mod report;
mod request;
mod shortage;
mod sites;
pub mod tuning;
mod windows;

pub use build::{MOST_ROWS, build};
/// The database's own words, so that nobody else has to import `capdb`.
pub use capdb::{
    database::Database,
    quantity::Version,
    record::{AlgorithmId, Dtype, FusionId, Topology},
};
pub use device::{
    DeviceAnswer, DeviceValue, KernelTarget, RecordCheck, architectures, check_device, device_record,
    feature_attributes, kernel_target,
};
pub use error::PlanError;
pub use machine::{GpuFacts, GpuMachine, HostCpu, Machine};
pub use memory::{MemoryPlan, parameters};
pub use open::{is_there, open_database, open_regular, printable, read_up_to};
pub use prediction::Prediction;
pub use report::{
    DraftReport, KernelLine, MachineKind, MachineReport, ModelReport, Plan, PlanVerdict, ReasonReport, RejectedReport,
    RungReport, SiteReport,
};
pub use request::{AllReduceChoice, FusionChoice, PlanRequest, SpeculationShape};

use crate::collective::{CollectivePlan, Operation, Rung, Site};
use crate::types::Phase;

impl Plan {
    /// The ladders that the executor looks up, site by site.
    pub fn collectives(&self) -> CollectivePlan {
        let fallback = if self.machine.kind == MachineKind::Cpu { sites::CPU_ALGORITHM } else { "nccl" };
        let mut plan = CollectivePlan::uniform(fallback);
        for site in &self.sites {
            let rung = |rung: &RungReport| Rung {
                up_to: rung.up_to_bytes,
                algorithm: rung.algorithm.as_str().into(),
                fusion: rung.fusion.as_str().into(),
            };
            plan.set(site.operation, site.site, site.phase, site.ladder.iter().map(rung).collect());
        }
        plan
    }

    /// Bytes of half of a rank's window, through which ranks write to each other; 0 where the plan has no use for one.
    pub fn half_window(&self) -> u64 {
        windows::half_window(&self.sites, self.tensor_parallel)
    }

    /// Sites whose decision is a fallback: what `archway_plan_fallbacks` exports.
    pub fn fallbacks(&self) -> impl Iterator<Item = &SiteReport> {
        self.sites.iter().filter(|site| site.verdict == PlanVerdict::Fallback)
    }

    /// The plan of a site, for `GET /plan` to set beside the counters.
    pub fn site(&self, operation: Operation, site: Site, phase: Phase) -> Option<&SiteReport> {
        self.sites.iter().find(|report| (report.operation, report.site, report.phase) == (operation, site, phase))
    }
}

#[cfg(test)]
mod tests;
