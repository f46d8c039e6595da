//! The plan as text for people: what runs, and why.

use std::fmt::{self, Write as _};

use super::memory::gib;
use super::report::{MachineKind, Plan, PlanVerdict, SiteReport};
use crate::spec::DraftShape;

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        head(&mut text, self)?;
        memory(&mut text, self)?;
        kernels(&mut text, self)?;
        draft(&mut text, self)?;
        prediction(&mut text, self)?;
        sites(&mut text, self)?;
        tail(&mut text, self)?;
        formatter.write_str(text.trim_end())
    }
}

fn head(text: &mut String, plan: &Plan) -> fmt::Result {
    let (model, machine) = (&plan.model, &plan.machine);
    let quantization =
        model.quantization.as_deref().map_or_else(String::new, |quantization| format!(", {quantization}"));
    writeln!(
        text,
        "model     {}: {}, {} layers, hidden {}, {} heads, {:.2} G parameters, {}{quantization}",
        model.name,
        model.architecture,
        model.layers,
        model.hidden,
        model.heads,
        model.parameters as f64 / 1e9,
        model.dtype
    )?;
    if machine.kind == MachineKind::Gpu {
        let arch = machine.arch.as_deref().unwrap_or("no record");
        let version = machine.data_version.as_deref().unwrap_or("?");
        writeln!(
            text,
            "machine   {} x {} ({arch}, capdb {version}), topology {}, multicast {}",
            machine.count,
            machine.name,
            machine.topology.unwrap_or("unknown"),
            machine.multicast.map_or("unknown", |multicast| if multicast { "yes" } else { "no" })
        )?;
        if !machine.assumed.is_empty() {
            writeln!(text, "assumed   {}; nobody asked the machine", machine.assumed.join("; "))?;
        }
        if let Some(tuning) = &plan.tuning {
            let fits =
                if tuning.differences.is_empty() { "fits what is known of the machine" } else { "of another machine" };
            writeln!(text, "tuning    {} ({fits})", tuning.file)?;
        }
    } else {
        writeln!(text, "machine   {}", machine.name)?;
    }
    writeln!(text, "ranks     tensor parallel {}", plan.tensor_parallel)
}

fn memory(text: &mut String, plan: &Plan) -> fmt::Result {
    let memory = &plan.memory;
    let device = memory.usable.map_or_else(|| "unknown".to_owned(), gib);
    write!(text, "memory    a rank: weights {}, activations {}", gib(memory.weights), gib(memory.activations))?;
    for (name, bytes) in [("draft", memory.draft_weights), ("buffers", memory.workspace), ("process", memory.overhead)]
    {
        if bytes > 0 {
            write!(text, ", {name} {}", gib(bytes))?;
        }
    }
    writeln!(text, "; usable {device}")?;
    let holds = match memory.usable {
        Some(_) => format!("{} pages of 16 tokens ({} tokens)", memory.pages, memory.cache_tokens),
        None => "unknown pages of 16 tokens".to_owned(),
    };
    let (token, context) = (memory.cache_bytes_per_token, memory.pages_for_context);
    writeln!(text, "cache     {holds}, {token} bytes a token; one full context needs {context} pages")
}

fn kernels(text: &mut String, plan: &Plan) -> fmt::Result {
    for line in &plan.kernels {
        writeln!(text, "kernel    {}: {} ({}, {})", line.operation, line.kernel, line.support, line.at)?;
    }
    Ok(())
}

fn prediction(text: &mut String, plan: &Plan) -> fmt::Result {
    let Some(prediction) = &plan.prediction else { return Ok(()) };
    writeln!(
        text,
        "predicted decode {:.2} ms, verify {:.2} ms, drafting {:.2} ms: speculation pays above {:.2} tokens per verify",
        prediction.decode_seconds * 1e3,
        prediction.verify_seconds * 1e3,
        prediction.draft_seconds * 1e3,
        prediction.break_even
    )?;
    prediction.assumptions.iter().try_for_each(|line| writeln!(text, "          {line}"))
}

fn draft(text: &mut String, plan: &Plan) -> fmt::Result {
    let Some(draft) = &plan.draft else { return Ok(()) };
    let DraftShape { steps, topk, verify_tokens } = draft.shape;
    let drafted = match topk {
        1 => format!("chains of {steps}"),
        _ => format!("trees of {steps} levels, {topk} branches, {verify_tokens} tokens with the root"),
    };
    writeln!(text, "draft     EAGLE-3 {}: {drafted}, {} draft tokens", draft.path, draft.draft_vocabulary)?;
    writeln!(text, "taps      {}", draft.taps_rule)
}

fn sites(text: &mut String, plan: &Plan) -> fmt::Result {
    if plan.sites.is_empty() {
        return writeln!(text, "sites     one rank: nothing to reduce");
    }
    writeln!(text)?;
    writeln!(
        text,
        "{:<9} {:<17} {:>5} {:>9}  {:<14} {:<27} reasons",
        "phase", "site", "calls", "message", "all-reduce", "fusion"
    )?;
    for site in &plan.sites {
        let algorithm = match site.verdict {
            PlanVerdict::Refused => "REFUSED".to_owned(),
            PlanVerdict::Fallback => format!("{} (!)", site.algorithm.as_deref().unwrap_or("none")),
            PlanVerdict::Selected => site.algorithm.clone().unwrap_or_else(|| "none".to_owned()),
        };
        let row = format!(
            "{:<9} {:<17} {:>5} {:>9}  {:<14} {:<27} {}",
            site.phase.name(),
            site.site.name(),
            site.calls,
            size(site.message_bytes),
            algorithm,
            site.fusion,
            reasons(site)
        );
        writeln!(text, "{}", row.trim_end())?;
        if site.ladder.len() > 1 && site.verdict != PlanVerdict::Refused {
            let rungs: Vec<String> = site
                .ladder
                .iter()
                .map(|rung| {
                    format!(
                        "to {} rows {}{}",
                        rung.up_to_rows,
                        rung.algorithm,
                        if rung.fusion == "none" { "" } else { " fused" }
                    )
                })
                .collect();
            writeln!(text, "{:<9} {:<17} {:>5} {:>9}  {}", "", "", "", "", rungs.join(", "))?;
        }
    }
    Ok(())
}

fn reasons(site: &SiteReport) -> String {
    site.reasons.iter().map(|reason| format!("{} [{}]", reason.reason, reason.at)).collect::<Vec<_>>().join(", ")
}

fn size(bytes: u64) -> String {
    match bytes {
        1_048_576.. => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        1024.. => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{bytes} B"),
    }
}

fn tail(text: &mut String, plan: &Plan) -> fmt::Result {
    writeln!(text)?;
    for warning in &plan.warnings {
        writeln!(text, "warning: {warning}")?;
    }
    for refusal in &plan.refusals {
        writeln!(text, "refused: {refusal}")?;
    }
    let verdict = match plan.verdict {
        PlanVerdict::Selected => "selected",
        PlanVerdict::Fallback => "fallback",
        PlanVerdict::Refused => "refused",
    };
    writeln!(text, "verdict: {verdict}")
}
