//! A draft model that follows plain steps later accepts what one accepts that follows each of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::executor::{Executor, RankFactory, RanksConfig, RanksExecutor, Speculation};
use engine::spec::DraftShape;
use engine::types::{Batch, BatchEntry, LogitsRows, PageId, Phase, Sampling, SamplingParams, SlotId, chosen};
use engine_cpu::Delay;

use crate::support::{Golden, config, ranks};

const CHAIN: usize = 4;

/// What a sequence does in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// One token, after which the draft model may wait.
    Plain,
    /// One token as a prompt's would come, which the draft model follows at once.
    Followed,
    Verify,
}

/// A sequence in the slot and in the pages that it is given.
struct Sequence {
    slot: u32,
    pages: Vec<PageId>,
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    /// Rows in the cache.
    done: usize,
    accepted: Vec<u32>,
}

impl Sequence {
    fn new(slot: u32, pages: std::ops::Range<u32>, prompt: &[u32]) -> Self {
        let pages = pages.map(PageId).collect();
        Self { slot, pages, prompt: prompt.to_vec(), tokens: prompt.to_vec(), done: 0, accepted: Vec::new() }
    }

    /// The prompt behind the rows that are done, as a first step.
    fn begin(&self) -> BatchEntry {
        let params = Arc::new(SamplingParams { temperature: 0.0, ..SamplingParams::default() });
        let prompt: Arc<[u32]> = Arc::from(&self.prompt[..]);
        let begin = Sampling { params, prompt, output: Vec::new(), choice: 0, end_tokens: Arc::from([]) };
        BatchEntry {
            phase: Phase::Prefill,
            tokens: self.tokens[self.done..].to_vec(),
            begin: Some(begin),
            ..self.entry(Act::Followed)
        }
    }

    fn entry(&self, act: Act) -> BatchEntry {
        BatchEntry {
            slot: SlotId(self.slot),
            phase: match act {
                Act::Plain => Phase::Decode,
                Act::Followed => Phase::Prefill,
                Act::Verify => Phase::Verify,
            },
            tokens: self.tokens[self.tokens.len() - 1..].to_vec(),
            start: self.done as u32,
            pages: self.pages.clone(),
            verify_tokens: if act == Act::Verify { CHAIN as u32 + 1 } else { 0 },
            logits: LogitsRows::Last,
            sample: true,
            begin: None,
        }
    }
}

struct Run {
    executor: RanksExecutor,
    step: u64,
}

impl Run {
    fn new(golden: &Golden, factory: impl RankFactory, shape: DraftShape) -> Self {
        let speculation = Some(Speculation { head: Arc::new(golden.head()), shape });
        let config = RanksConfig { speculation, ..config(&golden.config, &golden.weights, &Arc::default()) };
        Self { executor: RanksExecutor::start(factory, config, |_| {}).expect("the ranks start"), step: 0 }
    }

    fn submit(&mut self, entries: Vec<BatchEntry>, retired: &[u32]) {
        let retired = retired.iter().copied().map(SlotId).collect();
        self.executor.submit(Batch { step: self.step, entries, retired }).expect("submit");
        self.step += 1;
    }

    /// The output of the first step in flight, whose entries were these sequences'.
    fn collect(&mut self, sequences: &mut [&mut Sequence]) {
        let output = self.executor.collect().expect("collect");
        for (sequence, entry) in sequences.iter_mut().zip(output.entries) {
            // The last token has no row yet.
            sequence.tokens.extend(entry.tokens.iter().map(|token| token.id));
            sequence.done = sequence.tokens.len() - 1;
            if entry.drafted > 0 {
                sequence.accepted.push(entry.accepted);
            }
        }
    }

    fn begin(&mut self, sequences: &mut [&mut Sequence], retired: &[u32]) {
        self.submit(sequences.iter().map(|sequence| sequence.begin()).collect(), retired);
        self.collect(sequences);
    }

    fn act(&mut self, sequences: &mut [&mut Sequence], acts: &[Act]) {
        for act in acts {
            self.submit(sequences.iter().map(|sequence| sequence.entry(*act)).collect(), &[]);
            self.collect(sequences);
        }
    }
}

fn outcome(sequences: [Sequence; 2]) -> Vec<(Vec<u32>, Vec<u32>)> {
    sequences.into_iter().map(|sequence| (sequence.tokens, sequence.accepted)).collect()
}

