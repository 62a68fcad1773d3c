//! Checkpoints by their name on the Hugging Face hub: found in the cache that all its tools share, else downloaded into
//! it. Knows which files a checkpoint has, and nothing of what is in them but that a config must be one that runs.

mod answer;
mod cache;
mod client;
mod name;
mod settings;
mod transfer;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::answer::Listing;
use self::cache::Cache;
use self::client::Client;
use self::name::is_segment;
use self::transfer::Transfer;
use super::safetensors::{INDEX, SINGLE, shards};
use super::source::{SMALL, Source, read_short};
use crate::{Error, ErrorKind, Result};

pub use self::name::HubName;
pub use self::settings::Settings;

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
/// How long the hub may be silent where its answer is not necessary.
const SHORT_TIMEOUT: Duration = Duration::from_secs(3);
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

/// The folder with the files of `name`. A checkpoint whose config, weights and tokenizer are in the cache is used without
/// any connection, whoever put them there. Without the tokenizer it is used too, but not before the hub was asked for it,
/// once a day.
///
/// # Errors
/// `checkpoint_not_found` where neither cache nor hub gives it, `invalid_checkpoint` where it holds no safetensors or
/// came damaged, `unsupported_architecture` before any weights are fetched, `io` where the hub cannot be reached or the
/// cache not be written.
pub fn find(name: &HubName, settings: &Settings, progress: &mut dyn FnMut(Download<'_>)) -> Result<PathBuf> {
    let cache = Cache::new(&settings.cache, name);
    let known = cache.commit(&name.revision);
    let lacking = known.as_ref().map(|commit| cache.lacking(commit)).transpose()?.unwrap_or_default();
    if let Some(commit) = known.as_ref().filter(|_| lacking.is_empty()) {
        if !settings.offline && !cache.holds(commit, TOKENIZER) && !cache.was_asked(commit) {
            look_for_tokenizer(name, commit, settings, &cache, progress);
        }
        return Ok(cache.snapshot(commit));
    }
    match settings.offline {
        true => Err(offline(name, &cache, known.as_deref(), lacking)),
        false => download(name, known.as_deref(), settings, &cache, progress),
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

/// Asks once for the tokenizer of a snapshot that has all else: whoever gives token ids need not wait long for it.
fn look_for_tokenizer(
    name: &HubName,
    commit: &str,
    settings: &Settings,
    cache: &Cache,
    progress: &mut dyn FnMut(Download<'_>),
) {
    let [timeout, connect] = [settings.timeout, settings.connect].map(|limit| limit.min(SHORT_TIMEOUT));
    let settings = Settings { repeats: 0, timeout, connect, ..settings.clone() };
    let mut look = || {
        let client = Client::new(&settings, true)?;
        let files = client.list(name, commit)?.files;
        fetch_small(&mut Transfer { client: &client, cache, name, commit, progress }, &files)
    };
    if let Err(error) = look() {
        let repository = &name.repository;
        tracing::warn!(
            "the cache has {repository} without {TOKENIZER}, and {error}; it is used without, and looked for again in a \
             day, or fetched by `hf download {repository}`"
        );
    }
    if !cache.holds(commit, TOKENIZER) {
        cache.note_asked(commit);
    }
}

/// Fetches all of the `files` that are read beside the weights.
fn fetch_small(transfer: &mut Transfer<'_>, files: &BTreeSet<String>) -> Result<()> {
    SMALL.into_iter().filter(|small| files.contains(*small)).try_for_each(|small| transfer.fetch(small))
}

/// Completes the snapshot that is `known`, or begins that of the newest commit.
fn download(
    name: &HubName,
    known: Option<&str>,
    settings: &Settings,
    cache: &Cache,
    progress: &mut dyn FnMut(Download<'_>),
) -> Result<PathBuf> {
    let client = Client::new(settings, false)?;
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
    fetch_small(&mut transfer, &files)?;
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
    if !files.contains(TOKENIZER) {
        cache.note_asked(&commit);
    }
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

/// The text in the regular file `path`, which must be short.
fn short_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_short(path, LONGEST_TEXT)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text"))
}

fn vanished(source: &Source) -> Error {
    let message = format!("{} has been removed while it was read; start again", source.describe(CONFIG));
    Error::new(ErrorKind::CheckpointNotFound, message)
}
