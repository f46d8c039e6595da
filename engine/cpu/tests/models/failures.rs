//! A rank that panics or stalls, and batches that cannot be run, end in an error that says what happened, in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use engine::backend::{AddNorm, BackendError};
use engine::collective::{AllGather, Call, Collective, CollectiveError, RankRows};
use engine::executor::{Capacity, Executor, ExecutorError, RankFactory, RanksConfig, RanksExecutor};
use engine::types::{Batch, BatchEntry, LogitsRows, PageId, Phase, SlotId, chosen};
use engine_cpu::{CpuBackend, CpuRanks};

use crate::support::{Golden, Settings, config, generate, ranks, ranks_within, start};

/// What rank 1 does at its `at`th collective.
#[derive(Clone, Copy)]
enum Misbehaviour {
    Panic,
    Sleep(Duration),
}

struct Faulty {
    ranks: CpuRanks,
    misbehaviour: Misbehaviour,
    at: usize,
}

struct FaultyMember {
    inner: Box<dyn Collective<CpuBackend>>,
    misbehaviour: Misbehaviour,
    left: AtomicUsize,
}

impl RankFactory for Faulty {
    type Backend = CpuBackend;

    fn world_size(&self) -> usize {
        self.ranks.world_size()
    }

    fn backend(&self, rank: usize) -> Result<CpuBackend, BackendError> {
        self.ranks.backend(rank)
    }

    fn collective(
        &self,
        rank: usize,
        backend: &mut CpuBackend,
    ) -> Result<Box<dyn Collective<CpuBackend>>, BackendError> {
        let inner = self.ranks.collective(rank, backend)?;
        if rank != 1 {
            return Ok(inner);
        }
        Ok(Box::new(FaultyMember { inner, misbehaviour: self.misbehaviour, left: AtomicUsize::new(self.at) }))
    }

    fn poison(&self, message: &str) {
        self.ranks.poison(message);
    }
}

impl FaultyMember {
    fn misbehave(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            match self.misbehaviour {
                Misbehaviour::Panic => panic!("a test made this rank panic"),
                Misbehaviour::Sleep(time) => std::thread::sleep(time),
            }
        }
    }
}

impl Collective<CpuBackend> for FaultyMember {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn world_size(&self) -> usize {
        self.inner.world_size()
    }

    fn all_reduce(
        &mut self,
        backend: &mut CpuBackend,
        call: Call<'_>,
        rows: RankRows<'_, CpuBackend>,
    ) -> Result<(), CollectiveError> {
        self.misbehave();
        self.inner.all_reduce(backend, call, rows)
    }

    fn all_reduce_add_norm(
        &mut self,
        backend: &mut CpuBackend,
        call: Call<'_>,
        arguments: AddNorm<'_, CpuBackend>,
    ) -> Result<(), CollectiveError> {
        self.inner.all_reduce_add_norm(backend, call, arguments)
    }

    fn all_gather(
        &mut self,
        backend: &mut CpuBackend,
        call: Call<'_>,
        gather: AllGather<'_, CpuBackend>,
    ) -> Result<(), CollectiveError> {
        self.inner.all_gather(backend, call, gather)
    }

    fn broadcast(
        &mut self,
        backend: &mut CpuBackend,
        call: Call<'_>,
        root: usize,
        rows: RankRows<'_, CpuBackend>,
    ) -> Result<(), CollectiveError> {
        self.inner.broadcast(backend, call, root, rows)
    }
}

/// Starts four ranks whose second misbehaves in its second step, and returns what that step says and how long it took.
fn second_step(misbehaviour: Misbehaviour, deadline: Duration) -> (ExecutorError, Duration, RanksExecutor) {
    let golden = Golden::open("qwen2-tiny");
    // The first step makes a call for the embedding and two per layer; the second one's third call is the first MLP's.
    let at = (1 + 2 * golden.config.layers) + 2;
    let faulty = Faulty { ranks: ranks_within(4, deadline), misbehaviour, at };
    let mut executor = start(faulty, &golden.config, &golden.weights, &Arc::default()).expect("the ranks start");
    generate(&mut executor, &[vec![1, 2, 3]], &Settings::greedy(8, 1));
    executor.submit(Batch { step: 1, entries: vec![decode()], retired: Vec::new() }).expect("submit");
    let start = Instant::now();
    let error = executor.collect().expect_err("the rank misbehaves");
    (error, start.elapsed(), executor)
}

/// A step of the sequence that the first step began.
fn decode() -> BatchEntry {
    BatchEntry {
        slot: SlotId(0),
        phase: Phase::Decode,
        tokens: vec![5],
        start: 3,
        pages: vec![PageId(0)],
        verify_tokens: 0,
        logits: LogitsRows::Last,
        sample: true,
        begin: None,
    }
}

#[test]
fn a_panicking_rank_ends_the_step_with_its_message() {
    let (error, time, mut executor) = second_step(Misbehaviour::Panic, Duration::from_secs(30));
    assert!(error.fatal);
    for part in ["step 1: ", "rank 1 panicked: a test made this rank panic"] {
        assert!(error.message.contains(part), "{error}");
    }
    assert!(time < Duration::from_secs(5), "{time:?}");
    let again = executor.submit(Batch::default()).expect_err("no further step");
    assert!(again.fatal && again.message == error.message, "{again}");
}

#[test]
fn a_stalled_rank_is_named_within_the_deadline() {
    let (error, time, executor) = second_step(Misbehaviour::Sleep(Duration::from_secs(4)), Duration::from_millis(300));
    assert!(error.fatal);
    for part in ["step 1: ", "all_reduce at mlp_output: rank 1 stalled: the others waited 0.3 s"] {
        assert!(error.message.contains(part), "{error}");
    }
    assert!(time >= Duration::from_millis(300) && time < Duration::from_secs(2), "{time:?}");
    let start = Instant::now();
    drop(executor);
    assert!(start.elapsed() < Duration::from_secs(3), "the executor leaves without the stalled rank");
}

