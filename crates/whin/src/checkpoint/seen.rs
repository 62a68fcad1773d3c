//! What the system says of a checkpoint's files: of those that weights are made from, of the very files that were
//! opened, so that whoever looks again later knows whether what was read is what is there.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::source::Source;

/// What the system says of one file. A change of the contents changes this, but for an effort to the contrary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    size: u64,
    modified: u128,
    /// When anything about the file last changed, and which file it is; only Unix tells.
    changed: Option<(i64, i64)>,
    file: Option<(u64, u64)>,
}

/// The files that were looked for, by name, and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen(BTreeMap<String, Option<Stamp>>);

impl Seen {
    /// Looks for the file `name`. One that cannot be asked for counts as not there: whoever reads it will say why.
    pub fn look(&mut self, source: &Source, name: &str) {
        let folder = match source {
            Source::Folder(folder) => folder,
            Source::Gguf(gguf) if gguf.parts().iter().any(|part| part.name == name) => {
                return self.look(gguf.place(), name);
            }
            Source::Gguf(_) | Source::BuiltIn | Source::Memory(_) => return,
        };
        self.note(name, std::fs::metadata(folder.join(name)).ok().map(|metadata| Stamp::of(&metadata)));
    }

    /// Notes what is known of the file `name`, and no longer what was seen under its name.
    pub fn note(&mut self, name: &str, stamp: Option<Stamp>) {
        self.0.insert(name.to_owned(), stamp);
    }

    /// These and the `others`.
    pub fn and(mut self, others: &Self) -> Self {
        self.0.extend(others.0.clone());
        self
    }

    /// Looks for the same files again.
    pub fn again(&self, source: &Source) -> Self {
        let mut now = Self::default();
        self.0.keys().for_each(|name| now.look(source, name));
        now
    }

    /// The files that were there.
    pub fn found(&self) -> impl Iterator<Item = (&str, &Stamp)> {
        self.0.iter().filter_map(|(name, stamp)| Some((name.as_str(), stamp.as_ref()?)))
    }
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        #[cfg(unix)]
        let (changed, file) = {
            use std::os::unix::fs::MetadataExt;
            (Some((metadata.ctime(), metadata.ctime_nsec())), Some((metadata.dev(), metadata.ino())))
        };
        #[cfg(not(unix))]
        let (changed, file) = (None, None);
        let modified = modified.map_or(0, |time| time.as_nanos());
        Self { size: metadata.len(), modified, changed, file }
    }
}
