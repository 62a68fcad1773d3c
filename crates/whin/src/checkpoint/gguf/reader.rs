//! The header of a GGUF file: checked in full before anything is taken from it, in time and memory that the file's
//! length bounds.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use whin_kernels::bytes::Bytes;

use super::metadata::Metadata;
use crate::checkpoint::header::{Entry, LONGEST_NAME, MOST_TENSORS};
use crate::error::shortened;

/// Longer headers are refused: the longest vocabularies take a quarter of it.
const LONGEST: usize = 100_000_000;
const MOST_DIMENSIONS: u32 = 4;
/// Where tensors begin, unless the metadata says otherwise.
const ALIGNMENT: u64 = 32;
/// The shortest description of a tensor: the length of its name, its rank, type and place.
const SHORTEST_ENTRY: u64 = 24;

/// What a file holds.
#[derive(Debug)]
pub(super) struct Header {
    pub metadata: Metadata,
    /// In the order in which their bytes stand.
    pub entries: Vec<Entry>,
}

/// A type of numbers.
struct Type {
    /// In the file.
    code: u32,
    name: &'static str,
    /// Numbers that stand together, and the bytes that these take.
    block: (u64, u64),
}

const fn ty(code: u32, name: &'static str, numbers: u64, bytes: u64) -> Type {
    Type { code, name, block: (numbers, bytes) }
}

/// All types of ggml. Those that cannot be computed with are refused by name when they are claimed.
const TYPES: &[Type] = &[
    ty(0, "F32", 1, 4),
    ty(1, "F16", 1, 2),
    ty(2, "Q4_0", 32, 18),
    ty(3, "Q4_1", 32, 20),
    ty(6, "Q5_0", 32, 22),
    ty(7, "Q5_1", 32, 24),
    ty(8, "Q8_0", 32, 34),
    ty(9, "Q8_1", 32, 40),
    ty(10, "Q2_K", 256, 84),
    ty(11, "Q3_K", 256, 110),
    ty(12, "Q4_K", 256, 144),
    ty(13, "Q5_K", 256, 176),
    ty(14, "Q6_K", 256, 210),
    ty(15, "Q8_K", 256, 292),
    ty(16, "IQ2_XXS", 256, 66),
    ty(17, "IQ2_XS", 256, 74),
    ty(18, "IQ3_XXS", 256, 98),
    ty(19, "IQ1_S", 256, 50),
    ty(20, "IQ4_NL", 32, 18),
    ty(21, "IQ3_S", 256, 110),
    ty(22, "IQ2_S", 256, 82),
    ty(23, "IQ4_XS", 256, 136),
    ty(24, "I8", 1, 1),
    ty(25, "I16", 1, 2),
    ty(26, "I32", 1, 4),
    ty(27, "I64", 1, 8),
    ty(28, "F64", 1, 8),
    ty(29, "IQ1_M", 256, 56),
    ty(30, "BF16", 1, 2),
    ty(34, "TQ1_0", 256, 54),
    ty(35, "TQ2_0", 256, 66),
    ty(39, "MXFP4", 32, 17),
    ty(40, "NVFP4", 64, 36),
    ty(41, "Q1_0", 128, 18),
];

