//! The stages of a transformer step, and the backends that compute them.
//!
//! A [`Backend`] knows matrices, rows of activations and a key-value cache; it knows no model family and no file
//! format. [`reference`](mod@reference) defines what is right, in plain loops; every other backend is tested against it, stage
//! by stage. All `unsafe` code of the project lives in this crate.

mod activation;
mod blocks;
pub mod bytes;
pub mod cpu;
pub mod delta;
mod error;
mod fp8;
pub mod int4;
pub mod int4_affine;
pub mod int8;
pub mod int8_groups;
mod mxfp4;
pub mod reference;
mod step;
mod tensor;

pub use activation::{Activation, Gating};
pub use error::Error;
pub use step::{BLOCK, Rotation, Step};
pub use tensor::{Dtype, KvKind, Tensor, WeightKind};

/// The parts of a matrix in a file begin at multiples of this many bytes, as its users load whole vectors.
pub const SECTION_ALIGNMENT: usize = 64;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Normalisation of a row: `x / √(mean(x²) + eps) · weight`. Zhang and Sennrich, arXiv:1910.07467.
pub struct Norm<'a, B: Backend> {
    /// (width,)
    pub weight: &'a B::Vector,
    /// Added to the mean square before the root.
    pub eps: f32,
    /// Whether the row's mean is taken off first. Ba et al., arXiv:1607.06450.
    pub centred: bool,
}

/// Normalisation of the heads of a projection.
pub struct HeadNorm<'a, B: Backend> {
    /// (head_dim,), or (heads · head_dim,) over the whole projection.
    pub norm: Norm<'a, B>,
    /// What is normalised together.
    pub span: Span,
}

/// What a norm of heads takes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Each head by itself.
    Head,
    /// All heads of a projection, as one row.
    Projection,
}

/// What [`Backend::embed`] needs.
pub struct Embed<'a, B: Backend> {
    /// (vocab, width)
    pub table: &'a B::Weight,
    /// Factor of each number.
    pub scale: f32,
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
    pub norm: Option<Norm<'a, B>>,
    /// ((heads + 2 · kv_heads) · head_dim, width): the query, key and value projections, one below the other, and below
    /// them (heads · head_dim, width) gates of the result, where the layer has some.
    pub weight: &'a B::Weight,
    /// (outputs of the weight,)
    pub bias: Option<&'a B::Vector>,
    /// Over the queries.
    pub q_norm: Option<HeadNorm<'a, B>>,
    /// Over the keys.
    pub k_norm: Option<HeadNorm<'a, B>>,
    /// Which of [`Step::rotations`] turns queries and keys; without one they stay.
    pub rotation: Option<usize>,
    /// Whether the result of attention has gates.
    pub gated: bool,
}

/// What [`Backend::attend`] needs to know of one attention layer.
pub struct Attend<'a, B: Backend> {
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
    /// A score `s`, scaled, becomes `softcap · tanh(s / softcap)`. Bello et al., arXiv:1611.09940.
    pub softcap: Option<f32>,
    /// For each head a score, of no position, that takes a share of the softmax. (heads,)
    pub sinks: Option<&'a B::Vector>,
    /// Whether the queries have gates behind them, whose sigmoids the result is multiplied with.
    pub gated: bool,
}

/// A causal convolution of each channel by itself: `y[p] = Σ taps[i] · x[p − count + 1 + i] + bias`, where `x` is zero
/// before the first position of a sequence.
pub struct Convolution<'a, B: Backend> {
    /// How many positions, its own included, a result takes in; at least 1.
    pub count: usize,
    /// The oldest position first: (count, channels).
    pub taps: &'a B::Vector,
    /// (channels,)
    pub bias: Option<&'a B::Vector>,
}

/// What [`Backend::short_conv`] needs to know of one layer.
pub struct ShortConv<'a, B: Backend> {
    /// Which layer of the cache the state is in: `count − 1` positions of `width` channels, without matrices.
    pub layer: usize,
    /// Applied to the rows before the product.
    pub norm: Option<Norm<'a, B>>,
    /// (3 · width, width): the projections to gates of what goes in, to gates of what comes out, and to what goes in.
    pub weight: &'a B::Weight,
    /// (3 · width,)
    pub bias: Option<&'a B::Vector>,
    /// Over `width` channels.
    pub convolution: Convolution<'a, B>,
}

