use capdb::problem::Problem;
use capdb::record::Ladder;

use super::{Check, Lint, Subject};

pub static LINT: Lint = Lint {
    name: "ladder-order",
    about: "A ladder ascends strictly in `up_to`, its times in `bytes`, and there is one for each world size, topology and element type.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    let ladders: Vec<Ladder> = subject.part("/allreduce/preferred").unwrap_or_default();
    for (index, ladder) in ladders.iter().enumerate() {
        let rungs = [("ladder", &ladder.ladder), ("fused", &ladder.fused)];
        for (key, step, pair) in rungs
            .iter()
            .flat_map(|(key, rungs)| rungs.windows(2).enumerate().map(move |(step, pair)| (key, step, pair)))
        {
            if pair[1].up_to <= pair[0].up_to {
                let place = |step: usize| subject.span(&format!("/allreduce/preferred/{index}/{key}/{step}/up_to"));
                let message = format!("the ladder goes from {} to {}", pair[0].up_to, pair[1].up_to);
                problems.push(
                    subject
                        .error(LINT.name, place(step + 1), message)
                        .label("not above the rung before")
                        .related(None, place(step), "the rung before")
                        .hint("write the rungs in ascending order; a rung that does not go up is never reached"),
                );
            }
        }
        for (step, pair) in ladder.times.windows(2).enumerate().filter(|(_, pair)| pair[1].bytes <= pair[0].bytes) {
            let place = subject.span(&format!("/allreduce/preferred/{index}/times/{}/bytes", step + 1));
            let message = format!("the times go from {} to {}", pair[0].bytes, pair[1].bytes);
            problems
                .push(subject.error(LINT.name, place, message).hint("write them in ascending order, each size once"));
        }
        let same = |other: &Ladder| {
            (other.world_size, other.topology, other.dtype) == (ladder.world_size, ladder.topology, ladder.dtype)
        };
        if let Some(first) = ladders[..index].iter().position(same) {
            let place = |index: usize| subject.key_span(&format!("/allreduce/preferred/{index}/world_size"));
            let message = format!("a second ladder for world size {} on {}", ladder.world_size, ladder.topology);
            problems.push(
                subject
                    .error(LINT.name, place(index), message)
                    .related(None, place(first), "the first one")
                    .hint("keep one: nothing says which of them wins"),
            );
        }
    }
}