/// Types that the format once had.
const REMOVED: &[(u32, &str)] = &[
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

/// Reads the header of the file that messages call `file`. An error says what is wrong with it.
pub(super) fn read(bytes: &Arc<Bytes>, file: &str) -> Result<Header, String> {
    if bytes.starts_with(b"version https://git-lfs") {
        return Err("is a pointer of Git LFS, not the weights themselves; run `git lfs pull`".to_owned());
    }
    let mut cursor = Cursor::new(bytes);
    check_version(&mut cursor)?;
    let (tensors, keys) = (cursor.u64()?, cursor.u64()?);
    if tensors > MOST_TENSORS as u64 || tensors > cursor.left() / SHORTEST_ENTRY {
        let left = cursor.left();
        return Err(format!(
            "announces {tensors} tensors; at most {MOST_TENSORS} are read, and {left} bytes are left for all"
        ));
    }
    let metadata = Metadata::read(bytes, file, &mut cursor, keys)?;
    let alignment = alignment(&metadata)?;
    let mut entries = Vec::with_capacity(tensors as usize);
    for index in 0..tensors {
        let entry = entry(&mut cursor, alignment);
        entries.push(entry.map_err(|what| format!("{what} (tensor {index} of {tensors})"))?);
    }
    check_names(&entries)?;
    // A file without tensors may end before the place where they would begin.
    let data = (cursor.at() as u64).next_multiple_of(alignment);
    if data > bytes.len() as u64 && !entries.is_empty() {
        return Err("is cut off: it ends before its tensors".to_owned());
    }
    check_places(&mut entries, (data, alignment), bytes.len() as u64)?;
    Ok(Header { metadata, entries })
}

fn check_version(cursor: &mut Cursor<'_>) -> Result<(), String> {
    let magic = cursor.take(4)?;
    if magic != b"GGUF" {
        return Err(format!("is no GGUF file: it begins with {}", magic.escape_ascii()));
    }
    match cursor.u32()? {
        2 | 3 => Ok(()),
        1 => Err("is of version 1 of GGUF, which was in use for a week in 2023 and is not read: convert the original \
                  checkpoint with a current llama.cpp"
            .to_owned()),
        version if (1..=0xffff).contains(&version.swap_bytes()) => {
            Err("is a big-endian GGUF file, which is not read: convert it with `gguf-convert-endian FILE little` of \
                 the Python package gguf"
                .to_owned())
        }
        version => Err(format!(
            "is of version {version} of GGUF; 2 and 3 are read: update whin, or get the file again if it is damaged"
        )),
    }
}

/// Where tensors may begin: at multiples of this.
fn alignment(metadata: &Metadata) -> Result<u64, String> {
    let key = "general.alignment";
    let found = metadata.integer(key).map_err(|_| format!("has {} as its {key}", metadata.found(key)))?;
    let alignment = found.unwrap_or(ALIGNMENT);
    // Far more than any page has; it keeps sums of places from overflowing.
    match alignment.is_power_of_two() && (8..=1 << 30).contains(&alignment) {
        true => Ok(alignment),
        false => Err(format!("has the {key} {alignment}; accepted: a power of two from 8 to 2³⁰")),
    }
}

/// One tensor, whose place counts from the start of the data.
fn entry(cursor: &mut Cursor<'_>, alignment: u64) -> Result<Entry, String> {
    let length = cursor.u64()?;
    if length > LONGEST_NAME as u64 {
        return Err(format!("gives a tensor a name of {length} bytes; at most {LONGEST_NAME} are read"));
    }
    let name = std::str::from_utf8(cursor.take(length)?)
        .map_err(|_| "gives a tensor a name that is no UTF-8".to_owned())?
        .to_owned();
    let shown = format!("{:?}", shortened(name.clone(), 100));
    let rank = cursor.u32()?;
    if rank > MOST_DIMENSIONS {
        return Err(format!("gives tensor {shown} {rank} dimensions; the format allows {MOST_DIMENSIONS}"));
    }
    // The file has the length of a row first.
    let mut shape = (0..rank).map(|_| cursor.u64()).collect::<Result<Vec<u64>, _>>()?;
    shape.reverse();
    let (code, offset) = (cursor.u32()?, cursor.u64()?);
    let ty = TYPES.iter().find(|ty| ty.code == code).ok_or_else(|| unknown_type(&shown, code))?;
    let size =
        size(ty, &shape).map_err(|what| format!("gives tensor {shown} the shape {shape:?}, {what}"))?;
    if !offset.is_multiple_of(alignment) {
        return Err(format!("places tensor {shown} at byte {offset}, which is no multiple of {alignment}"));
    }
    let end = offset.checked_add(size).ok_or_else(|| format!("places tensor {shown} past 2⁶⁴"))?;
    let too_large = |_| format!("has tensor {shown}, which is larger than this machine can address");
    let shape: Result<Vec<usize>, _> = shape.into_iter().map(usize::try_from).collect();
    Ok(Entry {
        shape: shape.map_err(too_large)?,
        start: usize::try_from(offset).map_err(too_large)?,
        end: usize::try_from(end).map_err(too_large)?,
        dtype: ty.name,
        name,
    })
}

fn unknown_type(tensor: &str, code: u32) -> String {
    match REMOVED.iter().find(|(removed, _)| *removed == code) {
        Some((_, name)) => format!(
            "stores tensor {tensor} as {name}, which is no longer part of GGUF: get a file in another type, such as \
             Q4_0"
        ),
        None => format!(
            "stores tensor {tensor} in the unknown type {code}: get a file in another type, such as Q8_0, or the file \
             again if it is damaged"
        ),
    }
}

/// Bytes of a tensor, or why its shape has no such number.
fn size(ty: &Type, shape: &[u64]) -> Result<u64, String> {
    let count = shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim));
    let count = count.ok_or("whose product overflows 64 bits")?;
    let (numbers, bytes) = ty.block;
    let row = shape.last().copied().unwrap_or(1);
    if !row.is_multiple_of(numbers) {
        return Err(format!("but {} comes in blocks of {numbers} numbers, and a row has {row}", ty.name));
    }
    (count / numbers).checked_mul(bytes).ok_or_else(|| "whose size overflows 64 bits".to_owned())
}

