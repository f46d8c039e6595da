//! What [`crate::timing`] times, on several GPUs, as planned and by NCCL; beside it one GPU with everything, and one rank's share
//! without its sums: what is between the two is what the ranks' meetings take.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use engine::collective::CollectivePlan;
use engine::executor::RankFactory;
use engine::load::{LoadFormat, read_config};
use engine::model::{ModelConfig, Share};
use engine::plan::{AllReduceChoice, FusionChoice, PlanRequest, SpeculationShape};
use engine::weights::WeightSource;
use engine_cpu::map_file;
use engine_gpu::CudaRanks;

use crate::repeated::Repeated;
use crate::timing::{self, Place, Sizes, Timed, Times};
use crate::{Failure, devices, gpu, ranks};

/// `ranks` GPUs, then one.
pub fn run(ranks: usize, config: &Path, sizes: &Sizes) -> Result<(), Failure> {
    let config = read_config(config, LoadFormat::Auto, map_file).map_err(|error| error.to_string())?;
    let weights = Repeated::new(&config)?;
    let timed =
        |(_, allreduce, fusion): &&ranks::Way| *fusion == FusionChoice::Auto && *allreduce != AllReduceChoice::TwoShot;
    for (way, allreduce, fusion) in ranks::WAYS.iter().filter(timed) {
        let (factory, plan) = devices(&config, ranks, |request| {
            let speculation = Some(verified(&config, sizes));
            ranks::with(*allreduce, *fusion)(PlanRequest { speculation, ..request })
        })?;
        let times = together(&factory, &Arc::new(plan.collectives()), &config, &weights, sizes)?;
        timing::print(&format!("{ranks} ranks, {way}: "), timing::weight_bytes(&config), &config, sizes, &times);
    }
    for (name, share) in [("a rank alone", Share { rank: 0, world_size: ranks }), ("one GPU", Share::WHOLE)] {
        let alone = Place { factory: &gpu(&config)?, rank: 0, share, plan: None };
        match Timed::new(&alone, &config, &weights, sizes).and_then(|mut timed| timed.times(sizes)) {
            Ok(times) => timing::print(&format!("{name}: "), timing::weight_bytes(&config), &config, sizes, &times),
            // A model that several GPUs share may be too large for one.
            Err(failure) => println!("{name}: not timed: {failure}"),
        }
    }
    Ok(())
}

/// So that the plan has ladders for passes over several tokens of a sequence: it has them where there is a draft model.
fn verified(config: &ModelConfig, sizes: &Sizes) -> SpeculationShape {
    let verify_tokens = sizes.most_each().max(2);
    let (draft_hidden, draft_vocabulary) = (config.hidden, config.vocabulary);
    SpeculationShape { verify_tokens, steps: 1, draft_hidden, draft_vocabulary, draft_bytes: 0, draft_cache_bytes: 0 }
}

/// The slowest rank's times.
fn together(
    factory: &CudaRanks,
    plan: &Arc<CollectivePlan>,
    config: &ModelConfig,
    weights: &dyn WeightSource,
    sizes: &Sizes,
) -> Result<Times, Failure> {
    let world_size = factory.world_size();
    let time = |rank| {
        let place = Place { factory, rank, share: Share { rank, world_size }, plan: Some(Arc::clone(plan)) };
        let times = Timed::new(&place, config, weights, sizes).and_then(|mut timed| timed.times(sizes));
        // The others must not wait for a rank that failed.
        times.inspect_err(|failure| factory.poison(failure))
    };
    let time = &time;
    let times: Vec<Result<Times, Failure>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..world_size).map(|rank| scope.spawn(move || time(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a rank panicked".to_owned()))).collect()
    });
    let times = times.into_iter().collect::<Result<Vec<Times>, Failure>>()?;
    let slowest = |pass: usize, wait: usize| times.iter().map(|rank| rank[pass][wait]).fold(0.0, f64::max);
    Ok((0..sizes.passes.len()).map(|pass| [slowest(pass, 0), slowest(pass, 1)]).collect())
}
