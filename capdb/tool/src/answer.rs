//! A decision in print.

use std::fmt::Write as _;

use capdb::assembly::Index;
use capdb::cases::Answer;
use capdb::decide::ReasonLine;
use capdb::quantity::Size;
use serde_json::Value;

/// `{verdict, allreduce, fusion, nearest, reasons, rejected, assumed}`.
pub fn to_json(answer: &Answer) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(&answer.explanation)?;
    value["assumed"] = serde_json::to_value(&answer.assumed)?;
    Ok(value)
}

/// The decision, why, and why not the others.
pub fn to_text(answer: &Answer, index: &Index) -> String {
    let explanation = &answer.explanation;
    let mut text = format!(
        "{}: all-reduce {}, fusion {}\n",
        explanation.verdict,
        explanation.allreduce.unwrap_or("none that meets the request"),
        explanation.fusion
    );
    let _ = writeln!(text, "{}", question(answer));
    for assumed in &answer.assumed {
        let _ = writeln!(text, "assumed from the product: {assumed}");
    }
    if !explanation.reasons.is_empty() {
        text.push_str("\nbecause\n");
        explanation.reasons.iter().for_each(|line| reason(&mut text, line, index));
    }
    if !explanation.rejected.is_empty() {
        text.push_str("\nnot taken\n");
    }
    for rejected in &explanation.rejected {
        let reasons: Vec<String> =
            rejected.reasons.iter().map(|line| format!("{} ({})", line.reason, line.at)).collect();
        let _ = writeln!(text, "  {:9} {}", rejected.algorithm, reasons.join(", "));
    }
    if let Some(nearest) = explanation.nearest.filter(|nearest| Some(*nearest) != explanation.allreduce) {
        let _ = writeln!(text, "\nnearest: with everything on auto it would be {nearest}");
    }
    text
}

/// The machine and the message, in one line.
fn question(answer: &Answer) -> String {
    let shape = &answer.shape;
    let message = match shape.message.map(|bytes| Size::from_bytes(bytes).map(|size| size.to_string())) {
        // As in the data, a number without a unit is one of bytes.
        Some(Ok(size)) if size.ends_with(|last: char| last.is_ascii_digit()) => {
            format!("{size} bytes of {}", shape.dtype)
        }
        Some(Ok(size)) => format!("{size} of {}", shape.dtype),
        Some(Err(_)) => "an empty message".into(),
        None => format!("a message of unknown size in {}", shape.dtype),
    };
    let topology = answer.host.topology.map_or("an unknown topology", |topology| topology.word());
    let multicast = match answer.host.multicast {
        Some(true) => "with multicast",
        Some(false) => "without multicast",
        None => "multicast not known",
    };
    let known = if answer.resolved.arch.is_some() { "" } else { " (no record)" };
    let ranks = if shape.world_size == 1 { "1 rank".to_owned() } else { format!("{} ranks", shape.world_size) };
    format!("{}{known}, {ranks} on {topology}, {multicast}, {message}", answer.resolved.id)
}

fn reason(text: &mut String, line: &ReasonLine, index: &Index) {
    let _ = writeln!(text, "  {} ({}), {}", line.reason, line.class, line.at);
    if let Some(word) = index.vocab.reasons.get(line.reason) {
        let _ = writeln!(text, "      {}", word.meaning);
        if let Some(hint) = &word.hint {
            let _ = writeln!(text, "      {hint}");
        }
    }
}
