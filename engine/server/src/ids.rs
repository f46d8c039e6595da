//! Numbers that must differ: request ids and seeds.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::types::RequestId;

static NEXT_REQUEST: AtomicU64 = AtomicU64::new(1);
static DRAWN: AtomicU64 = AtomicU64::new(0);
static START: OnceLock<u64> = OnceLock::new();

/// An id that no other request of this process has.
pub fn request_id() -> RequestId {
    RequestId(NEXT_REQUEST.fetch_add(1, Ordering::Relaxed))
}

/// A number that differs from call to call and from process to process: SplitMix64 from a start that the operating
/// system drew. No secret; it seeds sampling and names answers.
pub fn draw() -> u64 {
    let start = *START.get_or_init(|| RandomState::new().hash_one(std::process::id()));
    let step = DRAWN.fetch_add(1, Ordering::Relaxed);
    let mut value = start.wrapping_add(step.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// A name for an answer: the prefix and 32 hexadecimal digits.
pub fn named(prefix: &str) -> String {
    format!("{prefix}-{:016x}{:016x}", draw(), draw())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn draws_and_ids_differ() {
        let draws: HashSet<u64> = (0..10_000).map(|_| super::draw()).collect();
        assert_eq!(draws.len(), 10_000);
        assert_ne!(super::request_id(), super::request_id());
        assert_eq!(super::named("cmpl").len(), 37);
    }
}
