//! Settings that take one word of a closed list.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $( $(#[$word_meta:meta])* $word:ident ),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        #[value(rename_all = "snake_case")]
        pub enum $name { $( $(#[$word_meta])* $word, )* }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let word = self.to_possible_value().unwrap_or_default();
                formatter.write_str(word.get_name())
            }
        }
    };
}

words! {
    /// Device that computes.
    Device {
        /// A GPU if there is one that the engine can use, otherwise the CPU.
        Auto,
        Cpu,
        Cuda,
    }
}

words! {
    /// Number type of weights that are kept as floats, and of activations.
    NumberType {
        /// What the checkpoint names.
        Auto,
        #[value(alias = "float")]
        #[serde(alias = "float")]
        Float32,
        #[value(alias = "half")]
        #[serde(alias = "half")]
        Float16,
        Bfloat16,
    }
}

words! {
    /// How the CPU backend multiplies weights in block formats.
    CpuPrecision {
        /// Activations rounded to eight bits per 32 values, as llama.cpp does.
        Fast,
        /// Activations in f32.
        Exact,
    }
}

words! {
    /// Which weight files to read.
    LoadFormat {
        Auto,
        Safetensors,
        Gguf,
        /// Random weights from the configuration alone.
        Dummy,
    }
}

words! {
    /// Which waiting request goes first.
    SchedulingPolicy {
        /// The oldest.
        Fcfs,
        /// The one with the lowest `priority`, then the oldest.
        Priority,
    }
}

words! {
    /// Algorithm of the all-reduce.
    AllReduce { Auto, Nccl, OneShot, TwoShot, Multimem, SymmetricMemory }
}

words! {
    /// Whether an all-reduce is fused with what follows it.
    Fusion { Auto, Fused, Unfused }
}

words! {
    /// How tokens are drafted ahead of the model.
    Speculative {
        /// One token a step.
        None,
        /// An EAGLE-3 head, given as the draft model.
        #[value(alias = "EAGLE3", alias = "Eagle3")]
        #[serde(alias = "EAGLE3", alias = "Eagle3")]
        Eagle3,
    }
}

words! {
    /// How much is said on standard error.
    LogLevel { Error, Warn, Info, Debug, Trace }
}
