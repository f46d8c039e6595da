//! The compiled copy equals the YAML beside it.

use std::path::Path;

use capdb::database::Database;

#[test]
fn the_compiled_copy_equals_the_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let files = Database::open(&folder).expect("the data has no errors");
    let embedded = Database::embedded();
    assert_eq!(serde_json::to_value(embedded.index()).unwrap(), serde_json::to_value(files.index()).unwrap());
    assert!(embedded.index().archs.len() >= 10, "the data is there at all");
    for id in files.index().ids() {
        assert_eq!(embedded.record(&id).unwrap(), files.record(&id).unwrap(), "{id}");
    }
    let texts: Vec<_> = Database::embedded_files().into_iter().map(|file| (file.relative, file.bytes)).collect();
    let on_disk: Vec<_> =
        capdb::load::folder(&folder).unwrap().into_iter().map(|file| (file.relative, file.bytes)).collect();
    assert_eq!(texts, on_disk);
}
