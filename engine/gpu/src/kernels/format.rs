use engine::weights::WeightType;

/// A weight format that kernels read as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Bf16,
    F16,
    F32,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q4K,
    Q5K,
    Q6K,
}

impl Format {
    pub const ALL: [Self; 11] = [
        Self::Bf16,
        Self::F16,
        Self::F32,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// Those in blocks, which products read as they are stored; the others become bf16 when they are loaded.
    pub const STORED: [Self; 8] =
        [Self::Q8_0, Self::Q4_0, Self::Q4_1, Self::Q5_0, Self::Q5_1, Self::Q4K, Self::Q5K, Self::Q6K];

    /// As the kernels' sources name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "Bf16",
            Self::F16 => "F16",
            Self::F32 => "F32",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q4K => "Q4K",
            Self::Q5K => "Q5K",
            Self::Q6K => "Q6K",
        }
    }

    /// None for integers and truth values, which are not weights.
    pub fn of(kind: WeightType) -> Option<Self> {
        Some(match kind {
            WeightType::Bf16 => Self::Bf16,
            WeightType::F16 => Self::F16,
            WeightType::F32 => Self::F32,
            WeightType::Q8_0 => Self::Q8_0,
            WeightType::Q4_0 => Self::Q4_0,
            WeightType::Q4_1 => Self::Q4_1,
            WeightType::Q5_0 => Self::Q5_0,
            WeightType::Q5_1 => Self::Q5_1,
            WeightType::Q4K => Self::Q4K,
            WeightType::Q5K => Self::Q5K,
            WeightType::Q6K => Self::Q6K,
            WeightType::I32 | WeightType::I64 | WeightType::Bool => return None,
        })
    }

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// Names of a kernel of every format, in the order of [`Format::ALL`].
macro_rules! names {
    ($prefix:literal) => {
        [
            concat!($prefix, "bf16"),
            concat!($prefix, "f16"),
            concat!($prefix, "f32"),
            concat!($prefix, "q8_0"),
            concat!($prefix, "q4_0"),
            concat!($prefix, "q4_1"),
            concat!($prefix, "q5_0"),
            concat!($prefix, "q5_1"),
            concat!($prefix, "q4_k"),
            concat!($prefix, "q5_k"),
            concat!($prefix, "q6_k"),
        ]
    };
}
pub(super) use names;
