//! Symmetric memory: a window of the same size on every GPU of a group, all of them mapped into all of them, one after
//! the other in one range of addresses.

mod multicast;

use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{CudaContext, result};

use crate::device::DeviceError;
pub use multicast::{Multicast, multicast_refusal};

/// Windows of a group. Unmapped when dropped; kernels that use them must have ended by then.
pub struct SymmetricMemory {
    base: CUdeviceptr,
    /// Bytes from one window to the next.
    window: usize,
    handles: Vec<sys::CUmemGenericAllocationHandle>,
    /// How many of them are mapped.
    mapped: usize,
    contexts: Vec<Arc<CudaContext>>,
}

impl SymmetricMemory {
    /// At least `bytes` bytes, a multiple of `granularity`, on each GPU, of unknown content. Errors: a pair of GPUs without
    /// peer access, a driver without virtual memory, or not enough memory.
    pub fn new(contexts: &[Arc<CudaContext>], bytes: usize, mut granularity: usize) -> Result<Self, DeviceError> {
        require_peers(contexts)?;
        for context in contexts {
            granularity = granularity.max(granularity_of(context)?);
        }
        let window = bytes.next_multiple_of(granularity);
        let total = window * contexts.len();
        let mut base = 0;
        // SAFETY: the address is written before it is read.
        let reserved = unsafe { sys::cuMemAddressReserve(&raw mut base, total, granularity, 0, 0) };
        check("cuMemAddressReserve", reserved)?;
        let mut memory = Self { base, window, handles: Vec::new(), mapped: 0, contexts: contexts.to_vec() };
        for rank in 0..contexts.len() {
            memory.map(rank)?;
        }
        let access: Vec<sys::CUmemAccessDesc> = contexts.iter().map(|context| access(context)).collect();
        // SAFETY: the whole range is mapped; the descriptions live through the call.
        check("cuMemSetAccess", unsafe { sys::cuMemSetAccess(base, total, access.as_ptr(), access.len()) })?;
        Ok(memory)
    }

    fn map(&mut self, rank: usize) -> Result<(), DeviceError> {
        let properties = properties(&self.contexts[rank]);
        let mut handle = 0;
        // SAFETY: the handle is written before it is read; the properties live through the call.
        let created = unsafe { sys::cuMemCreate(&raw mut handle, self.window, &raw const properties, 0) };
        check("cuMemCreate", created)?;
        self.handles.push(handle);
        // SAFETY: the range is reserved and this part of it is not mapped yet.
        check("cuMemMap", unsafe { sys::cuMemMap(self.address(rank), self.window, 0, handle, 0) })?;
        self.mapped += 1;
        Ok(())
    }

    /// Where rank `rank`'s window is, on every GPU of the group.
    pub fn address(&self, rank: usize) -> CUdeviceptr {
        self.base + (rank * self.window) as CUdeviceptr
    }

    /// Bytes from one window to the next.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Sets bytes of rank `rank`'s window and waits.
    pub fn set(&self, rank: usize, from: usize, value: u8, bytes: usize) -> Result<(), DeviceError> {
        assert!(from + bytes <= self.window, "{from} + {bytes} bytes are in a window of {}", self.window);
        let context = &self.contexts[rank];
        let failed = |error| DeviceError::call("cuMemsetD8", error);
        context.bind_to_thread().map_err(failed)?;
        // SAFETY: inside the window, which is mapped and may be written by its own GPU.
        unsafe { result::memset_d8_sync(self.address(rank) + from as CUdeviceptr, value, bytes) }.map_err(failed)?;
        context.synchronize().map_err(failed)
    }
}

impl Drop for SymmetricMemory {
    fn drop(&mut self) {
        for context in &self.contexts {
            // Work that still uses the memory ends first; after a fault of a device there is nothing to wait for.
            let _ = context.bind_to_thread().and_then(|()| context.synchronize());
        }
        let total = self.window * self.contexts.len();
        for rank in 0..self.mapped {
            // SAFETY: mapped by `map` and unmapped once.
            let _ = unsafe { sys::cuMemUnmap(self.address(rank), self.window) };
        }
        for handle in &self.handles {
            // SAFETY: created by `map` and released once.
            let _ = unsafe { sys::cuMemRelease(*handle) };
        }
        // SAFETY: reserved by `new`; nothing of it is mapped any more.
        let _ = unsafe { sys::cuMemAddressFree(self.base, total) };
    }
}

fn require_peers(contexts: &[Arc<CudaContext>]) -> Result<(), DeviceError> {
    let failed = |error| DeviceError::call("cuDeviceCanAccessPeer", error);
    for one in contexts {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        if one.attribute(attribute).map_err(failed)? == 0 {
            return Err(refused(format!("GPU {} has no virtual memory management", one.ordinal())));
        }
        for other in contexts.iter().filter(|other| other.ordinal() != one.ordinal()) {
            let mut can = 0;
            // SAFETY: both devices are open; the answer is written before it is read.
            let asked = unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, one.cu_device(), other.cu_device()) };
            check("cuDeviceCanAccessPeer", asked)?;
            if can == 0 {
                let (from, to) = (one.ordinal(), other.ordinal());
                return Err(refused(format!("GPU {from} cannot read the memory of GPU {to}; use --allreduce nccl")));
            }
        }
    }
    Ok(())
}

fn refused(message: String) -> DeviceError {
    DeviceError::Call { call: "symmetric memory", message }
}

fn check(call: &'static str, code: sys::CUresult) -> Result<(), DeviceError> {
    code.result().map_err(|error| DeviceError::call(call, error))
}

fn location(context: &CudaContext) -> sys::CUmemLocation {
    // SAFETY: plain data, for which zeros are a value.
    let mut location: sys::CUmemLocation = unsafe { std::mem::zeroed() };
    location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = context.cu_device();
    location
}

fn properties(context: &CudaContext) -> sys::CUmemAllocationProp {
    // SAFETY: plain data, for which zeros are a value: no handle type, no compression.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location(context);
    properties
}

fn access(context: &CudaContext) -> sys::CUmemAccessDesc {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    sys::CUmemAccessDesc { location: location(context), flags }
}

fn granularity_of(context: &CudaContext) -> Result<usize, DeviceError> {
    let (properties, mut granularity) = (properties(context), 0);
    let wish = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    // SAFETY: the number is written before it is read; the properties live through the call.
    let asked = unsafe { sys::cuMemGetAllocationGranularity(&raw mut granularity, &raw const properties, wish) };
    check("cuMemGetAllocationGranularity", asked)?;
    Ok(granularity)
}
