//! From the tensors of a checkpoint to the weights that a backend computes with.

use std::collections::HashMap;

use whin_kernels::{Backend, WeightKind};

use super::forms::Weights;
use super::plan::{Destination, Load};
use super::spec::Spec;
use crate::checkpoint::TensorRef;
use crate::{Error, ErrorKind, Result};

/// All weights of a model, on the device.
pub struct Model<B: Backend> {
    /// (vocab, width)
    pub embedding: B::Weight,
    /// From the embedding to the head.
    pub layers: Vec<LayerWeights<B>>,
    /// The norm before the head. (width,)
    pub norm: B::Vector,
    /// (vocab, width); none where the head is the embedding.
    pub head: Option<B::Weight>,
}

/// The weights of one layer.
pub struct LayerWeights<B: Backend> {
    /// Of the attention.
    pub attention: AttentionWeights<B>,
    /// Of the feed-forward part.
    pub gated: GatedWeights<B>,
}

/// The weights of one attention.
pub struct AttentionWeights<B: Backend> {
    /// (width,)
    pub norm: B::Vector,
    /// ((heads + 2 · kv_heads) · head_dim, width)
    pub qkv: B::Weight,
    /// ((heads + 2 · kv_heads) · head_dim,)
    pub qkv_bias: Option<B::Vector>,
    /// (head_dim,)
    pub q_norm: Option<B::Vector>,
    /// (head_dim,)
    pub k_norm: Option<B::Vector>,
    /// (width, heads · head_dim)
    pub out: B::Weight,
    /// (width,)
    pub out_bias: Option<B::Vector>,
}

/// The weights of one gated feed-forward part.
pub struct GatedWeights<B: Backend> {
    /// (width,)
    pub norm: B::Vector,
    /// (2 · inner, width)
    pub gate_up: B::Weight,
    /// (width, inner)
    pub down: B::Weight,
}

impl<B: Backend> Model<B> {
    /// Converts what `loads` found, tensor by tensor, so that beside the weights only the tensor in hand is in
    /// memory. `progress` hears how many bytes of how many have been read.
    ///
    /// # Errors
    /// When the device has no memory, or an integer form is asked for and a weight is infinite or NaN.
    pub fn load(
        backend: &mut B,
        spec: &Spec,
        loads: &[Load],
        weights: Weights,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let bytes = |part: &TensorRef| (part.shape().0 * part.shape().1 * part.dtype().size()) as u64;
        let total = loads.iter().flat_map(|load| &load.parts).map(bytes).sum();
        let mut done = 0;
        let mut loaded = Loaded::<B> { matrices: HashMap::new(), vectors: HashMap::new() };
        for load in loads {
            if load.to.is_matrix() {
                loaded.matrices.insert(load.to, matrix(backend, &load.parts, weights.of(load.to))?);
            } else {
                let numbers: Vec<f32> = load.parts.iter().flat_map(|part| part.view().to_vec()).collect();
                loaded.vectors.insert(load.to, backend.vector(&numbers)?);
            }
            for part in &load.parts {
                part.release();
                done += bytes(part);
            }
            progress(done, total);
        }
        loaded.assemble(spec)
    }
}

/// Converts `parts`, one below the other, into one matrix.
fn matrix<B: Backend>(backend: &mut B, parts: &[TensorRef], kind: WeightKind) -> Result<B::Weight> {
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
    Ok(weight)
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
    matrices: HashMap<Destination, B::Weight>,
    vectors: HashMap<Destination, B::Vector>,
}

impl<B: Backend> Loaded<B> {
    fn assemble(mut self, spec: &Spec) -> Result<Model<B>> {
        use Destination as To;
        let mut layers = Vec::with_capacity(spec.layers.len());
        for index in 0..spec.layers.len() {
            let attention = AttentionWeights {
                norm: self.vector(To::AttentionNorm(index))?,
                qkv: self.matrix(To::Qkv(index))?,
                qkv_bias: self.vectors.remove(&To::QkvBias(index)),
                q_norm: self.vectors.remove(&To::QNorm(index)),
                k_norm: self.vectors.remove(&To::KNorm(index)),
                out: self.matrix(To::Output(index))?,
                out_bias: self.vectors.remove(&To::OutputBias(index)),
            };
            let gated = GatedWeights {
                norm: self.vector(To::FeedForwardNorm(index))?,
                gate_up: self.matrix(To::GateUp(index))?,
                down: self.matrix(To::Down(index))?,
            };
            layers.push(LayerWeights { attention, gated });
        }
        Ok(Model {
            embedding: self.matrix(To::Embedding)?,
            layers,
            norm: self.vector(To::Norm)?,
            head: self.matrices.remove(&To::Head),
        })
    }

    fn matrix(&mut self, to: Destination) -> Result<B::Weight> {
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
