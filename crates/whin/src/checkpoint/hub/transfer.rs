//! Fetches one file into the cache: goes on where an earlier try ended, and keeps nothing as good that has another
//! length or hash than the hub told. Knows no format.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use ureq::Body;
use ureq::http::{Response, header};

use super::Download;
use super::answer::Remote;
use super::cache::{Cache, denied, made};
use super::client::{Client, Failure};
use super::name::HubName;
use crate::{Error, ErrorKind, Result};

/// Bytes read at once.
const CHUNK: usize = 256 << 10;
/// A try that brought so much was no failure of the connection as such.
const PROGRESS: u64 = 1 << 20;

/// Where files come from, where they go, and who hears of it.
pub struct Transfer<'a> {
    pub client: &'a Client,
    pub cache: &'a Cache,
    pub name: &'a HubName,
    pub commit: &'a str,
    pub progress: &'a mut dyn FnMut(Download<'_>),
}

/// What is there of a file: its first bytes, and their hash.
struct Part {
    path: PathBuf,
    file: File,
    length: u64,
    hash: Sha256,
}

impl Transfer<'_> {
    /// Sees to it that the snapshot holds `file`.
    ///
    /// # Errors
    /// As the client; `invalid_checkpoint` where what came is not what the hub announced, `io` where the cache cannot be
    /// written.
    pub fn fetch(&mut self, file: &str) -> Result<()> {
        if self.cache.holds(self.commit, file) {
            return Ok(());
        }
        let remote = self.client.look(self.name, self.commit, file)?;
        let blob = self.cache.blob(&remote.etag);
        let is_there =
            || fs::metadata(&blob).is_ok_and(|found| found.is_file() && found.len() == remote.size);
        if !is_there() {
            let part = blob.with_file_name(format!("{}.incomplete", remote.etag));
            made(&part).map_err(|error| denied(&part, error))?;
            let _lock = self.cache.lock(&remote.etag, &part)?;
            // Whoever held the lock may have fetched it.
            if !is_there() {
                self.fill(file, &remote, part.clone())?;
                fs::rename(&part, &blob).map_err(|error| denied(&blob, error))?;
            }
        }
        self.cache.link(self.commit, file, &remote.etag)
    }

    /// Fetches what `path` lacks, and checks it.
    fn fill(&mut self, file: &str, remote: &Remote, path: PathBuf) -> Result<()> {
        // What another tool left can only be gone on with where its end can be checked.
        let most = if remote.sha256.is_some() { remote.size } else { 0 };
        let mut part = Part::open(path, most)?;
        let mut is_own = part.length == 0;
        loop {
            (self.progress)(Download { file, done: part.length, total: remote.size });
            self.extend(file, remote, &mut part)?;
            let found = hex(&part.hash.clone().finalize());
            if remote.sha256.as_ref().is_none_or(|wanted| *wanted == found) {
                return part.keep(remote.size);
            }
            part.clear()?;
            if is_own {
                let _ = fs::remove_file(&part.path);
                return Err(
                    self.wrong(file, &format!("its SHA-256 is {found}, and the hub announced another"))
                );
            }
            // An earlier try, or another tool, had left something else: once more from the start.
            is_own = true;
        }
    }

    /// Asks for the rest of a part until it is whole.
    fn extend(&mut self, file: &str, remote: &Remote, part: &mut Part) -> Result<()> {
        let mut patience = self.client.patience();
        while part.length < remote.size {
            let before = part.length;
            if let Err(failure) = self.once(file, remote, part) {
                if part.length >= before.saturating_add(PROGRESS) {
                    patience = self.client.patience();
                }
                patience.wait(failure)?;
            }
        }
        Ok(())
    }

    /// One request, and what it brings.
    fn once(&mut self, file: &str, remote: &Remote, part: &mut Part) -> Result<(), Failure> {
        let response = self.client.get(self.name, self.commit, file, part.length)?;
        if part.length > 0 && start_of(&response) != Some(part.length) {
            // The server does not do parts: everything comes again.
            part.clear().map_err(Failure::Lasting)?;
            if response.status().as_u16() == 206 {
                return Err(self
                    .client
                    .passing(self.name, &format!("another part of {file} came than was asked for")));
            }
        }
        let rest = remote.size - part.length;
        if let Some(length) = response.body().content_length().filter(|length| *length != rest) {
            let what = format!("{length} bytes come, and the hub announced {rest}");
            return Err(Failure::Lasting(self.wrong(file, &what)));
        }
        let mut body = response.into_body().into_reader();
        let mut chunk = vec![0; CHUNK];
        loop {
            let read =
                body.read(&mut chunk).map_err(|error| self.broken(file, remote, part, &error.to_string()))?;
            if read == 0 {
                break;
            }
            if read as u64 > remote.size - part.length {
                part.clear().map_err(Failure::Lasting)?;
                let what = format!("more bytes come than the {} that the hub announced", remote.size);
                return Err(Failure::Lasting(self.wrong(file, &what)));
            }
            part.append(&chunk[..read]).map_err(Failure::Lasting)?;
            (self.progress)(Download { file, done: part.length, total: remote.size });
        }
        match part.length == remote.size {
            true => Ok(()),
            false => Err(self.broken(file, remote, part, "the connection was closed")),
        }
    }

    fn broken(&self, file: &str, remote: &Remote, part: &Part, what: &str) -> Failure {
        let what = format!("{file} past byte {} of {}: {what}", part.length, remote.size);
        self.client.passing(self.name, &what)
    }

    fn wrong(&self, file: &str, what: &str) -> Error {
        let repository = &self.name.repository;
        let message = format!(
            "{file} of {repository} came damaged: {what}; try again, and check HF_ENDPOINT and proxies"
        );
        Error::new(ErrorKind::InvalidCheckpoint, message)
    }
}

