//! Where the files of a checkpoint come from: a folder, the hub by way of its cache, memory, or the program itself. Knows
//! nothing of what is in them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use whin_kernels::bytes::Bytes;

use super::gguf::{self, Gguf, Metadata};
use super::hub::{self, Download, HubName, Settings};
use super::seen::Stamp;
use crate::{Error, ErrorKind, Result};

/// All files of a checkpoint that are read beside its weights and their index, the config first: it decides whether
/// the rest is wanted.
pub const SMALL: [&str; 6] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// The files of one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A folder on this machine.
    Folder(PathBuf),
    /// The demo model that is part of the program.
    BuiltIn,
    /// Files in memory, by name.
    Memory(Arc<BTreeMap<String, Vec<u8>>>),
    /// A GGUF file, or the parts of one, which hold everything.
    Gguf(Arc<Gguf>),
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/seedling/", $name)))),*]
    };
}

static BUILT_IN: &[(&str, &[u8])] = built_in![
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
];

impl Source {
    /// [`Self::open_with`] without a listener.
    ///
    /// # Errors
    /// As there.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        Self::open_with(path, &mut |_| ())
    }

    /// The checkpoint in the folder or GGUF file `path`, else on the hub under that name, or the built-in demo model.
    /// `progress` hears of what is downloaded.
    ///
    /// # Errors
    /// `checkpoint_not_found` where no folder with a `config.json` is there, `invalid_checkpoint` where weights are
    /// there without it, `io` where the system denies access; else as [`Gguf::open`] or [`hub::find`].
    pub fn open_with(path: Option<&Path>, progress: &mut dyn FnMut(Download<'_>)) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::BuiltIn) };
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Names of repositories may end so, but nobody would be helped by a search for one.
                let is_file =
                    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
                let name = path.to_str().filter(|_| !is_file).and_then(HubName::parse);
                let name = name.ok_or_else(|| absent(path))?;
                return hub::find(&name, &Settings::from_env()?, progress).map(Self::Folder);
            }
            Err(error) => return Err(denied(path, error)),
        };
        if !metadata.is_dir() {
            return Self::open_file(path);
        }
        let source = Self::Folder(path.to_owned());
        if source.read("config.json")?.is_none() {
            return Err(without_config(path, &source.list()?));
        }
        Ok(source)
    }

    /// The checkpoint that the file `path` holds.
    fn open_file(path: &Path) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match path.file_name().and_then(|name| name.to_str()) {
            Some(name) if gguf::is_gguf(path) => {
                Gguf::open(Self::Folder(folder.to_owned()), name).map(|gguf| Self::Gguf(gguf.into()))
            }
            None if gguf::is_gguf(path) => {
                let message =
                    format!("{} has a name that is no text in UTF-8: rename the file", path.display());
                Err(Error::new(ErrorKind::CheckpointNotFound, message))
            }
            _ => Err(not_a_folder(path, folder)),
        }
    }

    /// The metadata of a GGUF file; none of other checkpoints.
    pub fn metadata(&self) -> Option<&Metadata> {
        match self {
            Self::Gguf(gguf) => Some(gguf.metadata()),
            Self::Folder(_) | Self::BuiltIn | Self::Memory(_) => None,
        }
    }

    /// The names of all files, sorted. Folders inside are left out.
    ///
    /// # Errors
    /// `io` where the folder cannot be read.
    pub fn list(&self) -> Result<Vec<String>> {
        let folder = match self {
            Self::BuiltIn => return Ok(BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect()),
            Self::Memory(files) => return Ok(files.keys().cloned().collect()),
            Self::Gguf(gguf) => return Ok(gguf.parts().iter().map(|part| part.name.clone()).collect()),
            Self::Folder(folder) => folder,
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|error| denied(folder, error))? {
            let entry = entry.map_err(|error| denied(folder, error))?;
            // Links count as what they point to: the cache of Hugging Face consists of them.
            let is_file = std::fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file());
            if is_file && let Ok(name) = entry.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// The bytes of the file `name`, mapped; none where it does not exist.
    ///
    /// A link is followed wherever it leads: whoever can place one in the folder could as well copy the file. It is
    /// names inside of files that may not lead out, and `name` must be plain for that.
    ///
    /// # Errors
    /// `invalid_checkpoint` where `name` is no plain file name or stands for something other than a file, `io` where
    /// the system denies access.
    pub fn read(&self, name: &str) -> Result<Option<Bytes>> {
        Ok(self.read_stamped(name)?.map(|(bytes, _)| bytes))
    }

    /// As [`Self::read`], with what the system says of the very file that is mapped, whatever has its name by now; none
    /// of bytes that are no file.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_stamped(&self, name: &str) -> Result<Option<(Bytes, Option<Stamp>)>> {
        if !is_plain(name) {
            let message = format!("{name:?} is no name of a file in the checkpoint's own folder");
            return Err(Error::new(ErrorKind::InvalidCheckpoint, message));
        }
        let folder = match self {
            Self::BuiltIn => {
                let found = BUILT_IN.iter().find(|(known, _)| *known == name);
                return Ok(found.map(|(_, bytes)| (Bytes::from_static(bytes), None)));
            }
            Self::Memory(files) => {
                return Ok(files.get(name).map(|bytes| (Bytes::from(bytes.clone()), None)));
            }
            // What else lies beside a GGUF file belongs to others.
            Self::Gguf(gguf) if !gguf.parts().iter().any(|part| part.name == name) => return Ok(None),
            Self::Gguf(gguf) => return gguf.place().read_stamped(name),
            Self::Folder(folder) => folder,
        };
        let path = folder.join(name);
        let invalid =
            |what: &str| Err(Error::new(ErrorKind::InvalidCheckpoint, format!("{} {what}", path.display())));
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => return invalid("is a folder, not a file"),
            Ok(metadata) if !metadata.is_file() => return invalid("is not a regular file"),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if path.is_symlink() {
                    return invalid("is a link to a file that does not exist; download the checkpoint again");
                }
                return Ok(None);
            }
            Err(error) => return Err(denied(&path, error)),
        }
        let open = || {
            let file = File::open(&path)?;
            Ok((Bytes::map_file(&file)?, Some(Stamp::of(&file.metadata()?))))
        };
        open().map(Some).map_err(|error| denied(&path, error))
    }

    /// Where it lies: the folder, or the GGUF file, of several parts the first. None of what is no file.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Folder(folder) => Some(folder.clone()),
            Self::Gguf(gguf) => gguf.place().path().map(|folder| folder.join(gguf.name())),
            Self::BuiltIn | Self::Memory(_) => None,
        }
    }

    /// What to call the file `name` in a message.
    pub fn describe(&self, name: &str) -> String {
        match self {
            Self::Folder(folder) => folder.join(name).display().to_string(),
            Self::BuiltIn => format!("{name} of the built-in model"),
            Self::Memory(_) => name.to_owned(),
            Self::Gguf(gguf) => gguf.place().describe(name),
        }
    }
}

