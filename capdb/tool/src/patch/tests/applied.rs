//! Edits that are written: what changed, what did not, and what Python makes of it.

use super::installation::{
    COMMON, COMMUNICATOR, GUARDED, Installation, SIZES, SYMM, UNGUARDED, UTILS, embedded, measured_card,
};
use crate::patch::{Options, Status, Verdict, carry_out, check, plan};

pub const SIZES_ID: &str = "sglang-symm-mem-max-sizes";
const MULTIMEM_ID: &str = "sglang-multimem-world-sizes";
const GATE_ID: &str = "sglang-fusion-gate-communicator";
const READ_SIZES: &str = "from sglang.srt.distributed.device_communicators.all_reduce_utils import *; \
    print(TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES)";

/// A module that asks its helpers, and helpers of a machine with major 12.
const IMPORTING: &str = "\
from sglang.srt.utils.common import (
    is_sm90_supported,
    is_sm100_supported,
)

_is_cuda = True
_is_sm90_supported = _is_cuda and is_sm90_supported()
_is_sm100_supported = _is_cuda and is_sm100_supported()


def fuses(tokens):
    return (_is_sm90_supported or _is_sm100_supported) and tokens > 0
";
const HELPERS: &str = "\
from functools import partial
def check(device_capability_majors):
    return 12 in device_capability_majors
is_sm90_supported = partial(check, device_capability_majors=[9])
is_sm100_supported = partial(check, device_capability_majors=[10])
is_sm120_supported = partial(check, device_capability_majors=[12])
";

fn named(id: &str) -> Options {
    Options { only: vec![id.to_owned()], force: true, allow_guessed: true }
}

#[test]
fn one_line_is_added_and_python_reads_it() {
    let it = Installation::new("0.5.15", GUARDED);
    let before = it.files();
    assert_eq!(it.python(READ_SIZES), "{9: {2: 67108864, 4: 524288}}");
    let plan = it.plan("b200", &Options { only: vec![SIZES_ID.to_owned()], ..Options::default() }).unwrap();
    assert_eq!((plan.exit_code(), plan.files.len()), (0, 1));
    let diff = plan.files[0].diff();
    let signs: String =
        diff.lines().skip(2).filter_map(|line| line.chars().next()).filter(|c| "+-".contains(*c)).collect();
    assert_eq!(signs, "+", "{diff}");
    assert!(diff.contains(&format!("--- a/{UTILS}\n+++ b/{UTILS}\n")), "{diff}");
    let outcome = carry_out(&it.release(), &plan).unwrap();
    assert!(outcome.written && outcome.bytecode.iter().any(|path| path.display().to_string().ends_with(".pyc")));
    let row = "{2: 8388608, 4: 33554432, 6: 134217728, 8: 134217728}";
    assert_eq!(it.python(READ_SIZES), format!("{{9: {{2: 67108864, 4: 524288}}, 10: {row}}}"));
    let report = it.check("b200");
    assert_eq!(report.findings.iter().find(|it| it.id == SIZES_ID).unwrap().status, Status::Covered);
    let after = it.files();
    let changed: Vec<&String> =
        before.iter().filter(|(path, bytes)| after.get(*path) != Some(*bytes)).map(|it| it.0).collect();
    assert_eq!(changed, [UTILS], "nothing else changed, and nothing is gone");
}

#[test]
fn stale_bytecode_is_removed_even_where_python_would_not_look() {
    let it = Installation::new("0.5.15", GUARDED);
    let unchecked = "import py_compile as p; p.compile('sglang/srt/distributed/device_communicators/all_reduce_utils.py', \
        invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)";
    it.python(unchecked);
    carry_out(&it.release(), &it.plan("b200", &Options::default()).unwrap()).unwrap();
    assert!(it.python(READ_SIZES).contains("10: {"));
}

#[test]
fn a_row_that_leads_to_a_crash_comes_with_the_next_row() {
    let it = Installation::new("0.5.9", UNGUARDED);
    let plan = it.plan("b200", &Options { only: vec![SIZES_ID.to_owned()], ..Options::default() }).unwrap();
    let next = plan.steps.iter().find(|step| step.id == MULTIMEM_ID).unwrap();
    assert_eq!(next.verdict, Verdict::Edit);
    assert!(next.reasons[0].why.contains("would lead to _WORLD_SIZES_MULTIMEM"), "{next:?}");
    carry_out(&it.release(), &plan).unwrap();
    assert!(it.text(SYMM).contains("_WORLD_SIZES_MULTIMEM = {9: [4, 6, 8], 10: [6, 8]}"), "{}", it.text(SYMM));
    // A default behind the lookup asks for no second row.
    let guarded = Installation::new("0.5.15", GUARDED);
    let plan = guarded.plan("b200", &Options { only: vec![SIZES_ID.to_owned()], ..Options::default() }).unwrap();
    assert_eq!(plan.files.iter().map(|edit| edit.path.as_str()).collect::<Vec<_>>(), [UTILS]);
}

