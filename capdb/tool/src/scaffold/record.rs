//! The text of the new record: what is its own, and nothing that it inherits.

use std::fmt::Write as _;

use capdb::assembly::{Assembly, normalise};
use capdb::record::SourceKind;
use capdb::resolve::Resolved;

use super::NewArch;
use crate::yaml_text::scalar;

pub(super) fn text(assembly: &Assembly, parent: &Resolved, new: &NewArch) -> String {
    let NewArch { id, parent: extends, compute_capability, name } = new;
    let mut text = String::from("# yaml-language-server: $schema=../../../schemas/arch/v1.schema.json\n");
    let _ = writeln!(
        text,
        "# Nobody has measured {id}. Every value that does not stand here comes from {extends} and is marked `inherited`."
    );
    let _ = writeln!(text, "# Write a block here, with its evidence, as soon as something is known.");
    let _ = writeln!(text, "schema: arch/1\nid: {id}\ncompute_capability: \"{compute_capability}\"");
    let _ = writeln!(text, "name: {}\nextends: {extends}", scalar(name.as_ref().unwrap_or(id)));
    if let Some(compile) = compile(assembly, parent, new) {
        text.push_str(&compile);
    }
    text
}

/// Targets in the manner of the parent's. Nothing is said where no source could carry the guess.
fn compile(assembly: &Assembly, parent: &Resolved, new: &NewArch) -> Option<String> {
    let sources = &assembly.index.sources.sources;
    let judgement = |id: &&String| sources[*id].kind == SourceKind::Judgement;
    let source = sources.keys().find(|id| *id == "starting-value").or_else(|| sources.keys().find(judgement))?;
    let compile = parent.compile().ok()??;
    let own = normalise(&new.compute_capability).replacen("sm", "sm_", 1);
    let mut targets: Vec<String> = Vec::new();
    for target in &compile.targets {
        let suffix = &target[target.trim_end_matches(['a', 'f']).len()..];
        let target = format!("{own}{suffix}");
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    let mut text = String::from("compile:\n");
    let _ = writeln!(text, "  targets: [{}]", targets.join(", "));
    let _ =
        writeln!(text, "  min_toolkit: \"{}\"   # the parent's; a newer one is to be expected", compile.min_toolkit);
    let note = format!("In the manner of {}; no toolkit was asked.", new.parent);
    let _ = writeln!(text, "  evidence: {{kind: guessed, source: {source}, note: {}}}", scalar(&note));
    text.push_str("compiles_for:\n");
    for target in targets {
        let _ = writeln!(text, "  {target}: [{}]", new.id);
    }
    Some(text)
}
