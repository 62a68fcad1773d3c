//! Writes a cell: the weights while they come, then the manifest, each under a name of its own until it is whole and on
//! the disk.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::NamedTempFile;
use whin_kernels::SECTION_ALIGNMENT;
use xxhash_rust::xxh3::Xxh3;

use super::cell::{self, Lock, MANIFEST, TEMPORARY, WITNESS};
use super::manifest::{self, Entry, FORMAT, HEAD, Manifest, Subject};
use super::reader::Witness;
use super::sources::{CHANGED, Contents, Sources};
use crate::Result;

/// Writes of this size, at multiples of it, end up in huge pages of the system's own cache where it has such.
const CHUNK: usize = 2 << 20;

/// After so many chunks what has been written is brought to the disk, so that little is left to wait for at the end.
const SYNCED: usize = 16;

/// Without locks, what has not been written to for so long is taken for debris.
const OLD: Duration = Duration::from_secs(24 * 3600);

/// Says that only this cache's own files are in a folder, and that nobody wants them in a repository.
pub const IGNORE: &str = ".gitignore";
pub const IGNORED: &str = "# Made by whin to start faster; may be removed at any time.\n*\n";

/// A cell that is being written.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    lock: Lock,
    data: Chunks,
    weights: Vec<Entry>,
    sources: Sources,
    contents: JoinHandle<Result<Vec<Contents>>>,
}

impl Writer {
    /// Begins to write the cell in `folder`; what is there already goes first, so that the disk has room. None
    /// where another process is at it.
    ///
    /// # Errors
    /// Those of making folders and files.
    pub fn start(folder: &Path, sources: &Sources) -> io::Result<Option<Self>> {
        make_folder(folder)?;
        let Some(lock) = cell::lock(folder)? else { return Ok(None) };
        sweep(folder, &[], &lock)?;
        let mut data = Chunks::new(cell::temporary(folder)?)?;
        data.write(&vec![0; HEAD as usize])?;
        let reading = sources.clone();
        // All of each file has to be read for it, which goes well beside the conversion.
        let contents = std::thread::Builder::new().name("whin-hash".to_owned());
        let contents = contents.spawn(move || reading.contents())?;
        let (folder, sources, weights) = (folder.to_owned(), sources.clone(), Vec::new());
        Ok(Some(Self { folder, lock, data, weights, sources, contents }))
    }

    /// Where it is being written.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes one weight behind the others.
    ///
    /// # Errors
    /// Those of writing.
    pub fn add(&mut self, name: &str, kind: &str, shape: &[usize], parts: &[&[u8]]) -> io::Result<()> {
        let offset = self.data.len;
        let mut hash = Xxh3::new();
        for part in parts {
            let gap = part.len().next_multiple_of(SECTION_ALIGNMENT) - part.len();
            for bytes in [*part, &[0; SECTION_ALIGNMENT][..gap]] {
                hash.update(bytes);
                self.data.write(bytes)?;
            }
        }
        self.weights.push(Entry {
            name: name.to_owned(),
            kind: kind.to_owned(),
            shape: shape.to_vec(),
            offset,
            size: self.data.len - offset,
            xxh3: manifest::checksum(hash.digest()),
        });
        Ok(())
    }

    /// Makes the cell valid: its weights are on the disk before the manifest names them.
    ///
    /// # Errors
    /// Those of writing; also where the checkpoint has changed in the meantime.
    pub fn finish(self, subject: Subject, checkpoint: &Path) -> io::Result<()> {
        let Self { folder, lock, data, weights, sources, contents } = self;
        let contents = contents.join().map_err(|_| io::Error::other("the checkpoint could not be hashed"))?;
        let contents = contents.map_err(io::Error::other)?;
        if !sources.are_unchanged() {
            return Err(io::Error::other(CHANGED));
        }
        let name = manifest::data_name(rand::random());
        let manifest = Manifest {
            format: FORMAT,
            subject,
            checkpoint: checkpoint.display().to_string(),
            sources: contents,
            data: name.clone(),
            size: data.len,
            weights,
        };
        let json = manifest.to_json()?;
        let mut data = data.finish()?;
        data.as_file_mut().seek(SeekFrom::Start(0))?;
        data.as_file_mut().write_all(&manifest::head(&json, manifest.size))?;
        data.as_file().sync_all()?;
        cell::persist(data, &folder.join(&name))?;
        let mut file = cell::temporary(&folder)?;
        file.as_file_mut().write_all(&json)?;
        file.as_file().sync_all()?;
        cell::persist(file, &folder.join(MANIFEST))?;
        sync_folder(&folder)?;
        let witness = Witness { manifest: manifest::digest(&json), files: sources.stamps() };
        cell::write_witness(&folder, &witness)?;
        sweep(&folder, &[name.as_str(), MANIFEST, WITNESS], &lock)
    }
}

