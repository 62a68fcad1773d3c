//! Checkpoints to change.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// The demo model in a folder of its own, without any cache.
pub fn seedling() -> TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/seedling");
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        if entry.path().is_file() {
            fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    folder
}
