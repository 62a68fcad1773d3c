//! The tensors of a checkpoint, whatever files they are in. Gives each to whoever claims it, once. Knows no model.

mod scales;
mod stacked;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use whin_kernels::bytes::Bytes;
use whin_kernels::{Dtype, Tensor};

use super::header::Entry;
use super::seen::Seen;
use super::source::Source;
use super::storage::{Storage, refuse_foreign};
use super::{gguf, safetensors};
use crate::{Error, ErrorKind, Result};
use scales::Scales;

/// More problems than this are counted, not listed.
const MOST_LISTED: usize = 20;

/// All tensors of a checkpoint, of which none has been read yet.
///
/// Claims that fail are noted and told together by [`Self::finish`], before anything large is allocated.
#[derive(Debug)]
pub struct Tensors {
    tensors: BTreeMap<String, Place>,
    files: Vec<String>,
    claimed: HashSet<String>,
    problems: Vec<String>,
    unsupported: Vec<String>,
    storage: Storage,
    seen: Seen,
    format: Format,
}

/// The form of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Safetensors,
    Gguf { architecture: String },
}

impl Format {
    /// What says which tensors there must be.
    fn config(&self) -> &'static str {
        match self {
            Self::Safetensors => "config.json",
            Self::Gguf { .. } => "the metadata",
        }
    }

    /// A shape without what the format does not tell: GGUF knows no axis of one in front.
    fn bare<'a>(&self, shape: &'a [usize]) -> &'a [usize] {
        match self {
            Self::Safetensors => shape,
            Self::Gguf { .. } => &shape[shape.iter().take_while(|count| **count == 1).count()..],
        }
    }

    /// The types that can be read, and what to do about others.
    fn accepted(&self) -> &'static str {
        match self {
            Self::Safetensors => "BF16, F16, F32, F64, and with scales F8_E4M3, F8_E5M2, I8",
            Self::Gguf { .. } => {
                "BF16, F16, F32, F64, Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, Q4_K, Q4_1, Q4_0, IQ4_NL, MXFP4, Q3_K, Q2_K; \
                 get the checkpoint in one of these"
            }
        }
    }
}

/// Where a tensor lies.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub file: Arc<Shard>,
    pub entry: Entry,
}

/// A file with tensors.
#[derive(Debug)]
pub(super) struct Shard {
    pub name: String,
    pub bytes: Arc<Bytes>,
}

impl Tensors {
    /// Finds the tensors of `source`: those of its safetensors files, or of its GGUF files.
    ///
    /// # Errors
    /// `invalid_checkpoint` naming the file, and for a missing file a tensor that it should hold; `io` where the
    /// system denies access.
    pub fn open(source: &Source) -> Result<Self> {
        match source {
            Source::Gguf(gguf) => Ok(gguf::tensors(gguf)),
            Source::Folder(_) | Source::BuiltIn | Source::Memory(_) => safetensors::tensors(source),
        }
    }

    /// The tensors at these places, by the names under which they are claimed.
    pub(super) fn new(
        format: Format,
        tensors: BTreeMap<String, Place>,
        files: Vec<String>,
        seen: Seen,
    ) -> Self {
        let (claimed, problems, unsupported, storage) = Default::default();
        Self { tensors, files, claimed, problems, unsupported, storage, seen, format }
    }

    /// Hears how the checkpoint says that its matrices are stored, before the first claim.
    ///
    /// # Errors
    /// `unsupported_architecture` where the names of the tensors show that they are quantised in another form.
    pub fn stored_as(&mut self, storage: Storage) -> Result<()> {
        self.storage = storage;
        refuse_foreign(self.names())
    }

    /// The architecture of a GGUF file, which says how its tensors are named; none where they are named as by
    /// transformers.
    pub fn architecture(&self) -> Option<&str> {
        match &self.format {
            Format::Safetensors => None,
            Format::Gguf { architecture } => Some(architecture),
        }
    }

    /// The names of the files that hold them.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// What the system said of those files, and of the index, as they were opened.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Whether a tensor of this name is there.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// How a tensor of this name is stored; none where it is not there, or in a form that is not read.
    pub fn dtype(&self, name: &str) -> Option<Dtype> {
        dtype_of(self.tensors.get(name)?.entry.dtype)
    }

    /// The shape of the tensor `name`, if there is such.
    pub fn stored_shape(&self, name: &str) -> Option<&[usize]> {
        Some(&self.tensors.get(name)?.entry.shape)
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.tensors.keys().map(String::as_str)
    }

