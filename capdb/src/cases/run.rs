//! Asking the database, and checking what it answers.

use super::format::{CasesFile, Environment, Expect, Given, Message, MulticastAnswer, P2pAnswer, Quantization};
use crate::database::{Database, LookupError};
use crate::decide::{Decision, Explanation, HostFacts, Probe, Request, Shape, Stack, Table, decide, explain};
use crate::load::Loaded;
use crate::problem::Problem;
use crate::quantity::Version;
use crate::record::Dtype;
use crate::resolve::{Layer, LayerKind, RecordError, Resolved};
use crate::yaml::Node;

/// Everything that an answer was made from, and the answer.
#[derive(Debug)]
pub struct Answer {
    pub resolved: Resolved,
    pub host: HostFacts,
    pub shape: Shape,
    pub request: Request,
    pub decision: Decision,
    pub explanation: Explanation,
    /// Facts that were filled from the product's usual machine.
    pub assumed: Vec<String>,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    #[error("name the machine: an `arch` or a `gpu`, not both")]
    NoMachine,
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("`message` has neither tokens nor speculation.draft_tokens to count rows with")]
    NoRows,
    #[error("`message` is too large: its bytes do not fit 64 bits")]
    TooLarge,
    #[error("a world size of 0 has no ranks")]
    NoRanks,
}

/// Answers one question. `overlay` is the tree of `given.record`, where one was given.
pub fn ask(database: &Database, given: &Given, overlay: Option<&Node>) -> Result<Answer, AskError> {
    if given.world_size == 0 {
        return Err(AskError::NoRanks);
    }
    let mut resolved = record(database, given)?;
    if let Some(node) = overlay {
        resolved.apply(&Layer { kind: LayerKind::Case, id: "case", file: "case record", bytes: b"", node });
    }
    let table = Table::new(database.index(), &resolved)?;
    let (host, assumed) = host(database, given);
    let shape = shape(given)?;
    let request = Request {
        allreduce: given.request.allreduce.request(),
        fusion: given.request.fusion.request(),
        strict: given.request.strict,
        allow_fallback: given.request.allow_fallback,
        max_message: given.request.max_message.map(|size| size.bytes()),
    };
    let decision = decide(&table, &host, &shape, &request);
    let explanation = explain(&resolved, &host, &shape, &request, &decision);
    Ok(Answer { resolved, host, shape, request, decision, explanation, assumed })
}

fn record(database: &Database, given: &Given) -> Result<Resolved, AskError> {
    match (&given.arch, &given.gpu) {
        (Some(arch), None) => match database.index().arch_id_of(arch) {
            Some(id) => Ok(database.record(id)?),
            None => Ok(Resolved::unknown(arch)),
        },
        (None, Some(gpu)) => Ok(database.record(gpu)?),
        _ => Err(AskError::NoMachine),
    }
}