/// Two sequences: plain steps, one that drafts, plain steps of one of them, both again.
fn stretches(run: &mut Run, golden: &Golden, plain: Act, count: usize) -> Vec<(Vec<u32>, Vec<u32>)> {
    let [first, second] = [&golden.prompts[0], &golden.prompts[1]];
    let [mut one, mut other] = [Sequence::new(0, 0..8, first), Sequence::new(1, 8..16, second)];
    run.begin(&mut [&mut one, &mut other], &[]);
    run.act(&mut [&mut one, &mut other], &vec![plain; count]);
    run.act(&mut [&mut one, &mut other], &[Act::Verify, Act::Verify, plain]);
    run.act(&mut [&mut one], &[plain, plain, Act::Verify, plain]);
    run.act(&mut [&mut other], &[Act::Verify, plain]);
    run.act(&mut [&mut one, &mut other], &[plain, Act::Verify, Act::Verify]);
    outcome([one, other])
}

#[test]
fn after_any_number_of_plain_steps() {
    let golden = Golden::open("eagle3-tiny");
    let tree = DraftShape::new(4, 4, 5).expect("a shape");
    for (shape, world_size) in [(DraftShape::chain(CHAIN), 1), (DraftShape::chain(CHAIN), 2), (tree, 1)] {
        for count in [1, 15, 16, 17, 40] {
            let run = |plain| stretches(&mut Run::new(&golden, ranks(world_size), shape), &golden, plain, count);
            let expected = run(Act::Followed);
            assert!(expected.iter().all(|(_, accepted)| accepted.iter().sum::<u32>() > 3), "{expected:?}");
            assert_eq!(run(Act::Plain), expected, "{shape:?} on {world_size} ranks after {count} plain steps");
        }
    }
}

/// The same where the device has the next plain step before the tokens of this one are read.
#[test]
fn after_steps_that_the_device_did_by_itself() {
    let golden = Golden::open("eagle3-tiny");
    let delay = Delay { time: Duration::from_millis(20), ..Delay::default() };
    let shape = DraftShape::chain(CHAIN);
    let mut sequence = Sequence::new(0, 0..8, &golden.prompts[0][..12]);
    let mut run = Run::new(&golden, ranks(1).with_delay(delay.clone()), shape);
    run.begin(&mut [&mut sequence], &[]);
    let count = 40;
    run.submit(vec![sequence.entry(Act::Plain)], &[]);
    for further in 1..count {
        // Behind the token that the step in flight chooses.
        let (tokens, start) = (vec![chosen(0)], (sequence.tokens.len()) as u32);
        run.submit(vec![BatchEntry { tokens, start, ..sequence.entry(Act::Plain) }], &[]);
        run.collect(&mut [&mut sequence]);
        assert_eq!(sequence.tokens.len(), 13 + further);
    }
    run.collect(&mut [&mut sequence]);
    run.act(&mut [&mut sequence], &[Act::Verify; 4]);
    assert!(delay.followed.load(Ordering::Relaxed) > 20, "the device ran ahead: {delay:?}");

    let mut expected = Sequence::new(0, 0..8, &golden.prompts[0][..12]);
    let mut run = Run::new(&golden, ranks(1), shape);
    run.begin(&mut [&mut expected], &[]);
    run.act(&mut [&mut expected], &vec![Act::Followed; count]);
    run.act(&mut [&mut expected], &[Act::Verify; 4]);
    assert_eq!((&sequence.tokens, &sequence.accepted), (&expected.tokens, &expected.accepted));
    assert!(sequence.accepted.iter().sum::<u32>() > 4, "{:?}", sequence.accepted);
}

/// Rows that wait when their sequence ends are run over before its pages are another's, which finds them in those that it
/// shares.
#[test]
fn of_a_sequence_that_ends() {
    let golden = Golden::open("eagle3-tiny");
    let continued = |index: usize, plain| {
        let whole: Vec<u32> = golden.prompts[index].iter().chain(&golden.greedy[index]).copied().collect();
        let mut run = Run::new(&golden, ranks(1), DraftShape::chain(CHAIN));
        let mut first = Sequence::new(0, 0..8, &whole[..16]);
        run.begin(&mut [&mut first], &[]);
        // The second page is full, and all of its rows wait.
        run.act(&mut [&mut first], &[plain; 16]);
        assert_eq!(first.tokens.len(), 33);
        let mut second = Sequence { done: 32, ..Sequence::new(1, 0..8, &first.tokens) };
        run.begin(&mut [&mut second], &[0]);
        run.act(&mut [&mut second], &[Act::Verify; 16]);
        (second.tokens, second.accepted)
    };
    for index in 0..golden.prompts.len() {
        let expected = continued(index, Act::Followed);
        assert!(expected.1.iter().sum::<u32>() > 8, "{expected:?}");
        assert_eq!(continued(index, Act::Plain), expected, "prompt {index}");
    }
}
