//! Checkpoints by their name on the Hugging Face hub: found in the cache that all its tools share, else downloaded into
//! it. Knows which files a checkpoint has, and nothing of what is in them but that a config must be one that runs.

mod answer;
mod cache;
mod client;
mod name;
mod settings;
mod transfer;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use self::answer::Listing;
use self::cache::Cache;
use self::client::Client;
use self::name::is_segment;
use self::transfer::Transfer;
use super::safetensors::{INDEX, SINGLE, shards};
use super::source::{SMALL, Source};
use crate::{Error, ErrorKind, Result};

pub use self::name::HubName;
pub use self::settings::Settings;

const CONFIG: &str = "config.json";
/// No token and no reference to a commit is as long.
const LONGEST_TEXT: u64 = 4096;

/// How far the download of a file has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download<'a> {
    /// The name of the file.
    pub file: &'a str,
    /// Bytes that are there.
    pub done: u64,
    /// Bytes that it has.
    pub total: u64,
}

/// The folder with the files of `name`. A checkpoint that is whole in the cache is used without any connection.
///
/// # Errors
/// `checkpoint_not_found` where neither cache nor hub gives it, `invalid_checkpoint` where it holds no safetensors or
/// came damaged, `unsupported_architecture` before any weights are fetched, `io` where the hub cannot be reached or the
/// cache not be written.
pub fn find(name: &HubName, settings: &Settings, progress: &mut dyn FnMut(Download<'_>)) -> Result<PathBuf> {
    let cache = Cache::new(&settings.cache, name);
    let known = cache.commit(&name.revision);
    let lacking = known.as_ref().map(|commit| cache.lacking(commit)).transpose()?;
    let whole = known.as_ref().filter(|_| lacking.as_ref().is_some_and(Vec::is_empty));
    if let Some(commit) = whole
        && (settings.offline || cache.is_settled(commit))
    {
        return Ok(cache.snapshot(commit));
    }
    if settings.offline {
        return Err(offline(name, &cache, known.as_deref(), lacking.unwrap_or_default()));
    }
    // What can run as it is need not wait for a connection that may not exist.
    let repeats = if whole.is_some() { 0 } else { settings.repeats };
    let settings = Settings { repeats, ..settings.clone() };
    match (download(name, known.as_deref(), &settings, &cache, progress), whole) {
        (Err(error), Some(commit)) => {
            tracing::warn!("{} is used as it lies in the cache: {error}", name.repository);
            Ok(cache.snapshot(commit))
        }
        (found, _) => found,
    }
}

/// The folders of all snapshots in the cache, or of those of `name` in any revision. Complete or not.
pub fn snapshots(settings: &Settings, name: Option<&HubName>) -> Vec<PathBuf> {
    let inside = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let repositories = match name {
        Some(name) => vec![Cache::new(&settings.cache, name).folder().to_owned()],
        None => inside(settings.cache.clone()),
    };
    let is_model = |folder: &PathBuf| {
        folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"models--"))
    };
    repositories.into_iter().filter(is_model).flat_map(|folder| inside(folder.join("snapshots"))).collect()
}