    /// Takes the tensor `name` of rank one to three, with its scales where its type needs them. None, with a problem noted
    /// for [`Self::finish`], where it is missing, has been claimed before, or has another shape or a type that cannot be
    /// read, or where its scales are missing or wrong.
    pub fn claim(&mut self, name: &str, shape: &[usize]) -> Option<TensorRef> {
        let (place, scales) = self.claim_place(name, shape)?;
        let found = self.with_scales(&place, &scales);
        self.unless_faulty(found)
    }

    /// Where the tensor `name` is, and what might be its scales. None, with a problem noted, where it is missing, has
    /// been claimed before, or has another shape.
    fn claim_place(&mut self, name: &str, shape: &[usize]) -> Option<(Place, Vec<Place>)> {
        let Some(place) = self.tensors.get(name) else {
            self.problems.push(format!("tensor {name:?} is missing from {}", self.files_shown()));
            return None;
        };
        let file = &place.file.name;
        if !self.claimed.insert(name.to_owned()) {
            self.problems.push(format!("tensor {name:?} in {file} is asked for twice"));
            return None;
        }
        let place = place.clone();
        let scales = self.take_scales(&place);
        let (file, entry) = (&place.file.name, &place.entry);
        if self.format.bare(&entry.shape) != self.format.bare(shape) {
            let found = &entry.shape;
            self.problems.push(format!("tensor {name:?} in {file}: expected {shape:?}, found {found:?}"));
            return None;
        }
        Some((place, scales))
    }

    /// What was found, or none with its fault noted.
    fn unless_faulty<T>(&mut self, found: Result<T, Fault>) -> Option<T> {
        match found {
            Ok(found) => return Some(found),
            Err(Fault::Unsupported(problem)) => self.unsupported.push(problem),
            Err(Fault::Invalid(problem)) => self.problems.push(problem),
        }
        None
    }

    /// Takes the tensor `name` whatever its shape, as one that may be there but is not needed. None where it is not
    /// there, has been claimed before, or cannot be read.
    pub fn take(&mut self, name: &str) -> Option<TensorRef> {
        let place = self.tensors.get(name)?.clone();
        if !self.claimed.insert(name.to_owned()) {
            return None;
        }
        let scales = self.take_scales(&place);
        self.with_scales(&place, &scales).ok()
    }

    /// The tensor at `place`, with its scales where its type needs them, out of those that were found for it.
    fn with_scales(&self, place: &Place, scales: &[Place]) -> Result<TensorRef, Fault> {
        let (name, file, stored) = (&place.entry.name, &place.file.name, place.entry.dtype);
        let unsupported = || {
            Fault::Unsupported(format!(
                "tensor {name:?} in {file} is stored as {stored}, which cannot be read yet; accepted: {}",
                self.format.accepted()
            ))
        };
        let mut tensor = TensorRef::new(place).ok_or_else(unsupported)?;
        if tensor.dtype.needs_scale() {
            if let Some(what) = self.storage.contradiction(tensor.dtype) {
                return Err(Fault::Invalid(format!(
                    "tensor {name:?} in {file} is stored as {stored}, which contradicts {what} in the \
                     quantization_config of config.json; get both again from the same place"
                )));
            }
            let scales = self.scales(place, tensor.shape(), scales).map_err(Fault::Invalid)?;
            tensor.scales = Some(scales);
        }
        Ok(tensor)
    }

