//! The stages of a transformer step, and the backends that compute them.
//!
//! A [`Backend`] knows matrices, rows of activations and a key-value cache; it knows no model family and no file
//! format. [`reference`](mod@reference) defines what is right, in plain loops; every other backend is tested against it, stage
//! by stage. All `unsafe` code of the project lives in this crate.

mod activation;
mod blocks;
pub mod bytes;
pub mod cpu;
mod error;
mod fp8;
pub mod int4;
pub mod int8;
pub mod reference;
mod step;
mod tensor;

pub use activation::Activation;
pub use error::Error;
pub use step::{BLOCK, Rotation, Step};
pub use tensor::{Dtype, KvKind, Tensor, WeightKind};

/// The parts of a matrix in a file begin at multiples of this many bytes, as its users load whole vectors.
pub const SECTION_ALIGNMENT: usize = 64;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Root-mean-square normalisation: `x / √(mean(x²) + eps) · weight`. Zhang and Sennrich, arXiv:1910.07467.
pub struct RmsNorm<'a, B: Backend> {
    /// (width,)
    pub weight: &'a B::Vector,
    /// Added to the mean square before the root.
    pub eps: f32,
}

/// What [`Backend::qkv`] needs to know of one attention layer.
pub struct Qkv<'a, B: Backend> {
    /// Which layer of the cache the keys and values go to.
    pub layer: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; `heads` is a multiple of it.
    pub kv_heads: usize,
    /// Numbers a head.
    pub head_dim: usize,
    /// Applied to the rows before the product.
    pub norm: RmsNorm<'a, B>,
    /// ((heads + 2 · kv_heads) · head_dim, width): the query, key and value projections, one below the other.
    pub weight: &'a B::Weight,
    /// ((heads + 2 · kv_heads) · head_dim,)
    pub bias: Option<&'a B::Vector>,
    /// Over each query head. (head_dim,)
    pub q_norm: Option<RmsNorm<'a, B>>,
    /// Over each key head. (head_dim,)
    pub k_norm: Option<RmsNorm<'a, B>>,
    /// Which of [`Step::rotations`] turns queries and keys.
    pub rotation: usize,
}

