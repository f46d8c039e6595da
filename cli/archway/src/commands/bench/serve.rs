//! `archway bench serve`: an OpenAI-compatible server over HTTP, as in `vllm bench serve`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use reqwest::Client;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::bounds::{COUNTS, LENGTHS, RATES, WARMUPS, prompts, within};
use super::report;
use super::stream::{Answer, Target};
use crate::numbers::{Random, Summary};
use crate::progress;

/// Send random prompts to a server and measure its answers.
#[derive(Args)]
pub struct Arguments {
    /// Address of the server.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    base_url: String,
    /// Model to ask for. Default: the first that the server lists.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Key to present.
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Requests of one run.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    num_prompts: usize,
    /// Prompt length in tokens.
    #[arg(long, alias = "input-len", value_name = "TOKENS", default_value_t = 128)]
    random_input_len: usize,
    /// Output length in tokens.
    #[arg(long, alias = "output-len", value_name = "TOKENS", default_value_t = 64)]
    random_output_len: u32,
    /// Prompt ids are below this. Default: what the server says of its vocabulary.
    #[arg(long, value_name = "COUNT")]
    vocabulary: Option<u32>,
    /// Requests per second, at random moments; `inf` sends all at once.
    #[arg(long, value_name = "RATE", default_value_t = f64::INFINITY)]
    request_rate: f64,
    /// Most requests under way.
    #[arg(long, value_name = "COUNT")]
    max_concurrency: Option<usize>,
    /// Let answers end before their length.
    #[arg(long)]
    no_ignore_eos: bool,
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Requests before the measured runs.
    #[arg(long, alias = "num-warmups", value_name = "COUNT", default_value_t = 1)]
    warmup: usize,
    /// Measured runs.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    runs: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One run. Distributions are in milliseconds.
#[derive(Clone, Debug, Serialize)]
struct Measure {
    completed: usize,
    failed: usize,
    duration: f64,
    total_input_tokens: u64,
    total_output_tokens: u64,
    request_throughput: f64,
    output_throughput: f64,
    total_token_throughput: f64,
    ttft: Summary,
    tpot: Summary,
    itl: Summary,
    e2el: Summary,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    prompts(["num-prompts", "random-input-len"], arguments.num_prompts, arguments.random_input_len)?;
    within("random-output-len", arguments.random_output_len as usize, &LENGTHS)?;
    within("runs", arguments.runs, &COUNTS)?;
    within("warmup", arguments.warmup, &WARMUPS)?;
    within("request-rate", arguments.request_rate, &RATES)?;
    within("max-concurrency", arguments.max_concurrency.unwrap_or(1), &COUNTS)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(bench(arguments))
}

async fn bench(arguments: &Arguments) -> Result<ExitCode> {
    let (target, vocabulary) = target(arguments).await?;
    let mut random = Random::new(arguments.seed);
    for _ in 0..arguments.warmup {
        let prompt = random.tokens(arguments.random_input_len, vocabulary);
        target.ask(&prompt).await.context("the first request failed")?;
    }
    let mut runs = Vec::with_capacity(arguments.runs);
    for number in 1..=arguments.runs {
        let measure = measure(arguments, &target, vocabulary, &mut random).await?;
        if !arguments.json && arguments.runs > 1 {
            println!(
                "run {number}: {:.2} requests/s, {:.1} output tokens/s, median TTFT {:.1} ms, median TPOT {:.2} ms",
                measure.request_throughput, measure.output_throughput, measure.ttft.median, measure.tpot.median
            );
        }
        runs.push(measure);
    }
    let failed = runs.iter().any(|run| run.failed > 0);
    print(arguments, &target.model, runs)?;
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Asks the server what it serves.
async fn target(arguments: &Arguments) -> Result<(Target, u32)> {
    let client = Client::new();
    let base = arguments.base_url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
    let known = ["http://", "https://"].iter().any(|scheme| base.starts_with(scheme));
    ensure!(known, "--base-url {base}: give it as http://HOST:PORT, as `archway serve` prints it");
    let get = async |path: &str| -> Result<Value> {
        let mut request = client.get(format!("{base}{path}"));
        if let Some(key) = &arguments.api_key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.with_context(|| format!("{base} cannot be reached"))?;
        let response = response.error_for_status().with_context(|| format!("{base}{path} was refused"))?;
        response.json().await.with_context(|| format!("{base}{path} is not JSON"))
    };
    let model = match &arguments.model {
        Some(model) => model.clone(),
        None => {
            let list = get("/v1/models").await?;
            list["data"][0]["id"].as_str().context("the server lists no model; give --model")?.to_owned()
        }
    };
    let vocabulary = match arguments.vocabulary {
        Some(count) => count,
        None => {
            let info = get("/model_info").await.context("the vocabulary's size is not known; give --vocabulary")?;
            let count = info["vocabulary"].as_u64().and_then(|count| u32::try_from(count).ok());
            count.context("the server does not tell its vocabulary's size; give --vocabulary")?
        }
    };
    ensure!(vocabulary > 0, "--vocabulary must be at least 1");
    let target = Target {
        client,
        base,
        model,
        api_key: arguments.api_key.clone(),
        output_len: arguments.random_output_len,
        ignore_eos: !arguments.no_ignore_eos,
        temperature: arguments.temperature,
    };
    Ok((target, vocabulary))
}

async fn measure(arguments: &Arguments, target: &Target, vocabulary: u32, random: &mut Random) -> Result<Measure> {
    let places = Arc::new(Semaphore::new(arguments.max_concurrency.unwrap_or(Semaphore::MAX_PERMITS)));
    let bar = progress::bar(arguments.num_prompts as u64, "serve");
    let mut asked = JoinSet::new();
    let start = Instant::now();
    for _ in 0..arguments.num_prompts {
        if arguments.request_rate.is_finite() {
            tokio::time::sleep(Duration::from_secs_f64(random.arrival(arguments.request_rate))).await;
        }
        let prompt = random.tokens(arguments.random_input_len, vocabulary);
        let place = Arc::clone(&places).acquire_owned().await?;
        let (target, bar) = (target.clone(), bar.clone());
        asked.spawn(async move {
            let answer = target.ask(&prompt).await;
            drop(place);
            bar.inc(1);
            answer
        });
    }
    let results = asked.join_all().await;
    let duration = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let (answers, errors): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    if let Some(Err(error)) = errors.first() {
        eprintln!("{} of {} requests failed; the first: {error:#}", errors.len(), arguments.num_prompts);
    }
    let answers: Vec<Answer> = answers.into_iter().flatten().collect();
    Ok(summarise(&answers, errors.len(), duration))
}

fn summarise(answers: &[Answer], failed: usize, duration: f64) -> Measure {
    let milliseconds =
        |values: &mut dyn Iterator<Item = f64>| Summary::of(&values.map(|seconds| seconds * 1e3).collect::<Vec<_>>());
    let total_input_tokens: u64 = answers.iter().map(|answer| answer.prompt_tokens).sum();
    let total_output_tokens: u64 = answers.iter().map(|answer| answer.output_tokens).sum();
    let per_token = answers
        .iter()
        .filter(|answer| answer.output_tokens > 1)
        .map(|answer| (answer.total - answer.first) / (answer.output_tokens - 1) as f64);
    Measure {
        completed: answers.len(),
        failed,
        duration,
        total_input_tokens,
        total_output_tokens,
        request_throughput: answers.len() as f64 / duration,
        output_throughput: total_output_tokens as f64 / duration,
        total_token_throughput: (total_input_tokens + total_output_tokens) as f64 / duration,
        ttft: milliseconds(&mut answers.iter().map(|answer| answer.first)),
        tpot: milliseconds(&mut per_token.into_iter()),
        itl: milliseconds(&mut answers.iter().flat_map(|answer| answer.gaps.iter().copied())),
        e2el: milliseconds(&mut answers.iter().map(|answer| answer.total)),
    }
}

fn print(arguments: &Arguments, model: &str, runs: Vec<Measure>) -> Result<()> {
    if arguments.json {
        return report::json(&serde_json::json!({"model": model, "runs": runs}));
    }
    // With several runs, the one in the middle by throughput speaks for all.
    let mut runs = runs;
    runs.sort_by(|left, right| left.output_throughput.total_cmp(&right.output_throughput));
    let Some(run) = runs.get(runs.len() / 2) else { return Ok(()) };
    report::title("Serving Benchmark Result", '=');
    report::count("Successful requests", run.completed as u64);
    report::count("Failed requests", run.failed as u64);
    report::row("Benchmark duration (s)", run.duration);
    report::count("Total input tokens", run.total_input_tokens);
    report::count("Total generated tokens", run.total_output_tokens);
    report::row("Request throughput (req/s)", run.request_throughput);
    report::row("Output token throughput (tok/s)", run.output_throughput);
    report::row("Total token throughput (tok/s)", run.total_token_throughput);
    report::distribution("Time to First Token", "TTFT", &run.ttft);
    report::distribution("Time per Output Token (excl. 1st token)", "TPOT", &run.tpot);
    report::distribution("Inter-token Latency", "ITL", &run.itl);
    report::distribution("End-to-end Latency", "E2EL", &run.e2el);
    Ok(())
}
