//! The header of a safetensors file: checked in full before anything is taken from it, in time and memory that the
//! file's length bounds.
//!
//! The format: 8 bytes, little-endian, the length of the header; the header, a JSON object from names to type, shape
//! and place; the numbers. <https://github.com/huggingface/safetensors>

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Longer headers are refused, as the format demands.
const LONGEST: u64 = 100_000_000;
/// More tensors than any model has; keeps a hostile header from costing more than its own bytes.
pub(super) const MOST_TENSORS: usize = 200_000;
const MOST_DIMENSIONS: usize = 16;
/// Longer names, of tensors or files, belong to no model and would flood messages.
pub(super) const LONGEST_NAME: usize = 4096;

/// A type of number: its name, and the bits that one takes.
const TYPES: &[(&str, u64)] = &[
    ("BOOL", 8),
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("U8", 8),
    ("I8", 8),
    ("F8_E5M2", 8),
    ("F8_E4M3", 8),
    ("F8_E8M0", 8),
    ("F8_E4M3FNUZ", 8),
    ("F8_E5M2FNUZ", 8),
    ("I16", 16),
    ("U16", 16),
    ("F16", 16),
    ("BF16", 16),
    ("I32", 32),
    ("U32", 32),
    ("F32", 32),
    ("C64", 64),
    ("F64", 64),
    ("I64", 64),
    ("U64", 64),
];

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub name: String,
    /// One of [`TYPES`].
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    /// Where its bytes stand, from the start of the file.
    pub start: usize,
    pub end: usize,
}

/// The tensors of `file`, in the order in which their bytes stand. An error says what is wrong with the file.
pub(super) fn read(file: &[u8]) -> Result<Vec<Entry>, String> {
    if file.starts_with(b"version https://git-lfs") {
        return Err("is a pointer of Git LFS, not the weights themselves; run `git lfs pull`".to_owned());
    }
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(format!("is cut off: {} bytes, and the header's length alone takes 8", file.len()));
    };
    let length = u64::from_le_bytes(*length);
    if length > LONGEST {
        return Err(format!("announces a header of {length} bytes; the format allows {LONGEST}"));
    }
    if length > rest.len() as u64 {
        return Err(format!("is cut off: its header takes {length} bytes, and {} are there", rest.len()));
    }
    let (header, data) = rest.split_at(length as usize);
    if header.first() != Some(&b'{') {
        return Err("has a header that does not start with {".to_owned());
    }
    let mut json = serde_json::Deserializer::from_slice(header);
    let mut entries = HeaderSeed
        .deserialize(&mut json)
        .and_then(|entries| json.end().map(|()| entries))
        .map_err(|error| format!("has a broken header: {}", shortened(&error)))?;
    check_names(&entries)?;
    check_places(&mut entries, data.len(), file.len() - data.len())?;
    Ok(entries)
}

/// The message of a JSON error. Such a message quotes what it met, however long that is.
pub(super) fn shortened(error: &serde_json::Error) -> String {
    crate::error::shortened(error.to_string(), 300)
}

fn check_names(entries: &[Entry]) -> Result<(), String> {
    let mut names = HashSet::with_capacity(entries.len());
    match entries.iter().find(|entry| !names.insert(entry.name.as_str())) {
        Some(entry) => Err(format!("names tensor {:?} twice", entry.name)),
        None => Ok(()),
    }
}

/// Sorts by place, and checks that the tensors cover the data from its start to its end without overlap, each with the
/// bytes that its shape takes. Places are moved to count from the start of the file.
fn check_places(entries: &mut [Entry], data: usize, offset: usize) -> Result<(), String> {
    entries.sort_by_key(|entry| (entry.start, entry.end));
    let mut covered = 0;
    for entry in entries.iter_mut() {
        let (name, shape) = (&entry.name, &entry.shape);
        if entry.start > entry.end || entry.end > data {
            return Err(format!(
                "places tensor {name:?} at bytes {} to {} of {data}",
                entry.start, entry.end
            ));
        }
        if entry.start != covered {
            let what = if entry.start < covered { "overlaps the one before it" } else { "leaves a hole" };
            return Err(format!("places tensor {name:?} at byte {}, which {what} ({covered})", entry.start));
        }
        let size = size(entry.dtype, shape)
            .map_err(|what| format!("gives tensor {name:?} the shape {shape:?}, {what}"))?;
        if (entry.end - entry.start) as u64 != size {
            return Err(format!(
                "gives tensor {name:?} {} bytes; {} of {shape:?} takes {size}",
                entry.end - entry.start,
                entry.dtype
            ));
        }
        covered = entry.end;
        entry.start += offset;
        entry.end += offset;
    }
    match covered == data {
        true => Ok(()),
        false => Err(format!("holds {data} bytes of data, but its tensors end at {covered}")),
    }
}

