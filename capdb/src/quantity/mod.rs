//! Values with units or an order of their own. Each reads from a string (sizes from an integer too) and prints back.

mod bandwidth;
mod size;
mod version;

pub use bandwidth::{Bandwidth, BandwidthError};
pub use size::{MAX_SIZE, Size, SizeError};
pub use version::{Version, VersionError};
