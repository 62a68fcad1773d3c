//! The tensors of safetensors files, one or many: which of them there are, and from which file each is taken. Knows
//! no model.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::header::{self, LONGEST_NAME, MOST_TENSORS};
use super::seen::Seen;
use super::source::Source;
use super::tensors::{Format, Place, Shard, Tensors, listed};
use crate::{Error, ErrorKind, Result};

/// Says which file holds which tensor.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// Holds all tensors where there is no index.
pub(super) const SINGLE: &str = "model.safetensors";

/// No model comes near this; a longer index could only be meant to cost memory.
const LONGEST_INDEX: usize = 32 << 20;

/// More files than any checkpoint has; each one that is named costs a look at the folder.
const MOST_FILES: usize = 10_000;

/// Opens the files that `model.safetensors.index.json` names, or `model.safetensors` where there is no index.
///
/// The index decides which file a tensor is taken from. A tensor that it does not list counts as present when a
/// file that it does name holds it, as in the reference; when two do, they must hold the same bytes.
///
/// # Errors
/// `invalid_checkpoint` naming the file, and for a missing file a tensor that it should hold; `io` where the
/// system denies access.
pub(super) fn tensors(source: &Source) -> Result<Tensors> {
    let mut seen = Seen::default();
    let index = match source.read_stamped(INDEX)? {
        Some((json, stamp)) => {
            stamp.is_some().then(|| seen.note(INDEX, stamp));
            parse_index(source, &json)?
        }
        None => BTreeMap::new(),
    };
    let mut files = files(source, &index)?;
    if files.is_empty() {
        files.push(SINGLE.to_owned());
    }
    let shards = open_shards(source, &files, &index, &mut seen)?;
    let mut tensors: BTreeMap<String, Place> = BTreeMap::new();
    for shard in shards {
        let entries = header::read(&shard.bytes)
            .map_err(|what| invalid(format!("{} {what}", source.describe(&shard.name))))?;
        for entry in entries {
            if index.get(&entry.name).is_some_and(|named| *named != shard.name) {
                continue;
            }
            let place = Place { file: shard.clone(), entry };
            if let Some(other) = tensors.get(&place.entry.name) {
                require_same(other, &place)?;
                continue;
            }
            tensors.insert(place.entry.name.clone(), place);
        }
    }
    let absent = index.iter().filter(|(name, _)| !tensors.contains_key(*name));
    let absent =
        absent.map(|(name, file)| format!("{INDEX} places tensor {name:?} in {file}, which lacks it"));
    let absent: Vec<String> = absent.collect();
    if !absent.is_empty() {
        return Err(invalid(listed("the index and the files do not fit", &absent)));
    }
    Ok(Tensors::new(Format::Safetensors, tensors, files, seen))
}

fn require_same(a: &Place, b: &Place) -> Result<()> {
    if a.same(b) {
        return Ok(());
    }
    let name = &a.entry.name;
    let (a, b) = (&a.file.name, &b.file.name);
    Err(invalid(format!(
        "tensor {name:?} stands in {a} and in {b} with different contents; remove the wrong file"
    )))
}

/// The files that the index of `source` names, sorted; none where there is no index.
///
/// # Errors
/// `invalid_checkpoint` where it is broken.
pub(super) fn shards(source: &Source) -> Result<Vec<String>> {
    match source.read(INDEX)? {
        Some(json) => files(source, &parse_index(source, &json)?),
        None => Ok(Vec::new()),
    }
}

fn files(source: &Source, index: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let mut files: Vec<String> = index.values().cloned().collect();
    files.sort();
    files.dedup();
    if files.len() > MOST_FILES {
        let index = source.describe(INDEX);
        return Err(invalid(format!(
            "{index} names {} files; at most {MOST_FILES} are read; fetch the file again",
            files.len()
        )));
    }
    Ok(files)
}

/// From each tensor to the file that holds it.
fn parse_index(source: &Source, json: &[u8]) -> Result<BTreeMap<String, String>> {
    #[derive(Deserialize)]
    struct Index {
        #[serde(deserialize_with = "weight_map")]
        weight_map: BTreeMap<String, String>,
    }
    let broken = |what: String| invalid(format!("{} {what}; fetch the file again", source.describe(INDEX)));
    if json.len() > LONGEST_INDEX {
        return Err(broken(format!("is longer than {LONGEST_INDEX} bytes")));
    }
    let index: Index = serde_json::from_slice(json)
        .map_err(|error| broken(format!("is broken: {}", header::shortened(&error))))?;
    if index.weight_map.is_empty() {
        return Err(broken("lists no tensors".to_owned()));
    }
    if index.weight_map.iter().any(|(name, file)| name.len().max(file.len()) > LONGEST_NAME) {
        return Err(broken(format!("holds a name of more than {LONGEST_NAME} bytes")));
    }
    Ok(index.weight_map)
}

/// A map of at most [`MOST_TENSORS`] entries.
fn weight_map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct WeightMap;
    impl<'de> Visitor<'de> for WeightMap {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object from tensors to files")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut files = BTreeMap::new();
            while let Some((tensor, file)) = map.next_entry()? {
                files.insert(tensor, file);
                if files.len() > MOST_TENSORS {
                    return Err(A::Error::custom(format!("more than {MOST_TENSORS} tensors")));
                }
            }
            Ok(files)
        }
    }
    deserializer.deserialize_map(WeightMap)
}

/// Maps `files`, or tells all that are missing with a tensor that each should hold.
fn open_shards(
    source: &Source,
    files: &[String],
    index: &BTreeMap<String, String>,
    seen: &mut Seen,
) -> Result<Vec<Arc<Shard>>> {
    let mut holds: HashMap<&str, &str> = HashMap::new();
    for (tensor, file) in index {
        holds.entry(file).or_insert(tensor);
    }
    let mut shards = Vec::with_capacity(files.len());
    let mut missing = Vec::new();
    for file in files {
        match source.read_stamped(file)? {
            Some((bytes, stamp)) => {
                stamp.is_some().then(|| seen.note(file, stamp));
                shards.push(Arc::new(Shard { name: file.clone(), bytes: bytes.into() }));
            }
            None => match holds.get(file.as_str()) {
                Some(tensor) => {
                    missing.push(format!("{} is missing; it should hold {tensor:?}", source.describe(file)));
                }
                None => return Err(no_weights(source)),
            },
        }
    }
    match missing.is_empty() {
        true => Ok(shards),
        false => Err(invalid(listed("files of the checkpoint are missing; download it again", &missing))),
    }
}

fn no_weights(source: &Source) -> Error {
    let names = source.list().unwrap_or_default();
    let holds = |extension: &str| names.iter().any(|name| name.ends_with(extension));
    let hint = if holds(".safetensors") {
        "; the .safetensors files there have other names, so the index is missing"
    } else if holds(".bin") || holds(".pth") || holds(".pt") {
        "; pickled PyTorch files are not read, since they can run code: save the model with safe_serialization"
    } else {
        ""
    };
    let place = source.describe(SINGLE);
    invalid(format!("there are no weights: neither {place} nor {INDEX} beside it exists{hint}"))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidCheckpoint, message)
}
