//! `archway serve`.

mod limits;
mod log;
mod orders;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use engine_server::app::App;
use engine_server::settings::{Limits, Settings};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::loader;
use crate::output;
use crate::settings::{LogLevel, Options, Resolved, SchedulingPolicy, resolve};

/// Threads beside those that serve connections: they load the model, render and tokenise.
const OTHER_THREADS: usize = 4;

/// Serve a model over HTTP.
///
/// Prints the address on stdout when the server listens. The model loads after that: /health answers 503 until it is
/// ready. SIGTERM, SIGINT and SIGHUP finish what runs and stop; a second one aborts it.
#[derive(Args)]
pub struct Arguments {
    /// Model: a folder in Hugging Face layout, a .gguf file, or a config.json.
    #[arg(value_name = "MODEL", id = "model_path_argument")]
    model: Option<String>,
    /// Settings file: YAML with the flags as keys; a flag on the command line wins over it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

impl Arguments {
    /// The flags, with the model wherever it was given.
    pub fn options(&self) -> Result<Options> {
        self.options.clone().with_model(self.model.as_deref())
    }
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let settings = resolve(&arguments.options()?, arguments.config.as_deref())?;
    let log_lines_lost = log::start(settings.options.log_level.unwrap_or(LogLevel::Info))?;
    let connections = limits::connections()?;
    let prepared = loader::prepare(&settings.options)?;
    eprintln!("{}\n", prepared.plan());
    let threads = settings.options.http_threads.map_or_else(default_threads, |threads| threads.max(1) as usize);
    limits::ensure_threads(threads + OTHER_THREADS)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("http")
        .enable_all()
        .build()
        .context("the server's threads cannot start")?;
    let own = Settings { connections, log_lines_lost, ..server_settings(&settings) };
    let result = runtime.block_on(serve(&settings.options, own, prepared));
    // A load that was cut short must not hold up the end.
    runtime.shutdown_background();
    result
}

fn default_threads() -> usize {
    available_parallelism().map_or(1, usize::from).min(4)
}

async fn serve(options: &Options, own: Settings, prepared: loader::Prepared) -> Result<ExitCode> {
    let (listener, address) = listen(options).await?;
    let app = App::new(own);
    let (stop, stopped) = oneshot::channel();
    let (hurry, hurried) = oneshot::channel();
    let signals = tokio::spawn(orders::signals(stop, hurry)?);
    let mut server = tokio::spawn(engine_server::serve(listener, Arc::clone(&app), told(stopped), told(hurried)));
    tell(address).await;
    tracing::info!(%address, "listening; loading the model");
    let loading = tokio::task::spawn_blocking(move || prepared.load());
    let ended = tokio::select! {
        // The order to stop may come while the model loads.
        ended = &mut server => Some(ended),
        result = loading => {
            let service = result.context("loading the model failed")?.inspect_err(|error| app.failed(format!("{error:#}")))?;
            app.ready(service);
            tracing::info!(%address, "ready");
            None
        }
    };
    let ended = match ended {
        Some(ended) => ended,
        None => server.await,
    };
    ended.context("the server failed")?;
    signals.abort();
    tracing::info!("stopped");
    Ok(match app.failure() {
        None => ExitCode::SUCCESS,
        Some(reason) => {
            eprintln!("error: the engine failed while it served: {reason}");
            ExitCode::from(1)
        }
    })
}

async fn listen(options: &Options) -> Result<(TcpListener, SocketAddr)> {
    let host = options.host.as_deref().unwrap_or("127.0.0.1");
    let port = options.port.unwrap_or(8000);
    let listener = TcpListener::bind((host, port)).await;
    let listener =
        listener.with_context(|| format!("cannot listen on {host}:{port}; choose another --port or --host"))?;
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() && options.api_key.as_ref().is_none_or(Vec::is_empty) {
        tracing::warn!(%address, "reachable from other machines without a key; set --api-key, or listen on 127.0.0.1");
    }
    Ok((listener, address))
}

/// Prints the address. Who started the server may read it late or never, and clients may know it all the same.
async fn tell(address: SocketAddr) {
    const PATIENCE: Duration = Duration::from_secs(1);
    let told = tokio::task::spawn_blocking(move || output::offer(format_args!("http://{address}")));
    match tokio::time::timeout(PATIENCE, told).await {
        Ok(Ok(Err(error))) => tracing::warn!(%error, "the address could not be written to stdout"),
        Err(_) => tracing::warn!("nobody reads stdout, to which the address is written; going on"),
        Ok(_) => {}
    }
}

/// Waits for an order; one that can never come is never obeyed.
async fn told(order: oneshot::Receiver<()>) {
    if order.await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn server_settings(settings: &Resolved) -> Settings {
    let options = &settings.options;
    let default = Settings::default();
    Settings {
        limits: Limits {
            body_bytes: options.max_body_size.map_or(default.limits.body_bytes, |size| size.0 as usize),
            queued: options.max_num_queued_reqs.unwrap_or(default.limits.queued),
            outputs: options.max_outputs.unwrap_or(default.limits.outputs),
            priorities: options.scheduling_policy != Some(SchedulingPolicy::Fcfs),
            alternatives: options.max_logprobs.unwrap_or(default.limits.alternatives),
            ..default.limits
        },
        api_keys: options.api_key.clone().unwrap_or_default(),
        shutdown_timeout: options.shutdown_timeout.map_or(default.shutdown_timeout, Duration::from_secs),
        keep_alive: options.sse_keep_alive_interval.map_or(default.keep_alive, Duration::from_secs),
        report: settings.report(),
        ..default
    }
}
