//! Decode steps through the executor on one GPU and on several, by every way to sum, one run after the other in one process.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::load::{LoadFormat, read_config};
use engine::plan::AllReduceChoice;
use engine::weights::WeightSource;
use engine_cpu::map_file;

use crate::greedy::{self, Run};
use crate::repeated::Repeated;
use crate::{Failure, devices, gpu, ranks};

/// Tokens of a prompt: with what is generated, about 512 positions.
const PROMPT: usize = 440;
const BATCHES: [usize; 3] = [1, 8, 32];

/// Times `config` on one GPU and on `ranks` of them.
pub fn run(config: &Path, ranks: usize) -> Result<(), Failure> {
    let config = Arc::new(read_config(config, LoadFormat::Auto, map_file).map_err(|error| error.to_string())?);
    let weights: Arc<dyn WeightSource> = Arc::new(Repeated::new(&config)?);
    let prompts: Vec<Vec<u32>> =
        (0..32_u32).map(|prompt| (0..PROMPT as u32).map(|place| place * 37 + prompt * 1009).collect()).collect();
    // A model that several GPUs share may be too large for one.
    if let Err(failure) = time("one GPU", Run::new(&config, &weights, &prompts, false), gpu(&config)?) {
        println!("one GPU: not timed: {failure}");
    }
    let one_shot = |(_, allreduce, _): &ranks::Way| *allreduce != AllReduceChoice::TwoShot;
    for (way, allreduce, fusion) in ranks::WAYS.into_iter().filter(one_shot) {
        let (factory, plan) = devices(&config, ranks, ranks::with(allreduce, fusion))?;
        let run = Run { plan: Arc::new(plan.collectives()), ..Run::new(&config, &weights, &prompts, false) };
        time(&format!("{ranks} GPUs, {way}"), run, factory)?;
    }
    Ok(())
}

fn time(name: &str, run: Run<'_>, factory: engine_gpu::CudaRanks) -> Result<(), Failure> {
    let (begin, prompts) = (Instant::now(), run.prompts);
    let mut executor = greedy::start(run, factory)?;
    let ready = begin.elapsed();
    for (index, batch) in BATCHES.into_iter().enumerate() {
        let (_, mut steps) = greedy::drive(&mut executor, &prompts[..batch], false, 1000 * index as u64)?;
        steps.sort();
        let percent = |percent: usize| steps[(steps.len() - 1) * percent / 100];
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "{name}, batch {batch}: {:.4} ms a step (10 % below {:.4}, 90 % below {:.4}), {:.1} tokens/s; ready in {:.1} s",
            milliseconds(percent(50)),
            milliseconds(percent(10)),
            milliseconds(percent(90)),
            batch as f64 / percent(50).as_secs_f64(),
            ready.as_secs_f64()
        );
    }
    Ok(())
}
