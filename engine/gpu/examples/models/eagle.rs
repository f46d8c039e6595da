//! Speculation on the GPU beside the CPU: whole engines over the golden model with its EAGLE-3 head, chains and trees,
//! greedy and sampled.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use engine::collective::{CallCounters, CollectivePlan};
use engine::executor::{Capacity, RankFactory, RanksConfig, RanksExecutor, Speculation};
use engine::load::parse_config;
use engine::model::ModelConfig;
use engine::plan::{PlanRequest, SpeculationShape};
use engine::runner::{Engine, EngineConfig, EngineStats, NoObserver, NoText};
use engine::spec::{DraftShape, HeadCheckpoint, PaceSettings, open_head};
use engine::types::{EventSink, Request, RequestEvent, RequestId, SamplingParams};
use engine::weights::{SafetensorsWeights, WeightSource, read_file};
use engine_cpu::kernels::{CacheElement, Precision};
use engine_cpu::{CpuOptions, CpuRanks};

use crate::golden::Rounded;
use crate::greedy::NEAR;
use crate::{Failure, devices, gpu};

const TOKENS: u32 = 48;
const VOCABULARY: u32 = 512;
/// Largest difference of the tokens that a verify pass gives, GPU beside CPU: a head that is slightly wrong loses more.
const ACCEPTANCE: f64 = 0.15;
/// Of the sampled outputs so many must be the plain ones for all tokens. A draw parts where the random point falls between
/// two sums of weights that rounding has moved: with logits that differ by 0.01 about one in 150 does, so about one
/// output in three does. One wrong counter or parameter leaves none equal.
const SAME: f64 = 0.3;

/// Tokens of one output, each with the lead of the best log-probability where it was asked for.
type Output = Vec<(u32, f32)>;

/// What one engine gave.
struct Answers {
    outputs: Vec<Output>,
    stats: EngineStats,
}

/// `folder` is `eagle3-tiny`.
pub fn compare(folder: &Path) -> Result<(), Failure> {
    let Opened { config, weights, head } = open(folder)?;
    let requests = requests();
    let plain = [
        answer(cpu(), (&config, &weights), None, &requests, None)?,
        answer(gpu(&config)?, (&config, &weights), None, &requests, None)?,
    ];
    for (name, shape) in shapes()? {
        let speculation = Some(Speculation { head: Arc::clone(&head), shape });
        let expected = answer(cpu(), (&config, &weights), speculation.clone(), &requests, None)?;
        let start = Instant::now();
        let actual = answer(gpu(&config)?, (&config, &weights), speculation, &requests, None)?;
        println!("{name}: {:.2} s with loading", start.elapsed().as_secs_f64());
        greedy(name, &requests, &plain[0], &actual)?;
        sampled(&format!("{name}, beside plain decoding"), &requests, &plain[1], &actual)?;
        sampled(&format!("{name}, beside the CPU"), &requests, &plain[0], &actual)?;
        let (here, there) = (length(&actual), length(&expected));
        println!("{name}: {here:.3} tokens per verify in {} verifies, on the CPU {there:.3}", actual.stats.drafts);
        if actual.stats.drafts == 0 || (here - there).abs() > ACCEPTANCE {
            return Err(format!("{name}: {here:.3} tokens per verify, but {there:.3} on the CPU"));
        }
    }
    Ok(())
}

