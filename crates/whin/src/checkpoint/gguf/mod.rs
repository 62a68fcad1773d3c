//! GGUF files: metadata and tensors in one file, or in the parts of one that was split. Knows the form of the files, and
//! no model.
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>

mod files;
pub mod metadata;
mod reader;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::seen::Seen;
use super::tensors::{Format, Place, Shard, Tensors};

pub use files::{Gguf, is_gguf};
pub use metadata::Metadata;

/// All tensors of the files. That no two have the same name was checked when the files were opened.
pub(super) fn tensors(gguf: &Gguf) -> Tensors {
    let (mut tensors, mut seen) = (BTreeMap::new(), Seen::default());
    gguf.note(&mut seen);
    for part in gguf.parts() {
        let file = Arc::new(Shard { name: part.name.clone(), bytes: part.bytes.clone() });
        for entry in part.entries() {
            let place = Place { file: file.clone(), entry: entry.clone() };
            tensors.insert(entry.name.clone(), place);
        }
    }
    let files = gguf.parts().iter().map(|part| part.name.clone()).collect();
    Tensors::new(Format::Gguf, tensors, files, seen)
}