fn host(database: &Database, given: &Given) -> (HostFacts, Vec<String>) {
    let facts = given.facts.clone().unwrap_or_default();
    let stack = given.stack.clone().unwrap_or_default();
    let parts = |version: &Option<Version>| version.as_ref().map(Version::parts);
    let mut host = HostFacts {
        topology: given.topology,
        multicast: given.multicast,
        multicast_probe: facts
            .multicast_probe
            .map(|answer| if answer == MulticastAnswer::Ok { Probe::Ok } else { Probe::Failed }),
        p2p_probe: facts.p2p_probe.map(|answer| if answer == P2pAnswer::Ok { Probe::Ok } else { Probe::Failed }),
        stack: Stack { toolkit: parts(&stack.toolkit), driver: parts(&stack.driver), nccl: parts(&stack.nccl) },
        nodes: given.nodes,
        visible_gpus: facts.visible_gpus,
        ..HostFacts::default()
    };
    for id in facts.self_test_failed {
        host = host.with_failed_self_test(id);
    }
    let variables: Vec<(String, String)> =
        given.environment.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    host = host.with_environment(variables.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let mut assumed = Vec::new();
    if let Some(product) = given.gpu.as_ref().and_then(|gpu| database.index().gpus.get(gpu))
        && host.multicast.is_none()
        && host.multicast_probe.is_none()
    {
        host.multicast = Some(product.usual_multicast);
        assumed.push(format!("multicast: {}", product.usual_multicast));
    }
    (host, assumed)
}

fn text(value: &Environment) -> String {
    match value {
        Environment::Text(text) => text.clone(),
        Environment::Number(number) => number.to_string(),
    }
}

fn shape(given: &Given) -> Result<Shape, AskError> {
    let dtype = given.dtype.unwrap_or(Dtype::Bf16);
    let message = match &given.message {
        None => None,
        Some(Message::Bytes(size)) => Some(size.bytes()),
        Some(Message::Rows(rows)) => {
            let tokens = rows
                .tokens
                .or(given.speculation.as_ref().map(|speculation| speculation.draft_tokens))
                .ok_or(AskError::NoRows)?;
            Some(
                tokens
                    .checked_mul(rows.hidden)
                    .and_then(|elements| elements.checked_mul(dtype.bytes()))
                    .ok_or(AskError::TooLarge)?,
            )
        }
    };
    Ok(Shape {
        world_size: given.world_size,
        dtype,
        message,
        fusion: given.quantization.unwrap_or(Quantization::None).fusion(),
        heads: given.heads,
        pipeline_parallel: given.pipeline_parallel.unwrap_or(1),
        workspace: given.workspace.map(|size| size.bytes()),
    })
}

/// What became of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub id: String,
    pub path: String,
    pub line: usize,
    /// Empty when it passed.
    pub failures: Vec<String>,
}

/// Runs a file of cases. Fails with the problems of a file that cannot be read.
pub fn run(database: &Database, loaded: &mut Loaded) -> Result<Vec<Outcome>, Vec<Problem>> {
    if !loaded.document.problems.is_empty() {
        return Err(loaded.document.problems.clone());
    }
    let (file, _) = crate::typed::read::<CasesFile>(loaded).map_err(|problem| vec![problem])?;
    let outcomes = file.cases.iter().enumerate().map(|(at, case)| {
        let root = loaded.root();
        let overlay = root.and_then(|root| root.pointer(&format!("/cases/{at}/given/record")));
        let line = root
            .and_then(|root| root.pointer(&format!("/cases/{at}/id")))
            .map_or(0, |node| loaded.place(node.span.start).0);
        let failures = match ask(database, &case.given, overlay) {
            Ok(answer) => differences(&case.expect, &answer.explanation),
            Err(error) => vec![error.to_string()],
        };
        Outcome { id: case.id.clone(), path: loaded.file.path.clone(), line, failures }
    });
    Ok(outcomes.collect())
}

/// Every way in which an answer is not what was expected.
fn differences(expect: &Expect, answer: &Explanation) -> Vec<String> {
    let mut failures = Vec::new();
    let mut compare = |what: &str, expected: &Option<String>, actual: &str| {
        if let Some(expected) = expected.as_ref().filter(|expected| *expected != actual) {
            failures.push(format!("{what}: expected {expected}, got {actual}"));
        }
    };
    compare("verdict", &expect.verdict, answer.verdict);
    compare("allreduce", &expect.allreduce, answer.allreduce.unwrap_or("none"));
    compare("fusion", &expect.fusion, answer.fusion);
    compare("nearest", &expect.nearest, answer.nearest.unwrap_or("none"));
    let got: Vec<&str> = answer.reasons.iter().map(|line| line.reason).collect();
    for missing in expect.reasons.iter().filter(|reason| !got.contains(&reason.as_str())) {
        failures.push(format!("reasons: expected {missing}, got [{}]", got.join(", ")));
    }
    failures
}
