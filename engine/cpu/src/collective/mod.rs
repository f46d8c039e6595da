//! Ranks as threads of one process that meet in shared memory. Each rank publishes its rows, all wait for each other,
//! then each reads what it needs: a sum is taken in rank order by every rank, so all get the same bits in every run.
//! Waits park. A rank that fails, panics or does not come in time poisons the group: every other rank gets an error.

mod group;
mod member;

pub use group::RankGroup;

#[cfg(test)]
use member::Member;

#[cfg(test)]
mod tests;
