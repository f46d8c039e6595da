//! 200,000 mutated files through everything that reads them: nothing panics, and what the schema accepts the types accept.

use std::path::Path;
use std::time::Instant;

use capdb::load::TextFile;
use capdb_tool::diagnostics::{Format, render};
use capdb_tool::validate::{Input, folder_files, validate};

const INPUTS: usize = 200_000;
/// Files in one validation, so that the sound files around them are read once for many.
const BATCH: usize = 500;
/// Longest seed, in bytes.
const LONGEST: usize = 1024;

/// Pieces that mean something to a reader of YAML, to the schema, or to a lint.
const WORDS: &[&str] = &[
    "\n",
    ":",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "#",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "%YAML 1.1\n",
    "---\n",
    "...",
    "\t",
    "'",
    "\"",
    "|",
    ">",
    "?",
    "~",
    "null",
    "no",
    "0755",
    "1_000",
    "12.0",
    "-1",
    "0",
    ".inf",
    "1e3",
    "18446744073709551616",
    "64MB",
    "64MiBB",
    "65536GiB",
    "\u{0}",
    "\u{7f}",
    "é",
    "\u{202e}",
    "😀",
    "\r\n",
    "schema: arch/2\n",
    "schema: gpu/1\n",
    "extends: ",
    "sm900",
    "evidence: {kind: inherited, source: x}",
    "max_message: {2: 1KiB}",
    "ladder: []",
    ">=9.0",
    "compiles_for: {sm_900: [a]}",
];

/// A small generator (xorshift64*), so that every run tries the same inputs.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % limit.max(1)
    }
}

fn mutate(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(24)).min(bytes.len());
        match random.below(7) {
            0 => drop(bytes.drain(at..end)),
            1 => drop(bytes.splice(at..at, WORDS[random.below(WORDS.len())].bytes())),
            2 => drop(bytes.splice(at..end, WORDS[random.below(WORDS.len())].bytes())),
            3 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.next() as u8),
            4 => {
                let copy = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, copy));
            }
            5 => {
                let from = random.below(other.len());
                let to = (from + random.below(64)).min(other.len());
                drop(bytes.splice(at..end, other[from..to].iter().copied()));
            }
            _ => bytes.truncate(at.max(bytes.len() / 2)),
        }
    }
    bytes
}

fn texts(folder: &str) -> Vec<TextFile> {
    folder_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder)).unwrap()
}

#[test]
fn two_hundred_thousand_mutated_files_do_no_harm() {
    let begun = Instant::now();
    let context = texts("fixture");
    let seeds: Vec<Vec<u8>> = context
        .iter()
        .chain(&texts("bad"))
        .map(|file| file.bytes.iter().copied().take(LONGEST).collect())
        .filter(|bytes: &Vec<u8>| !bytes.is_empty())
        .collect();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut refused = 0;
    for batch in 0..INPUTS / BATCH {
        let files = (0..BATCH).map(|index| {
            let seed = &seeds[random.below(seeds.len())];
            let other = &seeds[random.below(seeds.len())];
            let name = format!("m{index}.yaml");
            TextFile { path: name.clone(), relative: name, bytes: mutate(seed, other, &mut random) }
        });
        let report = validate(Input::loose(files.collect(), context.clone()));
        refused += report.summary.errors;
        let disagreement = report.problems.iter().find(|problem| problem.code == "wrong-form");
        assert!(disagreement.is_none(), "the schema accepts what the types refuse: {disagreement:?}");
        // Rendering costs more than finding; every eighth batch is rendered in every format.
        if batch % 8 == 0 {
            for format in [Format::Full, Format::Concise, Format::Json, Format::Github] {
                let text = render(&report.problems, &report.sources, format, false);
                assert!(!text.is_empty());
            }
        }
    }
    assert!(refused > INPUTS / 2, "the mutations hardly change anything: {refused} findings");
    assert!(begun.elapsed().as_secs() < 300, "{:?}", begun.elapsed());
    println!("{INPUTS} inputs, {refused} findings, {:?}", begun.elapsed());
}
