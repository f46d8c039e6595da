//! Figures of other libraries, measured beside ours by `tests/gpu/allreduce_peers.py`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use engine::files::read_bounded_text;
use serde::{Deserialize, Serialize};

/// What the script wrote. Times in microseconds, as a graph of many calls, the slowest rank's median.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Peers {
    /// Libraries with their versions.
    pub stack: String,
    pub ranks: usize,
    pub sums: Vec<PeerSum>,
    pub norms: Vec<PeerNorm>,
    /// What failed or was wrong, and was therefore not timed.
    pub notes: Vec<String>,
}

/// One sum of bf16.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PeerSum {
    pub name: String,
    pub bytes: u64,
    pub microseconds: f64,
}

/// One sum with residual and norm, each in a kernel of its own.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PeerNorm {
    pub name: String,
    pub rows: u32,
    pub width: u32,
    pub microseconds: f64,
}

impl Peers {
    /// Errors: no such file, other content, figures of another number of ranks, times that are none.
    pub fn read(file: &Path, ranks: usize) -> Result<Self> {
        let context = || format!("--peers {}", file.display());
        let text = read_bounded_text(file).with_context(context)?;
        let peers: Self = serde_json::from_str(&text).with_context(context)?;
        ensure!(peers.ranks == ranks, "--peers {}: {} ranks there, {ranks} here", file.display(), peers.ranks);
        let times = peers.sums.iter().map(|sum| sum.microseconds);
        let mut times = times.chain(peers.norms.iter().map(|norm| norm.microseconds));
        ensure!(
            times.all(|time| time.is_finite() && time > 0.0),
            "--peers {}: a time is not a positive number",
            file.display()
        );
        Ok(peers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_another_group_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |ranks: usize, time: f64| {
            let text = format!(
                "{{\"stack\": \"x 1\", \"ranks\": {ranks}, \"sums\": [{{\"name\": \"x\", \"bytes\": 4096, \
                 \"microseconds\": {time}}}], \"norms\": [], \"notes\": []}}"
            );
            std::fs::write(file.path(), text).unwrap();
        };
        write(2, 6.5);
        assert_eq!(Peers::read(file.path(), 2).unwrap().sums[0].bytes, 4096);
        assert!(Peers::read(file.path(), 4).unwrap_err().to_string().contains("2 ranks there, 4 here"));
        write(2, 0.0);
        assert!(Peers::read(file.path(), 2).is_err());
    }
}