#[test]
fn a_forced_row_ends_the_crash_and_says_what_it_rests_on() {
    let it = Installation::new("0.5.9", UNGUARDED);
    let options = Options { force: true, allow_guessed: true, ..Options::default() };
    let plan = it.plan("rtx-pro-6000", &options).unwrap();
    let edits = plan.steps.iter().filter(|step| step.verdict == Verdict::Edit);
    assert!(
        edits.clone().count() == 2 && edits.clone().all(|step| step.also_for == ["sm121"]),
        "one row for the major"
    );
    carry_out(&it.release(), &plan).unwrap();
    assert!(
        it.text(UTILS).contains("  # capdb, rtx-pro-6000: guessed by field-story, arch/sm120.yaml:"),
        "{}",
        it.text(UTILS)
    );
    assert!(it.text(SYMM).contains("12: []"), "multimem for no world size");
    // It would still take no effect, and the check says so.
    let report = it.check("rtx-pro-6000");
    let sizes = report.findings.iter().find(|it| it.id == SIZES_ID).unwrap();
    assert!(sizes.status == Status::Covered && sizes.is_gap() && report.exit_code() == 1, "{sizes:?}");
}

#[test]
fn a_named_gate_lets_the_card_through() {
    let it = Installation::new("0.5.9", UNGUARDED);
    it.write(COMMUNICATOR, IMPORTING.as_bytes());
    it.write(COMMON, HELPERS.as_bytes());
    let ask = "from sglang.srt.layers.communicator import fuses; print(fuses(1), fuses(0))";
    assert_eq!(it.python(ask), "False False");
    carry_out(&it.release(), &it.plan("rtx-pro-6000", &named(GATE_ID)).unwrap()).unwrap();
    assert_eq!(it.python(ask), "True False");
    let text = it.text(COMMUNICATOR);
    let removed = text
        .replace("    is_sm120_supported,\n", "")
        .replace("_is_sm120_supported = _is_cuda and is_sm120_supported()\n", "")
        .replace(" or _is_sm120_supported", "");
    assert_eq!(removed, IMPORTING, "three insertions and nothing else");
    let again = it.plan("rtx-pro-6000", &named(GATE_ID)).unwrap();
    assert_eq!((again.exit_code(), again.files.len()), (1, 0));
}

#[test]
fn a_hard_link_elsewhere_keeps_the_original() {
    let it = Installation::new("0.5.15", GUARDED);
    let cache = tempfile::tempdir_in(it.path()).unwrap();
    let cached = cache.path().join("cached.py");
    std::fs::hard_link(it.path().join(UTILS), &cached).unwrap();
    carry_out(&it.release(), &it.plan("b200", &Options::default()).unwrap()).unwrap();
    assert_ne!(it.text(UTILS), SIZES);
    assert_eq!(std::fs::read_to_string(cached).unwrap(), SIZES);
}

#[test]
fn a_measured_value_corrects_theirs_and_nothing_else() {
    let it = Installation::new("0.5.15", GUARDED);
    let card = measured_card("h200", "1536KiB");
    let report = check(&it.release(), &card, &embedded()).unwrap();
    let sizes = report.findings.iter().find(|it| it.id == SIZES_ID).unwrap();
    assert_eq!(sizes.status, Status::Differs, "{sizes:?}");
    let plan = plan(&it.release(), &card, &embedded(), &Options::default()).unwrap();
    carry_out(&it.release(), &plan).unwrap();
    assert_eq!(it.text(UTILS), SIZES.replace("2: 64 * MiB", "2: 1572864"));
    assert_eq!(it.python(READ_SIZES), "{9: {2: 1572864, 4: 524288}}");
    let report = check(&it.release(), &card, &embedded()).unwrap();
    assert_eq!(report.findings.iter().find(|it| it.id == SIZES_ID).unwrap().status, Status::Covered);
}
