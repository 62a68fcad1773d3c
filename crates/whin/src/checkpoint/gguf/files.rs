//! The files of one GGUF checkpoint: the one that was named and, where it was split, the other parts beside it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use whin_kernels::bytes::Bytes;
use whin_kernels::{Dtype, Tensor};

use super::metadata::Metadata;
use super::reader::{self, Header};
use crate::checkpoint::header::{Entry, MOST_TENSORS};
use crate::checkpoint::seen::{Seen, Stamp};
use crate::checkpoint::source::Source;
use crate::error::shortened;
use crate::{Error, ErrorKind, Result};

/// More parts than any file was split into.
const MOST_PARTS: u64 = 10_000;

/// Vectors that are no weights have a number for each pair of a head.
const LONGEST_VECTOR: usize = 1 << 16;

/// More parts that are missing than this are counted, not listed.
const MOST_LISTED: usize = 20;

/// A checkpoint in the GGUF format, all of whose headers have been checked.
#[derive(Debug)]
pub struct Gguf {
    /// What the files lie in.
    place: Source,
    /// At least one.
    parts: Vec<Part>,
}

/// One file.
#[derive(Debug)]
pub(in crate::checkpoint) struct Part {
    pub name: String,
    pub bytes: Arc<Bytes>,
    /// What the system said of the very file that is mapped.
    pub stamp: Option<Stamp>,
    header: Header,
}

/// Whether the file at `path` is one in the GGUF format, as its name or its first bytes say.
pub fn is_gguf(path: &Path) -> bool {
    let is_named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    // The cache of the hub keeps files under names without an ending. Only a regular file is opened.
    is_named || std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) && starts_with_magic(path)
}

fn starts_with_magic(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"GGUF"
}

impl Gguf {
    /// Opens the file `name` in `place`, a folder or memory, and the other parts where it is the first of several.
    ///
    /// # Errors
    /// `checkpoint_not_found` where the file is not there; `invalid_checkpoint` naming the file and what is wrong with
    /// it, or every part that is missing; `io` where the system denies access.
    pub fn open(place: Source, name: &str) -> Result<Self> {
        let Some(first) = Part::open(&place, name)? else {
            let message = format!("there is no file {}", place.describe(name));
            return Err(Error::new(ErrorKind::CheckpointNotFound, message));
        };
        let mut parts = vec![first];
        if let Some(split) = Split::of(&parts[0])? {
            split.open_others(&place, &mut parts)?;
            check_names(&parts)?;
        }
        Ok(Self { place, parts })
    }

    /// The metadata, which is that of the first part.
    pub fn metadata(&self) -> &Metadata {
        &self.parts[0].header.metadata
    }

    /// Notes what the system said of the files when they were opened.
    pub fn note(&self, seen: &mut Seen) {
        for part in self.parts.iter().filter(|part| part.stamp.is_some()) {
            seen.note(&part.name, part.stamp.clone());
        }
    }

    /// The shape of the tensor `name`, outputs first; none where it is not there.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entry(name).map(|(_, entry)| entry.shape.as_slice())
    }

    /// The numbers of the tensor `name`, where it is a short vector of f32.
    pub fn vector(&self, name: &str) -> Option<Vec<f32>> {
        let (part, entry) = self.entry(name)?;
        let [length] = entry.shape[..] else { return None };
        let bytes = &part.bytes[entry.start..entry.end];
        let tensor = Tensor::new(Dtype::F32, 1, length, bytes)?;
        (entry.dtype == "F32" && length <= LONGEST_VECTOR).then(|| tensor.to_vec())
    }

    /// Whether one of the first `layers` layers has a tensor of this name.
    pub fn has_in_layer(&self, name: &str, layers: u64) -> bool {
        let is_it = |entry: &Entry| {
            let own = entry.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
            let layer = own.filter(|(_, own)| *own == name).and_then(|(layer, _)| layer.parse::<u64>().ok());
            layer.is_some_and(|layer| layer < layers)
        };
        self.parts.iter().any(|part| part.entries().iter().any(is_it))
    }

    fn entry(&self, name: &str) -> Option<(&Part, &Entry)> {
        let found = |part| {
            let (part, name): (&Part, &str) = (part, name);
            Some((part, part.entries().iter().find(|entry| entry.name == name)?))
        };
        self.parts.iter().find_map(found)
    }

    /// What the files lie in.
    pub(in crate::checkpoint) fn place(&self) -> &Source {
        &self.place
    }

    /// The name of the file, or of the first part.
    pub fn name(&self) -> &str {
        &self.parts[0].name
    }

    /// The files.
    pub(in crate::checkpoint) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// The same place and file; what is in it is not compared.
impl PartialEq for Gguf {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place && self.name() == other.name()
    }
}

impl Eq for Gguf {}

