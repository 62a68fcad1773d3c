//! Checkpoints in temporary folders: fixtures of the library, changed for the occasion.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;
use tempfile::TempDir;

pub const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The folder of the built-in model.
pub fn seedling() -> PathBuf {
    Path::new(REPOSITORY).join("models/seedling")
}

/// A checkpoint to change.
pub struct Folder(TempDir);

/// Tensors by name: type, shape, bytes.
pub type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

impl Folder {
    pub fn empty() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A copy of a checkpoint of the library's tests; they have no tokenizer.
    pub fn fixture(name: &str) -> Self {
        Self::copy(&Path::new(REPOSITORY).join("crates/whin/tests/fixtures").join(name))
    }

    pub fn copy(from: &Path) -> Self {
        let folder = Self::empty();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            if !entry.file_name().to_str().unwrap().starts_with("golden") {
                fs::copy(entry.path(), folder.file(entry.file_name().to_str().unwrap())).unwrap();
            }
        }
        folder
    }

    pub fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.file(name), bytes).unwrap();
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).unwrap();
    }

    pub fn truncate(&self, name: &str) {
        let bytes = fs::read(self.file(name)).unwrap();
        self.write(name, &bytes[..bytes.len() - 2]);
    }

    /// Sets keys of config.json.
    pub fn config(&self, changes: &[(&str, Value)]) {
        let mut config: Value = serde_json::from_slice(&fs::read(self.file("config.json")).unwrap()).unwrap();
        for (key, value) in changes {
            config[*key] = value.clone();
        }
        self.write("config.json", config.to_string());
    }

    /// Changes the tensors of the only weight file.
    pub fn tensors(&self, change: impl FnOnce(&mut Tensors)) {
        let bytes = fs::read(self.file("model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let owned = |(name, view): (String, TensorView<'_>)| {
            (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
        };
        let mut tensors: Tensors = file.tensors().into_iter().map(owned).collect();
        change(&mut tensors);
        let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
            (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        self.write("model.safetensors", safetensors::serialize(views, None).unwrap());
    }
}

/// Ids for the vocabulary of the fixtures.
pub const IDS: &str = "77,9,29,30,78,3";