/// Bytes of a tensor, or why its shape has no such number.
fn size(dtype: &str, shape: &[usize]) -> Result<u64, &'static str> {
    let (_, bits) = TYPES.iter().find(|(name, _)| *name == dtype).ok_or("of an unknown type")?;
    let bits = shape.iter().try_fold(*bits, |product, dim| product.checked_mul(*dim as u64));
    let bits = bits.ok_or("whose size overflows: more bits than 64 bits can count")?;
    bits.is_multiple_of(8).then_some(bits / 8).ok_or("which is no whole number of bytes")
}

/// Reads the whole header without keeping anything of it but the entries.
struct HeaderSeed;

impl<'de> DeserializeSeed<'de> for HeaderSeed {
    type Value = Vec<Entry>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Entry>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeaderSeed {
    type Value = Vec<Entry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object from names to tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Entry>, A::Error> {
        let mut entries = Vec::new();
        let mut has_metadata = false;
        while let Some(name) = map.next_key_seed(TextSeed)? {
            if name == "__metadata__" {
                if has_metadata {
                    return Err(A::Error::custom("__metadata__ stands there twice"));
                }
                has_metadata = true;
                map.next_value_seed(MetadataSeed)?;
                continue;
            }
            if entries.len() == MOST_TENSORS {
                return Err(A::Error::custom(format!("more than {MOST_TENSORS} tensors")));
            }
            if name.len() > LONGEST_NAME {
                return Err(A::Error::custom(format!("a name of more than {LONGEST_NAME} bytes")));
            }
            entries.push(map.next_value_seed(EntrySeed(name.into_owned()))?);
        }
        Ok(entries)
    }
}

/// A string, borrowed from the header where it has no escapes.
struct TextSeed;

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// An object from strings to strings, of which nothing is kept.
struct MetadataSeed;

impl<'de> DeserializeSeed<'de> for MetadataSeed {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MetadataSeed {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object from strings to strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut count = 0;
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(TextSeed)?;
            count += 1;
            if count > MOST_TENSORS {
                return Err(A::Error::custom(format!("more than {MOST_TENSORS} entries of metadata")));
            }
        }
        Ok(())
    }
}

/// The description of one tensor, whose name is known.
struct EntrySeed(String);

impl<'de> DeserializeSeed<'de> for EntrySeed {
    type Value = Entry;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Entry, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EntrySeed {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object that describes tensor {:?}", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let name = self.0;
        let wrong = |what: &str| A::Error::custom(format!("tensor {name:?} {what}"));
        let (mut dtype, mut shape, mut place) = (None, None, None);
        while let Some(key) = map.next_key_seed(TextSeed)? {
            let twice = match &*key {
                "dtype" => {
                    let text = map.next_value_seed(TextSeed)?;
                    let known = TYPES.iter().find(|(known, _)| *known == text);
                    let shown: String = text.chars().take(40).collect();
                    let known = known.ok_or_else(|| wrong(&format!("has the unknown type {shown:?}")))?;
                    dtype.replace(known.0).is_some()
                }
                "shape" => shape.replace(map.next_value_seed(NumbersSeed(MOST_DIMENSIONS))?).is_some(),
                "data_offsets" => place.replace(map.next_value_seed(NumbersSeed(2))?).is_some(),
                _ => return Err(wrong("has a key other than dtype, shape and data_offsets")),
            };
            if twice {
                return Err(wrong("has a key twice"));
            }
        }
        match (dtype, shape, place.as_deref()) {
            (Some(dtype), Some(shape), Some([start, end])) => {
                Ok(Entry { dtype, shape, start: *start, end: *end, name })
            }
            _ => Err(wrong("lacks one of dtype, shape and two data_offsets")),
        }
    }
}

/// A list of at most so many whole numbers.
struct NumbersSeed(usize);

impl<'de> DeserializeSeed<'de> for NumbersSeed {
    type Value = Vec<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<usize>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for NumbersSeed {
    type Value = Vec<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} whole numbers", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<usize>, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = seq.next_element::<usize>()? {
            if numbers.len() == self.0 {
                return Err(A::Error::custom(format!("more than {} numbers in a list", self.0)));
            }
            numbers.push(number);
        }
        Ok(numbers)
    }
}