    /// Notes a problem to be told by [`Self::finish`].
    pub fn note(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// Ends the claiming. Tensors for which `ignorable` holds may be left over.
    ///
    /// # Errors
    /// `invalid_checkpoint` with every problem of the claims and every tensor that nobody claimed;
    /// `unsupported_architecture` where the only problem is how tensors are stored.
    pub fn finish(mut self, ignorable: impl Fn(&str) -> bool) -> Result<()> {
        let left = self.tensors.iter().filter(|(name, _)| {
            !self.claimed.contains(*name) && !ignorable(name) && !self.is_activation_scale(name)
        });
        let left: Vec<String> = left.map(|(name, place)| self.left_over(name, place)).collect();
        if self.problems.is_empty() && left.is_empty() && self.unsupported.is_empty() {
            return Ok(());
        }
        // Quantised tensors bring others along (their scales), so those are no problem of their own.
        let kind = match self.problems.is_empty() && !self.unsupported.is_empty() {
            true => ErrorKind::UnsupportedArchitecture,
            false => ErrorKind::InvalidCheckpoint,
        };
        self.problems.append(&mut self.unsupported);
        self.problems.extend(left);
        let title = format!("the weights do not fit {}", self.format.config());
        Err(Error::new(kind, listed(&title, &self.problems)))
    }

    fn files_shown(&self) -> String {
        match self.files.as_slice() {
            [file] => file.clone(),
            [first, .., last] => format!("{first} … {last}"),
            [] => safetensors::SINGLE.to_owned(),
        }
    }
}

/// Why a tensor cannot be had.
enum Fault {
    /// Its type is none that is read.
    Unsupported(String),
    /// Something is missing, or contradicts something else.
    Invalid(String),
}

fn dtype_of(name: &str) -> Option<Dtype> {
    Some(match name {
        "BF16" => Dtype::Bf16,
        "F16" => Dtype::F16,
        "F32" => Dtype::F32,
        "F64" => Dtype::F64,
        "F8_E4M3" => Dtype::F8E4m3,
        "F8_E5M2" => Dtype::F8E5m2,
        "I8" => Dtype::I8,
        "Q8_0" => Dtype::Q8_0,
        "Q4_0" => Dtype::Q4_0,
        "Q4_1" => Dtype::Q4_1,
        "Q5_0" => Dtype::Q5_0,
        "Q5_1" => Dtype::Q5_1,
        "Q2_K" => Dtype::Q2K,
        "Q3_K" => Dtype::Q3K,
        "Q4_K" => Dtype::Q4K,
        "Q5_K" => Dtype::Q5K,
        "Q6_K" => Dtype::Q6K,
        "IQ4_NL" => Dtype::Iq4Nl,
        "MXFP4" => Dtype::Mxfp4,
        _ => return None,
    })
}

/// A claimed tensor. Its bytes stay in the file until they are looked at.
#[derive(Clone, Debug)]
pub struct TensorRef {
    place: Place,
    dtype: Dtype,
    rows: usize,
    cols: usize,
    scales: Option<Scales>,
    /// Where the powers of two of MXFP4 are.
    exponents: Option<Place>,
    /// Whether the file holds its columns as rows.
    turned: bool,
    /// The rows of the file, or the numbers of a vector, in the order in which they are wanted.
    order: Option<Arc<[u32]>>,
    /// Columns of the file in the order in which they are wanted, and how many move together.
    columns: Option<(Arc<[u32]>, usize)>,
}

impl TensorRef {
    /// The tensor without its scales; none where the type or the rank cannot be viewed.
    fn new(place: &Place) -> Option<Self> {
        let dtype = dtype_of(place.entry.dtype)?;
        let (rows, cols) = match place.entry.shape[..] {
            [cols] => (1, cols),
            [rows, cols] => (rows, cols),
            // Matrices of one shape, such as those of experts, one below the other.
            [count, rows, cols] => (count.checked_mul(rows)?, cols),
            _ => return None,
        };
        let (scales, exponents, turned, order, columns) = Default::default();
        Some(Self { place: place.clone(), dtype, rows, cols, scales, exponents, turned, order, columns })
    }

    /// The same with its rows, or the numbers of a vector, or some of them, in another order: `order[i]` becomes number
    /// `i`.
    pub(crate) fn in_order(self, order: Arc<[u32]>) -> Self {
        Self { order: Some(order), ..self }
    }

    /// The same with its columns in another order, `together` at once: number `i` of these is number `order[i]` of the
    /// file. There are as many of them as the matrix has.
    pub(crate) fn with_columns(self, order: Arc<[u32]>, together: usize) -> Self {
        Self { columns: Some((order, together)), ..self }
    }

    /// The name in the file.
    pub fn name(&self) -> &str {
        &self.place.entry.name
    }

    /// How the file stores a number.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// (rows, cols); a vector has one row, and several matrices stand one below the other.
    pub fn shape(&self) -> (usize, usize) {
        match &self.order {
            Some(order) if self.place.entry.shape.len() == 1 => (1, order.len()),
            Some(order) => (order.len(), self.cols),
            None => (self.rows, self.cols),
        }
    }

    /// Bytes in the file, without those of scales beside it.
    pub fn bytes(&self) -> usize {
        self.place.entry.end - self.place.entry.start
    }

    /// How the file stores the numbers, for people: `BF16`, or `F8_E4M3 with one scale for 128x128`.
    pub fn storage(&self) -> String {
        if self.exponents.is_some() {
            return "MXFP4 with one scale for 32".to_owned();
        }
        let dtype = self.place.entry.dtype;
        let with = |scales: &Scales| format!("{dtype} with {}", scales.describe());
        self.scales.as_ref().map_or_else(|| dtype.to_owned(), with)
    }

