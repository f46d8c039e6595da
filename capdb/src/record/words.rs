//! Closed lists of words that programs decide on. `vocab.yaml` gives each word its meaning; a test keeps both equal.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Defines an enum with one word per variant: serde, schema, `Display`, `FromStr` and `ALL` from one list.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|value| value.word() == text).ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|value| value.word()).collect();
                    format!("`{text}` is not one of {}", known.join(", "))
                })
            }
        }
    };
}
pub(crate) use words;

words! {
    /// How the GPUs that take part are joined; that of the ranks used, not of the whole machine.
    Topology {
        Nvswitch = "nvswitch",
        NvlinkMesh = "nvlink_mesh",
        NvlinkBridge = "nvlink_bridge",
        PcieP2p = "pcie_p2p",
        PcieNoP2p = "pcie_no_p2p",
        MultiNodeNvlink = "multi_node_nvlink",
        MultiNodeIb = "multi_node_ib",
        MultiNodeRoce = "multi_node_roce",
    }
}

words! {
    /// An all-reduce kernel.
    AlgorithmId {
        OneShot = "one_shot",
        TwoShot = "two_shot",
        Multimem = "multimem",
        Nccl = "nccl",
    }
}

words! {
    /// Element type of a message.
    Dtype {
        Bf16 = "bf16",
        F16 = "f16",
        F32 = "f32",
    }
}

words! {
    /// A kernel that does more than the all-reduce.
    FusionId {
        ResidualRmsnorm = "allreduce_residual_rmsnorm",
        ResidualRmsnormFp8 = "allreduce_residual_rmsnorm_fp8",
        ResidualRmsnormNvfp4 = "allreduce_residual_rmsnorm_nvfp4",
    }
}

words! {
    /// What a reason is worth: a gap makes a fallback visible, a rule is how it should be, invalid is refused always.
    ReasonClass {
        Gap = "gap",
        Rule = "rule",
        Invalid = "invalid",
    }
}

impl Topology {
    /// Whether peers can map each other's memory, before any probe.
    pub const fn has_peer_access(self) -> bool {
        matches!(self, Self::Nvswitch | Self::NvlinkMesh | Self::PcieP2p | Self::MultiNodeNvlink)
    }

    pub const fn is_multi_node(self) -> bool {
        matches!(self, Self::MultiNodeNvlink | Self::MultiNodeIb | Self::MultiNodeRoce)
    }
}

impl Dtype {
    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

impl AlgorithmId {
    /// Whether its buffers live in symmetric memory, so that the cap of that block holds for it.
    pub const fn is_symmetric(self) -> bool {
        !matches!(self, Self::Nccl)
    }
}
