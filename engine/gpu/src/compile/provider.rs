//! Where a cubin comes from: a pack, the cache, or the compiler.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Cache, CompileError, CompileTarget, Compiled, Nvrtc, Pack, Unit};

/// Whether it was said that compiled units cannot be kept: once, and not for each of dozens.
static UNKEPT: AtomicBool = AtomicBool::new(false);

/// Where a unit came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Pack,
    Cache,
    Compiler,
}

/// Gives compiled units for one target.
pub struct Provider {
    pub target: CompileTarget,
    pub pack: Option<Pack>,
    pub cache: Option<Cache>,
    /// Or why there is none.
    pub compiler: Result<Nvrtc, CompileError>,
}

impl Provider {
    /// The unit, from the pack if it has it, else the cache, else compiled and put into the cache.
    /// Errors: nothing has it and there is no compiler, or the compiler refuses. A cache that cannot be written is no
    /// error: the next start compiles again.
    pub fn get(&self, unit: &Unit) -> Result<(Compiled, Origin), CompileError> {
        let recipe = self.target.recipe(unit);
        if let Some(compiled) = self.pack.as_ref().and_then(|pack| pack.get(&recipe)) {
            return Ok((compiled.clone(), Origin::Pack));
        }
        let compiler = self.compiler.as_ref().map_err(|missing| self.absent(unit, missing))?;
        if let Some(compiled) = self.cache.as_ref().and_then(|cache| cache.get(&recipe, compiler.name())) {
            return Ok((compiled, Origin::Cache));
        }
        let compiled = compiler.compile(unit, &self.target)?;
        if let Some(cache) = &self.cache
            && let Err(error) = cache.put(&recipe, &compiled)
            && !UNKEPT.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, "compiled kernels are not kept, so every start compiles them; make room, or let the folder be written");
        }
        Ok((compiled, Origin::Compiler))
    }

    /// All of these units, in order, compiled on as many threads as there are processors. Errors: the first of
    /// [`Provider::get`]'s.
    pub fn get_all(&self, units: &[Unit]) -> Result<Vec<(Compiled, Origin)>, CompileError> {
        let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = self.get(unit);
                results.lock().unwrap_or_else(PoisonError::into_inner).push((unit.name(), result));
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(units.len());
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|(name, _)| units.iter().position(|unit| unit.name() == *name));
        results.into_iter().map(|(_, result)| result).collect()
    }

    fn absent(&self, unit: &Unit, missing: &CompileError) -> CompileError {
        let missing = match missing {
            CompileError::NoCompiler(missing) => missing.clone(),
            other => other.to_string(),
        };
        if self.pack.is_none() {
            return CompileError::NoCompiler(missing);
        }
        CompileError::NotInPack { unit: unit.name().to_owned(), target: self.target.target.clone(), missing }
    }
}