    /// The numbers, scaled, (rows, cols); a vector has one row, or one column where its numbers are put in order.
    pub fn view(&self) -> Tensor<'_> {
        let (rows, cols) = match &self.order {
            Some(_) if self.place.entry.shape.len() == 1 => (self.cols, 1),
            _ => (self.rows, self.cols),
        };
        let bytes = self.place.bytes();
        let tensor = match &self.exponents {
            Some(exponents) => Tensor::mxfp4(rows, cols, bytes, exponents.bytes()),
            None if self.turned => Tensor::new(self.dtype, cols, rows, bytes).and_then(Tensor::transposed),
            None => Tensor::new(self.dtype, rows, cols, bytes),
        };
        let tensor = tensor.expect("the header was checked: the bytes are those of the shape");
        let tensor = match &self.scales {
            Some(scales) => {
                let (scales, block) = scales.view();
                tensor.scaled(&scales, block).expect("scales were claimed with the shape of the blocks")
            }
            None => tensor,
        };
        let tensor = match &self.order {
            Some(order) => tensor.in_order(order).expect("rows in order are rows of the tensor"),
            None => tensor,
        };
        match &self.columns {
            Some((order, together)) => {
                tensor.with_columns(order, *together).expect("columns in order are those of the tensor")
            }
            None => tensor,
        }
    }

    /// Gives the memory behind the bytes back to the system; looking at them again fetches them from the file.
    pub fn release(&self) {
        self.places().for_each(Place::release);
    }

    /// Gives back what lies in the files from the first of `tensors` to the last. The system maps the neighbours of each
    /// page that is read, so that small tensors bring others back, which were released before.
    pub fn release_all(tensors: &[Self]) {
        let mut stretches: Vec<(&Arc<Shard>, Range<usize>)> = Vec::new();
        for place in tensors.iter().flat_map(Self::places) {
            let (start, end) = (place.entry.start, place.entry.end);
            match stretches.iter_mut().find(|(file, _)| Arc::ptr_eq(file, &place.file)) {
                Some((_, stretch)) => *stretch = stretch.start.min(start)..stretch.end.max(end),
                None => stretches.push((&place.file, start..end)),
            }
        }
        stretches.into_iter().for_each(|(file, stretch)| file.bytes.release(stretch));
    }

    /// Where the numbers and their scales are.
    fn places(&self) -> impl Iterator<Item = &Place> {
        [Some(&self.place), self.scales.as_ref().map(Scales::place), self.exponents.as_ref()]
            .into_iter()
            .flatten()
    }

    /// Whether `other` has the same type, shape, bytes and scales. Leaves neither in memory.
    pub fn same_bytes(&self, other: &Self) -> bool {
        let scales = match (&self.scales, &other.scales) {
            (Some(scales), Some(others)) => scales.same(others),
            (scales, others) => scales.is_none() && others.is_none(),
        };
        let is_plain = |tensor: &Self| tensor.exponents.is_none() && !tensor.turned;
        let same = scales && is_plain(self) && is_plain(other) && self.place.same(&other.place);
        self.release();
        other.release();
        same
    }
}

impl Place {
    fn bytes(&self) -> &[u8] {
        &self.file.bytes[self.entry.start..self.entry.end]
    }

    fn release(&self) {
        self.file.bytes.release(self.entry.start..self.entry.end);
    }

    pub fn same(&self, other: &Self) -> bool {
        let (a, b) = (&self.entry, &other.entry);
        a.dtype == b.dtype && a.shape == b.shape && self.bytes() == other.bytes()
    }
}

/// A title, and the problems below it.
pub(super) fn listed(title: &str, problems: &[String]) -> String {
    let mut message = format!("{title}:");
    for problem in problems.iter().take(MOST_LISTED) {
        message.push_str("\n  - ");
        message.push_str(problem);
    }
    if problems.len() > MOST_LISTED {
        message.push_str(&format!("\n  and {} more", problems.len() - MOST_LISTED));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Destination, Plan};

    #[test]
    fn the_demo_model_is_claimed_to_the_last_tensor() {
        let source = Source::open(None).unwrap();
        let spec = crate::model::config::read(&source.read("config.json").unwrap().unwrap()).unwrap();
        let loads = Plan::new(&spec).claim(Tensors::open(&source).unwrap()).unwrap();
        assert_eq!(loads.len(), 2 + 8 * 8);
        assert!(loads.iter().all(|load| load.to != Destination::Head && !load.parts.is_empty()));
        let embedding = loads[0].parts[0].view();
        assert_eq!((embedding.rows(), embedding.cols()), (6144, 320));
        assert_eq!(loads[1].parts[0].shape(), (1, 320));
        loads[0].parts[0].release();
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let mut tensors = Tensors::open(&Source::BuiltIn).unwrap();
        assert!(tensors.claim("model.norm.weight", &[321]).is_none());
        assert!(tensors.claim("absent", &[1]).is_none());
        let message = tensors.finish(|name| name.starts_with("model.layers.")).unwrap_err().to_string();
        assert!(message.contains("expected [321], found [320]"), "{message}");
        assert!(message.contains("\"absent\" is missing"), "{message}");
        assert!(message.contains("\"model.embed_tokens.weight\""), "{message}");
    }
}
