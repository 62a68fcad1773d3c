//! The metadata of a GGUF file: typed values under keys, each left where it lies in the file. Knows no key.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use whin_kernels::bytes::Bytes;

use super::reader::Cursor;
use crate::error::shortened;
use crate::{Error, ErrorKind, Result};

/// More keys than any file has; a vocabulary is one key.
const MOST_KEYS: u64 = 1 << 16;
/// Longer keys are refused, as the format demands.
const LONGEST_KEY: u64 = (1 << 16) - 1;
/// More items than any list has: vocabularies have some hundred thousand, their merges not many more.
const MOST_ITEMS: u64 = 1 << 24;

/// Bytes of the length in front of a string.
const LENGTH: usize = 8;

/// The keys and values of one file. Every place was checked when it was read; values are looked at when they are asked
/// for, and of the wrong type then.
pub struct Metadata {
    file: String,
    bytes: Arc<Bytes>,
    values: BTreeMap<String, Value>,
}

/// Where a value lies.
#[derive(Clone, Debug)]
enum Value {
    /// A number or a switch.
    One(Kind, Range<usize>),
    /// Text without its length.
    Text(Range<usize>),
    /// Items one behind the other.
    List(Kind, usize, Range<usize>),
}

/// The type of a value, or of the items of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Flag,
    Text,
    U64,
    I64,
    F64,
}

/// The type of lists, whose items have one of [`KINDS`].
const LIST: u32 = 9;

/// Code in the file, type, name for people, and bytes; of text these are those of its length.
const KINDS: &[(u32, Kind, &str, usize)] = &[
    (0, Kind::U8, "uint8", 1),
    (1, Kind::I8, "int8", 1),
    (2, Kind::U16, "uint16", 2),
    (3, Kind::I16, "int16", 2),
    (4, Kind::U32, "uint32", 4),
    (5, Kind::I32, "int32", 4),
    (6, Kind::F32, "float32", 4),
    (7, Kind::Flag, "bool", 1),
    (8, Kind::Text, "string", LENGTH),
    (10, Kind::U64, "uint64", 8),
    (11, Kind::I64, "int64", 8),
    (12, Kind::F64, "float64", 8),
];

impl Kind {
    fn of(code: u32) -> Option<Self> {
        KINDS.iter().find(|(known, ..)| *known == code).map(|(_, kind, ..)| *kind)
    }

    fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind, ..)| *kind == self).map_or("", |(.., name, _)| name)
    }

    fn size(self) -> usize {
        KINDS.iter().find(|(_, kind, ..)| *kind == self).map_or(0, |(.., size)| *size)
    }

    fn is_whole(self) -> bool {
        !matches!(self, Self::F32 | Self::F64 | Self::Flag | Self::Text)
    }

    fn is_number(self) -> bool {
        self.is_whole() || matches!(self, Self::F32 | Self::F64)
    }

    /// The whole number in `bytes`; none for other types.
    fn whole(self, bytes: &[u8]) -> Option<i128> {
        Some(match self {
            Self::U8 => u8::from_le_bytes(*bytes.first_chunk()?).into(),
            Self::I8 => i8::from_le_bytes(*bytes.first_chunk()?).into(),
            Self::U16 => u16::from_le_bytes(*bytes.first_chunk()?).into(),
            Self::I16 => i16::from_le_bytes(*bytes.first_chunk()?).into(),
            Self::U32 => u32::from_le_bytes(*bytes.first_chunk()?).into(),
            Self::I32 => i32::from_le_bytes(*bytes.first_chunk()?).into(),
            Self::U64 => u64::from_le_bytes(*bytes.first_chunk()?).into(),
            Self::I64 => i64::from_le_bytes(*bytes.first_chunk()?).into(),
            Self::F32 | Self::F64 | Self::Flag | Self::Text => return None,
        })
    }

    /// The number in `bytes`; none for other types.
    fn number(self, bytes: &[u8]) -> Option<f64> {
        match self {
            Self::F32 => bytes.first_chunk().map(|bytes| f32::from_le_bytes(*bytes).into()),
            Self::F64 => bytes.first_chunk().map(|bytes| f64::from_le_bytes(*bytes)),
            _ => self.whole(bytes).map(|number| number as f64),
        }
    }
}