/// What [`Backend::delta`] needs to know of one layer.
pub struct Delta<'a, B: Backend> {
    /// Which layer of the cache the state is in: `count − 1` positions of the channels of the convolution, and
    /// `value_heads` matrices of (key_dim, value_dim).
    pub layer: usize,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values, a multiple of `key_heads`; value head `h` has key head `h / (value_heads / key_heads)`.
    pub value_heads: usize,
    /// Numbers of a query and of a key.
    pub key_dim: usize,
    /// Numbers of a value.
    pub value_dim: usize,
    /// Applied to the rows before the product.
    pub norm: Option<Norm<'a, B>>,
    /// (2 · key_heads · key_dim + 2 · value_heads · value_dim + 2 · value_heads, width): the projections to queries, keys,
    /// values, gates of the result, and for each value head its `b` and its `a`, one below the other.
    pub weight: &'a B::Weight,
    /// Over queries, keys and values.
    pub convolution: Convolution<'a, B>,
    /// Applied to what the convolution gives.
    pub activation: Activation,
    /// How fast each matrix fades. (value_heads,)
    pub rates: &'a B::Vector,
    /// Added to `a`. (value_heads,)
    pub time_bias: &'a B::Vector,
    /// Over each value head of the result, before its gates. (value_dim,)
    pub out_norm: Norm<'a, B>,
}

/// What [`Backend::gated`] needs to know of one feed-forward layer.
pub struct Gated<'a, B: Backend> {
    /// Applied to the rows before the product.
    pub norm: Option<Norm<'a, B>>,
    /// (2 · inner, width): the gate projection, and the up projection below it.
    pub weight: &'a B::Weight,
    /// (2 · inner,)
    pub bias: Option<&'a B::Vector>,
    /// Applied to the gate.
    pub activation: Activation,
    /// `h` is multiplied with the sigmoid of the normalised row's product with this. (width,)
    pub row_gate: Option<&'a B::Vector>,
}

/// What [`Backend::experts_add`] needs to know of one layer with a mixture of experts. Shazeer et al., arXiv:1701.06538.
pub struct Experts<'a, B: Backend> {
    /// Applied to the rows before all products.
    pub norm: Option<Norm<'a, B>>,
    /// (experts, width), whose products with a row are the experts' scores. As f32, lest another expert be chosen.
    pub router: &'a B::Weight,
    /// (experts,)
    pub router_bias: Option<&'a B::Vector>,
    /// How many there are.
    pub experts: usize,
    /// How many of them work on a row: 1 to `experts`.
    pub top_k: usize,
    /// What the share of each in the result is.
    pub shares: Shares,
    /// (experts · 2 · inner, width): for one expert after the other the gate projection, and the up projection below it.
    pub gate_up: &'a B::Weight,
    /// (experts · 2 · inner,)
    pub gate_up_bias: Option<&'a B::Vector>,
    /// How a gate and what it multiplies become one number.
    pub gating: Gating,
    /// (experts · width, inner)
    pub down: &'a B::Weight,
    /// (experts · width,)
    pub down_bias: Option<&'a B::Vector>,
    /// Factor of what is added.
    pub scale: f32,
}

/// What the shares of the chosen experts are: a softmax of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shares {
    /// Of the scores of all experts, so that the shares of the chosen ones come to less than one.
    OfAll,
    /// Of the scores of the chosen ones, which is also what a softmax over all becomes when the shares of the chosen ones
    /// are divided by their sum.
    OfChosen,
}

/// What [`Backend::project_add`] needs.
pub struct Project<'a, B: Backend> {
    /// (width, inner)
    pub weight: &'a B::Weight,
    /// (width,)
    pub bias: Option<&'a B::Vector>,
    /// Applied to the product, with its bias, before it is added.
    pub norm: Option<Norm<'a, B>>,
    /// Factor of what is added.
    pub scale: f32,
}

/// What [`Backend::logits`] needs.
pub struct Head<'a, B: Backend> {
    /// Applied to the rows before the product.
    pub norm: Norm<'a, B>,
    /// (vocab, width)
    pub weight: &'a B::Weight,
    /// Factor of each logit.
    pub scale: f32,
    /// A logit `l`, scaled, becomes `softcap · tanh(l / softcap)`.
    pub softcap: Option<f32>,
}

/// The shape of what is kept of sequences from one step to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// The form in which keys and values are kept.
    pub kind: KvKind,
    /// What each layer keeps.
    pub layers: Vec<LayerCache>,
}

/// What a layer keeps of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerCache {
    /// Keys and values of every position, in blocks of [`BLOCK`].
    Positions {
        /// Key-value heads.
        kv_heads: usize,
        /// Numbers a head.
        head_dim: usize,
    },
    /// A state that is as large for any number of positions.
    State(StateShape),
}

/// The state that a recurrent layer keeps of a sequence, in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateShape {
    /// The last inputs of a convolution: (positions, channels).
    pub inputs: (usize, usize),
    /// What is remembered of all positions: (heads, key_dim, value_dim).
    pub matrices: (usize, usize, usize),
}

impl StateShape {
    /// Numbers of the state.
    pub fn numbers(&self) -> usize {
        let ((positions, channels), (heads, key_dim, value_dim)) = (self.inputs, self.matrices);
        positions * channels + heads * key_dim * value_dim
    }
}

impl CacheShape {
    /// Bytes that one position takes.
    pub fn bytes_per_position(&self) -> usize {
        let bytes = |layer: &LayerCache| match layer {
            LayerCache::Positions { kv_heads, head_dim } => kv_heads * self.kind.bytes(*head_dim),
            LayerCache::State(_) => 0,
        };
        self.layers.iter().map(bytes).sum()
    }

