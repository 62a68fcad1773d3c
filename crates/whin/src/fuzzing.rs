//! Doors for the fuzzers and for the replay of their corpus: what cannot be reached through the rest of the library.
//! Each runs what loading runs. Nothing else uses them, and nothing about them is promised.

use std::collections::BTreeMap;
use std::path::Path;

use whin_kernels::Backend;
use whin_kernels::cpu::Cpu;
use whin_kernels::cpu::isa::scalar::Scalar;

use crate::cache::{CacheMode, Cell, Sources, Verify};
use crate::checkpoint::Source;
use crate::model::weights::Model;
use crate::{Checkpoint, Result, Weights};

/// A checkpoint of which these files, by name, are all there is.
pub fn source<const N: usize>(files: [(&str, &[u8]); N]) -> Source {
    let files = files.map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
    Source::Memory(BTreeMap::from(files).into())
}

/// Opens the load cache of one checkpoint, again and again.
pub struct CacheReader {
    checkpoint: Checkpoint,
    sources: Sources,
    mode: CacheMode,
    backend: Cpu<Scalar>,
}

impl CacheReader {
    /// For the checkpoint in a folder, and caches in another one.
    ///
    /// # Errors
    /// As [`Checkpoint::open`] and [`Checkpoint::tensors`].
    pub fn new(checkpoint: &Path, caches: &Path) -> Result<Self> {
        let checkpoint = Checkpoint::open(Some(checkpoint))?;
        let sources = Sources::new(&checkpoint, &checkpoint.tensors()?);
        let mode = CacheMode::Folder(caches.to_owned());
        Ok(Self { checkpoint, sources, mode, backend: Cpu::new(1)? })
    }

    /// Whether the cache has all weights in this form. Reads whatever is there now, and takes every weight from it.
    pub fn is_whole(&mut self, form: Weights) -> bool {
        let cell = Cell::new(
            self.sources.clone(),
            self.checkpoint.spec(),
            (form, self.backend.layout()),
            (&self.mode, Verify::Quick),
            1,
        );
        let (spec, backend) = (self.checkpoint.spec(), &mut self.backend);
        cell.and_then(|mut cell| Model::open(&mut cell, backend, spec, form)).is_some()
    }
}
