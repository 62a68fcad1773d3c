//! What the files of a checkpoint look like, so that a change of any is noticed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use whin_kernels::bytes::Bytes;

use crate::checkpoint::seen::{Seen, Stamp};
use crate::checkpoint::{Source, Tensors};
use crate::{Checkpoint, Error, ErrorKind, Result};

/// Files up to this size are sampled whole.
const SAMPLED_WHOLE: usize = 1 << 20;
/// Larger ones at so many places, their start and end among them.
const PROBES: usize = 32;
const PROBE: usize = 4096;

/// What is said where files do not stay as they are while they are read.
pub const CHANGED: &str = "the checkpoint changed while it was read: load it again when it is complete";

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

/// The stamps of files by name.
pub type Stamps = BTreeMap<String, Stamp>;

/// The files that one model was read from.
#[derive(Clone, Debug)]
pub struct Sources {
    source: Source,
    seen: Seen,
}

impl Sources {
    /// The files of `checkpoint` and of its `tensors`.
    pub fn new(checkpoint: &Checkpoint, tensors: &Tensors) -> Self {
        let seen = checkpoint.seen().clone().and(tensors.seen());
        Self { source: checkpoint.source().clone(), seen }
    }

    /// Where they are.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Whether all files, and no others, are still what they were before any was read.
    pub fn are_unchanged(&self) -> bool {
        self.seen.again(&self.source) == self.seen
    }

    /// What the system said of each.
    pub fn stamps(&self) -> Stamps {
        self.seen.found().map(|(name, stamp)| (name.to_owned(), stamp.clone())).collect()
    }

    /// Reads all of every file.
    ///
    /// # Errors
    /// Those of reading; `io` where a file is no longer what it was.
    pub fn contents(&self) -> Result<Vec<Contents>> {
        let contents = |(name, stamp): (&str, &Stamp)| {
            let bytes = self.bytes(name, stamp)?.ok_or_else(|| Error::new(ErrorKind::Io, CHANGED))?;
            let (name, size) = (name.to_owned(), bytes.len() as u64);
            Ok(Contents { name, size, sample: sample(&bytes), blake3: whole(&bytes) })
        };
        self.seen.found().map(contents).collect()
    }

    /// The first difference between `known` and the files as they are, told for people; none where there is none.
    /// `stamped` says how they looked when they were last read whole.
    pub fn difference(&self, known: &[Contents], stamped: &Stamps, all: bool) -> Result<Option<String>> {
        let is_there = |known: &&Contents| self.seen.found().any(|(name, _)| name == known.name);
        if let Some(gone) = known.iter().find(|known| !is_there(known)) {
            return Ok(Some(format!("{} is gone", gone.name)));
        }
        for (name, stamp) in self.seen.found() {
            let Some(known) = known.iter().find(|known| known.name == name) else {
                return Ok(Some(format!("{name} is new")));
            };
            // What is compared must be what was read, and nothing that came later.
            let Some(bytes) = self.bytes(name, stamp)? else { return Ok(Some(CHANGED.to_owned())) };
            let is_stamped = stamped.get(name) == Some(stamp);
            let differs = bytes.len() as u64 != known.size
                || sample(&bytes) != known.sample
                || ((all || !is_stamped) && whole(&bytes) != known.blake3);
            if differs {
                return Ok(Some(format!("{name} has changed")));
            }
        }
        Ok(if self.are_unchanged() { None } else { Some(CHANGED.to_owned()) })
    }

    /// The bytes of the file of this stamp; none where another has its name by now.
    fn bytes(&self, name: &str, stamp: &Stamp) -> Result<Option<Bytes>> {
        let found = self.source.read_stamped(name)?;
        Ok(found.filter(|(_, now)| now.as_ref() == Some(stamp)).map(|(bytes, _)| bytes))
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
