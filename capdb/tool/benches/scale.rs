//! How validation grows with the number of records, and what opening and deciding cost.
//!
//! `cargo bench -p capdb-tool --bench scale [-- RECORDS…]` prints a curve, not a point. Each generated record has about
//! 2 KB, its own limits and evidence, and a parent; the sound files around them are those of the tests.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use capdb::database::Database;
use capdb::decide::{HostFacts, Request, Shape, Table, decide};
use capdb::load::TextFile;
use capdb::record::{Dtype, FusionId, Topology};
use capdb_tool::validate::{Input, folder_files, validate};

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![1_250, 2_500, 5_000, 10_000] } else { asked };
    built_in();
    opening();
    deciding();
    sizes.into_iter().for_each(generated);
}

fn best_of(count: usize, mut work: impl FnMut()) -> Duration {
    let time = |work: &mut dyn FnMut()| {
        let begun = Instant::now();
        work();
        begun.elapsed()
    };
    (0..count).map(|_| time(&mut work)).min().unwrap_or_default()
}

fn built_in() {
    let time = best_of(5, || assert_eq!(validate(Input::database(Database::embedded_files())).summary.errors, 0));
    println!("validate the built-in data, cases included: {time:.2?}");
}

fn opening() {
    let time = best_of(20, || drop(black_box(Database::embedded())));
    println!("open the embedded database: {time:.2?}");
}

fn deciding() {
    let database = Database::embedded();
    let resolved = database.record("h200").expect("the built-in data has an H200");
    let table = Table::new(database.index(), &resolved).expect("its record is sound");
    let host = HostFacts { topology: Some(Topology::Nvswitch), multicast: Some(true), ..HostFacts::default() };
    let shape = |message| Shape {
        world_size: 8,
        dtype: Dtype::Bf16,
        message: Some(message),
        fusion: FusionId::ResidualRmsnorm,
        heads: Some(64),
        pipeline_parallel: 1,
        workspace: None,
    };
    const ROUNDS: u32 = 100_000;
    let time = best_of(5, || {
        for round in 0..ROUNDS {
            let shape = shape(1 + (u64::from(round) << 8));
            black_box(decide(black_box(&table), &host, &shape, &Request::default()));
        }
    });
    println!("one decision: {:.0} ns", time.as_nanos() as f64 / f64::from(ROUNDS));
}

fn generated(records: usize) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture");
    let mut files = folder_files(&fixture).expect("the fixture can be read");
    files.retain(|file| !file.relative.starts_with("cases/"));
    files.extend((0..records).map(record));
    let bytes: usize = files.iter().map(|file| file.bytes.len()).sum();
    let begun = Instant::now();
    let report = validate(Input::database(files));
    let time = begun.elapsed();
    assert_eq!(report.summary.errors, 0, "{:?}", report.problems.first());
    println!(
        "validate {records} records, {:.1} MB: {time:.2?}, {:.0} µs a record",
        bytes as f64 / 1e6,
        time.as_micros() as f64 / records as f64
    );
}

/// A record of about 2 KB.
fn record(index: usize) -> TextFile {
    let id = format!("made{index}");
    let limits = |scale: usize| format!("{{2: {}KiB, 4: {}KiB}}", 64 * scale + index % 64, 32 * scale + index % 32);
    let notes: String = (0..9)
        .map(|line| {
            format!("  - \"Remark {line} on record {index}: measured again after the driver changed, same result.\"\n")
        })
        .collect();
    let text = format!(
        "schema: arch/1\nid: {id}\ncompute_capability: \"{}.{}\"\nname: Made {index}\nextends: sm900\n\
         limits:\n  threads_per_block: {}\n  evidence: {{kind: documented, source: handbook, note: generated}}\n\
         allreduce:\n  one_shot:\n    max_message: {}\n    topologies: [nvswitch, nvlink_mesh]\n    \
         evidence: {{kind: measured, source: bench, driver: \"580.65.06\", date: \"2026-11-29\"}}\n    \
         readings:\n      - {{source: table, value: {{max_message: {{\"2\": 1MiB}}}}, note: another project's row}}\n  \
         two_shot:\n    max_message: {}\n    topologies: [nvswitch]\n    evidence: {{kind: guessed, source: judgement}}\n    \
         evidence_for:\n      max_message.4: {{kind: measured, source: bench}}\n  \
         preferred:\n    - world_size: 2\n      topology: nvswitch\n      dtype: bf16\n      \
         ladder: [{{up_to: 64KiB, use: one_shot}}, {{up_to: 1MiB, use: two_shot}}]\n      \
         evidence: {{kind: measured, source: bench}}\n\
         attention:\n  paged: {{support: native, note: generated, evidence: {{kind: documented, source: handbook}}}}\n\
         notes:\n{notes}",
        100 + index / 100,
        index % 100,
        512 + index,
        limits(1),
        limits(8),
    );
    TextFile { path: format!("arch/{id}.yaml"), relative: format!("arch/{id}.yaml"), bytes: text.into_bytes() }
}
