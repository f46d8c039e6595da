use engine_gpu::doctor::{LibraryReport, Survey};
use engine_gpu::library::{Library, Missing};

use super::Report;

fn missing(library: Library) -> LibraryReport {
    let missing = Missing {
        library,
        names: vec![format!("lib{library:?}.so")],
        folders: vec!["the system's libraries".to_owned(), "/usr/lib64".to_owned()],
        refused: Vec::new(),
    };
    LibraryReport { library, found: None, missing: Some(missing.to_string()) }
}

fn report(problem: &str, findings: &[&str]) -> Report {
    let survey = Survey {
        libraries: vec![missing(Library::Driver), missing(Library::Nvrtc)],
        driver: None,
        devices: Vec::new(),
        problem: Some(problem.to_owned()),
    };
    let findings = findings.iter().map(|finding| (*finding).to_owned()).collect();
    Report { survey, gpus: Vec::new(), group: None, cpu: "one".to_owned(), chosen: "CPU".to_owned(), findings }
}

#[test]
fn a_cause_is_told_once_with_where_was_looked_and_what_to_do() {
    let [driver, compiler] = [Library::Driver, Library::Nvrtc].map(|library| missing(library).missing.unwrap());
    let text = report(&driver, &[&compiler]).to_string();
    for (cause, name) in [(driver, "libDriver.so"), (compiler, "libNvrtc.so")] {
        assert_eq!(text.matches(name).count(), 1, "{text}");
        assert!(text.contains(&cause) && cause.contains("/usr/lib64; install "), "{text}");
    }
    let below = text.split("Devices\n").nth(1).unwrap();
    assert!(below.starts_with("  the NVIDIA driver (libcuda) is not usable, as said under Libraries\n"), "{text}");
    assert!(below.ends_with("Findings\n  the CUDA run-time compiler (NVRTC) is not usable, as said under Libraries\n"));
}

#[test]
fn other_causes_are_told_where_they_are_found() {
    let text = report("the driver sees no GPU", &["GPU 0 has no record"]).to_string();
    assert!(
        text.contains("Devices\n  the driver sees no GPU\n") && text.ends_with("Findings\n  GPU 0 has no record\n")
    );
}
