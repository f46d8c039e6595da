//! `archway serve`.

use std::future::Future;
use std::io::IsTerminal;
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
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::loader;
use crate::settings::{LogLevel, Options, Resolved, SchedulingPolicy, resolve};

/// Open files that a server asks for at most.
const MOST_FILES: u64 = 1 << 16;

/// Serve a model over HTTP.
///
/// Prints the address on stdout when the server listens. The model loads after that: /health answers 503 until it is
/// ready. SIGTERM finishes what runs and stops.
#[derive(Args)]
pub struct Arguments {
    /// Model: a folder in Hugging Face layout, a .gguf file, or a config.json.
    #[arg(value_name = "MODEL", id = "model_path_argument")]
    model: Option<String>,
    /// Settings file, YAML with the flags as keys; flags go before it.
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
    log(settings.options.log_level.unwrap_or(LogLevel::Info))?;
    raise_open_files();
    let prepared = loader::prepare(&settings.options)?;
    eprintln!("{}\n", prepared.plan());
    let threads = settings.options.http_threads.map_or_else(default_threads, |threads| threads.max(1) as usize);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("http")
        .enable_all()
        .build()
        .context("the server's threads cannot start")?;
    let result = runtime.block_on(serve(&settings, prepared));
    // A load that was cut short must not hold up the end.
    runtime.shutdown_background();
    result
}

fn default_threads() -> usize {
    available_parallelism().map_or(1, usize::from).min(4)
}

/// Lets the process have as many open files as it may, up to [`MOST_FILES`]: a connection is one, and shells begin with
/// 1024, fewer than the queue has places.
fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(MOST_FILES, |maximum| maximum.min(MOST_FILES));
    if current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })
    {
        tracing::warn!(%error, "the limit of open files stays as it is: {current:?}");
    }
}

/// Events go to stderr. `RUST_LOG` is the usual way to ask for parts of them.
fn log(level: LogLevel) -> Result<()> {
    let word = serde_json::to_value(level)?;
    let default = word.as_str().unwrap_or("info");
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal).init();
    Ok(())
}

async fn serve(settings: &Resolved, prepared: loader::Prepared) -> Result<ExitCode> {
    let options = &settings.options;
    let (listener, address) = listen(options).await?;
    let app = App::new(server_settings(settings));
    let (stop, stopped) = oneshot::channel();
    let (hurry, hurried) = oneshot::channel();
    let signals = tokio::spawn(signals(stop, hurry)?);
    let mut server = tokio::spawn(engine_server::serve(listener, Arc::clone(&app), told(stopped), told(hurried)));
    println!("http://{address}");
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
    Ok(ExitCode::SUCCESS)
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

/// The first SIGTERM or SIGINT stops, the second hurries.
fn signals(stop: oneshot::Sender<()>, hurry: oneshot::Sender<()>) -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be handled")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be handled")?;
    Ok(async move {
        for order in [stop, hurry] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            let _told = order.send(());
        }
    })
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