/// Completes the snapshot that is `known`, or begins that of the newest commit.
fn download(
    name: &HubName,
    known: Option<&str>,
    settings: &Settings,
    cache: &Cache,
    progress: &mut dyn FnMut(Download<'_>),
) -> Result<PathBuf> {
    let client = Client::new(settings)?;
    let listing = match known.map(|commit| client.list(name, commit)) {
        // A commit can vanish from its repository when history is rewritten.
        Some(Err(error))
            if error.kind() == ErrorKind::CheckpointNotFound && known != Some(&name.revision) =>
        {
            client.list(name, &name.revision)?
        }
        Some(listing) => listing?,
        None => client.list(name, &name.revision)?,
    };
    check_files(name, &listing)?;
    let Listing { commit, files } = listing;
    let mut transfer = Transfer { client: &client, cache, name, commit: &commit, progress };
    let source = Source::Folder(cache.snapshot(&commit));
    transfer.fetch(CONFIG)?;
    let config = source.read(CONFIG)?.ok_or_else(|| vanished(&source))?;
    // What cannot run costs no gigabytes.
    crate::model::config::read(&config)?;
    for small in SMALL.into_iter().filter(|small| files.contains(*small)) {
        transfer.fetch(small)?;
    }
    let mut weights = vec![SINGLE.to_owned()];
    if files.contains(INDEX) {
        transfer.fetch(INDEX)?;
        weights = shards(&source)?;
    }
    if let Some(shard) = weights.iter().find(|shard| !is_segment(shard) || !files.contains(*shard)) {
        let message =
            format!("{} names {shard:?}, which is no file of {}", source.describe(INDEX), name.repository);
        return Err(Error::new(ErrorKind::InvalidCheckpoint, message));
    }
    for shard in &weights {
        transfer.fetch(shard)?;
    }
    cache.settle(&commit, |file| files.contains(file));
    // Last, so that what is interrupted is looked up afresh.
    if name.revision != commit {
        cache.note_commit(&name.revision, &commit)?;
    }
    Ok(cache.snapshot(&commit))
}

/// Whether a repository holds what a checkpoint needs.
fn check_files(name: &HubName, listing: &Listing) -> Result<()> {
    let holds = |extension: &str| listing.files.iter().any(|file| file.ends_with(extension));
    let repository = &name.repository;
    let weights = [INDEX, SINGLE].iter().any(|file| listing.files.contains(*file));
    if weights && listing.files.contains(CONFIG) {
        return Ok(());
    }
    let what = match weights {
        true => "config.json".to_owned(),
        false => format!("safetensors: neither {SINGLE} nor {INDEX}"),
    };
    let hint = if holds(".gguf") {
        "GGUF files are not supported yet: give the repository from which they were made"
    } else if holds(".bin") || holds(".pth") || holds(".pt") {
        "pickled PyTorch files are not read, since they can run code: look for a revision with safetensors"
    } else {
        "give a repository with config.json and .safetensors files"
    };
    Err(Error::new(ErrorKind::InvalidCheckpoint, format!("{repository} holds no {what}; {hint}")))
}

fn offline(name: &HubName, cache: &Cache, commit: Option<&str>, mut lacking: Vec<String>) -> Error {
    let HubName { repository, revision } = name;
    let folder = cache.folder();
    let is_there = |commit: &str| cache.snapshot(commit).is_dir();
    let what = match commit.filter(|commit| is_there(commit)) {
        None => format!("{revision} of {repository} is not in the cache ({})", folder.display()),
        Some(commit) => {
            let more = lacking.len().saturating_sub(5);
            lacking.truncate(5);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let place = cache.snapshot(commit);
            format!("{} of {repository} lacks {}{more}", place.display(), lacking.join(", "))
        }
    };
    let message = format!(
        "there is no folder {repository}, and {what}; nothing is downloaded, since HF_HUB_OFFLINE is set: unset it, or run \
         `hf download {repository}` where there is a connection"
    );
    Error::new(ErrorKind::CheckpointNotFound, message)
}

/// What is in the regular file `path`, which must be short. Anything else, such as a pipe or a device, could be silent
/// or without end.
fn short_text(path: &Path) -> io::Result<String> {
    let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    if !std::fs::metadata(path)?.is_file() {
        return invalid("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST_TEXT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST_TEXT {
        return invalid(format!("it is longer than {LONGEST_TEXT} bytes"));
    }
    String::from_utf8(bytes).or_else(|_| invalid("it is no text".to_owned()))
}

fn vanished(source: &Source) -> Error {
    let message = format!("{} has been removed while it was read; start again", source.describe(CONFIG));
    Error::new(ErrorKind::CheckpointNotFound, message)
}
