//! One repository in the Hugging Face cache, in the layout that `huggingface_hub` shares: `refs` with commits,
//! `snapshots` with links, `blobs` with what they point to, and locks beside it. Knows no request.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::name::{HubName, is_commit};
use super::short_text;
use crate::checkpoint::safetensors::{INDEX, SINGLE, shards};
use crate::checkpoint::source::{SMALL, Source};
use crate::{Error, ErrorKind, Result};

/// How long a look-up in vain is remembered.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// How often a lock is asked for that another process holds.
const LOOK: Duration = Duration::from_millis(100);
/// A shorter wait needs no word.
const WORTH_TELLING: Duration = Duration::from_secs(2);
/// A lock whose holder has not fetched a byte for so long is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The folders of one repository. They need not exist.
pub struct Cache {
    root: PathBuf,
    name: String,
}

impl Cache {
    /// Where `name` lies in the cache at `root`.
    pub fn new(root: &Path, name: &HubName) -> Self {
        Self { root: root.to_owned(), name: name.folder() }
    }

    /// The repository's folder.
    pub fn folder(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    /// The folder with the files of `commit`.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder().join("snapshots").join(commit)
    }

    /// The commit that `revision` stands for, as far as the cache knows.
    pub fn commit(&self, revision: &str) -> Option<String> {
        if is_commit(revision) {
            return Some(revision.to_owned());
        }
        let noted = short_text(&self.folder().join("refs").join(revision)).ok()?;
        Some(noted.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// Notes that `revision` stands for `commit`.
    pub fn note_commit(&self, revision: &str, commit: &str) -> Result<()> {
        if self.commit(revision).as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.folder().join("refs").join(revision);
        replaced(&path, |new| fs::write(new, commit)).map_err(|error| denied(&path, error))
    }

    /// Whether the snapshot of `commit` holds the file `name`.
    pub fn holds(&self, commit: &str, name: &str) -> bool {
        fs::metadata(self.snapshot(commit).join(name)).is_ok_and(|metadata| metadata.is_file())
    }

    /// The files without which the snapshot of `commit` cannot run. The tokenizer is none of them: it is not needed for
    /// token ids.
    ///
    /// # Errors
    /// `invalid_checkpoint` where its index is broken.
    pub fn lacking(&self, commit: &str) -> Result<Vec<String>> {
        let mut needed = vec!["config.json".to_owned()];
        if self.holds(commit, INDEX) {
            needed.extend(shards(&Source::Folder(self.snapshot(commit)))?);
        } else {
            needed.push(SINGLE.to_owned());
        }
        // A link whose content is gone cannot be passed over like a file that never was there.
        let is_named = |name: &&&str| self.snapshot(commit).join(name).is_symlink();
        needed.extend(SMALL.iter().skip(1).filter(is_named).map(|name| (*name).to_owned()));
        needed.retain(|name| !self.holds(commit, name));
        Ok(needed)
    }

    /// Whether somebody has looked for more files of `commit` within a day.
    pub fn was_asked(&self, commit: &str) -> bool {
        let noted = fs::metadata(self.asked(commit)).and_then(|note| note.modified());
        noted.is_ok_and(|time| time.elapsed().is_ok_and(|elapsed| elapsed < DAY))
    }

    /// Notes that somebody has.
    pub fn note_asked(&self, commit: &str) {
        // Without this note the next start asks again: no more than that.
        let _ = replaced(&self.asked(commit), |new| fs::write(new, ""));
    }

    fn asked(&self, commit: &str) -> PathBuf {
        self.folder().join(".asked").join(commit)
    }

    /// Where the content called `etag` lies once it is whole.
    pub fn blob(&self, etag: &str) -> PathBuf {
        self.folder().join("blobs").join(etag)
    }

    /// Makes the content called `etag` the file `name` of `commit`.
    pub fn link(&self, commit: &str, name: &str, etag: &str) -> Result<()> {
        let path = self.snapshot(commit).join(name);
        let linked = |new: &Path| linked(etag, new).or_else(|_| fs::copy(self.blob(etag), new).map(|_| ()));
        replaced(&path, linked).map_err(|error| denied(&path, error))
    }

    /// Waits for the lock under which the content called `etag` is fetched. It is held until the file is dropped.
    ///
    /// # Errors
    /// `io` where the cache cannot be written, or where another process holds the lock and fetches nothing.
    pub fn lock(&self, etag: &str, part: &Path) -> Result<File> {
        let path = self.root.join(".locks").join(&self.name).join(format!("{etag}.lock"));
        let mut seen = (None, Instant::now());
        let (started, mut told) = (Instant::now(), false);
        loop {
            let opened = made(&path).and_then(|()| {
                File::options().create(true).truncate(false).read(true).write(true).open(&path)
            });
            let file = opened.map_err(|error| denied(&path, error))?;
            match file.try_lock() {
                // Others may delete the lock when they let it go: then this one keeps nobody out.
                Ok(()) if is_at(&file, &path) => return Ok(file),
                Ok(()) => continue,
                Err(TryLockError::Error(error)) => return Err(denied(&path, error)),
                Err(TryLockError::WouldBlock) => {}
            }
            if !told && started.elapsed() > WORTH_TELLING {
                told = true;
                tracing::warn!("another process downloads {}; waiting for it", part.display());
            }
            let length = fs::metadata(part).ok().map(|metadata| metadata.len());
            if seen.0 != length {
                seen = (length, Instant::now());
            } else if seen.1.elapsed() > LONGEST_WAIT {
                let shown = path.display();
                return Err(Error::new(
                    ErrorKind::Io,
                    format!("another process holds {shown} but downloads nothing: end it, and try again"),
                ));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Whether `path` still leads to `file`.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let there = fs::metadata(path).map(place).ok();
        there.is_some() && file.metadata().map(place).ok() == there
    }
    #[cfg(not(unix))]
    {
        // A file that is open cannot be deleted there.
        let _ = (file, path);
        true
    }
}

fn linked(etag: &str, path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(Path::new("../../blobs").join(etag), path)
    }
    #[cfg(not(unix))]
    {
        // Links take rights there that few users have; a copy takes none.
        let _ = (etag, path);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Puts at `path` what `make` makes under another name: renamed at once, so that nobody who reads meanwhile finds a gap,
/// and nothing is written to what lies there, which need not be a regular file.
fn replaced(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    static TRIES: AtomicU64 = AtomicU64::new(0);
    made(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unique = (std::process::id(), TRIES.fetch_add(1, Ordering::Relaxed));
    let new = path.with_file_name(format!(".{name}.{}.{}", unique.0, unique.1));
    let done = make(&new).and_then(|()| fs::rename(&new, path));
    done.inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Makes the folder in which `path` is to lie.
pub fn made(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// The failure to write `path`.
pub fn denied(path: &Path, error: io::Error) -> Error {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room, and start again: it goes on there"
        }
        _ => "give a folder that can be written in HF_HUB_CACHE",
    };
    let message = format!("cannot write {}: {error}; {remedy}", path.display());
    Error::new(ErrorKind::Io, message).caused_by(error)
}
