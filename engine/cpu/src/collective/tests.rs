use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use engine::backend::AddNorm;
use engine::collective::{
    AllGather, Call, Collective, CollectiveError, CollectivePlan, Operation, RankRows, Rung, Site,
};
use engine::types::Phase;

use super::{Member, RankGroup};
use crate::kernels::{CacheElement, Compute, Pool, Precision};
use crate::{Buffer, CpuBackend};

const DEADLINE: Duration = Duration::from_secs(30);

/// Runs `body` on a thread per rank and returns what each returned, in rank order.
fn on_ranks<T: Send>(group: &Arc<RankGroup>, body: impl Fn(Member, &mut CpuBackend) -> T + Sync) -> Vec<T> {
    let body = &body;
    thread::scope(|scope| {
        let run = |rank| {
            let member = group.member(rank);
            scope.spawn(move || body(member, &mut backend()))
        };
        let threads: Vec<_> = (0..group.world_size()).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn backend() -> CpuBackend {
    let compute = Compute::new(Pool::new(1).expect("no thread to start"), Precision::Exact);
    CpuBackend::new(compute, CacheElement::F32)
}

fn rung() -> Rung {
    let (operation, site) = (Operation::AllReduce, Site::MlpOutput);
    CollectivePlan::uniform("shared_memory").rung(operation, site, Phase::Decode, 1).clone()
}

fn reduce(
    member: &mut Member,
    backend: &mut CpuBackend,
    site: Site,
    values: &mut Vec<f32>,
) -> Result<(), CollectiveError> {
    let mut buffer = Buffer(std::mem::take(values));
    let width = buffer.0.len();
    let call = Call { operation: Operation::AllReduce, site, rung: &rung() };
    let result = member.all_reduce(backend, call, RankRows { buffer: &mut buffer, rows: 1, width });
    *values = buffer.0;
    result
}

/// A value whose sum depends on the order: magnitudes differ by rank, round and place.
fn value(rank: usize, round: usize, place: usize) -> f32 {
    let sign = if (rank + place).is_multiple_of(2) { 1.0 } else { -1.0 };
    sign * 1.1f32.powi(((rank * 31 + round * 17 + place * 7) % 90) as i32)
}

/// Many calls in a row, with ranks held up at different places: if a rank could read a message of another call, or
/// summed in another order, the bits would differ.
#[test]
fn sums_are_in_rank_order_on_every_rank_in_every_call() {
    for world_size in [2, 3, 8] {
        let group = RankGroup::new(world_size, DEADLINE);
        on_ranks(&group, |mut member, backend| {
            for round in 0..200 {
                let width = 1 + round % 5;
                if (round + member.rank()).is_multiple_of(37) {
                    thread::sleep(Duration::from_micros(300));
                }
                let mut values: Vec<f32> = (0..width).map(|place| value(member.rank(), round, place)).collect();
                reduce(&mut member, backend, Site::MlpOutput, &mut values).expect("a sum");
                let sum =
                    |place| (0..world_size).map(|rank| value(rank, round, place)).fold(0.0, |sum, value| sum + value);
                assert_eq!(values, (0..width).map(sum).collect::<Vec<f32>>(), "round {round}");
            }
        });
    }
}

/// 5 columns over 4 ranks are 2, 2, 1 and none.
#[test]
fn gathers_uneven_columns() {
    let group = RankGroup::new(4, DEADLINE);
    on_ranks(&group, |mut member, backend| {
        let (own, first) = ([2, 2, 1, 0][member.rank()], [0, 2, 4, 5][member.rank()]);
        let cell = |row: usize, column: usize| (10 * row + column) as f32;
        let rows = (0..3).flat_map(|row| (0..own).map(move |column| cell(row, first + column)));
        let (input, mut output) = (Buffer(rows.collect()), Buffer(vec![-1.0; 15]));
        let call = Call { operation: Operation::AllGather, site: Site::LogitsGather, rung: &rung() };
        let gather = AllGather { input: &input, output: &mut output, rows: 3, width: 2, total: 5 };
        member.all_gather(backend, call, gather).expect("a gather");
        let expected: Vec<f32> = (0..3).flat_map(|row| (0..5).map(move |column| cell(row, column))).collect();
        assert_eq!(output.0, expected);
    });
}

#[test]
fn broadcasts_from_any_root() {
    let group = RankGroup::new(3, DEADLINE);
    on_ranks(&group, |mut member, backend| {
        for root in [2, 0, 1] {
            let mut buffer = Buffer(vec![member.rank() as f32; 4]);
            let call = Call { operation: Operation::Broadcast, site: Site::Draft, rung: &rung() };
            let rows = RankRows { buffer: &mut buffer, rows: 2, width: 2 };
            member.broadcast(backend, call, root, rows).expect("a broadcast");
            assert_eq!(buffer.0, [root as f32; 4]);
        }
    });
}

#[test]
fn ranks_that_disagree_are_told_so() {
    let group = RankGroup::new(3, DEADLINE);
    let errors = on_ranks(&group, |mut member, backend| {
        let site = if member.rank() == 2 { Site::AttentionOutput } else { Site::MlpOutput };
        reduce(&mut member, backend, site, &mut vec![0.0; 4]).expect_err("no sum")
    });
    for error in errors {
        let expected = "ranks disagree: rank 0 came to all_reduce of 1 x 4 at mlp_output, rank 2 to all_reduce of 1 x 4 \
                        at attention_output";
        assert_eq!(error.message, expected);
    }
}

#[test]
fn a_poisoned_group_wakes_those_who_wait_and_stays_poisoned() {
    let group = RankGroup::new(3, DEADLINE);
    let start = Instant::now();
    let errors = on_ranks(&group, |mut member, backend| {
        if member.rank() == 1 {
            thread::sleep(Duration::from_millis(50));
            group.poison("rank 1 lost its device");
            group.poison("a later message");
        }
        reduce(&mut member, backend, Site::Embedding, &mut vec![1.0]).expect_err("no sum").to_string()
    });
    assert_eq!(errors, ["all_reduce at embedding: rank 1 lost its device"; 3]);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_fusion_that_the_cpu_does_not_have_is_an_error() {
    let group = RankGroup::new(1, DEADLINE);
    let rung = Rung { fusion: "allreduce_residual_rmsnorm".into(), ..rung() };
    let [mut addend, mut residual, mut output] = [(); 3].map(|()| Buffer(vec![0.0; 4]));
    let (addend, residual, output) = (&mut addend, &mut residual, &mut output);
    let arguments = AddNorm { addend, residual, weight: &vec![1.0; 4], epsilon: 1e-6, output, rows: 1 };
    let call = Call { operation: Operation::AllReduce, site: Site::MlpOutput, rung: &rung };
    let error = group.member(0).all_reduce_add_norm(&mut backend(), call, arguments).expect_err("no such fusion");
    assert!(error.message.contains("`allreduce_residual_rmsnorm`"), "{error}");
}
