//! What the files of a checkpoint look like, so that a change of any is noticed.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use whin_kernels::bytes::Bytes;

use crate::Result;
use crate::checkpoint::Source;
use crate::checkpoint::safetensors::INDEX;
use crate::checkpoint::source::SMALL;

/// Files up to this size are sampled whole.
const SAMPLED_WHOLE: usize = 1 << 20;
/// Larger ones at so many places, their start and end among them.
const PROBES: usize = 32;
const PROBE: usize = 4096;

/// Bytes of a file that are looked at before they are given back to the system.
const STRETCH: usize = 8 << 20;

/// One file as its contents tell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contents {
    /// Of the file, in the checkpoint's folder.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// BLAKE3 of some of its bytes.
    pub sample: String,
    /// BLAKE3 of all of them.
    pub blake3: String,
}

/// What the system says of one file. A change of the contents changes this, but for an effort to the contrary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    modified: u128,
    /// When anything about the file last changed, and which file it is; only Unix tells.
    changed: Option<(i64, i64)>,
    file: Option<(u64, u64)>,
}

/// The stamps of files by name.
pub type Stamps = BTreeMap<String, Stamp>;

/// The files that one model was read from.
#[derive(Clone, Debug)]
pub struct Sources {
    source: Source,
    folder: PathBuf,
    shards: Vec<String>,
    files: Vec<File>,
}

#[derive(Clone, Debug, PartialEq)]
struct File {
    name: String,
    size: u64,
    stamp: Stamp,
}

impl Sources {
    /// The small files and the `shards` of the checkpoint in `folder`.
    ///
    /// # Errors
    /// Those of looking at files.
    pub fn look(source: &Source, folder: &Path, shards: &[String]) -> std::io::Result<Self> {
        let mut names: Vec<String> = shards.to_vec();
        names.extend(SMALL.into_iter().chain([INDEX]).map(str::to_owned));
        names.sort();
        names.dedup();
        let mut files = Vec::with_capacity(names.len());
        for name in names {
            match std::fs::metadata(folder.join(&name)) {
                Ok(metadata) => files.push(File { size: metadata.len(), stamp: Stamp::of(&metadata), name }),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { source: source.clone(), folder: folder.to_owned(), shards: shards.to_vec(), files })
    }

    /// Whether all files still look as they did.
    pub fn are_unchanged(&self) -> bool {
        Self::look(&self.source, &self.folder, &self.shards).is_ok_and(|now| now.files == self.files)
    }

    /// What the system says of each now.
    pub fn stamps(&self) -> Stamps {
        self.files.iter().map(|file| (file.name.clone(), file.stamp.clone())).collect()
    }

    /// Reads all of every file.
    pub fn contents(&self) -> Result<Vec<Contents>> {
        let contents = |file: &File| {
            let bytes = self.bytes(file)?;
            let (name, size) = (file.name.clone(), bytes.len() as u64);
            Ok(Contents { name, size, sample: sample(&bytes), blake3: whole(&bytes) })
        };
        self.files.iter().map(contents).collect()
    }

    /// The first difference between `known` and the files as they are, told for people; none where there is none.
    /// `stamped` says how they looked when they were last read whole.
    pub fn difference(&self, known: &[Contents], stamped: &Stamps, all: bool) -> Result<Option<String>> {
        if let Some(gone) = known.iter().find(|known| self.files.iter().all(|file| file.name != known.name)) {
            return Ok(Some(format!("{} is gone", gone.name)));
        }
        for file in &self.files {
            let Some(known) = known.iter().find(|known| known.name == file.name) else {
                return Ok(Some(format!("{} is new", file.name)));
            };
            let bytes = self.bytes(file)?;
            let is_stamped = stamped.get(&file.name) == Some(&file.stamp);
            let differs = bytes.len() as u64 != known.size
                || sample(&bytes) != known.sample
                || ((all || !is_stamped) && whole(&bytes) != known.blake3);
            if differs {
                return Ok(Some(format!("{} has changed", file.name)));
            }
        }
        Ok(None)
    }

    fn bytes(&self, file: &File) -> Result<Bytes> {
        // One that has gone since is like an empty one: it differs from what is known.
        Ok(self.source.read(&file.name)?.unwrap_or_else(|| Bytes::from_static(&[])))
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        #[cfg(unix)]
        let (changed, file) = {
            use std::os::unix::fs::MetadataExt;
            (Some((metadata.ctime(), metadata.ctime_nsec())), Some((metadata.dev(), metadata.ino())))
        };
        #[cfg(not(unix))]
        let (changed, file) = (None, None);
        Self { modified: modified.map_or(0, |time| time.as_nanos()), changed, file }
    }
}

fn sample(bytes: &[u8]) -> String {
    let mut hash = blake3::Hasher::new();
    if bytes.len() <= SAMPLED_WHOLE {
        hash.update(bytes);
    } else {
        let last = bytes.len() - PROBE;
        for probe in 0..PROBES {
            let start = (last as u128 * probe as u128 / (PROBES - 1) as u128) as usize;
            hash.update(&bytes[start..start + PROBE]);
        }
    }
    hash.finalize().to_hex().to_string()
}

fn whole(bytes: &Bytes) -> String {
    let mut hash = blake3::Hasher::new();
    for start in (0..bytes.len()).step_by(STRETCH) {
        let end = bytes.len().min(start + STRETCH);
        hash.update(&bytes[start..end]);
        bytes.release(start..end);
    }
    hash.finalize().to_hex().to_string()
}
