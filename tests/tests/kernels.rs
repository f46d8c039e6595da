//! Every kernel compiles for every architecture of the database, within the record's limits, without a GPU. What came
//! out is docs/src/kernels.md: `ARCHWAY_UPDATE=1` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use capdb::database::Database;
use capdb::record::Support;
use engine_gpu::HEADS;
use engine_gpu::compile::{Cache, CompileTarget, Compiled, Nvrtc, Provider, REGISTERS_PER_BLOCK, Unit, units};
use engine_gpu::kernels::{dynamic_shared_bytes, optional_shared_bytes};

/// Kernels that every architecture has: two of attention for each head.
const KERNELS: usize = 104 + 2 * HEADS.len();

/// Static shared memory that a block may have without asking (CUDA programming guide, every architecture).
const STATIC_SHARED: u32 = 48 * 1024;

/// Features that the sources ask for.
const USED: [&str; 4] = ["pdl", "tma", "clusters", "setmaxnreg"];

/// Bytes that a thread may spill: an assembler that is new to an architecture saves a register or two across a loop.
const MOST_SPILLED: u32 = 64;

/// One architecture and what its kernels take.
struct Row {
    arch: String,
    target: String,
    features: Vec<String>,
    /// Whether it has the instructions; the memory is another question.
    multicast: bool,
    shared_limit: u64,
    kernels: usize,
    registers: u32,
    /// Of the thread that spills most.
    spilled: u32,
    static_shared: u32,
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/src/kernels.md")
}

fn compiler() -> Nvrtc {
    Nvrtc::open().unwrap_or_else(|error| {
        panic!(
            "{error}\n(this test compiles every kernel: `pip install nvidia-cuda-nvrtc==13.5.37` into the venv in use)"
        )
    })
}

/// The record's preferred target and its features.
fn target(database: &Database, arch: &str) -> (CompileTarget, u64) {
    let record = database.record(arch).expect("every architecture resolves");
    let compile = record.compile().expect("the record is well formed").expect("a record says what to compile for");
    let features = record.features().expect("the record is well formed");
    let probed = features.iter().filter(|(_, support)| **support == Support::Probe);
    let probed = probed.map(|(name, _)| name.clone()).collect();
    let features: BTreeMap<String, bool> =
        features.into_iter().map(|(name, support)| (name, support == Support::Native)).collect();
    let limit = record.limits().expect("the record is well formed").shared_memory_per_block_optin;
    let limit = limit.unwrap_or_else(|| panic!("{arch} has no limits.shared_memory_per_block_optin")).bytes();
    (CompileTarget { target: compile.targets[0].clone(), features, probed }, limit)
}

fn compile(compiler: &Nvrtc, target: &CompileTarget, unit: &Unit) -> Compiled {
    let cache = Cache::new(Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels"));
    let (target, compiler) = (target.clone(), Ok(compiler.clone()));
    let provider = Provider { target, pack: None, cache: Some(cache), compiler };
    let (compiled, _) = provider.get(unit).unwrap_or_else(|error| panic!("{error}"));
    compiled
}

/// Compiles everything, on as many threads as there are processors.
fn compile_all(compiler: &Nvrtc, targets: &[(String, CompileTarget, u64)]) -> Vec<Row> {
    let units = units(&HEADS);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(unit) = units.get(index % units.len()) else { return };
                    let Some((_, target, _)) = targets.get(index / units.len()) else { return };
                    let compiled = compile(compiler, target, unit);
                    results.lock().unwrap().push((index / units.len(), compiled));
                }
            });
        }
    });
    let results = results.into_inner().unwrap();
    let row = |(at, (arch, target, shared_limit)): (usize, &(String, CompileTarget, u64))| {
        let kernels: Vec<_> =
            results.iter().filter(|(of, _)| *of == at).flat_map(|(_, compiled)| &compiled.resources).collect();
        let native = target.features.iter().filter(|(_, native)| **native).map(|(name, _)| name.clone());
        Row {
            arch: arch.clone(),
            target: target.target.clone(),
            multicast: target.probed.iter().any(|name| name == "multicast") || target.features["multicast"],
            features: native.filter(|name| USED.contains(&name.as_str())).collect(),
            shared_limit: *shared_limit,
            kernels: kernels.len(),
            registers: kernels.iter().map(|kernel| kernel.registers).max().unwrap_or(0),
            spilled: kernels.iter().map(|kernel| kernel.spilled).max().unwrap_or(0),
            static_shared: kernels.iter().map(|kernel| kernel.shared).max().unwrap_or(0),
        }
    };
    targets.iter().enumerate().map(row).collect()
}

