//! The cell of one checkpoint and form of weights: found, used, or written anew. What goes wrong with files here costs
//! time or disk space, and is told in one warning; it never keeps a checkpoint from being loaded.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use whin_kernels::Layout;

use super::manifest::Subject;
use super::places;
use super::reader::{self, Packed, Unusable, Witness};
use super::sources::Sources;
use super::writer::Writer;
use super::{CacheMode, Verify};
use crate::model::Spec;
use crate::{Error, ErrorKind, Result, Weights};

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const WITNESS: &str = "witness.json";
pub(super) const LOCK: &str = "lock";
/// Names of files that are being written begin so.
pub(super) const TEMPORARY: &str = "tmp-";

/// What to do where a cell cannot be written.
const REMEDY: &str = "name another place with --cache-dir, or keep none with --no-cache";

/// The places where the packed weights of one checkpoint may be.
#[derive(Debug)]
pub(crate) struct Cell {
    sources: Sources,
    subject: Subject,
    checkpoint: PathBuf,
    /// In the order in which they are tried.
    folders: Vec<PathBuf>,
    verify: Verify,
    threads: usize,
    /// The first cell that was found and is of no use, and why; the text goes on after its name.
    stale: Option<(PathBuf, String)>,
    /// Why a cell that was found could not be read this time. It may be sound, so nothing replaces it.
    blocked: Option<String>,
}

impl Cell {
    /// The cell for the checkpoint of `sources`; none where packed weights are not kept.
    pub fn new(
        sources: Sources,
        spec: &Spec,
        (form, layout): (Weights, Option<Layout>),
        (mode, verify): (&CacheMode, Verify),
        threads: usize,
    ) -> Option<Self> {
        let (Some(checkpoint), Some(layout)) = (sources.source().path(), layout) else { return None };
        if *mode == CacheMode::Off {
            return None;
        }
        let subject = Subject::new(spec, form, layout);
        let name = subject.cell_name();
        let folders = places::roots(&checkpoint, mode).into_iter().map(|root| root.join(&name)).collect();
        let checkpoint = places::full(&checkpoint);
        Some(Self { sources, subject, checkpoint, folders, verify, threads, stale: None, blocked: None })
    }

    /// The packed weights, where a place has them whole and of these very sources.
    pub fn open(&mut self) -> Option<Packed> {
        for folder in &self.folders {
            match reader::open(folder, &self.subject, &self.sources, self.verify, self.threads) {
                Ok(packed) => return Some(packed),
                Err(Unusable::Absent) => {}
                Err(Unusable::Stale(why)) => {
                    self.stale.get_or_insert((folder.clone(), why));
                }
                Err(Unusable::Blocked(why)) => {
                    let folder = folder.display();
                    self.blocked
                        .get_or_insert(format!("the load cache in {folder} cannot be read now: {why}"));
                }
            }
        }
        None
    }

    /// Notes that `packed` is of no use after all: the backend could not take `weight` from it.
    pub fn reject(&mut self, packed: &Packed, weight: &str) {
        let why = format!("lacks {weight} in the form that is needed");
        self.stale.get_or_insert((packed.folder().to_owned(), why));
    }

    /// Starts to write the cell anew, in the first place that lets it. While another process writes it, or where no
    /// place lets it, nothing is kept.
    pub fn keep(self) -> Keeper {
        if let Some(blocked) = &self.blocked {
            let problem = Some(format!("{blocked}; it is left as it is"));
            return Keeper { cell: self, writer: None, problem };
        }
        let mut problems = Vec::new();
        for folder in &self.folders {
            match Writer::start(folder, &self.sources) {
                Ok(Some(writer)) => {
                    return Keeper { cell: self, writer: Some(writer), problem: None };
                }
                Ok(None) => return Keeper { cell: self, writer: None, problem: None },
                Err(error) => problems.push(format!("{}: {error}", folder.display())),
            }
        }
        if self.folders.is_empty() {
            problems.push(
                "this user has no folder for it, or one behind a link, which is not followed".to_owned(),
            );
        }
        let problem = Some(self.unwritable(&problems.join("; ")));
        Keeper { cell: self, writer: None, problem }
    }

    /// Waits until no other process writes the cell.
    pub fn wait_for_writer(&self) {
        for folder in &self.folders {
            wait_for_lock(folder);
        }
    }

    /// The line about a cell that could not be written.
    fn unwritable(&self, why: &str) -> String {
        match &self.stale {
            None => format!("the load cache cannot be written: {why}; {REMEDY}"),
            Some((folder, stale)) => {
                let folder = folder.display();
                format!("the load cache in {folder} {stale}, and cannot be written anew: {why}; {REMEDY}")
            }
        }
    }
}

/// Keeps weights in the cell.
#[derive(Debug)]
pub(crate) struct Keeper {
    cell: Cell,
    writer: Option<Writer>,
    /// Why nothing is written, if that is to be told.
    problem: Option<String>,
}

