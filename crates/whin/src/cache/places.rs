//! Where cells are, and what is in the cells that there are.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::manifest::Subject;
use super::{CacheMode, cell, reader, writer};
use crate::checkpoint::gguf::is_gguf;
use crate::checkpoint::hub::{self, HubName, Settings};
use crate::checkpoint::source::read_short;
use crate::{Error, ErrorKind, Result};

/// The folder for cells in that of a checkpoint.
const IN_CHECKPOINT: &str = ".whin-cache";

/// The end of the name of a folder in that one, which has the cells of one GGUF file.
const OF_FILE: &str = ".gguf";

/// The folders in which the cells of `checkpoint`, a folder or a GGUF file, may lie, in the order in which they are
/// tried. Links are left alone: a checkpoint from elsewhere could have them lead anywhere.
pub fn roots(checkpoint: &Path, mode: &CacheMode) -> Vec<PathBuf> {
    let elsewhere = |folder: &Path| folder.join(name_elsewhere(checkpoint));
    let mut roots = match mode {
        CacheMode::Auto => {
            own_root(checkpoint).into_iter().chain(user_folder().as_deref().map(elsewhere)).collect()
        }
        CacheMode::Folder(folder) => vec![elsewhere(folder)],
        CacheMode::Off => Vec::new(),
    };
    roots.retain(|root| !root.is_symlink());
    roots
}

/// The folder for cells in the checkpoint's own one; none where a link is in the way. Those of a file lie apart from
/// those of other files beside it.
fn own_root(checkpoint: &Path) -> Option<PathBuf> {
    let (folder, name) = match checkpoint.is_file() {
        true => (parent(checkpoint), checkpoint.file_name()),
        false => (checkpoint, None),
    };
    let root = folder.join(IN_CHECKPOINT);
    let Some(name) = name else { return Some(root) };
    let mut name = name.to_owned();
    if !name.to_string_lossy().ends_with(OF_FILE) {
        // A second dot, so that `m` and `m.gguf` do not share one.
        name.push(".");
        name.push(OF_FILE);
    }
    (!root.is_symlink()).then(|| root.join(name))
}

/// All folders for cells in that of a checkpoint: its own, and those of GGUF files in it.
fn own_roots(checkpoint: &Path) -> Vec<PathBuf> {
    let Some(root) = own_root(checkpoint).filter(|root| !root.is_symlink()) else { return Vec::new() };
    let is_of_file = |path: &PathBuf| path.to_string_lossy().ends_with(OF_FILE);
    let of_files = folders(&root).unwrap_or_default().into_iter().filter(is_of_file);
    let mut roots: Vec<PathBuf> = of_files.collect();
    roots.push(root);
    roots
}

fn parent(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The whole path of a checkpoint. A file keeps its name: the cache of the hub has links to files whose names say
/// nothing.
pub fn full(checkpoint: &Path) -> PathBuf {
    let whole = match (checkpoint.is_file(), checkpoint.file_name()) {
        (true, Some(name)) => fs::canonicalize(parent(checkpoint)).map(|folder| folder.join(name)),
        _ => fs::canonicalize(checkpoint),
    };
    whole.unwrap_or_else(|_| checkpoint.to_owned())
}

/// The user's folder for the cells of checkpoints whose own folders cannot be written: `whin` in what
/// `XDG_CACHE_HOME` or the system's custom names. None where this user has none.
fn user_folder() -> Option<PathBuf> {
    dirs::cache_dir().map(|folder| folder.join("whin"))
}

/// The name of a checkpoint among others: readable, and its own.
fn name_elsewhere(checkpoint: &Path) -> String {
    let path = full(checkpoint);
    let hash = blake3::hash(path.as_os_str().as_encoded_bytes()).to_hex();
    // Snapshots of the hub are named by their commit, and lie two levels below the model's name.
    let parts: Vec<_> = path.iter().rev().take(3).map(|part| part.to_string_lossy()).collect();
    let name = match parts.as_slice() {
        [_, snapshots, model] if snapshots == "snapshots" => model.to_string(),
        [name, ..] => name.to_string(),
        [] => String::new(),
    };
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '_' })
        .take(64)
        .collect();
    format!("{name}-{}", &hash[..16])
}

/// Packed weights on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    /// The folder with nothing else in it.
    pub folder: PathBuf,
    /// The checkpoint that they were made from; none where they were never finished, or are damaged.
    pub checkpoint: Option<PathBuf>,
    /// The form of the weights, as [`Weights::name`](crate::Weights::name) has it.
    pub form: String,
    /// Bytes of all files in the folder.
    pub bytes: u64,
    /// When they were written.
    pub written: Option<SystemTime>,
}

