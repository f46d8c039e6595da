use std::sync::Arc;

use engine::collective::space::PACKET;

use super::group::GpuGroup;
use super::nccl::NcclRank;
use crate::kernels::{
    AllReduceKernels, Element, GatherColumns, KernelError, Launcher, NormOutput, Reduce, ReduceNorm, Shots, all_gather,
    multimem, norm_space, reduce, reduce_norm, reduce_space,
};

/// One rank's place in a group: what it launches on its own stream.
pub struct GpuMember {
    pub group: Arc<GpuGroup>,
    pub rank: usize,
    pub launcher: Launcher,
    pub kernels: AllReduceKernels,
    pub nccl: Option<Arc<NcclRank>>,
}

/// How a sum is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Nccl,
    OneShot,
    TwoShot,
    /// Over multicast memory.
    Multimem,
    /// The same kernel without multicast memory: shows that it is right, and is chosen by no plan.
    MultimemSimulated,
}

impl Algorithm {
    /// Those that every group of peers has.
    pub const ALL: [Self; 3] = [Self::Nccl, Self::OneShot, Self::TwoShot];

    /// The database's word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nccl => "nccl",
            Self::OneShot => "one_shot",
            Self::TwoShot => "two_shot",
            Self::Multimem => "multimem",
            Self::MultimemSimulated => "multimem_simulated",
        }
    }

    /// What a plan names.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::Multimem]).find(|algorithm| algorithm.name() == name)
    }

    /// None for NCCL, whose kernels are its own, and for sums by multicast memory.
    pub const fn shots(self) -> Option<Shots> {
        match self {
            Self::Nccl | Self::Multimem | Self::MultimemSimulated => None,
            Self::OneShot => Some(Shots::One),
            Self::TwoShot => Some(Shots::Two),
        }
    }
}

impl GpuMember {
    /// Whether one call takes a sum of `bytes` bytes: one-shot must fit the window, two-shot goes in pieces, as do sums by
    /// multicast memory in a group that has buffers for them; NCCL brings its own memory.
    pub fn fits(&self, algorithm: Algorithm, bytes: u64) -> bool {
        let ranks = self.group.ranks() as u64;
        match algorithm {
            Algorithm::Nccl | Algorithm::TwoShot => true,
            Algorithm::OneShot => reduce_space(Shots::One, ranks, bytes) <= self.group.half(),
            Algorithm::Multimem => self.group.buffer().is_some_and(|buffer| buffer.multicast.is_some()),
            Algorithm::MultimemSimulated => self.group.buffer().is_some(),
        }
    }

    pub fn norm_fits(&self, shots: Shots, element: Element, rows: u32, width: u32) -> bool {
        norm_space(shots, self.group.ranks() as u64, element, rows.into(), width.into()) <= self.group.half()
    }

    /// Puts the sum of a message over all ranks into the stream. `call` goes into reports; `blocks` overrides the
    /// launch's shape and may differ between ranks. Errors: a message that does not fit, a launch that failed.
    ///
    /// # Safety
    /// Input and output are memory of this rank's context of the message's size, until the stream has run it. All
    /// ranks make the same calls in the same order.
    pub unsafe fn all_reduce(
        &self,
        algorithm: Algorithm,
        message: &Reduce,
        call: u32,
        blocks: Option<[u32; 2]>,
    ) -> Result<(), KernelError> {
        if matches!(algorithm, Algorithm::Multimem | Algorithm::MultimemSimulated) {
            // SAFETY: this function's contract.
            return unsafe { self.multimem(algorithm == Algorithm::MultimemSimulated, message, call, blocks) };
        }
        let Some(shots) = algorithm.shots() else {
            let why = "NCCL was not loaded";
            let missing = || KernelError::Shape { kernel: "ncclAllReduce", what: "a sum".to_owned(), why };
            let nccl = self.nccl.as_ref().ok_or_else(missing)?;
            // SAFETY: this function's contract.
            let result = unsafe { nccl.all_reduce(message, self.launcher.stream()) };
            return result.map_err(|error| KernelError::Launch { kernel: "ncclAllReduce", error });
        };
        let view = self.group.view(self.rank, call);
        let piece = if shots == Shots::Two { self.two_shot_piece() } else { message.bytes };
        let mut done = 0;
        while done < message.bytes {
            let bytes = piece.min(message.bytes - done);
            let part = Reduce { input: message.input + done, output: message.output + done, bytes, ..*message };
            // SAFETY: a part of the message.
            unsafe { reduce(&self.launcher, &self.kernels, shots, &view, &part, blocks)? };
            done += bytes;
        }
        Ok(())
    }

    /// Puts a sum by multicast memory into the stream, in pieces of the group's buffers.
    ///
    /// # Safety
    /// As for [`GpuMember::all_reduce`].
    unsafe fn multimem(
        &self,
        simulated: bool,
        message: &Reduce,
        call: u32,
        blocks: Option<[u32; 2]>,
    ) -> Result<(), KernelError> {
        let missing = |why| KernelError::Shape { kernel: "multimem", what: "a sum".to_owned(), why };
        let buffer = self.group.buffer().ok_or_else(|| missing("the group was made without buffers for it"))?;
        if !simulated && buffer.multicast.is_none() {
            return Err(missing("the group's buffers are not bound to multicast memory"));
        }
        let (view, mut done) = (self.group.view(self.rank, call), 0);
        while done < message.bytes {
            let bytes = buffer.bytes.min(message.bytes - done);
            let part = Reduce { input: message.input + done, output: message.output + done, bytes, ..*message };
            // SAFETY: a part of the message, which fits the buffer.
            unsafe { multimem(&self.launcher, &self.kernels, simulated, (&view, &buffer), &part, blocks)? };
            done += bytes;
        }
        Ok(())
    }

    /// Largest message that two-shot takes at once: half of half a window, less what rounding up may add.
    fn two_shot_piece(&self) -> u64 {
        // At least a packet: in a group without windows the launch says that nothing fits.
        ((self.group.half() / 2).saturating_sub(self.group.ranks() as u64 * PACKET) / 256 * 256).max(PACKET)
    }

    /// Puts a gather, or a copy from one rank to all, into the stream.
    ///
    /// # Safety
    /// As for [`GpuMember::all_reduce`].
    pub unsafe fn gather(&self, message: &GatherColumns, call: u32) -> Result<(), KernelError> {
        // SAFETY: this function's contract.
        unsafe { all_gather(&self.launcher, &self.kernels, &self.group.view(self.rank, call), message) }
    }

    /// Puts sum, residual and norm into the stream.
    ///
    /// # Safety
    /// As for [`GpuMember::all_reduce`].
    pub unsafe fn all_reduce_norm(&self, shots: Shots, norm: &ReduceNorm, call: u32) -> Result<(), KernelError> {
        // SAFETY: this function's contract.
        unsafe { reduce_norm(&self.launcher, &self.kernels, shots, &self.group.view(self.rank, call), norm) }
    }
}

/// The database's word for a fused sum with this output.
pub const fn fusion_name(output: NormOutput) -> &'static str {
    match output {
        NormOutput::Element => "allreduce_residual_rmsnorm",
        NormOutput::Fp8Tensor | NormOutput::Fp8Token => "allreduce_residual_rmsnorm_fp8",
        NormOutput::Nvfp4 => "allreduce_residual_rmsnorm_nvfp4",
    }
}