impl Keeper {
    /// Takes in one weight. After a failure nothing more is kept.
    pub fn add(&mut self, name: &str, kind: &str, shape: &[usize], parts: &[&[u8]]) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = writer.add(name, kind, shape, parts) {
            let why = format!("{}: {error}", writer.folder().display());
            self.problem = Some(self.cell.unwritable(&why));
            self.writer = None;
        }
    }

    /// Whether what is added still goes anywhere.
    pub fn is_writing(&self) -> bool {
        self.writer.is_some()
    }

    /// Whether nothing goes anywhere only because another process is writing the cell.
    pub fn is_taken(&self) -> bool {
        self.writer.is_none() && self.problem.is_none()
    }

    /// The cell, of which nothing is kept.
    pub fn into_cell(self) -> Cell {
        self.cell
    }

    /// Lets `add` add all weights, and brings them safely to the disk, in the background. A failure is a warning.
    pub fn finish(mut self, add: impl FnOnce(&mut Self) + Send + 'static) -> Kept {
        let work = move || {
            add(&mut self);
            if let Err(what) = self.settle() {
                tracing::warn!("{what}");
            }
        };
        let thread = std::thread::Builder::new().name("whin-cache".to_owned()).spawn(work);
        let told = |error: &io::Error| tracing::warn!("the load cache cannot be written: {error}");
        Kept(Mutex::new(thread.inspect_err(told).ok()))
    }

    /// Brings what was added safely to the disk now, and gives the folder.
    ///
    /// # Errors
    /// `io` where the weights could not be kept.
    pub fn finish_now(self) -> Result<PathBuf> {
        let folder = self.settle().map_err(|what| Error::new(ErrorKind::Io, what))?;
        folder.ok_or_else(|| Error::new(ErrorKind::Io, "another process is writing this load cache"))
    }

    /// Gives the folder, none where another process writes it; or what went wrong, as one line.
    fn settle(self) -> Result<Option<PathBuf>, String> {
        let Self { cell, writer, problem } = self;
        if let Some(problem) = problem {
            return Err(problem);
        }
        let Some(writer) = writer else { return Ok(None) };
        let folder = writer.folder().to_owned();
        match writer.finish(cell.subject.clone(), &cell.checkpoint) {
            Ok(()) => {}
            // No failure of the disk.
            Err(error) if error.kind() == io::ErrorKind::Other => {
                return Err(format!("the load cache has not been written: {error}"));
            }
            Err(error) => return Err(cell.unwritable(&format!("{}: {error}", folder.display()))),
        }
        match cell.stale {
            Some((stale, why)) if stale == folder => {
                tracing::warn!("the load cache in {} {why}; it has been written anew", folder.display());
            }
            Some((stale, why)) => {
                let stale = stale.display();
                tracing::warn!("the load cache in {stale} {why}; another is now in {}", folder.display());
            }
            None => {}
        }
        Ok(Some(folder))
    }
}

/// Weights on their way to the disk. Dropping this waits for them.
#[derive(Debug)]
pub(crate) struct Kept(Mutex<Option<JoinHandle<()>>>);

impl Kept {
    /// Waits until nothing is being written any more.
    pub fn wait(&self) {
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A fault over there has been told there.
        let _ = thread.take().map(JoinHandle::join);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.wait();
    }
}

/// Notes how the sources of a cell look.
pub(super) fn write_witness(folder: &Path, witness: &Witness) -> io::Result<()> {
    let file = temporary(folder)?;
    serde_json::to_writer(file.as_file(), witness)?;
    persist(file, &folder.join(WITNESS))
}

/// A new file in `folder` that vanishes again unless it is [`persist`]ed.
pub(super) fn temporary(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMPORARY);
    // Whoever may read the folder may use what is in it: the user's mask decides, as for other files.
    #[cfg(unix)]
    let builder = {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666))
    };
    // The crate names a path that nobody knows.
    builder.tempfile_in(folder).map_err(|error| error.kind().into())
}

/// Gives a file its name, in one step, in place of whatever has it.
pub(super) fn persist(file: tempfile::NamedTempFile, path: &Path) -> io::Result<()> {
    clear(path)?;
    file.persist(path).map(|_| ()).map_err(|error| error.error)
}

/// Makes room for a file: a folder of its name goes, and so does a link, which could lead anywhere.
fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(metadata) if !metadata.is_file() => fs::remove_file(path),
        _ => Ok(()),
    }
}

/// A cell that this process alone may write.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
    /// Some file systems know no locks. Then others may be writing too, files of their own, which have to stay.
    pub is_sure: bool,
}

/// Holds a cell for its only writer, until it is dropped; none where another process does.
pub(super) fn lock(folder: &Path) -> io::Result<Option<Lock>> {
    let path = folder.join(LOCK);
    clear(&path)?;
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
    let is_sure = match file.try_lock() {
        Ok(()) => true,
        Err(fs::TryLockError::WouldBlock) => return Ok(None),
        Err(fs::TryLockError::Error(_)) => false,
    };
    // Whoever removed the cell has removed the lock with it, perhaps after it was opened here.
    if is_at(&file, &path) { Ok(Some(Lock { _file: file, is_sure })) } else { Ok(None) }
}

/// Whether `path` still leads to `file`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(file), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (file.dev(), file.ino()) == (there.dev(), there.ino())
}

/// Elsewhere nobody can remove a file that another has open.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

fn wait_for_lock(folder: &Path) {
    let path = folder.join(LOCK);
    let is_file = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
    // Without a file, or locks, there is nobody to wait for; the next attempt tells.
    if is_file && let Ok(file) = File::open(&path) {
        let _ = file.lock_shared();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_was_removed_is_nobodys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOCK);
        let first = lock(folder.path()).unwrap();
        assert!(first.is_some() && lock(folder.path()).unwrap().is_none());
        let file = File::open(&path).unwrap();
        assert!(is_at(&file, &path));
        fs::remove_file(&path).unwrap();
        assert!(!is_at(&file, &path));
        assert!(lock(folder.path()).unwrap().is_some(), "a new one, for a new cell");
        assert!(!is_at(&file, &path));
    }
}
