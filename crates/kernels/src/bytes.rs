//! Bytes of files: mapped into memory or built into the program.

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

use memmap2::Mmap;

/// The bytes of one file, read-only.
pub struct Bytes(Kind);

enum Kind {
    Mapped(Mmap),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps a regular file, shared with whoever else has it open. Nobody may change or shorten it while the map lives:
    /// changes would show through, and on most systems a program that reads past the new end is stopped by a signal.
    ///
    /// # Errors
    /// Those of opening and mapping; also when `path` is no regular file.
    pub fn map(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Self::map_file(&File::open(path)?)
    }

    /// Maps a regular file that is open for reading, under the same condition as [`Self::map`].
    ///
    /// # Errors
    /// Those of mapping; also when `file` is no regular file.
    pub fn map_file(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        if metadata.len() == 0 {
            return Ok(Self(Kind::Owned(Vec::new())));
        }
        // SAFETY: the map is shared and read-only, so this program cannot change it; that nobody else changes or
        // shortens the file while it is mapped is the documented condition.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self(Kind::Mapped(map)))
    }

    /// Tells the system that all of these bytes will be read, and often: where it can, it fetches them ahead and
    /// keeps them in huge pages. Only a wish.
    pub fn keep_at_hand(&self) {
        #[cfg(unix)]
        if let Kind::Mapped(map) = &self.0 {
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::HugePage);
            let _ = map.advise(memmap2::Advice::WillNeed);
        }
    }

    /// Bytes that are part of the program.
    pub fn from_static(bytes: &'static [u8]) -> Self {
        Self(Kind::Static(bytes))
    }

    /// Gives the memory behind `range` back to the system; reading it again fetches it from the file. Does nothing
    /// where the system knows no such wish.
    pub fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Kind::Mapped(map) = &self.0
            && range.start < range.end
            && range.end <= map.len()
        {
            let len = range.end - range.start;
            // SAFETY: a shared read-only map of a file has only clean pages of that file, and those are what this
            // drops; the next access reads them anew from the file, which is unchanged as `map` demands. A failure
            // leaves the pages where they are, which is harmless.
            let _ =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, len) };
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Kind::Owned(bytes))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Mapped(map) => map,
            Kind::Static(bytes) => bytes,
            Kind::Owned(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Kind::Mapped(_) => "mapped",
            Kind::Static(_) => "static",
            Kind::Owned(_) => "owned",
        };
        write!(f, "Bytes({kind}, {})", self.len())
    }
}

/// A part of the bytes of a file. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct Section {
    bytes: Arc<Bytes>,
    range: Range<usize>,
}

impl Section {
    /// The part `range` of `bytes`; none where it does not lie inside.
    pub fn new(bytes: Arc<Bytes>, range: Range<usize>) -> Option<Self> {
        bytes.get(range.clone())?;
        Some(Self { bytes, range })
    }

    /// The first `len` bytes of this section, which then begins behind them; none, and nothing is taken, where it is
    /// shorter.
    pub fn take(&mut self, len: usize) -> Option<Self> {
        let start = self.range.start;
        let end = start.checked_add(len).filter(|end| *end <= self.range.end)?;
        self.range.start = end;
        Some(Self { bytes: self.bytes.clone(), range: start..end })
    }
}

impl Deref for Section {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}
