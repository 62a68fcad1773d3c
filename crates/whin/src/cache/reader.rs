//! Opens a cell: nothing of it is used before all of it has been checked.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde::{Deserialize, Serialize};
use whin_kernels::WeightKind;
use whin_kernels::bytes::{Bytes, Section};
use xxhash_rust::xxh3::xxh3_64;

use super::manifest::{self, Entry, HEAD, LONGEST, Manifest, Subject};
use super::sources::{Sources, Stamps};
use super::{Verify, cell, writer};
use crate::available_threads;
use crate::checkpoint::source::read_short;
use crate::error::shortened;

/// The weights of a cell, mapped and checked.
#[derive(Debug)]
pub(crate) struct Packed {
    folder: PathBuf,
    data: Arc<Bytes>,
    entries: HashMap<String, Entry>,
}

/// When the contents of the sources were last compared in full, and what the system said of them then.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// [`manifest::digest`] of the manifest that this belongs to.
    pub manifest: String,
    pub files: Stamps,
}

/// Why a cell cannot be used.
#[derive(Debug)]
pub enum Unusable {
    /// There is none.
    Absent,
    /// What is there is damaged, or is no longer, or not yet, what is wanted; the text goes on after "the cell".
    Stale(String),
    /// It cannot be read now, which says nothing about it.
    Blocked(String),
}

/// Whether a failure to read tells something about the file itself. Memory, handles and devices that fail do not.
fn of_reading(error: &io::Error, what: &str) -> Unusable {
    use io::ErrorKind::{InvalidData, InvalidInput, NotADirectory, NotFound, PermissionDenied};
    match error.kind() {
        // Somebody else's.
        PermissionDenied => Unusable::Absent,
        InvalidData | InvalidInput | NotADirectory | NotFound => Unusable::Stale(format!("{what}: {error}")),
        _ => Unusable::Blocked(error.to_string()),
    }
}

impl From<String> for Unusable {
    fn from(why: String) -> Self {
        // Names in a manifest may be as long as that is.
        Self::Stale(shortened(why, 300))
    }
}

/// Opens the cell in `folder`.
///
/// # Errors
/// Why it cannot be used.
pub fn open(
    folder: &Path,
    subject: &Subject,
    sources: &Sources,
    verify: Verify,
    threads: usize,
) -> Result<Packed, Unusable> {
    if folder.is_symlink() {
        return Err("is a link, which is not followed".to_owned().into());
    }
    let path = folder.join(cell::MANIFEST);
    // A cell that is being replaced or removed just then is not to blame for it.
    for _ in 0..3 {
        let json = match read_short(&path, LONGEST) {
            Ok(json) => json,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unusable::Absent),
            Err(error) => return Err(of_reading(&error, "has a manifest that cannot be read")),
        };
        let opened = open_as(folder, &json, subject, sources, (verify, threads));
        let is_replaced = || read_short(&path, LONGEST).ok().as_ref() != Some(&json);
        match opened {
            Err(Unusable::Stale(_)) if is_replaced() => {}
            opened => return opened,
        }
    }
    Err(Unusable::Absent)
}

/// Opens the cell with the manifest in `json`.
fn open_as(
    folder: &Path,
    json: &[u8],
    subject: &Subject,
    sources: &Sources,
    (verify, threads): (Verify, usize),
) -> Result<Packed, Unusable> {
    let manifest = Manifest::parse(json)?;
    if manifest.subject != *subject {
        return Err("was made by another version, or for another model".to_owned().into());
    }
    let digest = manifest::digest(json);
    let witness = witness(folder).filter(|witness| witness.manifest == digest);
    let stamped = witness.map(|witness| witness.files).unwrap_or_default();
    let difference = sources.difference(&manifest.sources, &stamped, verify == Verify::Full);
    match difference {
        Ok(None) => {}
        Ok(Some(what)) => return Err(format!("was made from other files: {what}").into()),
        Err(error) => return Err(Unusable::Blocked(error.to_string())),
    }
    let data = map(&folder.join(&manifest.data), &manifest, json)?;
    check_sums(&data, &manifest.weights, threads)?;
    if stamped != sources.stamps() || holds_more(folder, &manifest.data) {
        // The next start is quicker with it, and no worse without.
        let _ = renew_witness(folder, &manifest.data, &Witness { manifest: digest, files: sources.stamps() });
    }
    let entries = manifest.weights.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
    Ok(Packed { folder: folder.to_owned(), data: Arc::new(data), entries })
}

