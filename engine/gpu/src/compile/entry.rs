//! A compiled unit with what is known of it, as bytes that prove themselves.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{KernelResources, hex};

const MAGIC: &[u8; 16] = b"archway cubin 1\n";

/// A unit that was compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    pub cubin: Vec<u8>,
    /// The compiler's name and version.
    pub compiler: String,
    pub resources: Vec<KernelResources>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    compiler: String,
    resources: Vec<KernelResources>,
    /// Hash of the cubin.
    sha256: String,
}

impl Compiled {
    /// Magic, length of the header (u32, little end first), header in JSON, cubin.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (compiler, resources) = (self.compiler.clone(), self.resources.clone());
        let header = Header { compiler, resources, sha256: hex(&Sha256::digest(&self.cubin)) };
        let header = serde_json::to_vec(&header).expect("a header is plain data");
        let mut bytes = MAGIC.to_vec();
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header);
        bytes.extend(&self.cubin);
        bytes
    }

    /// None if the bytes are not whole and unchanged.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<4>()?;
        let (header, cubin) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let Header { compiler, resources, sha256 } = serde_json::from_slice(header).ok()?;
        (hex(&Sha256::digest(cubin)) == sha256).then(|| Self { cubin: cubin.to_vec(), compiler, resources })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_damage_is_noticed() {
        let resources = vec![KernelResources { kernel: "sample".into(), registers: 40, ..Default::default() }];
        let compiled = Compiled { cubin: vec![7; 100], compiler: "NVRTC 13.0".into(), resources };
        let bytes = compiled.to_bytes();
        assert_eq!(Compiled::from_bytes(&bytes), Some(compiled));
        for length in 0..bytes.len() {
            assert_eq!(Compiled::from_bytes(&bytes[..length]), None, "cut to {length}");
        }
        for at in (0..20).chain(bytes.len() - 100..bytes.len()) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Compiled::from_bytes(&damaged), None, "bit of byte {at}");
        }
    }
}
