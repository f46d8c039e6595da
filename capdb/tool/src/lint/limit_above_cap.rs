use capdb::problem::Problem;
use capdb::quantity::Size;
use capdb::record::{AlgorithmId, AllReduce, WorldSizes};

use super::{Check, Lint, Subject};

pub static LINT: Lint = Lint {
    name: "limit-above-cap",
    about: "No limit and no ladder of an algorithm exceeds the cap of `symmetric_memory`, where its buffers live.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    let Some(resolved) = subject.resolved() else { return };
    let Ok(allreduce) = resolved.allreduce() else { return };
    let Some(caps) = allreduce.symmetric_memory.as_ref().and_then(|block| block.max_message.clone()) else { return };
    let above = Above { subject, caps: &caps };
    above.limits(&allreduce, problems);
    above.ladders(problems);
}

struct Above<'a> {
    subject: &'a Subject<'a>,
    caps: &'a WorldSizes<Size>,
}

impl Above<'_> {
    /// Limits of the merged record where this file holds either side; a pair from the parents is theirs to fix.
    fn limits(&self, allreduce: &AllReduce, problems: &mut Vec<Problem>) {
        let algorithms =
            [("one_shot", &allreduce.one_shot), ("two_shot", &allreduce.two_shot), ("multimem", &allreduce.multimem)];
        for (name, algorithm) in algorithms {
            let limits = algorithm.as_ref().and_then(|block| block.max_message.clone()).unwrap_or_default();
            for (world_size, limit) in limits {
                let own = format!("/allreduce/{name}/max_message/{world_size}");
                let cap = format!("/allreduce/symmetric_memory/max_message/{world_size}");
                let place = [&own, &cap].into_iter().find(|pointer| self.subject.root.pointer(pointer).is_some());
                if let Some(place) = place {
                    self.compare(place, &format!("the limit of {name}"), world_size, limit, problems);
                }
            }
        }
    }

    fn ladders(&self, problems: &mut Vec<Problem>) {
        let ladders: Vec<capdb::record::Ladder> = self.subject.part("/allreduce/preferred").unwrap_or_default();
        for (index, ladder) in ladders.iter().enumerate() {
            for (step, rung) in ladder.ladder.iter().enumerate().filter(|(_, rung)| rung.algorithm != AlgorithmId::Nccl)
            {
                let place = format!("/allreduce/preferred/{index}/ladder/{step}/up_to");
                self.compare(&place, "this rung", ladder.world_size, rung.up_to, problems);
            }
        }
    }

    fn compare(&self, place: &str, what: &str, world_size: u32, limit: Size, problems: &mut Vec<Problem>) {
        let Some(cap) = self.caps.get(&world_size).filter(|cap| limit > **cap) else { return };
        let message = format!("{what} for {world_size} ranks is {limit}, above the cap of symmetric memory, {cap}");
        let problem = self.subject.error(LINT.name, self.subject.span(place), message);
        let other = format!("/allreduce/symmetric_memory/max_message/{world_size}");
        let problem = match self.subject.root.pointer(&other) {
            Some(node) if other != place => problem.related(None, node.span.clone(), "the cap"),
            _ => problem,
        };
        problems.push(problem.hint(
            "its buffers live there, so it can never take such a message; lower it, or raise the cap with evidence",
        ));
    }
}
