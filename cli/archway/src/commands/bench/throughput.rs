//! `archway bench throughput`: all requests at once, as in `vllm bench throughput`.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
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

/// Submit many requests at once and count what comes out.
#[derive(Args)]
#[command(mut_args(hide_of_server))]
pub struct Arguments {
    /// Requests of one run.
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    num_prompts: usize,
    /// Prompt length in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 128)]
    input_len: usize,
    /// Output length in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 64)]
    output_len: u32,
    /// Prompt lengths spread evenly by this share around --input-len.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    range_ratio: f64,
    /// Runs before the measured ones.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    warmup: usize,
    /// Measured runs.
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    runs: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Measure {
    seconds: f64,
    prompt_tokens: u64,
    output_tokens: u64,
    requests_per_second: f64,
    tokens_per_second: f64,
    output_tokens_per_second: f64,
}

#[derive(Serialize)]
struct Report {
    model: String,
    num_prompts: usize,
    runs: Vec<Measure>,
    requests_per_second: Summary,
    tokens_per_second: Summary,
    output_tokens_per_second: Summary,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    prompts(["num-prompts", "input-len"], arguments.num_prompts, arguments.input_len)?;
    within("output-len", arguments.output_len as usize, &LENGTHS)?;
    within("runs", arguments.runs, &COUNTS)?;
    within("warmup", arguments.warmup, &WARMUPS)?;
    ensure!((0.0..1.0).contains(&arguments.range_ratio), "--range-ratio must be from 0 up to below 1");
    let service = super::prepare(&arguments.options)?.load()?;
    let mut random = Random::new(arguments.options.seed.unwrap_or(0));
    let mut runs = Vec::with_capacity(arguments.runs);
    for number in 0..arguments.warmup + arguments.runs {
        let measure = measure(arguments, &service, &mut random, number)?;
        if number < arguments.warmup {
            continue;
        }
        if !arguments.json {
            let (run, seconds) = (number - arguments.warmup + 1, measure.seconds);
            let (requests, output) = (measure.requests_per_second, measure.output_tokens_per_second);
            println!("run {run}: {seconds:.3} s, {requests:.2} requests/s, {output:.1} output tokens/s");
        }
        runs.push(measure);
    }
    print_summary(arguments, &service, runs)?;
    Ok(ExitCode::SUCCESS)
}

fn measure(arguments: &Arguments, service: &Service, random: &mut Random, number: usize) -> Result<Measure> {
    let vocabulary = service.codec.vocabulary();
    let spread = (arguments.input_len as f64 * arguments.range_ratio) as u64;
    let prompts: Vec<Vec<u32>> = (0..arguments.num_prompts)
        .map(|_| {
            let length = arguments.input_len as u64 - spread + random.below(2 * spread + 1);
            random.tokens(length.max(1) as usize, vocabulary)
        })
        .collect();
    let prompt_tokens = prompts.iter().map(|prompt| prompt.len() as u64).sum::<u64>();
    let params = SamplingParams {
        temperature: 0.0,
        ignore_eos: true,
        max_tokens: arguments.output_len,
        ..SamplingParams::default()
    };
    let bar = progress::bar(arguments.num_prompts as u64, "throughput");
    let first_id = (number * arguments.num_prompts) as u64 + 1;
    let start = Instant::now();
    let mut run = Run::start(service.backend.as_ref(), prompts, &params, first_id)?;
    let (mut output_tokens, mut last) = (0_u64, start);
    while let Some(timed) = run.next()? {
        match &timed.event {
            RequestEvent::Output { tokens, .. } => output_tokens += tokens.len() as u64,
            RequestEvent::Finished { .. } => bar.inc(1),
            _ => {}
        }
        last = timed.at;
    }
    bar.finish_and_clear();
    let seconds = (last - start).as_secs_f64().max(1e-9);
    Ok(Measure {
        seconds,
        prompt_tokens,
        output_tokens,
        requests_per_second: arguments.num_prompts as f64 / seconds,
        tokens_per_second: (prompt_tokens + output_tokens) as f64 / seconds,
        output_tokens_per_second: output_tokens as f64 / seconds,
    })
}

fn print_summary(arguments: &Arguments, service: &Service, runs: Vec<Measure>) -> Result<()> {
    let of = |field: fn(&Measure) -> f64| Summary::of(&runs.iter().map(field).collect::<Vec<_>>());
    let report = Report {
        model: service.model.path.clone(),
        num_prompts: arguments.num_prompts,
        requests_per_second: of(|run| run.requests_per_second),
        tokens_per_second: of(|run| run.tokens_per_second),
        output_tokens_per_second: of(|run| run.output_tokens_per_second),
        runs,
    };
    if arguments.json {
        return report::json(&report);
    }
    println!(
        "Throughput: {:.2} requests/s, {:.2} total tokens/s, {:.2} output tokens/s (medians of {} runs)",
        report.requests_per_second.median,
        report.tokens_per_second.median,
        report.output_tokens_per_second.median,
        report.runs.len()
    );
    Ok(())
}
