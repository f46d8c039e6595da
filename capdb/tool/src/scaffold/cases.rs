//! Cases for the new record: for every cell what is decided now, so that a later change of the parent is seen.

use std::fmt::Write as _;

use capdb::cases::{Answer, Given, GivenRequest, Message, RequestedAllReduce, ask};
use capdb::database::Database;
use capdb::quantity::Size;
use capdb::record::{Algorithm, Topology};
use capdb::resolve::Resolved;

use super::{NewArch, ScaffoldError};

pub(super) fn text(database: &Database, resolved: &Resolved, new: &NewArch) -> Result<String, ScaffoldError> {
    let mut writer = Writer { database, new, text: String::new() };
    let id = &new.id;
    writer.text.push_str("# yaml-language-server: $schema=../../../schemas/cases/v1.schema.json\n");
    let _ = writeln!(
        writer.text,
        "# What is decided for {id} while it inherits from {}. A change of the parent that reaches {id} fails here.",
        new.parent
    );
    writer.text.push_str("schema: cases/1\ncases:\n");
    let allreduce = resolved.allreduce().unwrap_or_default();
    let cap = allreduce.symmetric_memory.as_ref().and_then(|block| block.max_message.clone()).unwrap_or_default();
    for (word, block, request) in [
        ("one-shot", &allreduce.one_shot, RequestedAllReduce::OneShot),
        ("two-shot", &allreduce.two_shot, RequestedAllReduce::TwoShot),
        ("multimem", &allreduce.multimem, RequestedAllReduce::Multimem),
    ] {
        let Some(block) = block else { continue };
        let limits = block.max_message.clone().unwrap_or_else(|| cap.clone());
        let cells: Vec<(u32, Size)> = match &block.world_sizes {
            Some(list) => list.iter().filter_map(|size| Some((*size, *limits.get(size)?))).collect(),
            None => limits.into_iter().collect(),
        };
        for (world_size, limit) in cells {
            writer.cell(word, block, request, world_size, limit)?;
        }
    }
    writer.unlisted()?;
    Ok(writer.text)
}

struct Writer<'a> {
    database: &'a Database,
    new: &'a NewArch,
    text: String,
}

impl Writer<'_> {
    /// At the limit, above it, and strict.
    fn cell(
        &mut self,
        word: &str,
        block: &Algorithm,
        request: RequestedAllReduce,
        world_size: u32,
        limit: Size,
    ) -> Result<(), ScaffoldError> {
        let first = block.topologies.as_ref().map_or(Some(&Topology::Nvswitch), |list| list.first());
        let Some(topology) = first.copied() else { return Ok(()) };
        let multicast = request == RequestedAllReduce::Multimem;
        let given = |message: Option<Size>, strict| Given {
            arch: Some(self.new.id.clone()),
            world_size,
            topology: Some(topology),
            multicast: Some(multicast),
            message: message.map(Message::Bytes),
            request: GivenRequest { allreduce: request, strict, ..GivenRequest::default() },
            ..Given::default()
        };
        let above = Size::from_bytes(limit.bytes() + 1).ok();
        let (at, over, strict) = (given(Some(limit), false), given(above, false), given(Some(limit), true));
        let name = format!("{}-{world_size}x-{word}", self.new.id);
        self.case(&format!("{name}-at-the-limit"), "a limit is inclusive", &at)?;
        self.case(&format!("{name}-above-the-limit"), "one byte more is too much", &over)?;
        self.case(
            &format!("{name}-strict"),
            "nobody measured it here, so a strict request does not rest on it",
            &strict,
        )
    }

    /// World sizes that no row lists are served by NCCL.
    fn unlisted(&mut self) -> Result<(), ScaffoldError> {
        let given = Given {
            arch: Some(self.new.id.clone()),
            world_size: 3,
            topology: Some(Topology::Nvswitch),
            multicast: Some(false),
            message: Size::from_bytes(64 << 10).ok().map(Message::Bytes),
            ..Given::default()
        };
        self.case(&format!("{}-3x-auto", self.new.id), "a world size without a row still runs", &given)
    }

    fn case(&mut self, id: &str, why: &str, given: &Given) -> Result<(), ScaffoldError> {
        let answer = ask(self.database, given, None)?;
        let _ = writeln!(self.text, "  - id: {id}\n    why: {}", crate::yaml_text::scalar(why));
        let value = |given: &Given| serde_json::to_value(given).unwrap_or_default();
        let mut given = value(given);
        shorten(&mut given);
        let _ = writeln!(self.text, "    given: {}", crate::yaml_text::flow(&given));
        let _ = writeln!(self.text, "    expect: {}", expect(&answer));
        Ok(())
    }
}

/// Leaves out what equals the default.
fn shorten(given: &mut serde_json::Value) {
    let Some(request) = given.get_mut("request").and_then(serde_json::Value::as_object_mut) else { return };
    request.retain(|_, value| *value != "auto" && *value != false);
    if request.is_empty() {
        given.as_object_mut().map(|given| given.shift_remove("request"));
    }
}

fn expect(answer: &Answer) -> String {
    let explanation = &answer.explanation;
    let mut parts = vec![format!("verdict: {}", explanation.verdict)];
    parts.extend(explanation.allreduce.map(|algorithm| format!("allreduce: {algorithm}")));
    let reasons: Vec<&str> = explanation.reasons.iter().map(|line| line.reason).collect();
    if !reasons.is_empty() {
        parts.push(format!("reasons: [{}]", reasons.join(", ")));
    }
    parts.extend(explanation.nearest.map(|nearest| format!("nearest: {nearest}")));
    format!("{{{}}}", parts.join(", "))
}
