//! `archway bench eagle3`: plain and speculative decoding of the same prompts, in turns, in one process.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use engine::load::read_bounded_text;
use engine::types::{RequestEvent, SamplingParams};
use engine_server::service::Service;
use engine_server::text::Chat;
use serde::Serialize;
use serde_json::{Value, json};

use super::bounds::{COUNTS, LENGTHS, WARMUPS, within};
use super::report;
use crate::generate::Run;
use crate::loader;
use crate::numbers::Summary;
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

#[derive(Serialize)]
struct Report {
    model: String,
    prompts: usize,
    batch_size: usize,
    plain: Vec<Measure>,
    speculative: Vec<Measure>,
    plain_tokens_per_second: Summary,
    speculative_tokens_per_second: Summary,
    tokens_per_verify: f64,
    /// Ratio of the medians.
    speed_up: f64,
    /// Answers that are the same in both kinds of runs.
    equal_answers: usize,
    /// Measured times by width.
    speculation: Value,
    break_even: BreakEven,
    simulated: Option<Simulated>,
}

/// Tokens per verify at which speculation is as fast as plain decoding.
#[derive(Serialize)]
struct BreakEven {
    /// From the plan: for one sequence, from shapes, bandwidth and measured sums. None for a machine without a bandwidth, or
    /// several sequences.
    predicted: Option<f64>,
    /// The time of a cycle over that of a plain token, from the runs' rates.
    measured: f64,
    /// Predicted over measured, less one.
    difference: Option<f64>,
}

impl BreakEven {
    fn new(predicted: Option<f64>, measured: f64) -> Self {
        Self { predicted, measured, difference: predicted.map(|predicted| predicted / measured.max(1e-9) - 1.0) }
    }
}

/// Tokens of the widest pass that anybody verifies.
const MOST_VERIFIED: f64 = 64.0;

/// What another acceptance would give with the measured times.
#[derive(Serialize)]
struct Simulated {
    simulated: bool,
    accept_length: f64,
    tokens_per_second: f64,
    speed_up: f64,
}

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
    let plain = loader::prepare(&without_speculation(&options))?.load()?;
    let speculative = loader::prepare(&options)?.load()?;
    let mut prompts = prompts(arguments, &plain)?;
    prompts.truncate(arguments.num_prompts.unwrap_or(usize::MAX));
    ensure!(!prompts.is_empty(), "there are no prompts");
    let (mut kinds, mut answers) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for number in 0..arguments.warmup + arguments.runs {
        for (kind, (name, service)) in [("plain", &plain), ("speculative", &speculative)].into_iter().enumerate() {
            let (measure, outputs) = measure(arguments, service, &prompts, number)?;
            answers[kind] = outputs;
            if number >= arguments.warmup {
                print_run(arguments, number - arguments.warmup + 1, name, &measure);
                kinds[kind].push(measure);
            }
        }
    }
    let equal_answers = answers[0].iter().zip(&answers[1]).filter(|(plain, other)| plain == other).count();
    print_summary(arguments, &speculative, prompts.len(), kinds, equal_answers)?;
    Ok(ExitCode::SUCCESS)
}

