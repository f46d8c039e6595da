//! Request → plan.

use super::error::PlanError;
use super::kernels::kernels;
use super::machine::Machine;
use super::memory::{MemoryPlan, parameters};
use super::prediction::Prediction;
use super::report::{MachineKind, MachineReport, ModelReport, Plan, PlanVerdict, SiteReport};
use super::request::PlanRequest;
use super::shortage::shortage;
use super::sites::sites;
use super::tuning::TuningReport;
use super::windows::{half_window, has_buffer};
use crate::collective::Site;
use crate::model::{Family, ModelConfig};
use crate::types::Phase;

/// Makes the plan. A refusal is part of the plan; an error means that the request itself makes no sense.
pub fn build(request: &PlanRequest) -> Result<Plan, PlanError> {
    check(request)?;
    let sites = sites(request);
    let (device, is_gpu) = match &request.machine {
        Machine::Cpu(cpu) => (Some(cpu.memory), false),
        Machine::Gpu(gpu) => (gpu.memory, true),
    };
    let memory = MemoryPlan::of(request, device, is_gpu, workspace(&sites, request.tensor_parallel, is_gpu));
    let model = model_report(&request.model_name, &request.config, request.context);
    let mut refusals: Vec<String> = refusals(&sites);
    refusals.extend(shortage(&memory, request));
    let mut warnings = warnings(request, &sites);
    // A plan may be wanted for what cannot be served yet, a tuning of another machine may be the best that is known, and a
    // wish without a use does no harm: who is strict rests on none of them.
    let doubts = unserved(request, &model).chain(request.tuning.as_ref().and_then(TuningReport::mismatch));
    let doubts = doubts.chain(request.unused.iter().cloned());
    if request.strict { &mut refusals } else { &mut warnings }.extend(doubts);
    if memory.device.is_none() {
        warnings.push("the record does not give the product's memory, so the memory plan is not checked".to_owned());
    }
    let verdict = if refusals.is_empty() {
        sites.iter().map(|site| site.verdict).max().unwrap_or(PlanVerdict::Selected)
    } else {
        PlanVerdict::Refused
    };
    Ok(Plan {
        verdict,
        refusals,
        warnings,
        model,
        machine: machine_report(&request.machine, request.tensor_parallel),
        tensor_parallel: request.tensor_parallel,
        memory,
        kernels: kernels(&request.config, &request.machine),
        draft: request.draft.clone(),
        tuning: request.tuning.clone(),
        prediction: Prediction::of(request, direct(&sites)),
        sites,
    })
}

/// Bytes of one rank's buffers for collectives: two messages of threads that meet in memory; two halves of a window, and a
/// buffer as large as one where sums go by multicast memory.
fn workspace(sites: &[SiteReport], ranks: usize, is_gpu: bool) -> u64 {
    let largest_message = || sites.iter().map(|site| site.message_bytes).max().unwrap_or(0);
    if !is_gpu {
        return 2 * largest_message();
    }
    (2 + u64::from(has_buffer(sites))) * half_window(sites, ranks)
}

/// Rows of a step, and sequences: every number up to these is planned for.
pub const MOST_ROWS: usize = 1 << 20;

fn check(request: &PlanRequest) -> Result<(), PlanError> {
    let ranks = request.tensor_parallel;
    if ranks == 0 || request.max_rows == 0 || request.max_sequences == 0 {
        return Err(PlanError::Shape("ranks, batched tokens and sequences must be at least 1".to_owned()));
    }
    if request.max_rows > MOST_ROWS || request.max_sequences > MOST_ROWS {
        return Err(PlanError::Shape(format!("batched tokens and sequences must be at most {MOST_ROWS}")));
    }
    if let Machine::Gpu(gpu) = &request.machine
        && gpu.count < ranks
    {
        return Err(PlanError::TooFewDevices { tensor_parallel: ranks, count: gpu.count });
    }
    // On GPUs the decision itself refuses it, with its reason, as long as every rank has a head; on a CPU nobody else does.
    let alone = matches!(request.machine, Machine::Cpu(_)) || ranks > request.config.heads;
    if alone && !request.config.heads.is_multiple_of(ranks) {
        let fitting: Vec<String> = (1..=request.config.heads)
            .filter(|ranks| request.config.heads.is_multiple_of(*ranks))
            .map(|ranks| ranks.to_string())
            .collect();
        return Err(PlanError::Shape(format!(
            "heads_not_divisible: {ranks} ranks do not divide the model's {} attention heads; {} do",
            request.config.heads,
            fitting.join(", ")
        )));
    }
    Ok(())
}

