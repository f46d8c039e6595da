//! Windows bound to one multicast address: what is written there goes to every window, what is read there is a sum.
//!
//! A multicast object is created nowhere else, and only where every device offers it and nothing in the environment forbids it.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED;
use cudarc::driver::sys::{self, CUdeviceptr};
use engine::plan::GpuFacts;

use super::{SymmetricMemory, access, check, refused};
use crate::device::DeviceError;

/// Why these GPUs have no multicast memory; none where it may be tried.
pub fn multicast_refusal(contexts: &[Arc<CudaContext>]) -> Option<String> {
    if let Some(switch) = GpuFacts::default().read_environment().forbidding_switch() {
        return Some(format!("{switch} in the environment forbids multicast memory; use --allreduce auto"));
    }
    let has = |context: &&Arc<CudaContext>| context.attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) == Ok(1);
    let without = contexts.iter().find(|context| !has(context))?;
    Some(format!("GPU {} offers no multicast memory; use --allreduce auto", without.ordinal()))
}

/// Every window of a group at one address. To be dropped before the windows.
pub struct Multicast {
    base: CUdeviceptr,
    handle: sys::CUmemGenericAllocationHandle,
    size: usize,
    contexts: Vec<Arc<CudaContext>>,
    /// How many windows are bound.
    bound: usize,
    mapped: bool,
}

impl Multicast {
    /// What a window's size must be a multiple of to be bound. Errors: [`multicast_refusal`].
    pub fn granularity(contexts: &[Arc<CudaContext>]) -> Result<usize, DeviceError> {
        multicast_refusal(contexts).map_or(Ok(()), |why| Err(refused(why)))?;
        let (properties, mut granularity) = (properties(contexts.len(), 0), 0);
        let wish = sys::CUmulticastGranularity_flags::CU_MULTICAST_GRANULARITY_MINIMUM;
        // SAFETY: the number is written before it is read; the properties live through the call.
        let asked = unsafe { sys::cuMulticastGetGranularity(&raw mut granularity, &raw const properties, wish) };
        check("cuMulticastGetGranularity", asked)?;
        Ok(granularity)
    }

    /// Binds all windows of `memory`, made with [`Multicast::granularity`]. Errors: [`multicast_refusal`], or a driver or
    /// fabric that does not do it.
    pub fn bind(memory: &SymmetricMemory) -> Result<Self, DeviceError> {
        let contexts = memory.contexts.clone();
        multicast_refusal(&contexts).map_or(Ok(()), |why| Err(refused(why)))?;
        let (properties, mut handle) = (properties(contexts.len(), memory.window), 0);
        // SAFETY: the handle is written before it is read; the properties live through the call.
        check("cuMulticastCreate", unsafe { sys::cuMulticastCreate(&raw mut handle, &raw const properties) })?;
        let mut own = Self { base: 0, handle, size: memory.window, contexts, bound: 0, mapped: false };
        for context in &own.contexts {
            // SAFETY: the object was just made for as many devices.
            check("cuMulticastAddDevice", unsafe { sys::cuMulticastAddDevice(handle, context.cu_device()) })?;
        }
        for window in &memory.handles {
            // SAFETY: every device was added; the window is as large as the object and stays until it is unbound.
            check("cuMulticastBindMem", unsafe { sys::cuMulticastBindMem(handle, 0, *window, 0, own.size, 0) })?;
            own.bound += 1;
        }
        own.map()?;
        Ok(own)
    }

    fn map(&mut self) -> Result<(), DeviceError> {
        // SAFETY: the address is written before it is read.
        let reserved = unsafe { sys::cuMemAddressReserve(&raw mut self.base, self.size, 0, 0, 0) };
        check("cuMemAddressReserve", reserved)?;
        // SAFETY: the range is reserved and not mapped yet.
        check("cuMemMap", unsafe { sys::cuMemMap(self.base, self.size, 0, self.handle, 0) })?;
        self.mapped = true;
        let access: Vec<sys::CUmemAccessDesc> = self.contexts.iter().map(|context| access(context)).collect();
        // SAFETY: the range is mapped; the descriptions live through the call.
        check("cuMemSetAccess", unsafe { sys::cuMemSetAccess(self.base, self.size, access.as_ptr(), access.len()) })
    }

    /// The begin of all windows, on every GPU of the group.
    pub fn address(&self) -> CUdeviceptr {
        self.base
    }
}

impl Drop for Multicast {
    fn drop(&mut self) {
        for context in &self.contexts {
            // Work that still uses the memory ends first; after a fault of a device there is nothing to wait for.
            let _ = context.bind_to_thread().and_then(|()| context.synchronize());
        }
        if self.mapped {
            // SAFETY: mapped by `map` and unmapped once.
            let _ = unsafe { sys::cuMemUnmap(self.base, self.size) };
        }
        if self.base != 0 {
            // SAFETY: reserved by `map`; nothing of it is mapped any more.
            let _ = unsafe { sys::cuMemAddressFree(self.base, self.size) };
        }
        for context in &self.contexts[..self.bound] {
            // SAFETY: bound by `bind` and unbound once.
            let _ = unsafe { sys::cuMulticastUnbind(self.handle, context.cu_device(), 0, self.size) };
        }
        // SAFETY: created by `bind` and released once.
        let _ = unsafe { sys::cuMemRelease(self.handle) };
    }
}

fn properties(devices: usize, size: usize) -> sys::CUmulticastObjectProp {
    sys::CUmulticastObjectProp { numDevices: devices as u32, size, handleTypes: 0, flags: 0 }
}
