//! Which part of a model one rank keeps.

use std::ops::Range;

use super::{Attention, ModelConfig};
use crate::backend::{AttentionHeads, CacheLayout, HeadGroups};

/// One rank among those that share every layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub rank: usize,
    pub world_size: usize,
}

/// The attention heads of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadShare {
    pub query: Range<usize>,
    /// Every key-value head that one of the query heads reads: the same head on several ranks where there are fewer
    /// of them than ranks.
    pub key_value: Range<usize>,
    pub groups: HeadGroups,
}

impl Share {
    /// The whole model on one rank.
    pub const WHOLE: Self = Self { rank: 0, world_size: 1 };

    /// Query heads in equal parts. The world size divides `heads`, which the model's loader checks.
    pub fn heads(self, heads: usize, key_value_heads: usize) -> HeadShare {
        let (count, group) = (heads / self.world_size, heads / key_value_heads);
        let query = self.rank * count..(self.rank + 1) * count;
        let key_value = query.start / group..(query.end - 1) / group + 1;
        let groups = HeadGroups { query_heads: count, group, offset: query.start - key_value.start * group };
        HeadShare { query, key_value, groups }
    }

    /// Nearly equal parts of `total` that cut at multiples of `unit` (a quantised block) where there is one for every
    /// rank; otherwise anywhere.
    pub fn parts(self, total: usize, unit: usize) -> Range<usize> {
        let unit = if total.is_multiple_of(unit) && total / unit >= self.world_size { unit } else { 1 };
        let bound = |rank: usize| total / unit * rank / self.world_size * unit;
        bound(self.rank)..bound(self.rank + 1)
    }

    /// Parts of equal width but for the last ones, which may be short or empty: what is gathered side by side.
    pub fn columns(self, total: usize) -> Range<usize> {
        let width = self.column_width(total);
        (self.rank * width).min(total)..((self.rank + 1) * width).min(total)
    }

    /// Width of the first rank's part in [`Share::columns`].
    pub fn column_width(self, total: usize) -> usize {
        total.div_ceil(self.world_size)
    }
}

/// The heads of grouped attention on one rank; none where attention is over latents.
pub fn attention_heads(config: &ModelConfig, share: Share) -> Option<AttentionHeads> {
    let Attention::Grouped { key_value_heads, .. } = &config.attention else { return None };
    let heads = share.heads(config.heads, *key_value_heads);
    Some(AttentionHeads { groups: heads.groups, cached: heads.key_value.len() })
}

/// What each position of each layer stores in the cache of one rank. Every rank has the whole latent, because all
/// heads share it.
pub fn cache_layout(config: &ModelConfig, share: Share) -> CacheLayout {
    match &config.attention {
        Attention::Grouped { key_value_heads, head_dimension, .. } => CacheLayout::KeyValue {
            heads: share.heads(config.heads, *key_value_heads).key_value.len(),
            head_dimension: *head_dimension,
        },
        Attention::Latent(latent) => {
            CacheLayout::Latent { latent: latent.key_value_lora_rank, rope: latent.rope_head_dimension }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Share;

    /// The key-value head of a query head, by definition.
    fn owner(query: usize, heads: usize, key_value_heads: usize) -> usize {
        query / (heads / key_value_heads)
    }

    proptest! {
        #[test]
        fn every_query_head_finds_its_key_value_head(
            key_value_heads in 1usize..9, group in 1usize..9, world_size in 1usize..17,
        ) {
            let heads = key_value_heads * group;
            prop_assume!(heads.is_multiple_of(world_size));
            let mut next = 0;
            for rank in 0..world_size {
                let share = Share { rank, world_size }.heads(heads, key_value_heads);
                prop_assert_eq!(share.query.start, next);
                next = share.query.end;
                for (local, query) in share.query.clone().enumerate() {
                    let cached = (local + share.groups.offset) / share.groups.group;
                    prop_assert!(cached < share.key_value.len());
                    prop_assert_eq!(share.key_value.start + cached, owner(query, heads, key_value_heads));
                }
            }
            prop_assert_eq!(next, heads);
        }

        #[test]
        fn parts_and_columns_cover_everything_once(total in 0usize..2000, world_size in 1usize..17, unit in 1usize..300) {
            let (mut parts, mut columns) = (0, 0);
            for rank in 0..world_size {
                let share = Share { rank, world_size };
                let (part, column) = (share.parts(total, unit), share.columns(total));
                prop_assert_eq!(part.start, parts);
                prop_assert_eq!(column.start, columns);
                prop_assert!(column.len() <= share.column_width(total));
                if total.is_multiple_of(unit) && total / unit >= world_size {
                    prop_assert!(part.start.is_multiple_of(unit));
                }
                (parts, columns) = (part.end, column.end);
            }
            prop_assert_eq!((parts, columns), (total, total));
        }
    }
}