/// The same on several GPUs, beside plain decoding on one.
pub fn compare_ranks(ranks: usize, folder: &Path) -> Result<(), Failure> {
    let Opened { config, weights, head } = open(folder)?;
    let requests = requests();
    let plain = answer(gpu(&config)?, (&config, &weights), None, &requests, None)?;
    for (name, shape) in shapes()? {
        let name = format!("{name}, {ranks} ranks");
        let planned = SpeculationShape {
            verify_tokens: shape.verify_tokens,
            steps: shape.steps,
            draft_hidden: head.config.hidden,
            draft_vocabulary: head.config.vocabulary,
            draft_bytes: head.bytes,
            draft_cache_bytes: 0,
        };
        let (factory, plan) = devices(&config, ranks, |request| PlanRequest { speculation: Some(planned), ..request })?;
        let speculation = Some(Speculation { head: Arc::clone(&head), shape });
        let actual = answer(factory, (&config, &weights), speculation, &requests, Some(plan.collectives()))?;
        greedy(&name, &requests, &plain, &actual)?;
        sampled(&name, &requests, &plain, &actual)?;
        println!("{name}: {:.3} tokens per verify in {} verifies", length(&actual), actual.stats.drafts);
        if actual.stats.drafts == 0 {
            return Err(format!("{name}: nothing was drafted"));
        }
    }
    Ok(())
}