/// The manifest of the cell in `folder`, as far as it can be read.
pub fn manifest(folder: &Path) -> Option<Manifest> {
    Manifest::parse(&read_short(&folder.join(cell::MANIFEST), LONGEST).ok()?).ok()
}

/// Whether a writer that was killed has left something beside the files of a cell.
fn holds_more(folder: &Path, data: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let known = [data, cell::MANIFEST, cell::WITNESS, cell::LOCK];
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        known.iter().all(|known| name != *known) && name.to_str().is_some_and(writer::is_ours)
    })
}

/// Notes anew how the sources look, unless the cell is just being replaced, and takes along what writers that were
/// killed have left.
fn renew_witness(folder: &Path, data: &str, witness: &Witness) -> io::Result<()> {
    let Some(lock) = cell::lock(folder)? else { return Ok(()) };
    if manifest::digest(&read_short(&folder.join(cell::MANIFEST), LONGEST)?) != witness.manifest {
        return Ok(());
    }
    writer::sweep(folder, &[data, cell::MANIFEST, cell::WITNESS], &lock)?;
    cell::write_witness(folder, witness)
}

fn witness(folder: &Path) -> Option<Witness> {
    serde_json::from_slice(&read_short(&folder.join(cell::WITNESS), LONGEST).ok()?).ok()
}

/// Maps the weights' file of `manifest`, whose bytes are `json`.
fn map(path: &Path, manifest: &Manifest, json: &[u8]) -> Result<Bytes, Unusable> {
    let data = Bytes::map(path).map_err(|error| of_reading(&error, "has weights that cannot be read"))?;
    if data.len() as u64 != manifest.size {
        return Err(format!("has {} bytes of weights instead of {}", data.len(), manifest.size).into());
    }
    if data.get(..HEAD as usize) != Some(&manifest::head(json, manifest.size)) {
        return Err("has weights and a manifest that do not belong together".to_owned().into());
    }
    data.keep_at_hand();
    Ok(data)
}

/// Compares the checksums of all entries, on several threads: together they read as fast as memory is.
fn check_sums(data: &Bytes, entries: &[Entry], threads: usize) -> Result<(), Unusable> {
    let next = AtomicUsize::new(0);
    let damaged = AtomicUsize::new(usize::MAX);
    std::thread::scope(|scope| {
        let work = || {
            loop {
                let index = next.fetch_add(1, Relaxed);
                let Some(entry) = entries.get(index) else { break };
                if manifest::checksum(xxh3_64(&data[range(entry)])) != entry.xxh3 {
                    damaged.fetch_min(index, Relaxed);
                }
            }
        };
        // The pages of the system's own cache are there already: more threads than cores would only wait.
        for _ in 1..threads.min(available_threads()).min(entries.len()) {
            // Where the system starts no more, those that there are do it.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    match entries.get(damaged.into_inner()) {
        Some(entry) => Err(format!("is damaged: {} has another checksum", entry.name).into()),
        None => Ok(()),
    }
}

/// Where an entry lies; [`Manifest::parse`] has checked that this is inside the file.
fn range(entry: &Entry) -> std::ops::Range<usize> {
    entry.offset as usize..(entry.offset + entry.size) as usize
}

impl Packed {
    /// The cell.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The weight `name`; none where it is not there in this form and shape.
    pub fn section(&self, name: &str, kind: WeightKind, shape: &[usize]) -> Option<Section> {
        let entry =
            self.entries.get(name).filter(|entry| entry.kind == kind.name() && entry.shape == shape)?;
        Section::new(self.data.clone(), range(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_tells_something_about_a_file_condemns_it() {
        let of = |kind: io::ErrorKind| of_reading(&kind.into(), "x");
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::InvalidData, io::ErrorKind::InvalidInput] {
            assert!(matches!(of(kind), Unusable::Stale(why) if why.starts_with("x: ")), "{kind:?}");
        }
        for kind in [io::ErrorKind::OutOfMemory, io::ErrorKind::Interrupted, io::ErrorKind::Other] {
            assert!(matches!(of(kind), Unusable::Blocked(_)), "{kind:?}");
        }
        assert!(matches!(of(io::ErrorKind::PermissionDenied), Unusable::Absent));
    }
}
