//! `archway bench eagle3`: plain and speculative decoding of the same prompts, in turns, in one process.

mod prompts;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::Args;
use engine::types::{RequestEvent, SamplingParams};
use engine_server::service::Service;
use serde::Serialize;

use self::prompts::{entries, prompts};
use self::report::{Report, Runs};
use super::bounds::{COUNTS, LENGTHS, WARMUPS, within};
use crate::generate::Run;
use crate::loader;
use crate::settings::{Options, Speculative, SpeculativeConfig, hide_of_server, resolve_alone};

/// Measure whether speculation pays: plain and speculative runs of the same prompts, one after the other.
///
/// A run answers every prompt, --batch-size of them at once. Rates count tokens after the first one of each answer.
#[derive(Args)]
#[command(mut_args(hide_of_server))]
pub struct Arguments {
    /// Prompts: JSON, a list of texts, of token lists, or of objects with `ids` or `text`. Default: four questions.
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Take only so many of them.
    #[arg(long, value_name = "COUNT")]
    num_prompts: Option<usize>,
    /// Most output tokens of a prompt.
    #[arg(long, value_name = "TOKENS", default_value_t = 2048)]
    max_tokens: u32,
    /// Requests that run at once.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    batch_size: usize,
    /// 0 takes the most likely token.
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Runs of each kind before the measured ones.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    warmup: usize,
    /// Measured runs of each kind.
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    runs: usize,
    /// Also say what so many tokens per verify would give with the measured times: 1, the token that a verify pass always
    /// gives, to 1 more than is drafted. Simulated, not measured.
    #[arg(long, value_name = "TOKENS", value_parser = tokens_per_verify)]
    simulate_accept_length: Option<f64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
struct Measure {
    seconds: f64,
    tokens: u64,
    /// Tokens after the first one of each answer, over the time from the first token to the last.
    tokens_per_second: f64,
    verifies: u64,
    tokens_per_verify: Option<f64>,
}

/// Tokens of the widest pass that anybody verifies.
const MOST_VERIFIED: f64 = 64.0;

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    within("runs", arguments.runs, &COUNTS)?;
    within("warmup", arguments.warmup, &WARMUPS)?;
    within("batch-size", arguments.batch_size, &COUNTS)?;
    within("max-tokens", arguments.max_tokens as usize, &LENGTHS)?;
    let options = resolve_alone(&arguments.options)?;
    let Some(loader::speculation::Asked { shape, .. }) = loader::speculation::asked(&options)? else {
        bail!("no draft model is given; set --speculative-draft-model-path to an EAGLE-3 head's folder");
    };
    if let Some(length) = arguments.simulate_accept_length {
        let drafted = shape.steps.min(shape.verify_tokens.saturating_sub(1));
        let most = drafted + 1;
        ensure!(
            length <= most as f64,
            "--simulate-accept-length {length}: {drafted} drafted tokens give {most} at most"
        );
    }
    // What is wrong is said before anything takes time.
    let mut entries = entries(arguments)?;
    entries.truncate(arguments.num_prompts.unwrap_or(usize::MAX));
    ensure!(!entries.is_empty(), "there are no prompts");
    drop(loader::prepare(&options)?);
    let plain = loader::prepare(&without_speculation(&options))?.load()?;
    // Planned again, now that the first engine has taken its memory.
    let speculative = loader::prepare(&options)?.load()?;
    let prompts = prompts(arguments, &entries, &plain)?;
    let runs = measure_in_turns(arguments, [("plain", &plain), ("speculative", &speculative)], &prompts)?;
    Report::new(arguments, &speculative, runs).print(arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs of both services in turns, those before the measured ones left out.
fn measure_in_turns(arguments: &Arguments, services: [(&str, &Service); 2], prompts: &[Vec<u32>]) -> Result<Runs> {
    let (mut kinds, mut answers) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for number in 0..arguments.warmup + arguments.runs {
        for (kind, (name, service)) in services.into_iter().enumerate() {
            let (measure, outputs) = measure(arguments, service, prompts, number)?;
            answers[kind] = outputs;
            if number >= arguments.warmup {
                print_run(arguments, number - arguments.warmup + 1, name, &measure);
                kinds[kind].push(measure);
            }
        }
    }
    let equal_answers = answers[0].iter().zip(&answers[1]).filter(|(plain, other)| plain == other).count();
    let [plain, speculative] = kinds;
    Ok(Runs { prompts: prompts.len(), plain, speculative, equal_answers })
}

/// A verify pass gives one token more than it accepts, and accepts no more than were drafted.
fn tokens_per_verify(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not a number of tokens per verify; 1 to {MOST_VERIFIED} are");
    text.parse().ok().filter(|tokens| (1.0..=MOST_VERIFIED).contains(tokens)).ok_or_else(wrong)
}

fn without_speculation(options: &Options) -> Options {
    Options {
        speculative_algorithm: Some(Speculative::None),
        speculative_draft_model_path: None,
        speculative_num_steps: None,
        speculative_eagle_topk: None,
        speculative_num_draft_tokens: None,
        speculative_config: None::<SpeculativeConfig>,
        eagle3_taps: None,
        speculative_adaptive: None,
        ..options.clone()
    }
}

/// Answers every prompt, some at once; also the answers.
fn measure(
    arguments: &Arguments,
    service: &Service,
    prompts: &[Vec<u32>],
    number: usize,
) -> Result<(Measure, Vec<Vec<u32>>)> {
    let params = SamplingParams {
        temperature: arguments.temperature,
        max_tokens: arguments.max_tokens,
        ..SamplingParams::default()
    };
    let before = service.backend.stats();
    let (mut answers, mut seconds) = (Vec::new(), 0.0);
    for (part, prompts) in prompts.chunks(arguments.batch_size).enumerate() {
        let first_id = ((number * 1_000_000) + part * arguments.batch_size) as u64 + 1;
        let mut run = Run::start(service.backend.as_ref(), prompts.to_vec(), &params, first_id)?;
        let (mut outputs, mut span) = (vec![Vec::new(); prompts.len()], None);
        while let Some(timed) = run.next()? {
            if let RequestEvent::Output { tokens, .. } = &timed.event {
                outputs[timed.request].extend(tokens.iter().map(|token| token.id));
                span = Some((span.map_or(timed.at, |(first, _)| first), timed.at));
            }
        }
        seconds += span.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        answers.extend(outputs);
    }
    let after = service.backend.stats();
    let (verifies, accepted) = (after.drafts - before.drafts, after.accepted_tokens - before.accepted_tokens);
    let tokens: u64 = answers.iter().map(|answer: &Vec<u32>| answer.len() as u64).sum();
    let measure = Measure {
        seconds,
        tokens,
        tokens_per_second: tokens.saturating_sub(answers.len() as u64) as f64 / seconds.max(1e-9),
        verifies,
        tokens_per_verify: (verifies > 0).then(|| 1.0 + accepted as f64 / verifies as f64),
    };
    Ok((measure, answers))
}

fn print_run(arguments: &Arguments, number: usize, name: &str, measure: &Measure) {
    if arguments.json {
        return;
    }
    let verify = measure
        .tokens_per_verify
        .map_or_else(String::new, |tokens| format!(", {tokens:.3} tokens per verify in {} verifies", measure.verifies));
    println!(
        "run {number}, {name}: {} tokens in {:.3} s, {:.1} tokens/s{verify}",
        measure.tokens, measure.seconds, measure.tokens_per_second
    );
}