fn check_names(entries: &[Entry]) -> Result<(), String> {
    let mut names = HashSet::with_capacity(entries.len());
    match entries.iter().find(|entry| !names.insert(entry.name.as_str())) {
        Some(entry) => Err(format!("names tensor {:?} twice", shortened(entry.name.clone(), 100))),
        None => Ok(()),
    }
}

/// Between tensors and behind the last, beyond what the alignment asks for. Whatever lies there is hashed with the rest.
const LARGEST_GAP: u64 = 64 << 10;

/// Sorts by place, and checks that the tensors fill the data, which reaches from `data` to the end of the file, and lie
/// apart from each other. Places are moved to count from the start of the file.
fn check_places(entries: &mut [Entry], (data, alignment): (u64, u64), length: u64) -> Result<(), String> {
    entries.sort_by_key(|entry| (entry.start, entry.end));
    let there = length.saturating_sub(data);
    let mut covered = 0;
    for entry in entries.iter_mut() {
        let name = shortened(entry.name.clone(), 100);
        if entry.end as u64 > there {
            return Err(format!(
                "places tensor {name:?} at bytes {} to {} of its data, which has {there}: it is cut off, or damaged",
                entry.start, entry.end
            ));
        }
        if entry.start < covered {
            return Err(format!(
                "places tensor {name:?} at byte {} of its data, where it overlaps the one before it, which ends at \
                 {covered}",
                entry.start
            ));
        }
        let gap = (entry.start as u64).saturating_sub(covered as u64);
        if gap > alignment.max(LARGEST_GAP) {
            return Err(format!(
                "has {gap} bytes of nothing before tensor {name:?}: it is damaged, or was made larger: get it again"
            ));
        }
        covered = entry.end;
        // Both ends are within the file, so no sum overflows.
        entry.start += data as usize;
        entry.end += data as usize;
    }
    let behind = there - covered as u64;
    if !entries.is_empty() && behind > alignment.max(LARGEST_GAP) {
        return Err(format!(
            "has {behind} bytes behind its last tensor: it is damaged, or was made larger: get it again"
        ));
    }
    Ok(())
}

/// A place in a file that moves on with everything that is read.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    is_long: bool,
}

impl<'a> Cursor<'a> {
    fn new(file: &'a [u8]) -> Self {
        Self { bytes: &file[..file.len().min(LONGEST)], at: 0, is_long: file.len() > LONGEST }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    /// Bytes that are left for the header.
    pub fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// Where the next `length` bytes stand.
    pub fn place(&mut self, length: u64) -> Result<Range<usize>, String> {
        let left = self.left();
        if length > left {
            return Err(match self.is_long {
                true => format!("has a header of more than {LONGEST} bytes, or is damaged,"),
                false => {
                    format!("is cut off, or damaged: {length} bytes are announced, and {left} are left,")
                }
            });
        }
        let start = self.at;
        self.at += length as usize;
        Ok(start..self.at)
    }

    pub fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        self.place(length).map(|place| &self.bytes[place])
    }

    pub fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.take(N as u64)?;
        bytes.first_chunk().copied().ok_or_else(|| "is cut off".to_owned())
    }
}
