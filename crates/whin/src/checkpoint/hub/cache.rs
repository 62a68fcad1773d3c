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
use crate::checkpoint::source::Source;
use crate::{Error, ErrorKind, Result};

/// Files whose absence would go unnoticed: each is there, or known not to exist.
const EXPECTED: [&str; 3] = ["generation_config.json", "tokenizer.json", "tokenizer_config.json"];

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

    /// The files without which the snapshot of `commit` cannot run.
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
        needed.retain(|name| !self.holds(commit, name));
        Ok(needed)
    }

    /// Whether each file that a checkpoint usually has is in the snapshot of `commit`, or is known not to exist.
    pub fn is_settled(&self, commit: &str) -> bool {
        EXPECTED.iter().all(|name| self.holds(commit, name) || self.absence(commit, name).exists())
    }

    /// Notes which of the files that a checkpoint usually has `commit` does not have.
    pub fn settle(&self, commit: &str, exists: impl Fn(&str) -> bool) {
        for name in EXPECTED.iter().filter(|name| !exists(name)) {
            let path = self.absence(commit, name);
            // Without this note the next start asks again: no more than that.
            let _ = made(&path).and_then(|()| fs::write(&path, ""));
        }
    }

    fn absence(&self, commit: &str, name: &str) -> PathBuf {
        self.folder().join(".no_exist").join(commit).join(name)
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
