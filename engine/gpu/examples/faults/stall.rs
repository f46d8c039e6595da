//! A rank that stops in the middle of a step, between two sums: the others must end within ten seconds, and say which rank
//! did not come, and where.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use engine::backend::{AddNorm, BackendError};
use engine::collective::{AllGather, Call, Collective, CollectiveError, RankRows, Site};
use engine::executor::RankFactory;
use engine::plan::AllReduceChoice;
use engine_gpu::{CudaBackend, CudaRanks};

use crate::serve;

/// How long the rank stays away, and how soon the others must have said so.
const AWAY: Duration = Duration::from_secs(15);
const SOON: Duration = Duration::from_secs(10);

pub fn run() -> Result<(), String> {
    for allreduce in [AllReduceChoice::Auto, AllReduceChoice::Nccl] {
        stop_a_rank(allreduce)?;
    }
    Ok(())
}

fn stop_a_rank(allreduce: AllReduceChoice) -> Result<(), String> {
    let (ranks, plan) = serve::pair(allreduce)?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut executor = serve::start(Stopping { ranks, stop: Arc::clone(&stop) }, plan)?;
    for step in 0..3 {
        serve::prefill(&mut executor, step).map_err(|error| format!("before the stop: {error}"))?;
    }
    stop.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    let heard = serve::prefill(&mut executor, 3).err().ok_or("a step without a rank gave a token")?;
    let took = begin.elapsed();
    println!("{allreduce:?}: after {:.2} s: {heard} (fatal: {})", took.as_secs_f64(), heard.fatal);
    let named = heard.message.starts_with("step 3: ")
        && heard.message.contains(match allreduce {
            // The device waits for the rank; NCCL's does not say for whom, so the host says who is behind.
            AllReduceChoice::Nccl => "rank 1 stopped after all_reduce at attention_output",
            _ => "for rank 1 in all_reduce at mlp_output",
        });
    if !heard.fatal || took > SOON || !named {
        return Err("a rank that stops must be named with its site and step, within ten seconds".to_owned());
    }
    let begin = Instant::now();
    drop(executor);
    println!("{allreduce:?}: ended in {:.2} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Ranks of which the last one stops when it is told to.
struct Stopping {
    ranks: CudaRanks,
    stop: Arc<AtomicBool>,
}

impl RankFactory for Stopping {
    type Backend = CudaBackend;

    fn world_size(&self) -> usize {
        self.ranks.world_size()
    }

    fn backend(&self, rank: usize) -> Result<CudaBackend, BackendError> {
        self.ranks.backend(rank)
    }

    fn collective(
        &self,
        rank: usize,
        backend: &mut CudaBackend,
    ) -> Result<Box<dyn Collective<CudaBackend>>, BackendError> {
        let own = self.ranks.collective(rank, backend)?;
        if rank + 1 < self.world_size() {
            return Ok(own);
        }
        Ok(Box::new(StoppingRank { own, stop: Arc::clone(&self.stop) }))
    }

    fn poison(&self, message: &str) {
        self.ranks.poison(message);
    }
}

struct StoppingRank {
    own: Box<dyn Collective<CudaBackend>>,
    stop: Arc<AtomicBool>,
}

impl StoppingRank {
    fn pause(&self, call: &Call<'_>) {
        if call.site == Site::MlpOutput && self.stop.swap(false, Ordering::SeqCst) {
            thread::sleep(AWAY);
        }
    }
}

impl Collective<CudaBackend> for StoppingRank {
    fn rank(&self) -> usize {
        self.own.rank()
    }

    fn world_size(&self) -> usize {
        self.own.world_size()
    }

    fn meet(&mut self) -> Result<(), BackendError> {
        self.own.meet()
    }

    fn all_reduce(
        &mut self,
        backend: &mut CudaBackend,
        call: Call<'_>,
        rows: RankRows<'_, CudaBackend>,
    ) -> Result<(), CollectiveError> {
        self.pause(&call);
        self.own.all_reduce(backend, call, rows)
    }

    fn all_reduce_add_norm(
        &mut self,
        backend: &mut CudaBackend,
        call: Call<'_>,
        arguments: AddNorm<'_, CudaBackend>,
    ) -> Result<(), CollectiveError> {
        self.pause(&call);
        self.own.all_reduce_add_norm(backend, call, arguments)
    }

    fn all_gather(
        &mut self,
        backend: &mut CudaBackend,
        call: Call<'_>,
        gather: AllGather<'_, CudaBackend>,
    ) -> Result<(), CollectiveError> {
        self.own.all_gather(backend, call, gather)
    }

    fn broadcast(
        &mut self,
        backend: &mut CudaBackend,
        call: Call<'_>,
        root: usize,
        rows: RankRows<'_, CudaBackend>,
    ) -> Result<(), CollectiveError> {
        self.own.broadcast(backend, call, root, rows)
    }
}
