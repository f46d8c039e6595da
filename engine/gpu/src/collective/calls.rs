//! What a call is named by in a report: 15 bits, of which a launch has room for 24.

use engine::collective::{Operation, Site};

const OPERATIONS: [Operation; 3] = [Operation::AllReduce, Operation::AllGather, Operation::Broadcast];
/// Bits of a site.
const SITE_BITS: u32 = 8;

/// The number of a call at a site.
pub(super) fn number(operation: Operation, site: Site) -> u32 {
    let place = |found: Option<usize>| found.unwrap_or(0) as u32;
    let operation = place(OPERATIONS.iter().position(|other| *other == operation));
    operation << SITE_BITS | place(Site::ALL.iter().position(|other| *other == site))
}

/// What the number means.
pub(super) fn name(number: u32) -> String {
    let operation = OPERATIONS.get((number >> SITE_BITS) as usize);
    let site = Site::ALL.get((number & ((1 << SITE_BITS) - 1)) as usize);
    match (operation, site) {
        (Some(operation), Some(site)) => format!("{} at {}", operation.name(), site.name()),
        _ => format!("call {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_a_name_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for operation in OPERATIONS {
            for site in Site::ALL {
                let number = number(operation, site);
                assert!(number < 1 << 15);
                names.insert(name(number));
            }
        }
        assert_eq!(names.len(), OPERATIONS.len() * Site::ALL.len());
        assert!(names.contains("all_reduce at mlp_output"), "{names:?}");
        assert_eq!(name(0xff_ffff), "call 16777215");
    }
}
