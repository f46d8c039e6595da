use std::path::Path;

use super::*;
use crate::diagnostics::{Format, render};
use crate::validate::{Input, folder_files, validate};

fn data() -> Vec<TextFile> {
    folder_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../data")).unwrap()
}

fn new(id: &str, parent: &str, capability: &str) -> NewArch {
    NewArch { id: id.into(), parent: parent.into(), compute_capability: capability.into(), name: None }
}

#[test]
fn record_and_cases_of_every_parent_validate() {
    for parent in ["sm80", "sm90", "sm100", "sm110", "sm120", "sm121"] {
        let scaffold = new_arch(&data(), &new("sm130", parent, "13.0")).unwrap();
        let mut files = data();
        files.extend(scaffold.files.clone());
        let report = validate(Input::database(files));
        assert_eq!(render(&report.problems, &report.sources, Format::Concise, false), "", "{parent}");
        assert!(scaffold.inherited.iter().all(|(_, _, origin)| origin.inherited));
        assert!(!scaffold.inherited.is_empty() && scaffold.to_measure.len() > 3, "{parent}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let error = |new: &NewArch| new_arch(&data(), new).unwrap_err().to_string();
    assert!(error(&new("SM130", "sm120", "13.0")).contains("is not an id"));
    assert!(error(&new("sm130-", "sm120", "13.0")).contains("is not an id"));
    for capability in ["13", "13.", ".0", "13.0a", "thirteen", "1.2.3", "-1.0"] {
        assert!(error(&new("sm130", "sm120", capability)).contains("is not a compute capability"), "{capability}");
    }
    assert!(error(&new("sm130", "sm120", "13.1")).contains("another capability"));
    assert!(error(&new("sm120", "sm100", "12.0")).contains("belongs to the record `sm120`"));
    assert!(error(&new("next", "sm100", "12.0")).contains("belongs to the record `sm120`"));
    assert!(error(&new("sm101", "sm100", "10.1")).contains("belongs to the record `sm110`"));
    assert!(error(&new("h200", "sm90", "13.0")).contains("belongs to the record `h200`"));
    assert!(error(&new("sm130", "sm12", "13.0")).contains("did you mean"));
}
