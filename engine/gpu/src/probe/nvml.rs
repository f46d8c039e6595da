//! The driver's management library: which links a GPU has and where they lead.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use libloading::Library as Handle;

use super::pairs::Link;
use crate::library::{Library, require};

type Device = *mut c_void;
type Code = c_int;

/// Most links that a GPU has had so far is 18; the library refuses numbers that it does not know.
const MOST_LINKS: c_uint = 36;
/// `NVML_NVLINK_DEVICE_TYPE_SWITCH`.
const SWITCH: c_int = 2;
/// `NVML_P2P_CAPS_INDEX_NVLINK`, and `NVML_P2P_STATUS_OK`.
const OVER_NVLINK: c_int = 2;
const STATUS_OK: c_int = 0;

/// Where a device is on the PCIe bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciPlace {
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

/// The library, opened and started.
pub struct Nvml {
    functions: Functions,
    _handle: Handle,
}

struct Functions {
    shutdown: unsafe extern "C" fn() -> Code,
    by_place: unsafe extern "C" fn(*const c_char, *mut Device) -> Code,
    link_state: unsafe extern "C" fn(Device, c_uint, *mut c_int) -> Code,
    remote_type: unsafe extern "C" fn(Device, c_uint, *mut c_int) -> Code,
    remote_place: unsafe extern "C" fn(Device, c_uint, *mut PciInfo) -> Code,
    peer_status: unsafe extern "C" fn(Device, Device, c_int, *mut c_int) -> Code,
    ancestor: unsafe extern "C" fn(Device, Device, *mut c_int) -> Code,
}

/// What the active links of a device lead to.
#[derive(Debug, Default)]
struct Links {
    switches: u32,
    peers: Vec<PciPlace>,
}

impl Nvml {
    /// Errors: no such library, one without these functions, or one that does not start.
    pub fn open() -> Result<Self, String> {
        let driver = require(Library::Driver).map_err(ToString::to_string)?;
        let beside = driver.path.parent().map(|folder| folder.join("libnvidia-ml.so.1")).unwrap_or_default();
        // SAFETY: NVIDIA's library has initialisers without side effects on this program.
        let handle = unsafe { Handle::new("libnvidia-ml.so.1").or_else(|_| Handle::new(&beside)) };
        let handle = handle.map_err(|error| error.to_string())?;
        let missing = |error: libloading::Error| error.to_string();
        // SAFETY: these are the functions' signatures since release 510.
        let (start, functions) = unsafe {
            let start: unsafe extern "C" fn() -> Code = *handle.get(b"nvmlInit_v2\0").map_err(missing)?;
            let functions = Functions {
                shutdown: *handle.get(b"nvmlShutdown\0").map_err(missing)?,
                by_place: *handle.get(b"nvmlDeviceGetHandleByPciBusId_v2\0").map_err(missing)?,
                link_state: *handle.get(b"nvmlDeviceGetNvLinkState\0").map_err(missing)?,
                remote_type: *handle.get(b"nvmlDeviceGetNvLinkRemoteDeviceType\0").map_err(missing)?,
                remote_place: *handle.get(b"nvmlDeviceGetNvLinkRemotePciInfo_v2\0").map_err(missing)?,
                peer_status: *handle.get(b"nvmlDeviceGetP2PStatus\0").map_err(missing)?,
                ancestor: *handle.get(b"nvmlDeviceGetTopologyCommonAncestor\0").map_err(missing)?,
            };
            (start, functions)
        };
        // SAFETY: takes nothing; ended by `drop`.
        match unsafe { start() } {
            0 => Ok(Self { functions, _handle: handle }),
            code => Err(format!("nvmlInit answers with error {code}")),
        }
    }

    /// What joins two devices; none where the library does not know one of them.
    pub fn link(&self, one: PciPlace, other: PciPlace) -> Option<Link> {
        let (from, to) = (self.device(one)?, self.device(other)?);
        let (own, theirs) = (self.links(from), self.links(to));
        let direct = own.peers.iter().filter(|place| **place == other).count() as u32;
        if own.switches > 0 && theirs.switches > 0 {
            return Some(Link::Switch { links: own.switches });
        }
        if direct > 0 || self.over_nvlink(from, to) {
            return Some(Link::Nvlink { links: direct });
        }
        Some(Link::Pcie { common: self.common(from, to) })
    }

    fn device(&self, place: PciPlace) -> Option<Device> {
        let PciPlace { domain, bus, device } = place;
        let id = CString::new(format!("{domain:08X}:{bus:02X}:{device:02X}.0")).ok()?;
        let mut found = std::ptr::null_mut();
        // SAFETY: a string that lives through the call, and a place for the answer.
        let code = unsafe { (self.functions.by_place)(id.as_ptr(), &raw mut found) };
        (code == 0).then_some(found)
    }

    fn links(&self, device: Device) -> Links {
        let mut links = Links::default();
        for link in 0..MOST_LINKS {
            let (mut active, mut kind) = (0, 0);
            // SAFETY: a handle of this library and a place for the answer.
            if unsafe { (self.functions.link_state)(device, link, &raw mut active) } != 0 || active == 0 {
                continue;
            }
            // SAFETY: as above.
            let told = unsafe { (self.functions.remote_type)(device, link, &raw mut kind) } == 0;
            if told && kind == SWITCH {
                links.switches += 1;
                continue;
            }
            // SAFETY: plain numbers, for which zeros are a value.
            let mut info: PciInfo = unsafe { std::mem::zeroed() };
            // SAFETY: a handle of this library and a place for the answer.
            if unsafe { (self.functions.remote_place)(device, link, &raw mut info) } == 0 {
                links.peers.push(PciPlace { domain: info.domain, bus: info.bus, device: info.device });
            }
        }
        links
    }

    fn over_nvlink(&self, from: Device, to: Device) -> bool {
        let mut status = -1;
        // SAFETY: handles of this library and a place for the answer.
        let code = unsafe { (self.functions.peer_status)(from, to, OVER_NVLINK, &raw mut status) };
        code == 0 && status == STATUS_OK
    }

    /// `nvmlGpuTopologyLevel_t` in words.
    fn common(&self, from: Device, to: Device) -> Option<&'static str> {
        let mut level = -1;
        // SAFETY: handles of this library and a place for the answer.
        if unsafe { (self.functions.ancestor)(from, to, &raw mut level) } != 0 {
            return None;
        }
        match level {
            0 => Some("on one board"),
            10 => Some("below one switch"),
            20 => Some("below several switches"),
            30 => Some("below one host bridge"),
            40 => Some("in one NUMA node"),
            50 => Some("across NUMA nodes"),
            _ => None,
        }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: started by `open`, ended once.
        let _ = unsafe { (self.functions.shutdown)() };
    }
}