impl Metadata {
    /// Reads so many pairs of keys and values. An error says what is wrong with the file.
    pub(super) fn read(
        bytes: &Arc<Bytes>,
        file: &str,
        cursor: &mut Cursor<'_>,
        count: u64,
    ) -> Result<Self, String> {
        if count > MOST_KEYS {
            return Err(format!("announces {count} keys of metadata; at most {MOST_KEYS} are read"));
        }
        let mut values = BTreeMap::new();
        for index in 0..count {
            let length = cursor.u64().map_err(|what| format!("{what} in metadata key {index} of {count}"))?;
            if length > LONGEST_KEY {
                return Err(format!("has a metadata key of {length} bytes; the format allows {LONGEST_KEY}"));
            }
            let key = cursor.take(length).map_err(|what| format!("{what} in metadata key {index}"))?;
            let key = std::str::from_utf8(key)
                .map_err(|_| format!("has metadata key {index}, which is no UTF-8: it is damaged"))?
                .to_owned();
            let value = Value::read(cursor).map_err(|what| format!("{what} under {}", shown(&key)))?;
            if values.contains_key(&key) {
                return Err(format!("has the metadata key {} twice", shown(&key)));
            }
            values.insert(key, value);
        }
        Ok(Self { file: file.to_owned(), bytes: bytes.clone(), values })
    }

    /// What to call the file in a message.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// All keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Whether there is a value of any type under `key`.
    pub fn contains(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Whether there is a list under `key`.
    pub fn is_list(&self, key: &str) -> bool {
        matches!(self.values.get(key), Some(Value::List(..)))
    }

    /// The text under `key`; none where that is missing.
    ///
    /// # Errors
    /// `invalid_checkpoint`, as for all of these, where something else is there, or no UTF-8.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Text(place)) => match std::str::from_utf8(&self.bytes[place.clone()]) {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(self.refuse(key, "text in UTF-8")),
            },
            Some(_) => Err(self.refuse(key, "text")),
        }
    }

    /// The whole number under `key`, not negative, in whatever type.
    ///
    /// # Errors
    /// As above.
    pub fn integer(&self, key: &str) -> Result<Option<u64>> {
        let accepted = "a whole number that is not negative";
        self.one(key, accepted, |kind, bytes| u64::try_from(kind.whole(bytes)?).ok())
    }

    /// The number under `key`, in whatever type. One of 32 bits counts as the shortest decimal that stands for it: what
    /// was 0.1 in the config of which the file was made is 0.1, and no nearby double.
    ///
    /// # Errors
    /// As above.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        self.one(key, "a number", |kind, bytes| {
            let number = kind.number(bytes)?;
            let decimal = |number: f64| format!("{:e}", number as f32).parse().unwrap_or(number);
            Some(if kind == Kind::F32 { decimal(number) } else { number })
        })
    }

    /// The switch under `key`.
    ///
    /// # Errors
    /// As above.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        let read = |kind, bytes: &[u8]| match (kind, bytes) {
            (Kind::Flag, [0]) => Some(false),
            (Kind::Flag, [1]) => Some(true),
            _ => None,
        };
        self.one(key, "true or false", read)
    }

    /// The strings of the list under `key`, as bytes: those of a vocabulary need not be UTF-8.
    ///
    /// # Errors
    /// As above.
    pub fn texts(&self, key: &str) -> Result<Option<Texts<'_>>> {
        let list = self.list(key, "a list of strings", |kind| kind == Kind::Text)?;
        Ok(list.map(|(_, count, bytes)| Texts { left: count, bytes }))
    }

    /// The numbers of the list under `key`, in whatever type.
    ///
    /// # Errors
    /// As above.
    pub fn numbers(&self, key: &str) -> Result<Option<impl ExactSizeIterator<Item = f64> + Clone + use<'_>>> {
        let list = self.list(key, "a list of numbers", Kind::is_number)?;
        Ok(list.map(|(kind, _, bytes)| {
            bytes.chunks_exact(kind.size()).map(move |item| kind.number(item).unwrap_or(f64::NAN))
        }))
    }

    /// The whole numbers of the list under `key`, in whatever type.
    ///
    /// # Errors
    /// As above; also where one is not below 2⁶³.
    pub fn integers(
        &self,
        key: &str,
    ) -> Result<Option<impl ExactSizeIterator<Item = i64> + Clone + use<'_>>> {
        let Some((kind, _, bytes)) = self.list(key, "a list of whole numbers", Kind::is_whole)? else {
            return Ok(None);
        };
        let number = move |item| kind.whole(item).and_then(|number| i64::try_from(number).ok());
        let items = bytes.chunks_exact(kind.size());
        if kind == Kind::U64 && items.clone().any(|item| number(item).is_none()) {
            return Err(self.refuse(key, "a list of whole numbers below 2⁶³"));
        }
        Ok(Some(items.map(move |item| number(item).unwrap_or(i64::MAX))))
    }

    /// The switches of the list under `key`.
    ///
    /// # Errors
    /// As above.
    pub fn flags(&self, key: &str) -> Result<Option<impl ExactSizeIterator<Item = bool> + Clone + use<'_>>> {
        let list = self.list(key, "a list of true and false", |kind| kind == Kind::Flag)?;
        if let Some((_, _, bytes)) = list
            && bytes.iter().any(|byte| *byte > 1)
        {
            return Err(self.refuse(key, "a list of true (1) and false (0)"));
        }
        Ok(list.map(|(_, _, bytes)| bytes.iter().map(|byte| *byte == 1)))
    }

    /// What to say of `key`, whose value is of no use; `accepted` is a noun phrase.
    pub fn refuse(&self, key: &str, accepted: &str) -> Error {
        let found = self.found(key);
        let key = shown(key);
        let message = format!(
            "{}: the metadata key {key} holds {found}; accepted: {accepted}; get the file again, or convert the \
             original checkpoint anew",
            self.file
        );
        Error::new(ErrorKind::InvalidCheckpoint, message)
    }

    /// What is under `key`, for people.
    pub fn found(&self, key: &str) -> String {
        match self.values.get(key) {
            None => "nothing".to_owned(),
            Some(Value::Text(place)) => {
                let bytes = &self.bytes[place.start..place.end.min(place.start + 400)];
                format!("the text {}", shown(&String::from_utf8_lossy(bytes)))
            }
            Some(Value::List(kind, count, _)) => format!("a list of {count} {} items", kind.name()),
            Some(Value::One(kind, place)) => {
                let bytes = &self.bytes[place.clone()];
                match kind.whole(bytes) {
                    Some(number) => format!("{number} ({})", kind.name()),
                    None => match kind.number(bytes) {
                        Some(number) => format!("{number} ({})", kind.name()),
                        None => format!("{} ({})", bytes.first().copied().unwrap_or(0), kind.name()),
                    },
                }
            }
        }
    }

    fn one<T>(
        &self,
        key: &str,
        accepted: &str,
        read: impl Fn(Kind, &[u8]) -> Option<T>,
    ) -> Result<Option<T>> {
        let value = match self.values.get(key) {
            None => return Ok(None),
            Some(Value::One(kind, place)) => read(*kind, &self.bytes[place.clone()]),
            Some(_) => None,
        };
        value.map(Some).ok_or_else(|| self.refuse(key, accepted))
    }

    fn list(
        &self,
        key: &str,
        accepted: &str,
        fits: impl Fn(Kind) -> bool,
    ) -> Result<Option<(Kind, usize, &[u8])>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::List(kind, count, place)) if fits(*kind) => {
                Ok(Some((*kind, *count, &self.bytes[place.clone()])))
            }
            Some(_) => Err(self.refuse(key, accepted)),
        }
    }
}

