//! Why a decision is what it is. The list is closed; `vocab.yaml` gives every word its meaning.

use std::fmt;

use crate::record::ReasonClass;

/// Defines `Reason` with word and class from one list.
macro_rules! reasons {
    ($($variant:ident = $word:literal, $class:ident;)+) => {
        /// One reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason { $($variant,)+ }

        impl Reason {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            pub const fn class(self) -> ReasonClass {
                match self { $(Self::$variant => ReasonClass::$class,)+ }
            }
        }
    };
}

reasons! {
    ArchEntryMissing = "arch_entry_missing", Gap;
    NoMulticast = "no_multicast", Gap;
    MulticastDenied = "multicast_denied", Gap;
    NoPeerPath = "no_peer_path", Gap;
    P2pProbeFailed = "p2p_probe_failed", Gap;
    FactUnknown = "fact_unknown", Gap;
    ToolkitTooOld = "toolkit_too_old", Gap;
    DriverTooOld = "driver_too_old", Gap;
    KnownBadStack = "known_bad_stack", Gap;
    TopologyNotListed = "topology_not_listed", Gap;
    DisabledByEnvironment = "disabled_by_environment", Gap;
    SelfTestFailed = "self_test_failed", Gap;
    WorldSizeNotListed = "world_size_not_listed", Rule;
    MessageOverLimit = "message_over_limit", Rule;
    ValueInherited = "value_inherited", Rule;
    ValueGuessed = "value_guessed", Rule;
    DtypeUnsupported = "dtype_unsupported", Rule;
    FusionArchUnsupported = "fusion_arch_unsupported", Rule;
    FusionNotListed = "fusion_not_listed", Rule;
    DisabledByUser = "disabled_by_user", Rule;
    WorkspaceTooSmall = "workspace_too_small", Rule;
    PipelineParallel = "pipeline_parallel", Rule;
    MultiNode = "multi_node", Rule;
    NoBenefit = "no_benefit", Rule;
    HeadsNotDivisible = "heads_not_divisible", Invalid;
    TooFewGpus = "too_few_gpus", Invalid;
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.word())
    }
}

/// A set of reasons, kept in a word so that deciding allocates nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reasons(u32);

impl Reasons {
    pub const NONE: Self = Self(0);

    pub const fn of(reason: Reason) -> Self {
        Self(1 << reason as u8)
    }

    pub const fn with(self, reason: Reason) -> Self {
        self.union(Self::of(reason))
    }

    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Adds a reason if it holds.
    pub(super) const fn when(self, holds: bool, reason: Reason) -> Self {
        if holds { self.with(reason) } else { self }
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn contains(self, reason: Reason) -> bool {
        self.0 & Self::of(reason).0 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Reason> {
        Reason::ALL.iter().copied().filter(move |reason| self.contains(*reason))
    }

    /// Not empty, and every reason is a gap: what makes a fallback visible.
    pub fn all_gaps(self) -> bool {
        !self.is_empty() && self.iter().all(|reason| reason.class() == ReasonClass::Gap)
    }

    pub fn any_invalid(self) -> bool {
        self.iter().any(|reason| reason.class() == ReasonClass::Invalid)
    }
}
