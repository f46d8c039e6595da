//! What the child does: bytes from every GPU to every other, copied and through mappings, and one small sum over all.

use std::sync::Arc;
use std::thread;

use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{CudaContext, result};

use crate::collective::NcclRank;
use crate::device::{Allocation, DeviceError, Gpu, Purpose};
use crate::kernels::{Element, Reduce};
use crate::library::{Library, require};
use crate::symmetric::SymmetricMemory;

/// Bytes of a message: more than a packet of any link, little enough for no time.
const BYTES: usize = 64 << 10;
/// Elements of the sum.
const ELEMENTS: usize = 1024;

/// Tries all of it. Errors: what did not arrive, or what the driver or NCCL said.
pub fn exercise(ordinals: &[usize]) -> Result<(), DeviceError> {
    let gpus = ordinals.iter().map(|ordinal| Gpu::open(*ordinal)).collect::<Result<Vec<_>, _>>()?;
    let contexts: Vec<Arc<CudaContext>> = gpus.iter().map(|gpu| Arc::clone(&gpu.context)).collect();
    mapped(&contexts)?;
    copied(&gpus)?;
    if require(Library::Nccl).is_ok() {
        sum(&gpus, &contexts)?;
    }
    Ok(())
}

fn wrong(message: String) -> DeviceError {
    DeviceError::Call { call: "peer probe", message }
}

/// A pattern that says from where to where it goes.
fn pattern(from: usize, to: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ from << 4 ^ to << 1) as u8).collect()
}

/// Every ordered pair of ranks.
fn every_pair(ranks: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..ranks).flat_map(move |from| (0..ranks).filter(move |to| *to != from).map(move |to| (from, to)))
}

/// Through mappings: each window has a place to send from and one to receive in.
fn mapped(contexts: &[Arc<CudaContext>]) -> Result<(), DeviceError> {
    let windows = SymmetricMemory::new(contexts, 2 * BYTES, 1)?;
    for (from, to) in every_pair(contexts.len()) {
        let (source, target) = (windows.address(from), windows.address(to) + BYTES as CUdeviceptr);
        let sent = pattern(from, to);
        bind(&contexts[from])?;
        // SAFETY: the window is mapped and has this many bytes.
        unsafe { result::memcpy_htod_sync(source, &sent) }.map_err(|error| DeviceError::call("cuMemcpyHtoD", error))?;
        // SAFETY: as above; the sender's context has both windows mapped.
        let moved = unsafe { result::memcpy_dtod_sync(target, source, BYTES) };
        moved.map_err(|error| DeviceError::call("cuMemcpyDtoD", error))?;
        arrived((&contexts[from], &contexts[to]), target, &sent, "through a mapping")?;
    }
    Ok(())
}

/// As copies from one device's own memory to the other's.
fn copied(gpus: &[Gpu]) -> Result<(), DeviceError> {
    let places = gpus.iter().map(|gpu| allocate(gpu, 2 * BYTES)).collect::<Result<Vec<_>, _>>()?;
    for (from, to) in every_pair(gpus.len()) {
        let (source, target) = (places[from].pointer(), places[to].pointer() + BYTES as CUdeviceptr);
        let (sender, receiver) = (&gpus[from].context, &gpus[to].context);
        let sent = pattern(from, to);
        bind(sender)?;
        // SAFETY: the allocation has this many bytes.
        unsafe { result::memcpy_htod_sync(source, &sent) }.map_err(|error| DeviceError::call("cuMemcpyHtoD", error))?;
        // SAFETY: both places belong to their contexts and have this many bytes.
        let moved = unsafe { sys::cuMemcpyPeer(target, receiver.cu_ctx(), source, sender.cu_ctx(), BYTES) };
        moved.result().map_err(|error| DeviceError::call("cuMemcpyPeer", error))?;
        arrived((sender, receiver), target, &sent, "as a copy")?;
    }
    Ok(())
}

fn allocate(gpu: &Gpu, bytes: usize) -> Result<Allocation, DeviceError> {
    let allocated = Allocation::zeroed(&gpu.stream, &gpu.account, bytes, Purpose::Workspace, "peer probe");
    let allocation = allocated.map_err(|error| wrong(error.to_string()))?;
    gpu.stream.synchronize().map_err(|error| DeviceError::call("cuStreamSynchronize", error))?;
    Ok(allocation)
}

fn bind(context: &CudaContext) -> Result<(), DeviceError> {
    context.bind_to_thread().map_err(|error| DeviceError::call("cuCtxSetCurrent", error))
}

fn arrived(
    (sender, receiver): (&CudaContext, &CudaContext),
    at: CUdeviceptr,
    sent: &[u8],
    how: &str,
) -> Result<(), DeviceError> {
    sender.synchronize().map_err(|error| DeviceError::call("cuCtxSynchronize", error))?;
    bind(receiver)?;
    let mut found = vec![0_u8; sent.len()];
    // SAFETY: the receiver's window has this many bytes.
    unsafe { result::memcpy_dtoh_sync(&mut found, at) }.map_err(|error| DeviceError::call("cuMemcpyDtoH", error))?;
    let lost = found.iter().zip(sent).filter(|(found, sent)| found != sent).count();
    if lost == 0 {
        return Ok(());
    }
    let (from, to) = (sender.ordinal(), receiver.ordinal());
    Err(wrong(format!("{lost} of {BYTES} bytes did not arrive {how} from GPU {from} on GPU {to}")))
}

/// A sum of ones over all GPUs by NCCL, a thread per rank.
fn sum(gpus: &[Gpu], contexts: &[Arc<CudaContext>]) -> Result<(), DeviceError> {
    let ranks = NcclRank::all(contexts).map_err(wrong)?;
    thread::scope(|scope| {
        let threads: Vec<_> = gpus
            .iter()
            .zip(ranks)
            .map(|(gpu, nccl)| scope.spawn(move || one_rank(gpu, &nccl, contexts.len())))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(wrong("a rank's thread ended".to_owned()))))
    })
}

fn one_rank(gpu: &Gpu, nccl: &NcclRank, ranks: usize) -> Result<(), DeviceError> {
    bind(&gpu.context)?;
    let data = allocate(gpu, ELEMENTS * 4)?;
    let ones = vec![1.0_f32; ELEMENTS];
    // SAFETY: the allocation has this many bytes.
    unsafe { result::memcpy_htod_sync(data.pointer(), &ones) }
        .map_err(|error| DeviceError::call("cuMemcpyHtoD", error))?;
    let message =
        Reduce { element: Element::F32, input: data.pointer(), output: data.pointer(), bytes: ELEMENTS as u64 * 4 };
    // SAFETY: the allocation is of this GPU and lives until the stream has run.
    unsafe { nccl.all_reduce(&message, &gpu.stream) }.map_err(wrong)?;
    gpu.stream.synchronize().map_err(|error| DeviceError::call("cuStreamSynchronize", error))?;
    let mut found = vec![0.0_f32; ELEMENTS];
    // SAFETY: as above, and nothing runs on the stream.
    unsafe { result::memcpy_dtoh_sync(&mut found, data.pointer()) }
        .map_err(|error| DeviceError::call("cuMemcpyDtoH", error))?;
    match found.iter().position(|value| *value != ranks as f32) {
        None => Ok(()),
        Some(at) => Err(wrong(format!("NCCL sums {ranks} ones to {} on GPU {}", found[at], gpu.context.ordinal()))),
    }
}