/// What [`Backend::attend`] needs to know of one attention layer.
pub struct Attend {
    /// Which layer of the cache the keys and values come from.
    pub layer: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; query head `h` reads key-value head `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Numbers a head.
    pub head_dim: usize,
    /// Factor of each score before the softmax.
    pub scale: f32,
    /// With a window of `n`, position `p` sees positions `p - n + 1 ..= p`; without, `0 ..= p`.
    pub window: Option<usize>,
}

/// What [`Backend::gated`] needs to know of one feed-forward layer.
pub struct Gated<'a, B: Backend> {
    /// Applied to the rows before the product.
    pub norm: RmsNorm<'a, B>,
    /// (2 · inner, width): the gate projection, and the up projection below it.
    pub weight: &'a B::Weight,
    /// Applied to the gate.
    pub activation: Activation,
}

/// What [`Backend::project_add`] needs.
pub struct Project<'a, B: Backend> {
    /// (width, inner)
    pub weight: &'a B::Weight,
    /// (width,)
    pub bias: Option<&'a B::Vector>,
}

/// What [`Backend::logits`] needs.
pub struct Head<'a, B: Backend> {
    /// Applied to the rows before the product.
    pub norm: RmsNorm<'a, B>,
    /// (vocab, width)
    pub weight: &'a B::Weight,
}

/// The shape of a key-value cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// The form in which keys and values are kept.
    pub kind: KvKind,
    /// For each layer its key-value heads and the numbers a head.
    pub layers: Vec<(usize, usize)>,
}

impl CacheShape {
    /// Bytes that one position takes.
    pub fn bytes_per_position(&self) -> usize {
        self.layers.iter().map(|(heads, dim)| heads * self.kind.bytes(*dim)).sum()
    }
}

/// A form in which matrices lie in memory, and may lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its name, as a part of names of files.
    pub name: &'static str,
    /// Rises whenever the meaning of a byte changes.
    pub version: u32,
}

/// The largest logit of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// Its index, the lowest of equals.
    pub id: u32,
    /// Its value; NaN where any logit of the row is NaN.
    pub logit: f32,
}

/// One way of computing the stages of a transformer step.
///
/// After matrices, rows and state have been made with fitting shapes, stages cannot fail for reasons of shape: they
/// panic there, since only a mistake in this project can cause it. A device that is lost reports it in
/// [`read`](Backend::read) and [`argmax`](Backend::argmax), where results come back.
///
/// Each output row depends on its own input row and its own sequence alone: not on how many rows the step has, nor on
/// which rows stand beside it.
pub trait Backend: Send + Sized + 'static {
    /// A matrix in the form this backend computes with: (outputs, inputs).
    type Weight: Send + Sync;
    /// A vector of f32.
    type Vector: Send;
    /// Activations in f32: (rows, width).
    type Rows: Send;
    /// The keys and values of all sequences, addressed through block tables.
    type State: Send;

    /// The name of the device, for people: `cpu (avx512, 2 threads)`.
    fn name(&self) -> String;

    /// Room for a matrix of (`outputs`, `inputs`), all zero until written.
    fn weight(&mut self, kind: WeightKind, outputs: usize, inputs: usize) -> Result<Self::Weight>;
    /// Converts `source` (rows, inputs) into the outputs from `first` on.
    fn write(&mut self, weight: &mut Self::Weight, first: usize, source: &Tensor<'_>) -> Result<()>;
    /// The form in which matrices lie in memory; none where they cannot be kept in a file.
    fn layout(&self) -> Option<Layout> {
        None
    }
    /// The bytes of a matrix in that form, part after part.
    fn packed(_weight: &Self::Weight) -> Vec<&[u8]> {
        Vec::new()
    }
    /// The matrix of which `file` holds the [parts](Self::packed), each from a multiple of [`SECTION_ALIGNMENT`] on. It
    /// is used where it lies. None where the length or the alignment does not fit.
    fn adopt(
        &mut self,
        _kind: WeightKind,
        _outputs: usize,
        _inputs: usize,
        _file: bytes::Section,
    ) -> Option<Self::Weight> {
        None
    }
    /// A vector with these values.
    fn vector(&mut self, values: &[f32]) -> Result<Self::Vector>;
    /// Room for (`rows`, `width`) activations. Stages use the first [`Step::rows`] rows of it.
    fn rows(&mut self, rows: usize, width: usize) -> Result<Self::Rows>;
    /// A cache without blocks.
    fn state(&mut self, shape: &CacheShape) -> Result<Self::State>;
    /// Makes the cache hold at least `blocks` blocks of [`BLOCK`] positions.
    fn grow(&mut self, state: &mut Self::State, blocks: usize) -> Result<()>;
    /// Frees the blocks from number `blocks` on.
    fn shrink(&mut self, state: &mut Self::State, blocks: usize);
    /// Sets the first rows to these values: (rows, width).
    fn fill(&mut self, rows: &mut Self::Rows, values: &[f32]) -> Result<()>;
    /// The first `count` rows: (count, width).
    fn read(&mut self, rows: &Self::Rows, count: usize) -> Result<Vec<f32>>;

    /// `x = table[token]` for each row.
    fn embed(&mut self, table: &Self::Weight, step: &Step, x: &mut Self::Rows);
    /// Norm, project to queries, keys and values, norm and rotate the heads; queries go to `q`
    /// (rows, heads · head_dim), keys and values into the cache at each row's position.
    fn qkv(
        &mut self,
        args: &Qkv<'_, Self>,
        step: &Step,
        x: &Self::Rows,
        state: &mut Self::State,
        q: &mut Self::Rows,
    );
    /// Causal softmax attention of each row over its own sequence: `y` (rows, heads · head_dim).
    fn attend(&mut self, args: &Attend, step: &Step, q: &Self::Rows, state: &Self::State, y: &mut Self::Rows);
    /// `h = activation(norm(x) · gateᵀ) · (norm(x) · upᵀ)`: `h` (rows, inner).
    fn gated(&mut self, args: &Gated<'_, Self>, step: &Step, x: &Self::Rows, h: &mut Self::Rows);
    /// `x += h · weightᵀ + bias`: `h` (rows, inner), `x` (rows, width).
    fn project_add(&mut self, args: &Project<'_, Self>, step: &Step, h: &Self::Rows, x: &mut Self::Rows);
    /// `logits[i] = norm(x[wanted[i]]) · headᵀ`: (wanted, vocab).
    fn logits(&mut self, args: &Head<'_, Self>, step: &Step, x: &Self::Rows, logits: &mut Self::Rows);
    /// The largest of each of the first `count` rows.
    fn argmax(&mut self, logits: &Self::Rows, count: usize) -> Result<Vec<Best>>;
}
