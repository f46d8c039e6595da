//! Which kernels are compiled, and for what.

use std::collections::BTreeMap;
use std::time::Instant;

use engine_gpu::compile::{Cache, CompileTarget, Compiled, Nvrtc, Origin, Provider, Unit};
use engine_gpu::kernels::KernelSet;

use crate::rig::{Failure, Share};

/// The features `ARCHWAY_FEATURES` (`pdl,tma,clusters,setmaxnreg`): those of all units, and, where one says `FEATURE@UNIT`, of one.
pub fn features() -> (BTreeMap<String, bool>, Vec<(String, String)>) {
    let named = std::env::var("ARCHWAY_FEATURES").unwrap_or_else(|_| "pdl,tma,clusters,setmaxnreg".to_owned());
    let mut features = BTreeMap::from(["pdl", "tma", "clusters", "setmaxnreg"].map(|name| (name.to_owned(), false)));
    let mut alone = Vec::new();
    for name in named.split(',').filter(|name| !name.is_empty()) {
        match name.split_once('@') {
            Some((feature, unit)) => alone.push((unit.to_owned(), feature.to_owned())),
            None => drop(features.insert(name.to_owned(), true)),
        }
    }
    (features, alone)
}

/// The units for these head dimensions, for `ARCHWAY_TARGET` (`sm_90a`) and the features `ARCHWAY_FEATURES`, from a cache
/// in the folder for temporary files where it has them; of a share every `of`th one. Errors: the compiler's; a feature of a
/// unit that is not there.
pub fn compile(heads: &[u32], share: Share) -> Result<Vec<(Unit, Compiled)>, Failure> {
    let (start, (features, alone)) = (Instant::now(), features());
    let mut units = KernelSet::units(heads);
    if let Some((unit, feature)) = alone.iter().find(|(name, _)| units.iter().all(|unit| unit.name() != name)) {
        let names: Vec<&str> = units.iter().map(Unit::name).collect();
        return Err(format!("ARCHWAY_FEATURES: {feature}@{unit}: no such unit; units are {}", names.join(", ")).into());
    }
    let mut number = 0;
    units.retain(|_| {
        number += 1;
        (number - 1) % share.of == share.index
    });
    // Units with features of their own come last.
    let own = |unit: &Unit| -> Vec<String> {
        alone.iter().filter(|(name, _)| unit.name() == name).map(|(_, feature)| feature.clone()).collect()
    };
    units.sort_by_key(|unit| !own(unit).is_empty());
    let target = std::env::var("ARCHWAY_TARGET").unwrap_or_else(|_| "sm_90a".to_owned());
    let compiler = Nvrtc::open()?;
    let (mut compiled, mut found) = (Vec::new(), 0);
    for group in units.chunk_by(|left, right| own(left).is_empty() && own(right).is_empty()) {
        let mut features = features.clone();
        features.extend(group.iter().flat_map(own).map(|feature| (feature, true)));
        let target = CompileTarget { target: target.clone(), features, probed: Vec::new() };
        let cache = Some(Cache::new(std::env::temp_dir().join("archway-kernels")));
        let provider = Provider { target, pack: None, cache, compiler: Ok(compiler.clone()) };
        let given = provider.get_all(group)?;
        found += given.iter().filter(|(_, origin)| *origin == Origin::Cache).count();
        compiled.extend(group.iter().cloned().zip(given.into_iter().map(|(compiled, _)| compiled)));
    }
    println!("{} units after {:.1} s, {found} of them found", compiled.len(), start.elapsed().as_secs_f64());
    Ok(compiled)
}
