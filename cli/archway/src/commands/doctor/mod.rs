//! `archway doctor`: what this machine offers, whether the database agrees, and what would be used.

mod text;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use engine::plan::{
    Database, KernelTarget, RecordCheck, check_device, device_record, feature_attributes, kernel_target, open_database,
};
use engine_gpu::doctor::{DeviceReport, Survey, survey};
use engine_gpu::library::Library;
use engine_gpu::probe::handles;
use engine_gpu::probe::{Handles, links};
use serde::Serialize;

use crate::gpus::Joined;
use crate::loader::host_cpu;

/// Look at this machine: GPUs, driver, libraries, and the database's records of them.
///
/// Every field of a record that the driver can answer is compared. Exit code 0: no finding. 1: a record and the driver
/// disagree, or a GPU is there that nobody can use; each is printed. A machine without a GPU has no finding.
#[derive(Args)]
pub struct Arguments {
    /// Folder of the capability database. Default: the copy inside the program.
    #[arg(long, value_name = "FOLDER")]
    capdb: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    survey: Survey,
    gpus: Vec<Gpu>,
    /// How the GPUs are joined; none for fewer than two.
    group: Option<Group>,
    cpu: String,
    /// What `--device auto` takes.
    chosen: String,
    findings: Vec<String>,
}

/// A device beside its record.
#[derive(Serialize)]
struct Gpu {
    ordinal: usize,
    record: Option<String>,
    kernels: Option<KernelTarget>,
    checks: Vec<RecordCheck>,
}

/// All GPUs as one group.
#[derive(Serialize)]
struct Group {
    #[serde(flatten)]
    joined: Joined,
    links: String,
    /// Whether multicast memory may be used, or why not.
    multicast: String,
    handles: Vec<Handles>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let database = open_database(arguments.capdb.as_deref().map(Path::new))?;
    let report = report(&database)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn report(database: &Database) -> Result<Report> {
    let survey = survey(&feature_attributes(database));
    let gpus = survey.devices.iter().map(|device| gpu(database, device)).collect::<Result<Vec<_>>>()?;
    let group = group(&survey)?;
    let findings = findings(&survey, &gpus, group.as_ref());
    let usable = gpus.iter().find(|gpu| gpu.kernels.as_ref().is_some_and(|target| !target.targets.is_empty()));
    let cpu = host_cpu(None);
    let chosen = match usable {
        Some(gpu) => format!("GPU {}", gpu.ordinal),
        None => "CPU".to_owned(),
    };
    let cpu = format!("{}, {} threads", cpu.name, cpu.threads);
    Ok(Report { survey, gpus, group, cpu, chosen, findings })
}

fn group(survey: &Survey) -> Result<Option<Group>> {
    let ordinals: Vec<usize> = survey.devices.iter().map(|device| device.ordinal).collect();
    if ordinals.len() < 2 {
        return Ok(None);
    }
    let joined = Joined::ask(&ordinals)?;
    let facts = joined.facts(survey, &ordinals);
    let multicast = match (facts.multicast, facts.forbidding_switch()) {
        (Some(false), _) => "no GPU offers it".to_owned(),
        (_, Some(switch)) => format!("offered by the GPUs, forbidden by {switch}"),
        _ => "offered by the GPUs, not tried".to_owned(),
    };
    let handles = ordinals.iter().map(|ordinal| handles(*ordinal)).collect();
    Ok(Some(Group { links: links(&joined.pairs), multicast, handles, joined }))
}

fn gpu(database: &Database, device: &DeviceReport) -> Result<Gpu> {
    let record = device_record(database, &device.name, &device.compute_capability);
    let (kernels, checks) = match &record {
        Some(record) => (Some(kernel_target(database, record)?), check_device(database, record, &device.answers)?),
        None => (None, Vec::new()),
    };
    Ok(Gpu { ordinal: device.ordinal, record, kernels, checks })
}

fn findings(survey: &Survey, gpus: &[Gpu], group: Option<&Group>) -> Vec<String> {
    let mut findings = Vec::new();
    for (device, gpu) in survey.devices.iter().zip(gpus) {
        if gpu.record.is_none() {
            findings.push(format!(
                "GPU {} ({}, compute capability {}) has no record; `capdb add-arch` writes one to start from",
                device.ordinal, device.name, device.compute_capability
            ));
        }
        for check in gpu.checks.iter().filter(|check| !check.agrees) {
            findings.push(format!(
                "GPU {}: {} is {} in the record ({}), and the driver says {}",
                device.ordinal, check.key, check.record, check.at, check.driver
            ));
        }
    }
    // NCCL is for several GPUs; the others are needed wherever there is one.
    let needed = |library: &Library| group.is_some() || matches!(library, Library::Nvrtc | Library::CublasLt);
    if !survey.devices.is_empty() {
        let libraries = survey.libraries.iter().filter(|report| needed(&report.library));
        findings.extend(libraries.filter_map(|report| report.missing.clone()));
    }
    if let Some(Group { joined, .. }) = group {
        findings.extend(joined.probe.finding());
        findings.extend(joined.limits.findings(gpus.len()));
    }
    findings
}

#[cfg(test)]
mod tests;
