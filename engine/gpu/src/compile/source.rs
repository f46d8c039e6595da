//! The kernels' sources, embedded.

const HEADERS: &[(&str, &str)] = &[
    ("base.cuh", include_str!("../../kernels/include/base.cuh")),
    ("bulk.cuh", include_str!("../../kernels/include/bulk.cuh")),
    ("common.cuh", include_str!("../../kernels/product/common.cuh")),
    ("formats.cuh", include_str!("../../kernels/include/formats.cuh")),
    ("matrix.cuh", include_str!("../../kernels/include/matrix.cuh")),
    ("message.cuh", include_str!("../../kernels/include/message.cuh")),
    ("packet.cuh", include_str!("../../kernels/include/packet.cuh")),
    ("quantise.cuh", include_str!("../../kernels/include/quantise.cuh")),
    ("reduce.cuh", include_str!("../../kernels/include/reduce.cuh")),
    ("step.cuh", include_str!("../../kernels/include/step.cuh")),
    ("tile.cuh", include_str!("../../kernels/attention/tile.cuh")),
    ("tokens.cuh", include_str!("../../kernels/include/tokens.cuh")),
];

const SOURCES: &[(&str, &str)] = &[
    ("activation", include_str!("../../kernels/activation/activation.cu")),
    ("allgather", include_str!("../../kernels/allgather/allgather.cu")),
    ("allreduce", include_str!("../../kernels/allreduce/allreduce.cu")),
    ("allreduce_check", include_str!("../../kernels/allreduce_check/allreduce_check.cu")),
    ("allreduce_norm", include_str!("../../kernels/allreduce_norm/allreduce_norm.cu")),
    ("copy", include_str!("../../kernels/copy/copy.cu")),
    ("embedding", include_str!("../../kernels/embedding/embedding.cu")),
    ("logits", include_str!("../../kernels/logits/logits.cu")),
    ("norm", include_str!("../../kernels/norm/norm.cu")),
    ("product", include_str!("../../kernels/product/product.cu")),
    ("quantised", include_str!("../../kernels/quantised/quantised.cu")),
    ("rope", include_str!("../../kernels/rope/rope.cu")),
    ("sampling", include_str!("../../kernels/sampling/sampling.cu")),
    ("streamed", include_str!("../../kernels/product/streamed.cu")),
];

const ATTENTION: &str = include_str!("../../kernels/attention/attention.cu");

/// What is compiled at once: a source file, and the head dimension for those that are compiled for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    name: String,
    text: &'static str,
    head: Option<u32>,
}

impl Unit {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The head dimension, rounded up to 16.
    pub fn head(&self) -> Option<u32> {
        self.head
    }

    pub(super) fn text(&self) -> &'static str {
        self.text
    }

    pub(super) fn headers() -> &'static [(&'static str, &'static str)] {
        HEADERS
    }

    /// Everything that the compiler may read.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        [(self.name(), self.text)].into_iter().chain(HEADERS.iter().copied())
    }
}

/// How wide the cache keeps a head: rounded up to 16.
pub fn padded_head(head_dimension: usize) -> u32 {
    head_dimension.next_multiple_of(16) as u32
}

/// All units for models with these head dimensions, each once.
pub fn units(heads: &[u32]) -> Vec<Unit> {
    let plain = SOURCES.iter().map(|(name, text)| Unit { name: (*name).to_owned(), text, head: None });
    let mut heads: Vec<u32> = heads.iter().map(|head| padded_head(*head as usize)).collect();
    heads.sort_unstable();
    heads.dedup();
    let attention = |head| Unit { name: format!("attention_{head}"), text: ATTENTION, head: Some(head) };
    plain.chain(heads.into_iter().map(attention)).collect()
}
