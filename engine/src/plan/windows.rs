//! Windows through which ranks write to each other, sized by what the plan chose.

use super::report::{RungReport, SiteReport};
use crate::collective::{NO_FUSION, Operation, space};

const MULTIMEM: &str = "multimem";

/// Bytes of half a window for the largest message of every rung; 0 where nothing goes through windows.
pub(super) fn half_window(sites: &[SiteReport], ranks: usize) -> u64 {
    let rungs = sites.iter().flat_map(|site| site.ladder.iter().map(|rung| (site.operation, rung)));
    rungs.filter_map(|(operation, rung)| needed(operation, rung, ranks as u64)).max().unwrap_or(0)
}

/// Whether behind each window stands a buffer of half its bytes, for sums by multicast memory.
pub(super) fn has_buffer(sites: &[SiteReport]) -> bool {
    sites.iter().any(|site| site.ladder.iter().any(|rung| rung.algorithm == MULTIMEM))
}

/// What one rung needs; none where it needs no window.
fn needed(operation: Operation, rung: &RungReport, ranks: u64) -> Option<u64> {
    let (rows, bytes) = (rung.up_to_rows as u64, rung.up_to_bytes);
    let (row, fused) = (bytes / rows.max(1), rung.fusion != NO_FUSION);
    let room = match (rung.algorithm.as_str(), operation) {
        // Gathers go in pieces of what there is.
        ("one_shot", Operation::AllGather) => 0,
        ("one_shot", _) if fused => space::fused_one_shot(ranks, rows, row),
        ("two_shot", _) if fused => space::fused_two_shot(ranks, rows, row),
        ("one_shot", _) => space::one_shot(ranks, bytes),
        ("two_shot", _) => space::two_shot(ranks, bytes),
        // Larger sums go in pieces of the buffer.
        (MULTIMEM, _) => space::multimem(bytes).min(space::MOST_BUFFER),
        _ => return None,
    };
    Some(room.max(space::LEAST_HALF))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_rung_decides() {
        let rung = |algorithm: &str, fusion: &str, rows: usize| RungReport {
            up_to_rows: rows,
            up_to_bytes: rows as u64 * 8192,
            algorithm: algorithm.to_owned(),
            fusion: fusion.to_owned(),
        };
        let needed = |operation, rung| super::needed(operation, &rung, 2);
        assert_eq!(needed(Operation::AllReduce, rung("nccl", "none", 2048)), None);
        assert_eq!(needed(Operation::AllGather, rung("one_shot", "none", 2048)), Some(1 << 20));
        assert_eq!(needed(Operation::AllReduce, rung("one_shot", "none", 256)), Some(4 << 20));
        assert_eq!(needed(Operation::AllReduce, rung("two_shot", "fused", 2048)), Some(32 << 20));
        assert_eq!(needed(Operation::AllReduce, rung("multimem", "none", 1024)), Some(8 << 20));
        assert_eq!(needed(Operation::AllReduce, rung("multimem", "none", 1 << 20)), Some(16 << 20));
    }
}