impl Value {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, String> {
        let code = cursor.u32()?;
        if code != LIST {
            let kind = Kind::of(code).ok_or_else(|| format!("has a value of the unknown type {code}"))?;
            if kind == Kind::Text {
                let length = cursor.u64()?;
                return cursor.place(length).map(Self::Text);
            }
            return Ok(Self::One(kind, cursor.place(kind.size() as u64)?));
        }
        let code = cursor.u32()?;
        if code == LIST {
            return Err("has a list of lists, which no key known to this program has,".to_owned());
        }
        let kind = Kind::of(code).ok_or_else(|| format!("has a list of the unknown type {code}"))?;
        let count = cursor.u64()?;
        if count > MOST_ITEMS {
            return Err(format!(
                "announces a list of {count} items, more than the {MOST_ITEMS} that are read,"
            ));
        }
        // Each item takes this much at least, so that a short file cannot ask for a long walk.
        let size = count * kind.size() as u64;
        if size > cursor.left() {
            return Err(format!("is cut off: a list takes {size} bytes, and {} are left", cursor.left()));
        }
        let place = match kind {
            Kind::Text => {
                let start = cursor.at();
                for _ in 0..count {
                    let length = cursor.u64()?;
                    cursor.take(length)?;
                }
                start..cursor.at()
            }
            _ => cursor.place(size)?,
        };
        Ok(Self::List(kind, count as usize, place))
    }
}

/// The strings of a list, one after the other.
#[derive(Clone, Debug)]
pub struct Texts<'a> {
    left: usize,
    bytes: &'a [u8],
}

impl<'a> Iterator for Texts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        let (length, rest) = self.bytes.split_first_chunk::<LENGTH>()?;
        let (text, rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        self.left -= 1;
        self.bytes = rest;
        Some(text)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Texts<'_> {}

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metadata").field("file", &self.file).finish_non_exhaustive()
    }
}

/// A key or a text as it stands in a message, cut where it is long.
fn shown(text: &str) -> String {
    format!("{:?}", shortened(text.to_owned(), 100))
}