/// A verify pass gives one token more than it accepts, and accepts no more than were drafted.
fn tokens_per_verify(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no number of tokens per verify; 1 to {MOST_VERIFIED} are");
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

/// Token ids of every prompt; texts go through the chat template.
fn prompts(arguments: &Arguments, service: &Service) -> Result<Vec<Vec<u32>>> {
    let Some(path) = &arguments.prompts else {
        let questions = [
            "Explain how a bicycle stays upright.",
            "Write a Python function that counts the words in a text.",
            "Summarise the plot of Romeo and Juliet in five sentences.",
            "A train leaves at 9:40 and arrives at 13:05. How long is the journey? Show your steps.",
        ];
        return questions.into_iter().map(|text| encode(service, text)).collect();
    };
    let name = path.display();
    let text = read_bounded_text(path).with_context(|| format!("{name} cannot be read"))?;
    let list: Vec<Value> = serde_json::from_str(&text).with_context(|| format!("{name} is no JSON list"))?;
    let read =
        |(index, entry): (usize, &Value)| entry_ids(service, entry).with_context(|| format!("{name}: entry {index}"));
    list.iter().enumerate().map(read).collect()
}

fn entry_ids(service: &Service, entry: &Value) -> Result<Vec<u32>> {
    let vocabulary = u64::from(service.codec.vocabulary());
    if let Some(ids) = entry.get("ids").unwrap_or(entry).as_array() {
        let id = |id: &Value| id.as_u64().filter(|id| *id < vocabulary).map(|id| id as u32);
        return ids.iter().map(id).collect::<Option<_>>().context("it holds something else than token ids");
    }
    let text = entry.get("text").unwrap_or(entry).as_str().context("it is neither a text nor a list of token ids")?;
    encode(service, text)
}

fn encode(service: &Service, text: &str) -> Result<Vec<u32>> {
    let chat = Chat {
        messages: vec![json!({"role": "user", "content": text})],
        add_generation_prompt: true,
        ..Chat::default()
    };
    let text = service.codec.render(&chat)?;
    Ok(service.codec.encode(&text, false)?)
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

fn print_summary(
    arguments: &Arguments,
    service: &Service,
    prompts: usize,
    [plain, speculative]: [Vec<Measure>; 2],
    equal_answers: usize,
) -> Result<()> {
    let rates = |runs: &[Measure]| Summary::of(&runs.iter().map(|run| run.tokens_per_second).collect::<Vec<_>>());
    let (plain_rate, rate) = (rates(&plain), rates(&speculative));
    let lengths: Vec<f64> = speculative.iter().filter_map(|run| run.tokens_per_verify).collect();
    let tokens_per_verify = Summary::of(&lengths).median;
    let simulated = arguments.simulate_accept_length.map(|accept_length| {
        let tokens_per_second = rate.median / tokens_per_verify.max(1.0) * accept_length;
        let speed_up = tokens_per_second / plain_rate.median;
        Simulated { simulated: true, accept_length, tokens_per_second, speed_up }
    });
    let document = service.plan.document();
    let predicted = document["prediction"]["break_even"].as_f64().filter(|_| arguments.batch_size == 1);
    let measured = tokens_per_verify.max(1.0) * plain_rate.median / rate.median.max(1e-9);
    let report = Report {
        model: service.model.path.clone(),
        prompts,
        batch_size: arguments.batch_size,
        speed_up: rate.median / plain_rate.median,
        plain_tokens_per_second: plain_rate,
        speculative_tokens_per_second: rate,
        tokens_per_verify,
        equal_answers,
        plain,
        speculative,
        speculation: document["speculation"].clone(),
        break_even: BreakEven::new(predicted, measured),
        simulated,
    };
    if arguments.json {
        return report::json(&report);
    }
    report::title("EAGLE-3", '=');
    report::row("Median plain (tokens/s)", report.plain_tokens_per_second.median);
    report::row("Median speculative (tokens/s)", report.speculative_tokens_per_second.median);
    report::row("Median tokens per verify", report.tokens_per_verify);
    report::row("Speed-up", report.speed_up);
    println!("{:<40}{} of {prompts}", "Equal answers:", report.equal_answers);
    print_widths(&report.speculation);
    print_break_even(&report.break_even);
    if let Some(Simulated { accept_length, tokens_per_second, speed_up, .. }) = &report.simulated {
        println!(
            "SIMULATED, not measured: with {accept_length} tokens per verify and the measured times, \
             {tokens_per_second:.1} tokens/s, speed-up {speed_up:.2}"
        );
    }
    Ok(())
}

fn print_break_even(BreakEven { predicted, measured, difference }: &BreakEven) {
    let predicted = predicted.zip(*difference).map_or_else(String::new, |(predicted, difference)| {
        format!("; the plan predicted {predicted:.3}, {:+.1} %", 100.0 * difference)
    });
    println!("Break-even: {measured:.3} tokens per verify{predicted}");
}

/// What each width costs: where the time goes, and what would be needed for it to pay.
fn print_widths(speculation: &Value) {
    let Some(widths) = speculation["widths"].as_array().filter(|widths| !widths.is_empty()) else { return };
    println!("sequences  verify  cycles  cycle ms  draft ms  target ms  follow ms  tokens  break-even  gain");
    for line in widths {
        let milliseconds = |key: &str| line[key].as_f64().unwrap_or(0.0) * 1e3;
        // A JSON value prints itself without the width of its column.
        let count = |key: &str| line[key].to_string();
        let number = |key: &str| line[key].as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        println!(
            "{:>9} {:>7} {:>7} {:>9.2} {:>9.2} {:>10.2} {:>10.2} {:>7} {:>11} {:>5}{}",
            count("sequences"),
            count("verify_tokens"),
            count("cycles"),
            milliseconds("cycle_seconds"),
            milliseconds("draft_seconds"),
            milliseconds("target_seconds"),
            milliseconds("follow_seconds"),
            number("tokens_per_cycle"),
            number("break_even"),
            number("measured_gain"),
            if line["in_use"] == json!(true) { "  in use" } else { "" }
        );
    }
}