fn render(compiler: &Nvrtc, rows: &[Row]) -> String {
    let mut text = String::from("# Kernels by architecture\n\n");
    let heads: Vec<String> = HEADS.iter().map(u32::to_string).collect();
    write!(
        text,
        "Written by the test `kernels`: every kernel compiled by {} for the target that each record prefers, with heads of \
         {}. Registers and spills are those of the kernel that has most. Shared memory is what the largest block takes of the \
         kernels that every architecture has, beside the record's limit. Kernels for sums by multicast are compiled where the \
         instructions exist; only an attempt on the machine shows whether it has the memory. Streamed products need the bulk \
         copy engine and up to {:.1} KiB of shared memory for a block, and are left out where either is missing.\n\n",
        compiler.name(),
        heads.join(", "),
        f64::from(optional_shared_bytes()) / 1024.0,
    )
    .unwrap();
    text += "| architecture | target | kernels | dependent launch | clusters | streamed products | sums by multicast | registers | spilled, bytes | \
             shared memory, KiB | limit, KiB |\n|---|---|---|---|---|---|---|---|---|---|---|\n";
    for row in rows {
        let Row { arch, target, kernels, registers, spilled, .. } = row;
        let yes = |condition: bool| if condition { "yes" } else { "no" };
        let has = |name: &str| row.features.iter().any(|feature| feature == name);
        let (launch, clusters) = (yes(has("pdl")), yes(has("clusters")));
        let streamed = yes(has("tma") && u64::from(optional_shared_bytes()) <= row.shared_limit);
        let multicast = yes(row.multicast);
        let (shared, limit) = (f64::from(largest_shared(row)) / 1024.0, row.shared_limit / 1024);
        writeln!(
            text,
            "| {arch} | {target} | {kernels} | {launch} | {clusters} | {streamed} | {multicast} | {registers} | {spilled} | {shared:.1} | {limit} |"
        )
        .unwrap();
    }
    text
}

fn largest_shared(row: &Row) -> u32 {
    let dynamic = HEADS.iter().flat_map(|head| dynamic_shared_bytes(*head)).map(|(_, bytes)| bytes).max();
    dynamic.unwrap_or(0).max(row.static_shared)
}

#[test]
fn every_kernel_compiles_for_every_architecture_within_its_limits() {
    let (database, compiler) = (Database::embedded(), compiler());
    let targets: Vec<_> = database
        .index()
        .archs
        .keys()
        .map(|arch| {
            let (target, limit) = target(&database, arch);
            (arch.to_string(), target, limit)
        })
        .collect();
    assert!(targets.len() >= 10, "the database has {} architectures", targets.len());
    let rows = compile_all(&compiler, &targets);
    for row in &rows {
        let has = |name: &str| row.features.iter().any(|feature| feature == name);
        // Streamed products are compiled where the copy engine is, sliced ones and attention of short contexts, for heads of 64
        // and 128, where clusters are too, sums by multicast where the instructions are.
        let near = 6 * HEADS.iter().filter(|head| [64, 128].contains(*head)).count();
        let optional = if has("tma") { 28 } else { 0 } + if has("tma") && has("clusters") { near + 7 } else { 0 };
        let optional = optional + if row.multicast { 3 } else { 0 };
        assert_eq!(row.kernels, KERNELS + optional, "kernels that the assembler reports for {}", row.arch);
        assert!(row.spilled <= MOST_SPILLED, "{}: a kernel spills {} bytes", row.arch, row.spilled);
        assert!(row.registers > 0 && row.registers < REGISTERS_PER_BLOCK / 256, "{}: {}", row.arch, row.registers);
        assert!(row.static_shared <= STATIC_SHARED, "{}: {} bytes", row.arch, row.static_shared);
        let shared = largest_shared(row);
        assert!(u64::from(shared) <= row.shared_limit, "{}: {shared} bytes of {}", row.arch, row.shared_limit);
    }
    let text = render(&compiler, &rows);
    if std::env::var_os("ARCHWAY_UPDATE").is_some() {
        return std::fs::write(document(), text).expect("can write the page");
    }
    let page = std::fs::read_to_string(document()).unwrap_or_default();
    assert_eq!(page, text, "docs/src/kernels.md is out of date: run this test with ARCHWAY_UPDATE=1, NVRTC 13.5");
}

#[test]
fn a_damaged_cache_is_rebuilt_and_a_pack_serves_without_a_compiler() {
    use engine_gpu::compile::{CompileError, Origin, Pack};

    let folder = tempfile::tempdir().unwrap();
    let (target, _) = target(&Database::embedded(), "sm80");
    let cache = Cache::new(folder.path().join("cache"));
    let unit = units(&[]).into_iter().find(|unit| unit.name() == "logits").unwrap();
    let provider = |pack, cache, compiler| Provider { target: target.clone(), pack, cache, compiler };
    let with_compiler = provider(None, Some(cache.clone()), Ok(compiler()));
    let (compiled, origin) = with_compiler.get(&unit).unwrap();
    assert_eq!(origin, Origin::Compiler);
    assert_eq!(with_compiler.get(&unit).unwrap(), (compiled.clone(), Origin::Cache));
    for file in std::fs::read_dir(cache.folder()).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    assert_eq!(with_compiler.get(&unit).unwrap(), (compiled.clone(), Origin::Compiler));
    assert_eq!(with_compiler.get(&unit).unwrap().1, Origin::Cache);

    let path = folder.path().join("pack");
    let mut pack = Pack::default();
    pack.insert(target.recipe(&unit), unit.name(), &target.target, compiled.clone());
    pack.write(&path).unwrap();
    let missing = || Err(CompileError::NoCompiler("no NVRTC".to_owned()));
    let without = provider(Some(Pack::read(&path).unwrap()), None, missing());
    assert_eq!(without.get(&unit).unwrap(), (compiled, Origin::Pack));
    let other = units(&[]).into_iter().find(|unit| unit.name() == "copy").unwrap();
    let message = without.get(&other).unwrap_err().to_string();
    assert_eq!(
        message,
        format!("the pack of kernels has no copy for {}, and there is no compiler to make it: no NVRTC", target.target)
    );
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(Pack::read(&path).unwrap_err().to_string().contains("logits for sm_80 is damaged"));
}
