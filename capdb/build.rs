//! Compiles `data/` into the program: the YAML texts, and every record in resolved form.
//!
//! The reading half of the crate is compiled into this script, so the embedded copy is made by the same code that reads
//! a folder. A file with errors does not fail the build, or `cargo run -- validate` could not show what is wrong: it is
//! left out with a warning, and a test refuses an embedded copy that differs from the YAML.

#![allow(dead_code, unused_imports)]

use std::fmt::Write as _;
use std::path::Path;

#[path = "src/assembly/mod.rs"]
mod assembly;
#[path = "src/files.rs"]
mod files;
#[path = "src/load.rs"]
mod load;
#[path = "src/problem.rs"]
mod problem;
#[path = "src/quantity/mod.rs"]
mod quantity;
#[path = "src/record/mod.rs"]
mod record;
#[path = "src/resolve/mod.rs"]
mod resolve;
#[path = "src/typed.rs"]
mod typed;
#[path = "src/yaml/mod.rs"]
mod yaml;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = Path::new("data");
    println!("cargo::rerun-if-changed=data");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    let files = load::folder(data)?;
    let mut code = String::from("pub static FILES: &[(&str, &str)] = &[\n");
    for file in &files {
        println!("cargo::rerun-if-changed=data/{}", file.relative);
        if let Ok(text) = std::str::from_utf8(&file.bytes) {
            writeln!(code, "    ({:?}, {text:?}),", file.relative)?;
        }
    }
    let (assembly, problems) = assembly::Assembly::new(files.into_iter().map(load::Loaded::read).collect());
    for problem in problems {
        println!("cargo::warning={}: {}; `capdb validate` shows the place", problem.path, problem.message);
    }
    code.push_str("];\npub static RECORDS: &[(&str, &str)] = &[\n");
    for id in assembly.index.archs.keys().chain(assembly.index.gpus.keys()) {
        if let Ok(record) = assembly.resolve(id) {
            writeln!(code, "    ({id:?}, {:?}),", serde_json::to_string(&record)?)?;
        }
    }
    writeln!(code, "];\npub static INDEX: &str = {:?};", serde_json::to_string(&assembly.index)?)?;
    std::fs::write(out.join("embedded.rs"), code)?;
    Ok(())
}