    /// Whether any layer keeps a state, even one without numbers.
    pub fn has_states(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer, LayerCache::State(_)))
    }

    /// Bytes that a sequence takes whatever its length.
    pub fn bytes_per_state(&self) -> usize {
        let bytes = |layer: &LayerCache| match layer {
            LayerCache::Positions { .. } => 0,
            LayerCache::State(shape) => shape.numbers() * size_of::<f32>(),
        };
        self.layers.iter().map(bytes).sum()
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
    /// The keys and values of all sequences, addressed through block tables, and the states of recurrent layers.
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
    /// A cache without blocks and states.
    fn state(&mut self, shape: &CacheShape) -> Result<Self::State>;
    /// Makes the cache hold at least `blocks` blocks of [`BLOCK`] positions.
    fn grow(&mut self, state: &mut Self::State, blocks: usize) -> Result<()>;
    /// Frees the blocks from number `blocks` on.
    fn shrink(&mut self, state: &mut Self::State, blocks: usize);
    /// Makes the cache hold at least `states` states of the recurrent layers.
    fn grow_states(&mut self, state: &mut Self::State, states: usize) -> Result<()>;
    /// Frees the states from number `states` on.
    fn shrink_states(&mut self, state: &mut Self::State, states: usize);
    /// Sets the first rows to these values: (rows, width).
    fn fill(&mut self, rows: &mut Self::Rows, values: &[f32]) -> Result<()>;
    /// The first `count` rows: (count, width).
    fn read(&mut self, rows: &Self::Rows, count: usize) -> Result<Vec<f32>>;

    /// `x = table[token] · scale` for each row.
    fn embed(&mut self, args: &Embed<'_, Self>, step: &Step, x: &mut Self::Rows);
    /// Norm, project to queries, keys and values, norm and rotate the heads; queries go to `q`
    /// (rows, heads · head_dim), or with the gates behind them (rows, 2 · heads · head_dim), keys and values into the
    /// cache at each row's position.
    fn qkv(
        &mut self,
        args: &Qkv<'_, Self>,
        step: &Step,
        x: &Self::Rows,
        state: &mut Self::State,
        q: &mut Self::Rows,
    );
    /// Causal softmax attention of each row over its own sequence: `q` as [`qkv`](Self::qkv) leaves it, `y`
    /// (rows, heads · head_dim).
    fn attend(
        &mut self,
        args: &Attend<'_, Self>,
        step: &Step,
        q: &Self::Rows,
        state: &Self::State,
        y: &mut Self::Rows,
    );
    /// `y = c · convolution(b · v)` with `b | c | v = norm(x) · weightᵀ + bias`: `y` (rows, width). Rows take in earlier
    /// positions by way of the state of their sequence, which starts at zero with position 0 and holds the last of them
    /// afterwards.
    fn short_conv(
        &mut self,
        args: &ShortConv<'_, Self>,
        step: &Step,
        x: &Self::Rows,
        state: &mut Self::State,
        y: &mut Self::Rows,
    );
    /// Gated delta rule, Yang et al., arXiv:2412.06464, as [`delta`](mod@delta) defines it position by position: norm,
    /// project, convolve queries, keys and values, and let each position change the matrices of its sequence before it
    /// reads them; `y` (rows, value_heads · value_dim). The state starts at zero with position 0.
    fn delta(
        &mut self,
        args: &Delta<'_, Self>,
        step: &Step,
        x: &Self::Rows,
        state: &mut Self::State,
        y: &mut Self::Rows,
    );
    /// `h = activation(norm(x) · gateᵀ + bias) · (norm(x) · upᵀ + bias) · σ(norm(x) · row_gate)`: `h` (rows, inner).
    fn gated(&mut self, args: &Gated<'_, Self>, step: &Step, x: &Self::Rows, h: &mut Self::Rows);
    /// `x += scale · Σ share · (gating(norm(x) · gate_upᵀ + bias) · downᵀ + bias)` over the chosen experts of each row:
    /// those with the `top_k` highest scores `norm(x) · routerᵀ + bias`, the lowest index of equals, NaN counting as higher
    /// than any number. The sum is taken in the order of falling scores.
    fn experts_add(&mut self, args: &Experts<'_, Self>, step: &Step, x: &mut Self::Rows);
    /// `x += norm(h · weightᵀ + bias) · scale`: `h` (rows, inner), `x` (rows, width).
    fn project_add(&mut self, args: &Project<'_, Self>, step: &Step, h: &Self::Rows, x: &mut Self::Rows);
    /// `logits[i] = softcap(norm(x[wanted[i]]) · headᵀ · scale)`: (wanted, vocab).
    fn logits(&mut self, args: &Head<'_, Self>, step: &Step, x: &Self::Rows, logits: &mut Self::Rows);
    /// The largest of each of the first `count` rows.
    fn argmax(&mut self, logits: &Self::Rows, count: usize) -> Result<Vec<Best>>;
}