/// Chains and trees.
fn shapes() -> Result<[(&'static str, DraftShape); 2], Failure> {
    Ok([("chain", DraftShape::chain(4)), ("tree", DraftShape::new(4, 4, 12)?)])
}

/// Tokens that a verify gives.
fn length(answers: &Answers) -> f64 {
    1.0 + answers.stats.accepted_tokens as f64 / answers.stats.drafts.max(1) as f64
}

/// The golden model and its head.
struct Opened {
    config: Arc<ModelConfig>,
    weights: Arc<dyn WeightSource>,
    head: Arc<HeadCheckpoint>,
}

fn open(folder: &Path) -> Result<Opened, Failure> {
    let text = |path: &Path| fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let (target, head) = (folder.join("target"), folder.join("draft"));
    let config = parse_config("eagle3-tiny", &text(&target.join("config.json"))?).map_err(|error| error.to_string())?;
    let weights = SafetensorsWeights::open_folder(&target, read_file).map_err(|error| error.to_string())?;
    let head = open_head(&head, &config, None, read_file).map_err(|error| error.to_string())?;
    Ok(Opened { config: Arc::new(config), weights: Arc::new(Rounded(weights)), head: Arc::new(head) })
}

/// Greedy ones, with leads on the plain side, then sampled ones.
fn requests() -> Vec<(Vec<u32>, SamplingParams)> {
    let prompt = |number: u32| (0..5 + number % 19).map(|at| (7 * number + 31 * at * at + at) % VOCABULARY).collect();
    let params = |number: u32| match number % 4 {
        0 | 1 => SamplingParams { temperature: 0.0, ..SamplingParams::default() },
        2 => SamplingParams { temperature: 0.7, top_p: 0.9, ..SamplingParams::default() },
        _ => SamplingParams { temperature: 1.0, top_k: 20, min_p: 0.02, ..SamplingParams::default() },
    };
    let all = (0..48).map(|number| {
        let params = SamplingParams { max_tokens: TOKENS, seed: u64::from(number), ignore_eos: true, ..params(number) };
        (prompt(number), params)
    });
    all.collect()
}

/// Greedy outputs are the CPU's, but for near ties.
fn greedy(
    name: &str,
    requests: &[(Vec<u32>, SamplingParams)],
    plain: &Answers,
    actual: &Answers,
) -> Result<(), Failure> {
    let (mut equal, mut near) = (0, 0);
    for (number, _) in requests.iter().enumerate().filter(|(_, (_, params))| params.temperature == 0.0) {
        let (expected, actual) = (&plain.outputs[number], &actual.outputs[number]);
        if actual.len() != TOKENS as usize {
            return Err(format!("{name}: output {number} has {} tokens of {TOKENS}", actual.len()));
        }
        match actual.iter().zip(expected).position(|(actual, expected)| actual.0 != expected.0) {
            None => equal += 1,
            Some(at) if expected[at].1 < NEAR => near += 1,
            Some(at) => {
                let lead = expected[at].1;
                return Err(format!("{name}: output {number} parts at token {at}, where the CPU's lead is {lead}"));
            }
        }
    }
    println!("{name}: greedy: {equal} equal, {near} part at a near tie");
    Ok(())
}

fn sampled(
    name: &str,
    requests: &[(Vec<u32>, SamplingParams)],
    plain: &Answers,
    actual: &Answers,
) -> Result<(), Failure> {
    let ids = |output: &Output| output.iter().map(|token| token.0).collect::<Vec<_>>();
    let outputs = plain.outputs.iter().zip(&actual.outputs).zip(requests);
    let outputs = outputs.filter(|(_, (_, params))| params.temperature > 0.0);
    let same: Vec<bool> = outputs.map(|((plain, actual), _)| ids(plain) == ids(actual)).collect();
    let (count, all) = (same.iter().filter(|same| **same).count(), same.len());
    println!("{name}: sampled: {count} of {all} equal");
    if (count as f64) < SAME * all as f64 { Err(format!("{name}: {count} of {all} sampled outputs")) } else { Ok(()) }
}

fn cpu() -> CpuRanks {
    let deadline = Duration::from_secs(60);
    let options = CpuOptions { world_size: 1, threads: None, precision: Precision::Exact, deadline };
    CpuRanks::new(options).with_cache(CacheElement::F32)
}

/// Everything at once, so that batches of many sizes are drafted and verified. Leads are asked for without speculation.
fn answer<F: RankFactory>(
    factory: F,
    (model, weights): (&Arc<ModelConfig>, &Arc<dyn WeightSource>),
    speculation: Option<Speculation>,
    requests: &[(Vec<u32>, SamplingParams)],
    plan: Option<CollectivePlan>,
) -> Result<Answers, Failure> {
    let logprobs = speculation.is_none().then_some(2);
    let pace = speculation.as_ref().map(|own| PaceSettings { shape: own.shape, adaptive: false });
    let config = RanksConfig {
        model: Arc::clone(model),
        weights: Arc::clone(weights),
        capacity: Capacity { pages: 256, page_size: 16, slots: 12, rows: 256, context: 128, vocabulary: VOCABULARY },
        logit_rows: 96,
        plan: Arc::new(plan.unwrap_or_else(|| CollectivePlan::uniform("none"))),
        counters: Arc::new(CallCounters::default()),
        step_deadline: Duration::from_secs(60),
        speculation,
    };
    let executor = RanksExecutor::start(factory, config, |_| {}).map_err(|error| error.to_string())?;
    let settings = EngineConfig { speculation: pace, ..EngineConfig::default() };
    let engine = Engine::start(Box::new(executor), Arc::new(NoText), Arc::new(NoObserver), settings)
        .map_err(|error| error.to_string())?;
    let mut running = Vec::new();
    for ((prompt, params), id) in requests.iter().zip(1..) {
        let (sender, receiver) = channel();
        let params = Arc::new(SamplingParams { logprobs, ..params.clone() });
        let request =
            Request { id: RequestId(id), prompt: Arc::from(prompt.as_slice()), params, priority: 0, cache_salt: None };
        engine.submit(request, Box::new(Sink(sender))).map_err(|error| error.to_string())?;
        running.push(receiver);
    }
    let outputs = running.iter().map(output).collect::<Result<_, _>>()?;
    Ok(Answers { outputs, stats: engine.stats() })
}

struct Sink(Sender<RequestEvent>);

impl EventSink for Sink {
    fn send(&self, event: RequestEvent) -> bool {
        self.0.send(event).is_ok()
    }
}

fn output(events: &Receiver<RequestEvent>) -> Result<Output, Failure> {
    let mut output = Vec::new();
    for event in events {
        match event {
            RequestEvent::Output { tokens, .. } => output.extend(tokens.iter().map(|token| {
                let top = token.logprobs.as_ref().map(|logprobs| &logprobs.top);
                (token.id, top.map_or(f32::NAN, |top| top[0].1 - top[1].1))
            })),
            RequestEvent::Finished { .. } => break,
            RequestEvent::PromptLogprobs(_) => {}
            RequestEvent::Failed(failure) => return Err(failure.to_string()),
        }
    }
    Ok(output)
}
