//! Times of captured and of single launches.

use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaEvent, CudaGraph};
use serde::Serialize;

use super::{MeasureError, Rank};

/// Calls in a graph.
pub const CALLS: usize = 100;
/// Times that each median is of.
pub const ROUNDS: usize = 5;

/// Microseconds per call, the slowest rank's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Median of the rounds, as a graph of [`CALLS`] calls.
    pub graph: f64,
    /// Largest less smallest of the rounds.
    pub spread: f64,
    /// As single launches, where these were timed too.
    pub eager: Option<f64>,
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launches {
    /// Recorded graphs alone.
    Graph,
    /// Single launches as well.
    GraphAndEager,
}

impl Times {
    /// The slowest rank counts.
    pub fn slowest(of: &[Self]) -> Self {
        let most = |field: fn(&Self) -> f64| of.iter().map(field).fold(0.0, f64::max);
        let eager = of.iter().filter_map(|times| times.eager).reduce(f64::max);
        Self { graph: most(|times| times.graph), spread: most(|times| times.spread), eager }
    }
}

/// Captures `calls` calls of `launch`.
pub fn capture(
    rank: &Rank,
    calls: usize,
    launch: impl Fn(usize) -> Result<(), MeasureError>,
) -> Result<CudaGraph, MeasureError> {
    let stream = &rank.gpu.stream;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let launched = (0..calls).try_for_each(launch);
    let graph = stream.end_capture(CUgraphInstantiate_flags(0));
    launched?;
    let graph = graph?.ok_or_else(|| MeasureError::Wrong("nothing was launched while a graph was captured".into()))?;
    graph.upload()?;
    Ok(graph)
}

/// Times `launch` on all ranks together.
pub fn time(
    rank: &Rank,
    launches: Launches,
    launch: impl Fn() -> Result<(), MeasureError>,
) -> Result<Times, MeasureError> {
    for _ in 0..3 {
        launch()?;
    }
    rank.wait(|_| "warm-up".to_owned())?;
    let graph = capture(rank, CALLS, |_| launch())?;
    rank.together.wait()?;
    let graph = rounds(rank, || Ok(graph.launch()?))?;
    let eager = match launches {
        Launches::Graph => None,
        Launches::GraphAndEager => Some(rounds(rank, || (0..CALLS).try_for_each(|_| launch()))?[ROUNDS / 2]),
    };
    Ok(Times { graph: graph[ROUNDS / 2], spread: graph[ROUNDS - 1] - graph[0], eager })
}

/// Microseconds per call of each round, ascending. What is timed follows an untimed run of the same, whose collectives bring the
/// ranks into step.
fn rounds(rank: &Rank, run: impl Fn() -> Result<(), MeasureError>) -> Result<Vec<f64>, MeasureError> {
    let event = || -> Result<CudaEvent, MeasureError> {
        Ok(rank.gpu.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?)
    };
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        rank.together.wait()?;
        run()?;
        let begin = event()?;
        run()?;
        let end = event()?;
        rank.wait(|_| "timing".to_owned())?;
        times.push(f64::from(begin.elapsed_ms(&end)?) * 1e3 / CALLS as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}
