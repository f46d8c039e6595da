//! Dynamic shared memory of the kernels, for who checks it against a record's limits.

use super::{attention, norm, product, quantised};

/// Largest dynamic shared memory of a block of the kernels that are left out on devices with less, which need `tma`.
pub fn optional_shared_bytes() -> u32 {
    product::largest_optional_shared()
}

/// Largest dynamic shared memory of a block, in bytes, of every unit that uses any, with heads of up to
/// `head_dimension`.
pub fn dynamic_shared_bytes(head_dimension: u32) -> [(&'static str, u32); 4] {
    [
        ("attention", attention::shared(head_dimension.next_multiple_of(16))),
        ("norm", norm::LARGEST_SHARED),
        ("product", product::largest_shared()),
        ("quantised", quantised::LARGEST_SHARED),
    ]
}