/// All of the regular file `path`, of at most `longest` bytes. Anything else, such as a pipe or a device, could be silent
/// or without end.
///
/// # Errors
/// Those of reading; `InvalidInput` for anything but a regular file, `InvalidData` for a longer one.
pub fn read_short(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(longest + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > longest {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is longer than {longest} bytes"))),
        false => Ok(bytes),
    }
}

/// Whether `name` can only stand for a file in the folder itself, on any system.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', ':', '\0'])
}

fn absent(path: &Path) -> Error {
    let message = format!(
        "there is nothing at {}; give the folder that holds config.json and the .safetensors files, a GGUF file, or a \
         name on the Hugging Face hub: owner/name, or owner/name@revision",
        path.display()
    );
    Error::new(ErrorKind::CheckpointNotFound, message)
}

fn not_a_folder(path: &Path, folder: &Path) -> Error {
    let message = format!(
        "{} is a file, and none in the GGUF format; give the folder that it is in: {}",
        path.display(),
        folder.display()
    );
    Error::new(ErrorKind::CheckpointNotFound, message)
}

fn without_config(path: &Path, names: &[String]) -> Error {
    let shown = path.display();
    let holds = |extension: &str| names.iter().any(|name| name.ends_with(extension));
    if holds(".safetensors") {
        let message =
            format!("{shown} holds weights but no config.json; get it from where the weights are from");
        return Error::new(ErrorKind::InvalidCheckpoint, message);
    }
    // Of a split file the first part stands for all.
    let gguf = names.iter().find(|name| name.ends_with(".gguf") && !name.starts_with("mmproj"));
    if let Some(name) = gguf {
        let message =
            format!("{shown} holds no config.json; name one of its GGUF files, such as {shown}/{name}");
        return Error::new(ErrorKind::CheckpointNotFound, message);
    }
    let message =
        format!("{shown} holds no config.json; give the folder with config.json and .safetensors files");
    Error::new(ErrorKind::CheckpointNotFound, message)
}

fn denied(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot read {}: {error}", path.display())).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_model_is_whole() {
        let source = Source::open(None).unwrap();
        for name in source.list().unwrap() {
            assert!(!source.read(&name).unwrap().unwrap().is_empty(), "{name}");
        }
        assert!(source.read("absent").unwrap().is_none());
    }

    #[test]
    fn only_plain_names_are_plain() {
        for name in ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "c:x", "a\0b"] {
            assert!(!is_plain(name), "{name:?}");
            assert!(Source::BuiltIn.read(name).is_err(), "{name:?}");
        }
        assert!(is_plain("model-00001-of-00002.safetensors"));
        assert!(is_plain("..a"));
    }
}