/// The folders of the checkpoint that `model` names: itself, folder or GGUF file, or all its snapshots in the cache of the Hugging Face hub.
///
/// # Errors
/// [`CheckpointNotFound`](ErrorKind::CheckpointNotFound) where there is none; nothing is downloaded.
pub fn folders_of(model: &Path) -> Result<Vec<PathBuf>> {
    if model.is_dir() || (model.is_file() && is_gguf(model)) {
        return Ok(vec![model.to_owned()]);
    }
    let name = model.to_str().and_then(HubName::parse);
    let settings = Settings::from_env()?;
    let snapshots = name.map(|name| hub::snapshots(&settings, Some(&name))).unwrap_or_default();
    if snapshots.is_empty() {
        let message =
            format!("there is no folder {}, nor a checkpoint of that name in the cache", model.display());
        return Err(Error::new(ErrorKind::CheckpointNotFound, message));
    }
    Ok(snapshots)
}

/// The packed weights of the `checkpoints` in these folders. Where none are given, all that can be found: in `shared`,
/// or without that in the user's cache folder and in the cache of the Hugging Face hub. In a folder that nothing
/// points to, weights are only found by naming it.
///
/// # Errors
/// [`Io`](ErrorKind::Io) where a folder that exists cannot be read.
pub fn list(shared: Option<&Path>, checkpoints: &[PathBuf]) -> Result<Vec<Cached>> {
    let mut own = checkpoints.to_vec();
    if own.is_empty() && shared.is_none() {
        own.extend(Settings::from_env().map_or(Vec::new(), |settings| hub::snapshots(&settings, None)));
    }
    let mut roots: Vec<PathBuf> = own.iter().flat_map(|path| own_roots(path)).collect();
    if let Some(shared) = shared.map(Path::to_owned).or_else(user_folder) {
        match checkpoints {
            [] => roots.extend(folders(&shared)?),
            _ => roots.extend(checkpoints.iter().map(|path| shared.join(name_elsewhere(path)))),
        }
    }
    let mut found = Vec::new();
    for root in roots.into_iter().filter(|root| !root.is_symlink()) {
        let cells = folders(&root).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        });
        found.extend(cells.into_iter().filter_map(look));
    }
    found.sort_by(|a, b| a.folder.cmp(&b.folder));
    found.dedup();
    Ok(found)
}

/// Removes packed weights. Processes that use them go on unharmed, where the system lets files in use be removed.
///
/// # Errors
/// [`Io`](ErrorKind::Io) where they are being written by another process, cannot be removed, or other files lie
/// among them.
pub fn remove(cached: &Cached) -> Result<()> {
    let folder = &cached.folder;
    let failed = |error| failed("remove", folder, error);
    let Some(lock) = cell::lock(folder).map_err(failed)? else {
        let message = format!("{} is being written by another process: try again later", folder.display());
        return Err(Error::new(ErrorKind::Io, message));
    };
    writer::sweep(folder, &[], &lock).map_err(failed)?;
    fs::remove_file(folder.join(cell::LOCK)).map_err(failed)?;
    drop(lock);
    fs::remove_dir(folder).map_err(failed)?;
    // The last one takes the folder for all cells of its checkpoint along, which then holds at most the note for git.
    if let Some(root) = folder.parent()
        && folders(root)?.is_empty()
    {
        let note = root.join(writer::IGNORE);
        let text = read_short(&note, writer::IGNORED.len() as u64);
        if text.is_ok_and(|text| text == writer::IGNORED.as_bytes()) {
            let _ = fs::remove_file(note);
        }
        let _ = fs::remove_dir(root);
        // Cells of a GGUF file lie one level deeper, in a folder that goes with the last of them.
        if let Some(outer) = root.parent().filter(|outer| outer.ends_with(IN_CHECKPOINT)) {
            let _ = fs::remove_dir(outer);
        }
    }
    Ok(())
}

/// What is in `folder`, if that is a cell: it has the name of one, and the lock that a writer begins with.
fn look(folder: PathBuf) -> Option<Cached> {
    let form = Subject::form_of(folder.file_name()?.to_str()?)?;
    fs::symlink_metadata(folder.join(cell::LOCK)).ok().filter(fs::Metadata::is_file)?;
    let entries = fs::read_dir(&folder).ok()?;
    let bytes = entries.flatten().map(|entry| entry.metadata().map_or(0, |metadata| metadata.len())).sum();
    let written = fs::metadata(folder.join(cell::MANIFEST)).and_then(|metadata| metadata.modified()).ok();
    let checkpoint = reader::manifest(&folder).map(|manifest| manifest.checkpoint.into());
    Some(Cached { folder, checkpoint, form: form.to_owned(), bytes, written })
}

/// The folders in `root`, none where that does not exist.
fn folders(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error)
            if [std::io::ErrorKind::NotFound, std::io::ErrorKind::NotADirectory].contains(&error.kind()) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(failed("read", root, error)),
    };
    let folders = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_type().ok()?.is_dir().then(|| entry.path())
    });
    Ok(folders.collect())
}

fn failed(what: &str, path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot {what} {}: {error}", path.display())).caused_by(error)
}
