//! The report for people. A cause is told once, where it stands first; what follows from it names it.

use std::fmt;

use engine_gpu::doctor::DeviceReport;
use engine_gpu::probe::{Handles, PeerProbe};

use super::{Gpu, Group, Report};

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        libraries(formatter, self)?;
        writeln!(formatter, "Driver\n  {}", self.survey.driver.as_deref().unwrap_or("none"))?;
        writeln!(formatter, "Devices")?;
        if let Some(problem) = &self.survey.problem {
            writeln!(formatter, "  {}", self.told(problem))?;
        }
        for (own, gpu) in self.survey.devices.iter().zip(&self.gpus) {
            device(formatter, own, gpu)?;
        }
        if let Some(own) = &self.group {
            group(formatter, own)?;
        }
        writeln!(formatter, "  CPU: {}\nChosen by --device auto\n  {}", self.cpu, self.chosen)?;
        writeln!(formatter, "Findings")?;
        if self.findings.is_empty() {
            writeln!(formatter, "  none")?;
        }
        self.findings.iter().try_for_each(|finding| writeln!(formatter, "  {}", self.told(finding)))
    }
}

impl Report {
    /// A cause, or where it stands if that is among the libraries.
    fn told(&self, cause: &str) -> String {
        let of_library = self.survey.libraries.iter().find(|report| report.missing.as_deref() == Some(cause));
        match of_library {
            Some(report) => format!("{} is not usable, as said under Libraries", report.library.title()),
            None => cause.to_owned(),
        }
    }
}

fn libraries(out: &mut impl fmt::Write, report: &Report) -> fmt::Result {
    writeln!(out, "Libraries")?;
    for own in &report.survey.libraries {
        match (&own.found, &own.missing) {
            (Some(found), _) => {
                writeln!(out, "  {}: {} in {}", own.library.title(), found.version, found.path.display())?;
            }
            (None, Some(missing)) => writeln!(out, "  {missing}")?,
            (None, None) => {}
        }
    }
    Ok(())
}

fn group(out: &mut impl fmt::Write, group: &Group) -> fmt::Result {
    let Group { joined, links, multicast, handles } = group;
    let apart: Vec<String> = joined
        .pairs
        .iter()
        .filter(|pair| !pair.peer_access)
        .map(|pair| format!("{} to {}", pair.from, pair.to))
        .collect();
    writeln!(out, "  Group: topology {}, {links}", joined.topology)?;
    if !apart.is_empty() {
        writeln!(out, "    no peer access: {}", apart.join(", "))?;
    }
    let arrived = match &joined.probe {
        PeerProbe::Ok => "bytes and a sum arrived between all of them",
        PeerProbe::Failed { .. } => "FAILED, see the findings",
    };
    writeln!(out, "    peer probe: {arrived}")?;
    writeln!(out, "    multicast: {multicast}")?;
    let all = |has: fn(&Handles) -> bool| if handles.iter().all(has) { "yes" } else { "no" };
    let (descriptors, fabric) = (all(|own| own.file_descriptors), all(|own| own.fabric));
    let channels = if joined.limits.fabric_channels { "yes" } else { "no" };
    writeln!(out, "    memory handles: file descriptors {descriptors}, fabric {fabric} (channels: {channels})")?;
    let size =
        |bytes: Option<u64>| bytes.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    writeln!(
        out,
        "    limits: {} open files, {} locked memory, {} in /dev/shm",
        joined.limits.open_files.map_or_else(|| "unlimited".to_owned(), |files| files.to_string()),
        size(joined.limits.locked_memory),
        size(joined.limits.shared_memory)
    )
}

fn device(out: &mut impl fmt::Write, device: &DeviceReport, gpu: &Gpu) -> fmt::Result {
    let gib = device.memory as f64 / f64::from(1 << 30);
    writeln!(
        out,
        "  GPU {}: {}, compute capability {}, {gib:.1} GiB, {}",
        device.ordinal, device.name, device.compute_capability, device.uuid
    )?;
    let record = gpu.record.as_deref().unwrap_or("none");
    let agree = gpu.checks.iter().filter(|check| check.agrees).count();
    writeln!(out, "    record {record}: {agree} of {} fields that the driver answers agree", gpu.checks.len())?;
    if let Some(target) = gpu.kernels.as_ref().and_then(|kernels| kernels.targets.first()) {
        writeln!(out, "    kernels are compiled for {target}")?;
    }
    Ok(())
}