impl Part {
    /// What an earlier try left at `path`, unless it is more than `most` bytes.
    fn open(path: PathBuf, most: u64) -> Result<Self> {
        let open = || {
            let file = File::options().create(true).truncate(false).read(true).write(true).open(&path)?;
            if is_pipe(&file)? {
                // It would take some bytes, and then wait for somebody who reads them.
                return Err(io::Error::other("it is a pipe: remove it"));
            }
            if file.metadata()?.len() > most {
                file.set_len(0)?;
            }
            let mut hash = Sha256::new();
            let length = file.metadata()?.len();
            // Bounded, since what lies there need not be a regular file.
            let length = io::copy(&mut (&file).take(length), &mut Hashed(&mut hash))?;
            Ok((file, length, hash))
        };
        let (file, length, hash) = open().map_err(|error| denied(&path, error))?;
        Ok(Self { path, file, length, hash })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| denied(&self.path, error))?;
        self.hash.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Sees to it that the bytes are on the disk, and that nobody else has written or cut them meanwhile.
    fn keep(&self, size: u64) -> Result<()> {
        let length = self.file.sync_all().and_then(|()| self.file.metadata()).map(|metadata| metadata.len());
        match length.map_err(|error| denied(&self.path, error))? {
            length if length == size => Ok(()),
            length => {
                let shown = self.path.display();
                let message =
                    format!("{shown} has {length} bytes, not {size}: something else writes it; start again");
                Err(Error::new(ErrorKind::Io, message))
            }
        }
    }

    fn clear(&mut self) -> Result<()> {
        let cleared = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        cleared.map_err(|error| denied(&self.path, error))?;
        (self.length, self.hash) = (0, Sha256::new());
        Ok(())
    }
}

fn is_pipe(file: &File) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        Ok(file.metadata()?.file_type().is_fifo())
    }
    #[cfg(not(unix))]
    {
        // No file is one there.
        let _ = file;
        Ok(false)
    }
}

/// Takes what is copied into it into a hash.
struct Hashed<'a>(&'a mut Sha256);

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The place in the file at which a partial answer begins; none for a whole one.
fn start_of(response: &Response<Body>) -> Option<u64> {
    let range = response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    let range = range.trim().strip_prefix("bytes ")?;
    range.split('-').next()?.trim().parse().ok().filter(|_| response.status().as_u16() == 206)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
