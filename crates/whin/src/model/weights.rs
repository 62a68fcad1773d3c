//! From the tensors of a checkpoint to the weights that a backend computes with.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use whin_kernels::{Backend, WeightKind};

use super::forms::Weights;
use super::inventory::{self, Destination};
use super::plan::Load;
use super::spec::{Experts, FeedForward, Mixer, Spec};
use crate::cache::{Cell, Keeper, Kept, Packed};
use crate::checkpoint::TensorRef;
use crate::{Error, ErrorKind, Result};

/// All weights of a model, on the device.
pub struct Model<B: Backend> {
    /// (vocab, width)
    pub embedding: Arc<B::Weight>,
    /// From the embedding to the head.
    pub layers: Vec<LayerWeights<B>>,
    /// The norm before the head. (width,)
    pub norm: B::Vector,
    /// (vocab, width); none where the head is the embedding.
    pub head: Option<Arc<B::Weight>>,
}

/// The weights of one layer.
pub struct LayerWeights<B: Backend> {
    /// The norm before the mixer. (width,)
    pub mixer_norm: Option<B::Vector>,
    /// Of the mixer.
    pub mixer: MixerWeights<B>,
    /// The norm behind the mixer. (width,)
    pub mixer_post_norm: Option<B::Vector>,
    /// The norm before the feed-forward part. (width,)
    pub feed_forward_norm: Option<B::Vector>,
    /// Of the feed-forward part.
    pub feed_forward: FeedForwardWeights<B>,
    /// The norm behind the feed-forward part. (width,)
    pub feed_forward_post_norm: Option<B::Vector>,
}

/// The weights of what looks at other positions.
pub enum MixerWeights<B: Backend> {
    /// Of attention.
    Attention(AttentionWeights<B>),
    /// Of the gated delta rule.
    Delta(DeltaWeights<B>),
    /// Of a gated convolution.
    ShortConv(ShortConvWeights<B>),
}

/// The weights of one attention.
pub struct AttentionWeights<B: Backend> {
    /// ((heads + 2 · kv_heads) · head_dim, width), and the gates below
    pub qkv: Arc<B::Weight>,
    /// (outputs of the projection,)
    pub qkv_bias: Option<B::Vector>,
    /// (head_dim,) or (heads · head_dim,)
    pub q_norm: Option<B::Vector>,
    /// (head_dim,) or (kv_heads · head_dim,)
    pub k_norm: Option<B::Vector>,
    /// (heads,)
    pub sinks: Option<B::Vector>,
    /// (width, heads · head_dim)
    pub out: Arc<B::Weight>,
    /// (width,)
    pub out_bias: Option<B::Vector>,
}

/// The weights of a convolution of each channel by itself.
pub struct ConvolutionWeights<B: Backend> {
    /// The oldest position first. (taps, channels)
    pub taps: B::Vector,
    /// (channels,)
    pub bias: Option<B::Vector>,
}

/// The weights of one gated delta rule.
pub struct DeltaWeights<B: Backend> {
    /// (queries | keys | values | gates | b | a, width)
    pub inputs: Arc<B::Weight>,
    /// Over queries, keys and values.
    pub convolution: ConvolutionWeights<B>,
    /// (value_heads,)
    pub rates: B::Vector,
    /// (value_heads,)
    pub time_bias: B::Vector,
    /// (value_dim,)
    pub norm: B::Vector,
    /// (width, value_heads · value_dim)
    pub out: Arc<B::Weight>,
}

/// The weights of one gated convolution.
pub struct ShortConvWeights<B: Backend> {
    /// (3 · width, width): gates before, gates behind, inputs
    pub inputs: Arc<B::Weight>,
    /// (3 · width,)
    pub inputs_bias: Option<B::Vector>,
    /// Over `width` channels.
    pub convolution: ConvolutionWeights<B>,
    /// (width, width)
    pub out: Arc<B::Weight>,
    /// (width,)
    pub out_bias: Option<B::Vector>,
}