/// Nobody waits for a rank that is alone or late after its last collective: the step's own deadline ends it.
#[test]
fn a_step_has_a_deadline_of_its_own() {
    let golden = Golden::open("qwen2-tiny");
    let misbehaviour = Misbehaviour::Sleep(Duration::from_secs(1));
    let faulty = Faulty { ranks: ranks(2), misbehaviour, at: 1 + 2 * golden.config.layers };
    let step_deadline = Duration::from_millis(300);
    let config = RanksConfig { step_deadline, ..config(&golden.config, &golden.weights, &Arc::default()) };
    let mut executor = RanksExecutor::start(faulty, config, |_| {}).expect("the ranks start");
    generate(&mut executor, &[vec![1, 2, 3]], &Settings::greedy(8, 1));
    executor.submit(Batch { step: 1, entries: vec![decode()], retired: Vec::new() }).expect("submit");
    let error = executor.collect().expect_err("the rank is late");
    assert!(error.fatal, "{error}");
    assert_eq!(error.message, "step 1: rank 0, 1 stalled: no result within 0.3 s");
}

#[test]
fn weights_that_do_not_fit_are_named_with_their_rank() {
    let (qwen2, qwen3) = (Golden::open("qwen2-tiny"), Golden::open("qwen3-tiny"));
    for world_size in [1, 2] {
        let begun = Instant::now();
        let refused = start(ranks(world_size), &qwen3.config, &qwen2.weights, &Arc::default());
        let message = refused.err().expect("no such model").to_string();
        assert!(message.starts_with("rank ") && message.contains("model.layers.0.self_attn."), "{message}");
        assert!(begun.elapsed() < Duration::from_secs(1), "it waits for nobody: {:?}", begun.elapsed());
    }
}

#[test]
fn impossible_capacities_and_models_are_refused() {
    let golden = Golden::open("qwen2-tiny");
    let config = config(&golden.config, &golden.weights, &Arc::default());
    let refusal = |config| RanksExecutor::start(ranks(1), config, |_| {}).err().expect("refused").to_string();
    let capacity = |change: fn(&mut Capacity)| {
        let mut config = config.clone();
        change(&mut config.capacity);
        config
    };
    assert_eq!(refusal(capacity(|capacity| capacity.page_size = 0)), "no step could run: page size is 0");
    let message = refusal(capacity(|capacity| capacity.vocabulary = 255));
    assert_eq!(message, "no step could run: vocabulary is 255, but the model has 256 tokens");
    let message = refusal(capacity(|capacity| (capacity.pages, capacity.page_size) = (u32::MAX, u32::MAX)));
    assert!(message.contains("allocate_cache: the device has no room for"), "{message}");
    let mut model = (*golden.config).clone();
    model.unserved.push("sliding_window is 4096".to_owned());
    let message = refusal(RanksConfig { model: Arc::new(model), ..config.clone() });
    assert!(message.contains("no forward pass for Qwen2ForCausalLM: sliding_window is 4096"), "{message}");
}

#[test]
fn batches_that_do_not_fit_are_refused_and_harm_nothing() {
    let golden = Golden::open("qwen2-tiny");
    let mut executor = start(ranks(1), &golden.config, &golden.weights, &Arc::default()).expect("the rank starts");
    type Change = fn(&mut BatchEntry);
    let wrong: [(&str, Change); 11] = [
        ("65 rows, but 64 were reserved", |entry| entry.tokens = vec![0; 65]),
        ("slot 4: there are 4 slots", |entry| entry.slot = SlotId(4)),
        ("no token", |entry| entry.tokens.clear()),
        ("129 positions, but the longest sequence has 128", |entry| entry.start = 128),
        ("1 pages of 16 for 17 positions", |entry| entry.start = 16),
        ("9 pages of 16 for 4 positions", |entry| entry.pages = vec![PageId(0); 9]),
        ("page 32, but there are 32", |entry| entry.pages[0] = PageId(32)),
        ("token 256, but the vocabulary has 256", |entry| entry.tokens[0] = 256),
        ("there is no draft model", |entry| entry.phase = Phase::Verify),
        ("the token of entry 5, but the step before had 0 entries", |entry| entry.tokens[0] = chosen(5)),
        ("a token that is not known yet in a prefill entry", |entry| {
            (entry.phase, entry.tokens[0]) = (Phase::Prefill, chosen(0));
        }),
    ];
    for (message, change) in wrong {
        let mut entry = decode();
        change(&mut entry);
        let error = executor.submit(Batch { step: 7, entries: vec![entry], retired: Vec::new() }).expect_err(message);
        assert!(!error.fatal && error.message.contains(message) && error.message.contains("step 7"), "{error}");
    }
    executor.submit(Batch { step: 8, entries: vec![decode()], retired: Vec::new() }).expect("it fits");
    let error = executor.collect().expect_err("slot 0 never began");
    assert!(!error.fatal && error.message.contains("slot 0 continues a sequence that has not begun"), "{error}");
    executor.submit(Batch { step: 9, entries: Vec::new(), retired: vec![SlotId(0), SlotId(77)] }).expect("no work");
    assert_eq!(executor.collect().expect("no output").entries, []);
    let error = executor.collect().expect_err("nothing in flight");
    assert!(!error.fatal, "{error}");
    let results = generate(&mut executor, &golden.prompts[..1], &Settings::greedy(64, 16));
    assert_eq!(results[0].tokens, golden.greedy[0], "the executor still works");
}
