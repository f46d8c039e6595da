//! Which instruction set the kernels use: found once, then carried as a value.

use super::simd::{Simd, scalar::Scalar};

#[cfg(target_arch = "x86_64")]
use super::simd::{avx2::Avx2, avx512::Avx512};

/// An instruction set that the processor has been seen to have: values come from [`Isa::best`] and
/// [`Isa::available`] alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// A kernel, written once for every instruction set. `run` must be `inline(always)`.
pub(crate) trait Work {
    type Output;
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

impl Isa {
    /// The fastest one of this processor.
    pub fn best() -> Self {
        Self::available()[0]
    }

    /// All that this processor has, fastest first; the last one, without vector instructions, always.
    pub fn available() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            if avx2 && avx512 {
                found.push(Self(Level::Avx512));
            }
            if avx2 {
                found.push(Self(Level::Avx2));
            }
        }
        found.push(Self(Level::Scalar));
        found
    }

    /// For plans and reports: `avx512-vnni`, `avx2` or `scalar`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512-vnni",
        }
    }

    /// Runs a kernel with this instruction set.
    #[inline]
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        match self.0 {
            Level::Scalar => work.run(Scalar),
            // SAFETY: a value with this level exists only where `available` has seen the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { run_avx2(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { run_avx512(work) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<W: Work>(work: W) -> W::Output {
    // SAFETY: the caller made sure of the features that this function is compiled for.
    work.run(unsafe { Avx2::new() })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn run_avx512<W: Work>(work: W) -> W::Output {
    // SAFETY: the caller made sure of the features that this function is compiled for.
    work.run(unsafe { Avx512::new() })
}