/// The weights of one gated feed-forward part.
pub struct GatedWeights<B: Backend> {
    /// (2 · inner, width)
    pub gate_up: Arc<B::Weight>,
    /// (2 · inner,)
    pub gate_up_bias: Option<B::Vector>,
    /// (width, inner)
    pub down: Arc<B::Weight>,
    /// (width,)
    pub down_bias: Option<B::Vector>,
}

/// The weights of one feed-forward part.
pub enum FeedForwardWeights<B: Backend> {
    /// Of a gated layer.
    Gated(GatedWeights<B>),
    /// Of a mixture of experts.
    Experts(ExpertsWeights<B>),
}

/// The weights of one mixture of experts.
pub struct ExpertsWeights<B: Backend> {
    /// (experts, width)
    pub router: Arc<B::Weight>,
    /// (experts,)
    pub router_bias: Option<B::Vector>,
    /// (experts · 2 · inner, width)
    pub gate_up: Arc<B::Weight>,
    /// (experts · 2 · inner,)
    pub gate_up_bias: Option<B::Vector>,
    /// (experts · width, inner)
    pub down: Arc<B::Weight>,
    /// (experts · width,)
    pub down_bias: Option<B::Vector>,
    /// Of the expert for every row.
    pub shared: Option<SharedWeights<B>>,
}

/// The weights of an expert that works on every row.
pub struct SharedWeights<B: Backend> {
    /// What it is.
    pub gated: GatedWeights<B>,
    /// Of its share. (width,)
    pub row_gate: Option<B::Vector>,
}

/// How far loading has come: bytes of the files' tensors, and of how many.
pub(crate) type Progress<'a> = dyn FnMut(u64, u64) + 'a;

impl<B: Backend> Model<B> {
    /// Converts what `loads` found. `progress` hears how many bytes of how many have been read.
    ///
    /// # Errors
    /// When the device has no memory, or an integer form is asked for and a weight is infinite or NaN.
    pub fn load(
        backend: &mut B,
        spec: &Spec,
        loads: &[Load],
        form: Weights,
        progress: &mut Progress<'_>,
    ) -> Result<Self> {
        Self::convert(backend, spec, (loads, form), None, progress)
    }

    /// The weights out of `cell` where it has them; else converts what `loads` found, and keeps it there.
    ///
    /// # Errors
    /// As [`Self::load`]: whatever is wrong with the cell only costs time.
    pub(crate) fn load_through(
        mut cell: Cell,
        backend: &mut B,
        spec: &Spec,
        (loads, form): (&[Load], Weights),
        progress: &mut Progress<'_>,
    ) -> Result<(Self, Origin)> {
        if let Some((model, _)) = Self::open(&mut cell, backend, spec, form) {
            return Ok((model, Origin { is_cache: true, kept: None }));
        }
        let keeper = cell.keep();
        let mut all = Vec::new();
        let to_keep = if keeper.is_writing() { Some(&mut all) } else { None };
        let model = Self::convert(backend, spec, (loads, form), to_keep, progress)?;
        // The first answer need not wait for the disk.
        let write = move |keeper: &mut Keeper| {
            all.iter().take_while(|(to, weight)| keep::<B>(keeper, *to, weight)).for_each(drop);
        };
        Ok((model, Origin { is_cache: false, kept: Some(keeper.finish(write)) }))
    }

    /// The weights out of `cell`, where they are all there, and the folder that has them.
    pub(crate) fn open(
        cell: &mut Cell,
        backend: &mut B,
        spec: &Spec,
        form: Weights,
    ) -> Option<(Self, PathBuf)> {
        let packed = cell.open()?;
        let model = Self::adopt(backend, spec, form, &packed);
        let model = model.inspect_err(|weight| cell.reject(&packed, weight)).ok()?;
        Some((model, packed.folder().to_owned()))
    }