/// Makes the folder of a cell, and says in the one above what it is.
fn make_folder(folder: &Path) -> io::Result<()> {
    if let Some(root) = folder.parent() {
        fs::create_dir_all(root)?;
        // Only a new file: what has the name already, a link perhaps, stays.
        match File::options().write(true).create_new(true).open(root.join(IGNORE)) {
            Ok(mut file) => file.write_all(IGNORED.as_bytes())?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    // What is not a folder here was never a cell; everything under this name is this cache's own.
    if fs::symlink_metadata(folder).is_ok_and(|metadata| !metadata.is_dir()) {
        fs::remove_file(folder)?;
    }
    fs::create_dir_all(folder)
}

/// Whether a file of this name in a cell was put there by a writer. Others are never touched.
pub fn is_ours(name: &str) -> bool {
    name == MANIFEST || name == WITNESS || name.starts_with(TEMPORARY) || manifest::is_data_name(name)
}

/// Removes what writers have put into a cell, except for the files to `keep`: what is left of those that were killed,
/// and weights that no manifest names any more. Whoever still uses those keeps them until the end.
pub fn sweep(folder: &Path, keep: &[&str], lock: &Lock) -> io::Result<()> {
    // First what names the others: whoever is interrupted leaves no cell that only looks whole.
    if !keep.contains(&MANIFEST) && folder.join(MANIFEST).is_file() {
        fs::remove_file(folder.join(MANIFEST))?;
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(is_ours);
        if !is_ours || keep.iter().any(|keep| name == *keep) || !(lock.is_sure || is_old(&entry)) {
            continue;
        }
        let removed = match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
        // A system that does not remove what is in use has it removed by a later writer.
        if let Err(error) = removed
            && cfg!(unix)
        {
            return Err(error);
        }
    }
    Ok(())
}

/// Whether nobody can still be writing an entry.
fn is_old(entry: &fs::DirEntry) -> bool {
    let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
    modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > OLD)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    // Elsewhere folders cannot be opened like files, and renaming is on the disk when it returns.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// A file that is written in whole chunks, however the bytes come, and brought to the disk meanwhile.
#[derive(Debug)]
struct Chunks {
    file: NamedTempFile,
    rest: Vec<u8>, // less than CHUNK
    len: u64,      // of all bytes, the rest included
    ahead: Sender<()>,
    syncing: JoinHandle<io::Result<()>>,
}

impl Chunks {
    fn new(file: NamedTempFile) -> io::Result<Self> {
        let (ahead, chunks) = channel();
        let same = file.as_file().try_clone()?;
        let work = move || {
            let mut count = 0;
            for () in chunks {
                count += 1;
                if count % SYNCED == 0 {
                    same.sync_data()?;
                }
            }
            same.sync_data()
        };
        let syncing = std::thread::Builder::new().name("whin-sync".to_owned()).spawn(work)?;
        Ok(Self { file, rest: Vec::with_capacity(CHUNK), len: 0, ahead, syncing })
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.len += bytes.len() as u64;
        if !self.rest.is_empty() || bytes.len() < CHUNK {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK - self.rest.len()));
            self.rest.extend_from_slice(now);
            bytes = later;
            if self.rest.len() == CHUNK {
                self.file.as_file_mut().write_all(&self.rest)?;
                self.rest.clear();
                // It ends early only with an error, which the end will tell.
                let _ = self.ahead.send(());
            }
        }
        let (now, later) = bytes.split_at(bytes.len() / CHUNK * CHUNK);
        for chunk in now.chunks_exact(CHUNK) {
            self.file.as_file_mut().write_all(chunk)?;
            let _ = self.ahead.send(());
        }
        self.rest.extend_from_slice(later);
        Ok(())
    }

    /// All of the file, on the disk.
    fn finish(mut self) -> io::Result<NamedTempFile> {
        self.file.as_file_mut().write_all(&self.rest)?;
        drop(self.ahead);
        self.syncing.join().map_err(|_| io::Error::other("the disk could not be waited for"))??;
        Ok(self.file)
    }
}