/// Whether the sums of a verify pass go from peer to peer.
fn direct(sites: &[SiteReport]) -> bool {
    let verify = sites.iter().find(|site| site.phase == Phase::Verify && site.site == Site::MlpOutput);
    verify.is_some_and(|site| site.algorithm.as_deref().is_some_and(|algorithm| algorithm != "nccl"))
}

fn refusals(sites: &[SiteReport]) -> Vec<String> {
    let mut refusals = Vec::new();
    for site in sites.iter().filter(|site| site.verdict == PlanVerdict::Refused) {
        let reasons: Vec<String> =
            site.reasons.iter().map(|reason| format!("{} ({})", reason.reason, reason.at)).collect();
        let nearest =
            site.nearest.as_deref().map_or_else(String::new, |nearest| format!("; what works here: {nearest}"));
        let text = format!("{} in {}: {}{nearest}", site.site.name(), site.phase.name(), reasons.join(", "));
        if !refusals.contains(&text) {
            refusals.push(text);
        }
    }
    refusals
}

/// Why a plan cannot be served, one sentence each; none where it can.
fn unserved<'a>(request: &'a PlanRequest, model: &'a ModelReport) -> impl Iterator<Item = String> + 'a {
    let unknown = matches!(request.config.family, Family::Other(_));
    let unknown = unknown.then(|| {
        format!("the engine has no forward pass for `{}` yet: this plan cannot be served", model.architecture)
    });
    unknown.into_iter().chain(request.config.unserved.iter().map(|why| format!("this plan cannot be served: {why}")))
}

fn warnings(request: &PlanRequest, sites: &[SiteReport]) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(request.draft.iter().flat_map(|draft| draft.warnings.iter().map(|why| format!("the head {why}"))));
    for site in sites.iter().filter(|site| site.verdict == PlanVerdict::Fallback) {
        let of = |wanted: fn(&str) -> bool| -> Vec<&str> {
            site.reasons.iter().filter(|reason| wanted(&reason.class)).map(|reason| reason.reason.as_str()).collect()
        };
        let gaps = of(|class| class == "gap");
        // Where nothing is missing from the machine, a rule is what kept it from being taken.
        let reasons = if gaps.is_empty() { of(|_| true) } else { gaps };
        warnings.push(format!(
            "{} in {} falls back to {}: {}",
            site.site.name(),
            site.phase.name(),
            site.algorithm.as_deref().unwrap_or("nothing"),
            reasons.join(", ")
        ));
    }
    for (word, meaning) in
        [("value_guessed", "values that nobody measured"), ("value_inherited", "values inherited from a parent record")]
    {
        let count = sites.iter().filter(|site| site.reasons.iter().any(|reason| reason.reason == word)).count();
        if count > 0 && !request.strict {
            warnings.push(format!(
                "{count} of {} sites rest on {meaning} ({word}); `archway tune` measures them on the machine",
                sites.len()
            ));
        }
    }
    warnings
}

fn model_report(name: &str, config: &ModelConfig, context: Option<usize>) -> ModelReport {
    ModelReport {
        name: name.to_owned(),
        architecture: config.architecture.clone(),
        servable: !matches!(config.family, Family::Other(_)) && config.unserved.is_empty(),
        layers: config.layers,
        hidden: config.hidden,
        heads: config.heads,
        vocabulary: config.vocabulary,
        context: context.unwrap_or(config.context),
        parameters: parameters(config),
        dtype: config.dtype.clone(),
        quantization: config
            .quantization
            .as_ref()
            .map(|quantization| format!("{}, {} bits", quantization.method, quantization.weight_bits)),
    }
}

fn machine_report(machine: &Machine, ranks: usize) -> MachineReport {
    match machine {
        Machine::Cpu(cpu) => MachineReport {
            kind: MachineKind::Cpu,
            record: None,
            arch: None,
            name: format!("{}, {} threads", cpu.name, cpu.threads),
            count: ranks,
            topology: None,
            multicast: None,
            assumed: Vec::new(),
            data_version: None,
        },
        Machine::Gpu(gpu) => MachineReport {
            kind: MachineKind::Gpu,
            record: Some(gpu.resolved.id.clone()),
            arch: gpu.resolved.arch.clone(),
            name: gpu.name.clone(),
            count: gpu.count,
            topology: gpu.host.topology.map(|topology| topology.word()),
            multicast: gpu.host.multicast,
            assumed: gpu.assumed.clone(),
            data_version: Some(gpu.data_version.clone()),
        },
    }
}