    /// As [`Self::load`], and shares all weights with `all`.
    fn convert(
        backend: &mut B,
        spec: &Spec,
        (loads, form): (&[Load], Weights),
        mut all: Option<&mut Vec<(Destination, Made<B>)>>,
        progress: &mut Progress<'_>,
    ) -> Result<Self> {
        let mut loaded = Loaded::<B> { matrices: HashMap::new(), vectors: HashMap::new() };
        each(backend, spec, (loads, form), progress, &mut |backend, to, weight| {
            match &weight {
                Made::Matrix(matrix, ..) => drop(loaded.matrices.insert(to, matrix.clone())),
                Made::Vector(numbers) => drop(loaded.vectors.insert(to, backend.vector(numbers)?)),
            }
            if let Some(all) = &mut all {
                all.push((to, weight));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        loaded.assemble(spec)
    }

    /// The weights in `packed`, or the first that is not there as it must be.
    fn adopt(backend: &mut B, spec: &Spec, form: Weights, packed: &Packed) -> Result<Self, String> {
        let mut loaded = Loaded::<B> { matrices: HashMap::new(), vectors: HashMap::new() };
        for (to, shape) in inventory::weights(spec) {
            let (name, outputs) = (to.to_string(), shape.outputs());
            let found = match shape.inputs {
                Some(inputs) => {
                    let kind = form.of(spec, to);
                    let section = packed.section(&name, kind, &[outputs, inputs]);
                    let matrix = section.and_then(|section| backend.adopt(kind, outputs, inputs, section));
                    matrix.map(|matrix| loaded.matrices.insert(to, Arc::new(matrix))).is_some()
                }
                None => {
                    let numbers = packed.section(&name, WeightKind::F32, &[outputs]);
                    let numbers = numbers.and_then(|bytes| numbers_of(&bytes, outputs));
                    let vector = numbers.and_then(|numbers| backend.vector(&numbers).ok());
                    vector.map(|vector| loaded.vectors.insert(to, vector)).is_some()
                }
            };
            if !found {
                return Err(name);
            }
        }
        loaded.assemble(spec).map_err(|error| error.to_string())
    }
}

/// Where a model's weights have come from.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    /// From the load cache, and not from the checkpoint's files.
    pub is_cache: bool,
    /// They are on their way into the load cache, for which dropping this waits.
    pub kept: Option<Kept>,
}

/// Converts what `loads` found and gives it to `keeper` alone, of which no more than one weight is in memory at once.
/// Stops where nothing can be kept.
///
/// # Errors
/// As [`Model::load`].
pub(crate) fn pack<B: Backend>(
    backend: &mut B,
    spec: &Spec,
    (loads, form): (&[Load], Weights),
    keeper: &mut Keeper,
    progress: &mut Progress<'_>,
) -> Result<()> {
    each(backend, spec, (loads, form), progress, &mut |_, to, weight| {
        let goes_on = keep::<B>(keeper, to, &weight);
        Ok(if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })
}

/// One weight, converted.
enum Made<B: Backend> {
    Matrix(Arc<B::Weight>, WeightKind, [usize; 2]), // and (outputs, inputs)
    Vector(Vec<f32>),
}

/// What is done with each weight; it may have enough.
type Take<'a, B> = dyn FnMut(&mut B, Destination, Made<B>) -> Result<ControlFlow<()>> + 'a;

/// Converts weight by weight, so that beside the result only the tensor in hand is in memory, and calls `take` with each
/// until that has enough.
fn each<B: Backend>(
    backend: &mut B,
    spec: &Spec,
    (loads, form): (&[Load], Weights),
    progress: &mut Progress<'_>,
    take: &mut Take<'_, B>,
) -> Result<()> {
    let bytes = |part: &TensorRef| part.bytes() as u64;
    let total = loads.iter().flat_map(|load| &load.parts).map(bytes).sum();
    let mut done = 0;
    for load in loads {
        let weight = if load.is_matrix {
            let kind = form.of(spec, load.to);
            let (matrix, shape) = matrix(backend, &load.parts, kind)?;
            Made::Matrix(Arc::new(matrix), kind, shape)
        } else {
            Made::Vector(load.numbers())
        };
        TensorRef::release_all(&load.parts);
        done += load.parts.iter().map(bytes).sum::<u64>();
        if take(backend, load.to, weight)?.is_break() {
            break;
        }
        progress(done, total);
    }
    Ok(())
}

/// Gives a weight to `keeper`, and tells whether that goes on keeping.
fn keep<B: Backend>(keeper: &mut Keeper, to: Destination, weight: &Made<B>) -> bool {
    let name = to.to_string();
    match weight {
        Made::Matrix(matrix, kind, shape) => {
            keeper.add(&name, kind.name(), shape, &B::packed(matrix));
        }
        Made::Vector(numbers) => {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            keeper.add(&name, WeightKind::F32.name(), &[numbers.len()], &[&bytes]);
        }
    }
    keeper.is_writing()
}

/// The first `count` numbers of what [`keep`] has kept.
fn numbers_of(bytes: &[u8], count: usize) -> Option<Vec<f32>> {
    let numbers = bytes.as_chunks::<4>().0.get(..count)?;
    Some(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

/// Converts `parts`, one below the other, into one matrix of the second result's (outputs, inputs).
fn matrix<B: Backend>(
    backend: &mut B,
    parts: &[TensorRef],
    kind: WeightKind,
) -> Result<(B::Weight, [usize; 2])> {
    let outputs = parts.iter().map(|part| part.shape().0).sum();
    let inputs = parts.first().map_or(0, |part| part.shape().1);
    let mut weight = backend.weight(kind, outputs, inputs)?;
    let mut first = 0;
    for part in parts {
        backend.write(&mut weight, first, &part.view()).map_err(|error| match error {
            whin_kernels::Error::NotFinite { row } => not_finite(part, row, kind),
            other => other.into(),
        })?;
        part.release();
        first += part.shape().0;
    }
    Ok((weight, [outputs, inputs]))
}

fn not_finite(part: &TensorRef, row: usize, kind: WeightKind) -> Error {
    Error::new(
        ErrorKind::InvalidCheckpoint,
        format!(
            "tensor {:?}: row {row} holds a weight that is infinite or not a number, which {} cannot hold; the file \
             is damaged, or the training went wrong: get it again, or see what it does with --weights bf16",
            part.name(),
            kind.name(),
        ),
    )
}

/// Weights by their place, until all are there.
struct Loaded<B: Backend> {
    matrices: HashMap<Destination, Arc<B::Weight>>,
    vectors: HashMap<Destination, B::Vector>,
}

impl<B: Backend> Loaded<B> {
    fn assemble(mut self, spec: &Spec) -> Result<Model<B>> {
        use Destination as To;
        let mut layers = Vec::with_capacity(spec.layers.len());
        for (index, layer) in spec.layers.iter().enumerate() {
            layers.push(LayerWeights {
                mixer_norm: self.vectors.remove(&To::MixerNorm(index)),
                mixer: self.mixer(index, &layer.mixer)?,
                mixer_post_norm: self.vectors.remove(&To::MixerPostNorm(index)),
                feed_forward_norm: self.vectors.remove(&To::FeedForwardNorm(index)),
                feed_forward: match &layer.feed_forward {
                    FeedForward::Gated(_) => FeedForwardWeights::Gated(GatedWeights {
                        gate_up: self.matrix(To::GateUp(index))?,
                        gate_up_bias: self.vectors.remove(&To::GateUpBias(index)),
                        down: self.matrix(To::Down(index))?,
                        down_bias: self.vectors.remove(&To::DownBias(index)),
                    }),
                    FeedForward::Experts(experts) => {
                        FeedForwardWeights::Experts(self.experts(index, experts)?)
                    }
                },
                feed_forward_post_norm: self.vectors.remove(&To::FeedForwardPostNorm(index)),
            });
        }
        Ok(Model {
            embedding: self.matrix(To::Embedding)?,
            layers,
            norm: self.vector(To::Norm)?,
            head: self.matrices.remove(&To::Head),
        })
    }

    fn mixer(&mut self, index: usize, mixer: &Mixer) -> Result<MixerWeights<B>> {
        use Destination as To;
        Ok(match mixer {
            Mixer::Attention(_) => MixerWeights::Attention(AttentionWeights {
                qkv: self.matrix(To::Qkv(index))?,
                qkv_bias: self.vectors.remove(&To::QkvBias(index)),
                q_norm: self.vectors.remove(&To::QNorm(index)),
                k_norm: self.vectors.remove(&To::KNorm(index)),
                sinks: self.vectors.remove(&To::Sinks(index)),
                out: self.matrix(To::Output(index))?,
                out_bias: self.vectors.remove(&To::OutputBias(index)),
            }),
            Mixer::Delta(_) => MixerWeights::Delta(DeltaWeights {
                inputs: self.matrix(To::Inputs(index))?,
                convolution: self.convolution(index)?,
                rates: self.vector(To::Rates(index))?,
                time_bias: self.vector(To::TimeBias(index))?,
                norm: self.vector(To::DeltaNorm(index))?,
                out: self.matrix(To::Output(index))?,
            }),
            Mixer::ShortConv(_) => MixerWeights::ShortConv(ShortConvWeights {
                inputs: self.matrix(To::Inputs(index))?,
                inputs_bias: self.vectors.remove(&To::InputsBias(index)),
                convolution: self.convolution(index)?,
                out: self.matrix(To::Output(index))?,
                out_bias: self.vectors.remove(&To::OutputBias(index)),
            }),
        })
    }

    fn convolution(&mut self, index: usize) -> Result<ConvolutionWeights<B>> {
        let taps = self.vector(Destination::Taps(index))?;
        Ok(ConvolutionWeights { taps, bias: self.vectors.remove(&Destination::TapsBias(index)) })
    }

    fn experts(&mut self, layer: usize, experts: &Experts) -> Result<ExpertsWeights<B>> {
        use Destination as To;
        let shared = match &experts.shared {
            None => None,
            Some(_) => Some(SharedWeights {
                gated: GatedWeights {
                    gate_up: self.matrix(To::SharedGateUp(layer))?,
                    gate_up_bias: self.vectors.remove(&To::SharedGateUpBias(layer)),
                    down: self.matrix(To::SharedDown(layer))?,
                    down_bias: self.vectors.remove(&To::SharedDownBias(layer)),
                },
                row_gate: self.vectors.remove(&To::SharedGate(layer)),
            }),
        };
        Ok(ExpertsWeights {
            router: self.matrix(To::Router(layer))?,
            router_bias: self.vectors.remove(&To::RouterBias(layer)),
            gate_up: self.matrix(To::ExpertsGateUp(layer))?,
            gate_up_bias: self.vectors.remove(&To::ExpertsGateUpBias(layer)),
            down: self.matrix(To::ExpertsDown(layer))?,
            down_bias: self.vectors.remove(&To::ExpertsDownBias(layer)),
            shared,
        })
    }

    fn matrix(&mut self, to: Destination) -> Result<Arc<B::Weight>> {
        self.matrices.remove(&to).ok_or_else(|| unplanned(to))
    }

    fn vector(&mut self, to: Destination) -> Result<B::Vector> {
        self.vectors.remove(&to).ok_or_else(|| unplanned(to))
    }
}

/// The plan of a family always holds what its spec implies; this is only said when it does not.
fn unplanned(to: Destination) -> Error {
    Error::new(
        ErrorKind::InvalidCheckpoint,
        format!("the load plan of this family lacks {to:?}: please report it"),
    )
}
