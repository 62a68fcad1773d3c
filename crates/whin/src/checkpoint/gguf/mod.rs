//! GGUF files: metadata and tensors in one file, or in the parts of one that was split. Knows the form of the files, and
//! no model.
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>

mod files;
pub mod metadata;
mod names;
mod reader;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::seen::Seen;
use super::tensors::{Format, Place, Shard, Tensors};
use crate::{Error, ErrorKind, Result};

pub use files::{Gguf, is_gguf};
pub use metadata::Metadata;

/// All tensors of the files, of which no two have the same name, as was checked when they were opened.
///
/// # Errors
/// `invalid_checkpoint` where two are claimed by the same name.
pub(super) fn tensors(gguf: &Gguf) -> Result<Tensors> {
    let (mut tensors, mut seen) = (BTreeMap::new(), Seen::default());
    gguf.note(&mut seen);
    for part in gguf.parts() {
        let file = Arc::new(Shard { name: part.name.clone(), bytes: part.bytes.clone() });
        // Frequencies are read with the config.
        for entry in part.entries().iter().filter(|entry| !entry.name.starts_with("rope_")) {
            let place = Place { file: file.clone(), entry: entry.clone() };
            let name = names::claimed(&entry.name);
            if let Some(other) = tensors.insert(name, place) {
                let (one, other) = (&entry.name, &other.entry.name);
                let message =
                    format!("tensors {one:?} and {other:?} in {} are the same part of the model", part.name);
                return Err(Error::new(ErrorKind::InvalidCheckpoint, message));
            }
        }
    }
    let files = gguf.parts().iter().map(|part| part.name.clone()).collect();
    Ok(Tensors::new(Format::Gguf, tensors, files, seen))
}
