//! How every two GPUs are joined.

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUdevice, CUdevice_P2PAttribute as PeerAttribute, CUdevice_attribute as Attribute};
use engine::plan::Topology;
use serde::Serialize;

use super::nvml::{Nvml, PciPlace};
use crate::device::DeviceError;
use crate::doctor::ask;
use crate::library::{Library, require};

/// What joins two GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Link {
    /// NVLink of both goes into switches: this many links each.
    Switch { links: u32 },
    /// NVLink from one to the other: this many links, 0 where nobody counts them.
    Nvlink { links: u32 },
    /// PCIe alone; how far the paths have in common, where the driver's management library says it.
    Pcie { common: Option<&'static str> },
}

/// Two GPUs, by ordinal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    pub from: usize,
    pub to: usize,
    /// The driver's word that `from` maps memory of `to`. Only an attempt proves it.
    pub peer_access: bool,
    /// Atomics over the link, as over NVLink.
    pub native_atomics: bool,
    #[serde(flatten)]
    pub link: Link,
}

/// Every ordered pair of the devices. Errors: the driver does not answer.
pub fn pairs(ordinals: &[usize]) -> Result<Vec<Pair>, DeviceError> {
    require(Library::Driver).map_err(|missing| DeviceError::Missing(missing.clone()))?;
    let devices = ordinals.iter().map(|ordinal| device(*ordinal)).collect::<Result<Vec<_>, _>>()?;
    let nvml = Nvml::open().inspect_err(|why| tracing::debug!(why, "links are told by peer attributes alone")).ok();
    let mut pairs = Vec::new();
    for (from, one) in ordinals.iter().zip(&devices) {
        for (to, other) in ordinals.iter().zip(&devices).filter(|(to, _)| *to != from) {
            let native_atomics =
                peer_attribute(PeerAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, *one, *other);
            let told = nvml.as_ref().and_then(|nvml| nvml.link(place(*one)?, place(*other)?));
            // Without the management library: what has atomics over the link is NVLink.
            let guess = if native_atomics { Link::Nvlink { links: 0 } } else { Link::Pcie { common: None } };
            let peer_access = can_access(*one, *other)?;
            pairs.push(Pair { from: *from, to: *to, peer_access, native_atomics, link: told.unwrap_or(guess) });
        }
    }
    Ok(pairs)
}

fn device(ordinal: usize) -> Result<CUdevice, DeviceError> {
    let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
    result::device::get(number).map_err(|error| DeviceError::call("cuDeviceGet", error))
}

fn can_access(from: CUdevice, to: CUdevice) -> Result<bool, DeviceError> {
    let mut can = 0;
    // SAFETY: both devices were handed out by the driver; the answer is written before it is read.
    let asked = unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, from, to) };
    asked.result().map_err(|error| DeviceError::call("cuDeviceCanAccessPeer", error))?;
    Ok(can != 0)
}

fn peer_attribute(attribute: PeerAttribute, from: CUdevice, to: CUdevice) -> bool {
    let mut value = 0;
    // SAFETY: both devices were handed out by the driver; the answer is written before it is read.
    let asked = unsafe { sys::cuDeviceGetP2PAttribute(&raw mut value, attribute, from, to) };
    asked.result().is_ok() && value != 0
}

fn place(device: CUdevice) -> Option<PciPlace> {
    let part = |attribute| u32::try_from(ask(device, attribute)?).ok();
    Some(PciPlace {
        domain: part(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
        bus: part(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        device: part(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
    })
}

/// The topology of the ranks on these GPUs.
pub fn topology(pairs: &[Pair]) -> Topology {
    let all = |is: fn(&Link) -> bool| pairs.iter().all(|pair| is(&pair.link));
    let wired = |link: &Link| !matches!(link, Link::Pcie { .. });
    if pairs.iter().any(|pair| !pair.peer_access) {
        return Topology::PcieNoP2p;
    }
    if pairs.is_empty() {
        // One GPU meets no other.
        return Topology::NvlinkMesh;
    }
    match (all(|link| matches!(link, Link::Switch { .. })), all(wired), pairs.iter().any(|pair| wired(&pair.link))) {
        (true, _, _) => Topology::Nvswitch,
        (_, true, _) => Topology::NvlinkMesh,
        (_, _, true) => Topology::NvlinkBridge,
        _ => Topology::PcieP2p,
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Switch { links } => write!(formatter, "NVLink through switches, {links} links"),
            Self::Nvlink { links: 0 } => formatter.write_str("NVLink"),
            Self::Nvlink { links } => write!(formatter, "NVLink, {links} links"),
            Self::Pcie { common: Some(common) } => write!(formatter, "PCIe, {common}"),
            Self::Pcie { common: None } => formatter.write_str("PCIe"),
        }
    }
}

/// The links of all pairs in words: one where all are the same.
pub fn links(pairs: &[Pair]) -> String {
    let mut words: Vec<String> = Vec::new();
    for pair in pairs {
        let word = pair.link.to_string();
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(gpus: usize, link: impl Fn(usize, usize) -> Link, peer_access: bool) -> Vec<Pair> {
        let ordered = (0..gpus).flat_map(|from| (0..gpus).filter(move |to| *to != from).map(move |to| (from, to)));
        ordered.map(|(from, to)| Pair { from, to, peer_access, native_atomics: false, link: link(from, to) }).collect()
    }

    #[test]
    fn topologies_follow_from_every_pair() {
        let (switch, nvlink, pcie) =
            (Link::Switch { links: 18 }, Link::Nvlink { links: 4 }, Link::Pcie { common: Some("one switch") });
        assert_eq!(topology(&machine(8, |_, _| switch, true)), Topology::Nvswitch);
        assert_eq!(topology(&machine(4, |_, _| nvlink, true)), Topology::NvlinkMesh);
        assert_eq!(topology(&machine(4, |_, _| pcie, true)), Topology::PcieP2p);
        // Two bridged pairs: some pairs of ranks have no direct path, and a pair alone is a mesh.
        let bridged = |from: usize, to: usize| if from / 2 == to / 2 { nvlink } else { pcie };
        assert_eq!(topology(&machine(4, bridged, true)), Topology::NvlinkBridge);
        assert_eq!(topology(&machine(2, bridged, true)), Topology::NvlinkMesh);
        // Wired and yet not to be mapped.
        assert_eq!(topology(&machine(2, |_, _| nvlink, false)), Topology::PcieNoP2p);
        assert_eq!(topology(&[]), Topology::NvlinkMesh);
    }

    #[test]
    fn links_are_said_once() {
        assert_eq!(links(&machine(4, |_, _| Link::Switch { links: 18 }, true)), "NVLink through switches, 18 links");
        assert_eq!(links(&machine(2, |_, _| Link::Pcie { common: None }, true)), "PCIe");
    }
}
