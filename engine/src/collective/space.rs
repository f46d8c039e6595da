//! Room that sums between devices take when ranks write to each other: every rank has a window of two halves, calls use
//! them in turn, and messages travel in packets. Plans count it, device backends allocate it.

/// Bytes of a packet: what is written at once and shows by itself that it has arrived.
pub const PACKET: u64 = 16;

/// Bytes of the widest row that a fused sum takes: a block of the kernel keeps a row in registers.
pub const FUSED_ROW: u64 = 1536 * PACKET;

/// Smallest half of a window: larger gathers and two-shot sums go in pieces of it.
pub const LEAST_HALF: u64 = 1 << 20;

/// Bytes of half a window that a one-shot sum of `bytes` bytes takes: the message of every rank.
pub const fn one_shot(ranks: u64, bytes: u64) -> u64 {
    ranks * bytes.div_ceil(PACKET) * PACKET
}

/// The same for two-shot: a part of every rank's message, and the sums of all parts.
pub const fn two_shot(ranks: u64, bytes: u64) -> u64 {
    2 * ranks * bytes.div_ceil(PACKET).div_ceil(ranks) * PACKET
}

/// The same for `rows` rows of a fused one-shot sum: each row is whole packets.
pub const fn fused_one_shot(ranks: u64, rows: u64, row_bytes: u64) -> u64 {
    rows * one_shot(ranks, row_bytes)
}

/// The same for a fused two-shot sum: each row is cut into whole packets for every rank.
pub const fn fused_two_shot(ranks: u64, rows: u64, row_bytes: u64) -> u64 {
    rows * two_shot(ranks, row_bytes)
}

/// Bytes of the largest buffer for sums by multicast memory: as much as keeps a fabric busy.
pub const MOST_BUFFER: u64 = 16 << 20;

/// Bytes of such a buffer that a sum of `bytes` bytes takes at once, if it does not go in pieces.
pub const fn multimem(bytes: u64) -> u64 {
    bytes.div_ceil(PACKET) * PACKET
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_counts_whole_packets_and_uneven_parts() {
        assert_eq!(one_shot(3, 17), 3 * 2 * 16);
        assert_eq!(two_shot(3, 17), 2 * 3 * 16);
        assert_eq!(fused_one_shot(2, 5, 14), 2 * 5 * 16);
        assert_eq!(fused_two_shot(4, 5, 36), 2 * 4 * 5 * 16);
    }
}
