//! `archway bench latency`: one batch at a time, as in `vllm bench latency`.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use engine::types::{RequestEvent, SamplingParams};
use engine_server::service::Service;
use serde::Serialize;

use super::bounds::{COUNTS, LENGTHS, WARMUPS, prompts, within};
use super::report;
use crate::generate::Run;
use crate::numbers::{Random, Summary};
use crate::progress;
use crate::settings::{Options, hide_of_server};

/// Time a batch of equal requests from submission to end, again and again.
#[derive(Args)]
#[command(mut_args(hide_of_server))]
pub struct Arguments {
    /// Prompt length in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 32)]
    input_len: usize,
    /// Output length in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 128)]
    output_len: u32,
    /// Requests that run at once.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    batch_size: usize,
    /// Runs before the measured ones.
    #[arg(long, alias = "num-iters-warmup", value_name = "COUNT", default_value_t = 2)]
    warmup: usize,
    /// Measured runs.
    #[arg(long, alias = "num-iters", value_name = "COUNT", default_value_t = 5)]
    runs: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

/// One run, in seconds and tokens per second.
#[derive(Clone, Copy, Debug, Serialize)]
struct Measure {
    latency: f64,
    first_token: f64,
    decode_tokens_per_second: f64,
    prefill_tokens_per_second: f64,
}

#[derive(Serialize)]
struct Report {
    model: String,
    input_len: usize,
    output_len: u32,
    batch_size: usize,
    runs: Vec<Measure>,
    latency: Summary,
    first_token: Summary,
    decode_tokens_per_second: Summary,
    prefill_tokens_per_second: Summary,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    prompts(["batch-size", "input-len"], arguments.batch_size, arguments.input_len)?;
    within("output-len", arguments.output_len as usize, &LENGTHS)?;
    within("runs", arguments.runs, &COUNTS)?;
    within("warmup", arguments.warmup, &WARMUPS)?;
    let service = super::prepare(&arguments.options)?.load()?;
    let mut random = Random::new(arguments.options.seed.unwrap_or(0));
    let bar = progress::bar((arguments.warmup + arguments.runs) as u64, "latency");
    let mut runs = Vec::with_capacity(arguments.runs);
    for number in 0..arguments.warmup + arguments.runs {
        let measure = measure(arguments, &service, &mut random, number)?;
        bar.inc(1);
        if number < arguments.warmup {
            continue;
        }
        if !arguments.json {
            bar.suspend(|| print_run(number - arguments.warmup + 1, &measure));
        }
        runs.push(measure);
    }
    bar.finish_and_clear();
    print_summary(arguments, &service, runs)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs one batch. Prompts differ from run to run, so that the prefix cache does not shorten them.
fn measure(arguments: &Arguments, service: &Service, random: &mut Random, number: usize) -> Result<Measure> {
    let vocabulary = service.codec.vocabulary();
    let prompts = (0..arguments.batch_size).map(|_| random.tokens(arguments.input_len, vocabulary)).collect();
    let params = SamplingParams {
        temperature: 0.0,
        ignore_eos: true,
        max_tokens: arguments.output_len,
        ..SamplingParams::default()
    };
    let first_id = (number * arguments.batch_size) as u64 + 1;
    let start = Instant::now();
    let mut run = Run::start(service.backend.as_ref(), prompts, &params, first_id)?;
    let mut first = vec![None; arguments.batch_size];
    let (mut tokens, mut last) = (0, start);
    while let Some(timed) = run.next()? {
        if let RequestEvent::Output { tokens: new, .. } = &timed.event {
            tokens += new.len();
            first[timed.request].get_or_insert(timed.at);
            last = timed.at;
        }
    }
    let prefilled = first.iter().flatten().max().copied().unwrap_or(last);
    let seconds = |from: Instant, to: Instant| (to - from).as_secs_f64();
    let decoded = tokens.saturating_sub(arguments.batch_size) as f64;
    let rate = |count: f64, seconds: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
    let prefill = seconds(start, prefilled);
    Ok(Measure {
        latency: seconds(start, last),
        first_token: prefill,
        decode_tokens_per_second: rate(decoded, seconds(prefilled, last)),
        prefill_tokens_per_second: rate((arguments.batch_size * arguments.input_len) as f64, prefill),
    })
}

fn print_run(number: usize, measure: &Measure) {
    println!(
        "run {number}: {:.3} s, first token {:.1} ms, prefill {:.1} tokens/s, decode {:.1} tokens/s",
        measure.latency,
        measure.first_token * 1e3,
        measure.prefill_tokens_per_second,
        measure.decode_tokens_per_second
    );
}

fn print_summary(arguments: &Arguments, service: &Service, runs: Vec<Measure>) -> Result<()> {
    let of = |field: fn(&Measure) -> f64| Summary::of(&runs.iter().map(field).collect::<Vec<_>>());
    let report = Report {
        model: service.model.path.clone(),
        input_len: arguments.input_len,
        output_len: arguments.output_len,
        batch_size: arguments.batch_size,
        latency: of(|run| run.latency),
        first_token: of(|run| run.first_token),
        decode_tokens_per_second: of(|run| run.decode_tokens_per_second),
        prefill_tokens_per_second: of(|run| run.prefill_tokens_per_second),
        runs,
    };
    if arguments.json {
        return report::json(&report);
    }
    report::title("Latency", '=');
    report::row("Median latency (s)", report.latency.median);
    report::row("Mean latency (s)", report.latency.mean);
    report::row("P90 latency (s)", report.latency.p90);
    report::row("Median first token (ms)", report.first_token.median * 1e3);
    report::row("Median prefill (tokens/s)", report.prefill_tokens_per_second.median);
    report::row("Median decode (tokens/s)", report.decode_tokens_per_second.median);
    Ok(())
}
