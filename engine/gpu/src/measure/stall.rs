//! A rank that does not come.

use std::time::{Duration, Instant};

use super::{MeasureError, MeasurePlan, Rank, on_ranks};
use crate::collective::Algorithm;
use crate::kernels::{Element, Reduce};

/// Name of the call that the last rank leaves out.
const LEFT_OUT: u32 = 5;

/// Has the last rank leave out a call: within `patience` and a second all others must end with a report that names it.
/// Gives the report of rank 0.
pub fn check_stall(plan: &MeasurePlan, patience: Duration) -> Result<String, MeasureError> {
    let plan = MeasurePlan { patience, ..plan.clone() };
    let reports = on_ranks(&plan, |rank| leave_out(rank, patience))?;
    Ok(reports.into_iter().next().unwrap_or_default())
}

fn leave_out(rank: &Rank, patience: Duration) -> Result<String, MeasureError> {
    let last = rank.ranks() - 1;
    let data = rank.allocate(4096)?;
    let message = Reduce { element: Element::F32, input: data.pointer(), output: data.pointer(), bytes: 4096 };
    rank.together.wait()?;
    let begin = Instant::now();
    for call in 0..10 {
        if rank.rank() != last || call != LEFT_OUT {
            // SAFETY: the buffer holds the message; that a rank leaves out a call is what the group must survive.
            unsafe { rank.member.all_reduce(Algorithm::OneShot, &message, call, None)? };
        }
    }
    rank.gpu.synchronise("stall")?;
    let (took, most) = (begin.elapsed(), patience + Duration::from_secs(1));
    // The rank that left out a call is through before the others notice: their last call is the one that misses it.
    rank.together.wait()?;
    let report = rank.member.group.ended(|call| format!("call {call}")).unwrap_or_default();
    let named = report.contains(&format!("for rank {last} in "));
    if took > most || !named {
        let seconds = took.as_secs_f64();
        return Err(MeasureError::Wrong(format!(
            "a rank that stopped was reported after {seconds:.2} s as `{report}`"
        )));
    }
    Ok(report)
}
