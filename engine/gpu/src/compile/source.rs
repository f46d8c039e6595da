//! The kernels' sources, embedded.

use crate::kernels::Format;

const HEADERS: &[(&str, &str)] = &[
    ("base.cuh", include_str!("../../kernels/include/base.cuh")),
    ("blocks.cuh", include_str!("../../kernels/quantised/blocks.cuh")),
    ("bulk.cuh", include_str!("../../kernels/include/bulk.cuh")),
    ("cluster.cuh", include_str!("../../kernels/include/cluster.cuh")),
    ("common.cuh", include_str!("../../kernels/product/common.cuh")),
    ("formats.cuh", include_str!("../../kernels/include/formats.cuh")),
    ("fresh.cuh", include_str!("../../kernels/attention/fresh.cuh")),
    ("matrix.cuh", include_str!("../../kernels/include/matrix.cuh")),
    ("message.cuh", include_str!("../../kernels/include/message.cuh")),
    ("multiply.cuh", include_str!("../../kernels/product/multiply.cuh")),
    ("near.cuh", include_str!("../../kernels/attention/near.cuh")),
    ("near_head.cuh", include_str!("../../kernels/attention/near_head.cuh")),
    ("near_page.cuh", include_str!("../../kernels/attention/near_page.cuh")),
    ("near_parts.cuh", include_str!("../../kernels/attention/near_parts.cuh")),
    ("near_room.cuh", include_str!("../../kernels/attention/near_room.cuh")),
    ("near_sums.cuh", include_str!("../../kernels/attention/near_sums.cuh")),
    ("packet.cuh", include_str!("../../kernels/include/packet.cuh")),
    ("pair.cuh", include_str!("../../kernels/attention/pair.cuh")),
    ("quantise.cuh", include_str!("../../kernels/include/quantise.cuh")),
    ("reduce.cuh", include_str!("../../kernels/include/reduce.cuh")),
    ("rows.cuh", include_str!("../../kernels/attention/rows.cuh")),
    ("rows_memory.cuh", include_str!("../../kernels/attention/rows_memory.cuh")),
    ("rows_page.cuh", include_str!("../../kernels/attention/rows_page.cuh")),
    ("sliced.cuh", include_str!("../../kernels/product/sliced.cuh")),
    ("sliced_block.cuh", include_str!("../../kernels/product/sliced_block.cuh")),
    ("sliced_order.cuh", include_str!("../../kernels/product/sliced_order.cuh")),
    ("sliced_store.cuh", include_str!("../../kernels/product/sliced_store.cuh")),
    ("sliced_sums.cuh", include_str!("../../kernels/product/sliced_sums.cuh")),
    ("stages.cuh", include_str!("../../kernels/product/stages.cuh")),
    ("step.cuh", include_str!("../../kernels/include/step.cuh")),
    ("streamed.cuh", include_str!("../../kernels/product/streamed.cuh")),
    ("tickets.cuh", include_str!("../../kernels/product/tickets.cuh")),
    ("tile.cuh", include_str!("../../kernels/attention/tile.cuh")),
    ("tokens.cuh", include_str!("../../kernels/include/tokens.cuh")),
];

const SOURCES: &[(&str, &str)] = &[
    ("activation", include_str!("../../kernels/activation/activation.cu")),
    ("allgather", include_str!("../../kernels/allgather/allgather.cu")),
    ("allreduce", include_str!("../../kernels/allreduce/allreduce.cu")),
    ("allreduce_check", include_str!("../../kernels/allreduce_check/allreduce_check.cu")),
    ("allreduce_multimem", include_str!("../../kernels/allreduce_multimem/allreduce_multimem.cu")),
    ("allreduce_norm", include_str!("../../kernels/allreduce_norm/allreduce_norm.cu")),
    ("copy", include_str!("../../kernels/copy/copy.cu")),
    ("embedding", include_str!("../../kernels/embedding/embedding.cu")),
    ("held", include_str!("../../kernels/product/held.cu")),
    ("logits", include_str!("../../kernels/logits/logits.cu")),
    ("norm", include_str!("../../kernels/norm/norm.cu")),
    ("product", include_str!("../../kernels/product/product.cu")),
    ("rope", include_str!("../../kernels/rope/rope.cu")),
    ("sampling", include_str!("../../kernels/sampling/sampling.cu")),
    ("sliced", include_str!("../../kernels/product/sliced.cu")),
    ("streamed", include_str!("../../kernels/product/streamed.cu")),
    ("wide", include_str!("../../kernels/product/wide.cu")),
];

const ATTENTION: &str = include_str!("../../kernels/attention/attention.cu");

const QUANTISED: &str = include_str!("../../kernels/quantised/quantised.cu");

/// What is compiled at once: a source file, and the head dimension or the format for those that are compiled for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    name: String,
    text: &'static str,
    head: Option<u32>,
    format: Option<Format>,
}

impl Unit {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The head dimension, rounded up to 16.
    pub fn head(&self) -> Option<u32> {
        self.head
    }

    /// The format of the weights that it multiplies.
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    pub(super) fn text(&self) -> &'static str {
        self.text
    }

    pub(super) fn headers() -> &'static [(&'static str, &'static str)] {
        HEADERS
    }

    /// Everything that the compiler reads: the source and what it includes, each once.
    pub(super) fn files(&self) -> Vec<(&str, &str)> {
        let mut files = vec![(self.name(), self.text)];
        let mut at = 0;
        while let Some((_, text)) = files.get(at).copied() {
            for name in text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"')) {
                let header = HEADERS.iter().find(|(header, _)| *header == name);
                files.extend(header.filter(|header| !files.contains(header)));
            }
            at += 1;
        }
        files
    }
}

/// How wide the cache keeps a head: rounded up to 16.
pub fn padded_head(head_dimension: usize) -> u32 {
    head_dimension.next_multiple_of(16) as u32
}

/// All units for models with these head dimensions, each once.
pub fn units(heads: &[u32]) -> Vec<Unit> {
    let unit = |name: String, text| Unit { name, text, head: None, format: None };
    let plain = SOURCES.iter().map(|(name, text)| unit((*name).to_owned(), text));
    let quantised = Format::STORED.map(|format| {
        let name = format!("quantised_{}", format.name().to_lowercase());
        Unit { format: Some(format), ..unit(name, QUANTISED) }
    });
    let mut heads: Vec<u32> = heads.iter().map(|head| padded_head(*head as usize)).collect();
    heads.sort_unstable();
    heads.dedup();
    let attention = |head| Unit { head: Some(head), ..unit(format!("attention_{head}"), ATTENTION) };
    plain.chain(quantised).chain(heads.into_iter().map(attention)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_named_by_what_it_includes_and_by_nothing_else() {
        for unit in units(&[64]) {
            let files = unit.files();
            let includes: usize = files.iter().map(|(_, text)| text.matches("#include").count()).sum();
            assert!(includes > 0 && files.iter().any(|(name, _)| *name == "base.cuh"), "{}", unit.name());
            for (name, text) in &files {
                for included in text.lines().filter(|line| line.starts_with("#include")) {
                    let known = files.iter().any(|(name, _)| included == format!("#include \"{name}\""));
                    assert!(known, "{name} of {}: {included}", unit.name());
                }
            }
        }
        let norm = units(&[]).into_iter().find(|unit| unit.name() == "norm").unwrap();
        assert!(!norm.files().iter().any(|(name, _)| *name == "tile.cuh"));
    }
}