impl Part {
    /// Maps and checks the file; none where it is not there.
    fn open(place: &Source, name: &str) -> Result<Option<Self>> {
        let Some((bytes, stamp)) = place.read_stamped(name)? else { return Ok(None) };
        let (bytes, shown) = (Arc::new(bytes), place.describe(name));
        let header = reader::read(&bytes, &shown).map_err(|what| invalid(format!("{shown} {what}")))?;
        Ok(Some(Self { name: name.to_owned(), bytes, stamp, header }))
    }

    /// Its tensors, in the order in which their bytes stand.
    pub fn entries(&self) -> &[Entry] {
        &self.header.entries
    }

    fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }
}

/// What the first part says of all.
struct Split {
    count: u64,
    /// Of all parts together; none where the file does not say.
    tensors: Option<u64>,
    /// What stands before the numbers in the names of the files.
    stem: String,
}

impl Split {
    /// What `first` says; none where it is whole.
    fn of(first: &Part) -> Result<Option<Self>> {
        let metadata = first.metadata();
        let (count, no) = (metadata.integer("split.count")?, metadata.integer("split.no")?);
        let Some(count) = count.filter(|count| *count > 1) else { return Ok(None) };
        let (file, no) = (metadata.file(), no.unwrap_or(0));
        if count > MOST_PARTS {
            return Err(metadata.refuse("split.count", &format!("at most {MOST_PARTS}")));
        }
        let end = |no: u64| format!("-{:05}-of-{count:05}.gguf", no.saturating_add(1));
        let stem = first.name.strip_suffix(&end(no)).map(str::to_owned);
        if no > 0 {
            let first = stem.map_or_else(|| format!("NAME{}", end(0)), |stem| format!("{stem}{}", end(0)));
            return Err(invalid(format!(
                "{file} is part {} of {count}: give the first one, {first}, which has the metadata",
                no.saturating_add(1)
            )));
        }
        let stem = stem.ok_or_else(|| {
            invalid(format!(
                "{file} is the first of {count} parts, and the others are found by its name, which must end in {}: \
                 give all parts their names back",
                end(0)
            ))
        })?;
        Ok(Some(Self { count, tensors: metadata.integer("split.tensors.count")?, stem }))
    }

    /// Opens all other parts.
    fn open_others(&self, place: &Source, parts: &mut Vec<Part>) -> Result<()> {
        let mut missing = Vec::new();
        let mut tensors = parts[0].entries().len() as u64;
        for no in 1..self.count {
            let name = format!("{}-{:05}-of-{:05}.gguf", self.stem, no + 1, self.count);
            let Some(part) = Part::open(place, &name)? else {
                missing.push(place.describe(&name));
                continue;
            };
            self.check(no, &part)?;
            tensors += part.entries().len() as u64;
            if tensors > MOST_TENSORS as u64 {
                let what = format!("hold more than {MOST_TENSORS} tensors, as no model has");
                return Err(invalid(format!(
                    "the parts of {} up to {name} {what}",
                    place.describe(&self.stem)
                )));
            }
            parts.push(part);
        }
        if !missing.is_empty() {
            let mut message = "parts of the checkpoint are missing; download it again:".to_owned();
            missing.iter().take(MOST_LISTED).for_each(|name| message.push_str(&format!("\n  - {name}")));
            if missing.len() > MOST_LISTED {
                message.push_str(&format!("\n  and {} more", missing.len() - MOST_LISTED));
            }
            return Err(invalid(message));
        }
        match self.tensors {
            Some(said) if said != tensors => Err(invalid(format!(
                "{} says that all parts together hold {said} tensors (split.tensors.count), and they hold {tensors}: \
                 they are not of one checkpoint, so get all again from the same place",
                parts[0].metadata().file()
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that `part` is the one whose name it has.
    fn check(&self, no: u64, part: &Part) -> Result<()> {
        let metadata = part.metadata();
        let all = [
            ("split.count", Some(self.count)),
            ("split.no", Some(no)),
            ("split.tensors.count", self.tensors),
        ];
        for (key, expected) in all {
            let found = metadata.integer(key)?;
            if found != expected {
                let accepted = expected.map_or("none".to_owned(), |expected| expected.to_string());
                return Err(metadata.refuse(key, &format!("{accepted}, as the first part and the name say")));
            }
        }
        Ok(())
    }
}

/// Refuses tensors that stand in two parts. Those of one part have been compared already.
fn check_names(parts: &[Part]) -> Result<()> {
    let mut found = HashMap::new();
    for part in parts {
        for entry in part.entries() {
            if let Some(other) = found.insert(entry.name.as_str(), part.name.as_str()) {
                let (name, part) = (shortened(entry.name.clone(), 100), &part.name);
                return Err(invalid(format!(
                    "tensor {name:?} stands in {other} and in {part}: they are not of one checkpoint, so get all again \
                     from the same place"
                )));
            }
        }
    }
    Ok(())
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidCheckpoint, message)
}
