//! What to say where a plan does not fit in memory: how much there is, and what helps on the devices that it is for.

use super::machine::Machine;
use super::memory::{MemoryPlan, PAGE_SIZE, gib};
use super::request::PlanRequest;

/// A cache of fewer pages than this serves nobody, unless a full context needs no more.
const FEWEST_PAGES: u64 = 64;

/// `None` where the plan fits, or where nobody knows the devices' memory.
pub(super) fn shortage(memory: &MemoryPlan, request: &PlanRequest) -> Option<String> {
    let (device, usable, fixed) = (memory.device?, memory.usable?, memory.fixed());
    let fewest = memory.pages_for_context.min(FEWEST_PAGES);
    let lack = if fixed > usable {
        format!("weights, activations and buffers need {} a rank, {} are usable", gib(fixed), gib(usable))
    } else if memory.pages < fewest {
        format!(
            "{} are left for the key-value cache, {} pages, and one sequence of the context needs {}",
            gib(usable - fixed),
            memory.pages,
            memory.pages_for_context
        )
    } else {
        return None;
    };
    let cache = fewest.saturating_mul(memory.cache_bytes_per_token).saturating_mul(PAGE_SIZE as u64);
    let missing = fixed.saturating_add(cache).saturating_sub(usable);
    let (share, mut remedies) = match request.machine {
        Machine::Cpu(_) => (share_of_host(device, request), on_cpu(memory, request, (missing, cache))),
        Machine::Gpu(_) => {
            let share = format!("{:.0} % of a GPU's {}", request.memory_fraction * 100.0, gib(device));
            (share, on_gpus(device - usable.min(device), missing))
        }
    };
    remedies.extend(anywhere(memory, missing));
    let last = remedies.pop()?;
    Some(format!("out of memory: {lack} ({share}); {}, or {last}", remedies.join(", ")))
}

fn share_of_host(memory: u64, request: &PlanRequest) -> String {
    let share = format!("{:.0} % of the {} that are free here", request.memory_fraction * 100.0, gib(memory));
    match request.tensor_parallel {
        1 => share,
        ranks => format!("{share}, shared by {ranks} ranks"),
    }
}

fn on_cpu(memory: &MemoryPlan, request: &PlanRequest, (missing, cache): (u64, u64)) -> Vec<String> {
    let mut remedies = vec![
        "end other programs or raise the memory limit of the container, the service or the shell".to_owned(),
        "use a smaller or quantised model".to_owned(),
    ];
    // Each rank has its own activations and buffers, and all of them share one memory.
    let alone = PlanRequest { tensor_parallel: 1, ..request.clone() };
    let alone = MemoryPlan::of(&alone, memory.device, false, 0);
    if request.tensor_parallel > 1 && alone.usable.is_some_and(|usable| alone.fixed() < usable) {
        remedies.push("use fewer ranks".to_owned());
    }
    if missing <= cache / 2 && request.cache_bytes > 2 {
        remedies.push("halve the cache by --cpu-precision fast".to_owned());
    }
    remedies
}

/// `spare`: bytes of a GPU that the engine may not use yet.
fn on_gpus(spare: u64, missing: u64) -> Vec<String> {
    let mut remedies = vec!["use more ranks".to_owned(), "use a smaller or quantised model".to_owned()];
    if missing <= spare {
        remedies.push("raise --gpu-memory-utilization".to_owned());
    }
    remedies
}

/// What helps on every device, where it is large enough.
fn anywhere(memory: &MemoryPlan, missing: u64) -> Vec<String> {
    let mut remedies = Vec::new();
    if memory.activations > missing {
        remedies.push("lower --max-num-batched-tokens or --max-num-seqs".to_owned());
    }
    if memory.draft_weights >= missing {
        remedies.push("serve without the draft model".to_owned());
    }
    if memory.cache_tokens > 0 {
        remedies.push(format!("lower --max-model-len to {}", memory.cache_tokens));
    }
    remedies
}
