//! Which tensors of a checkpoint make up which weights of a model: Hugging Face names end here.

use std::fmt;

use super::spec::{FeedForward, Mixer, Spec};
use crate::Result;
use crate::checkpoint::{Storage, TensorRef, Tensors};

const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// A weight of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// (vocab, width)
    Embedding,
    /// The norm before attention. (width,)
    AttentionNorm(usize),
    /// ((heads + 2 · kv_heads) · head_dim, width)
    Qkv(usize),
    /// ((heads + 2 · kv_heads) · head_dim,)
    QkvBias(usize),
    /// (head_dim,)
    QNorm(usize),
    /// (head_dim,)
    KNorm(usize),
    /// (width, heads · head_dim)
    Output(usize),
    /// (width,)
    OutputBias(usize),
    /// The norm before the feed-forward part. (width,)
    FeedForwardNorm(usize),
    /// (2 · inner, width)
    GateUp(usize),
    /// (width, inner)
    Down(usize),
    /// The norm before the head. (width,)
    Norm,
    /// (vocab, width); none where the head is the embedding.
    Head,
}

impl Destination {
    /// Whether this is a matrix, which a backend keeps in a form of its own, rather than a vector.
    pub fn is_matrix(self) -> bool {
        use Destination::{Down, Embedding, GateUp, Head, Output, Qkv};
        matches!(self, Embedding | Qkv(_) | Output(_) | GateUp(_) | Down(_) | Head)
    }
}

/// The name under which a weight is kept in files.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedding => f.write_str("embedding"),
            Self::AttentionNorm(layer) => write!(f, "layers.{layer}.attention_norm"),
            Self::Qkv(layer) => write!(f, "layers.{layer}.qkv"),
            Self::QkvBias(layer) => write!(f, "layers.{layer}.qkv_bias"),
            Self::QNorm(layer) => write!(f, "layers.{layer}.q_norm"),
            Self::KNorm(layer) => write!(f, "layers.{layer}.k_norm"),
            Self::Output(layer) => write!(f, "layers.{layer}.output"),
            Self::OutputBias(layer) => write!(f, "layers.{layer}.output_bias"),
            Self::FeedForwardNorm(layer) => write!(f, "layers.{layer}.feed_forward_norm"),
            Self::GateUp(layer) => write!(f, "layers.{layer}.gate_up"),
            Self::Down(layer) => write!(f, "layers.{layer}.down"),
            Self::Norm => f.write_str("norm"),
            Self::Head => f.write_str("head"),
        }
    }
}

/// A tensor that is part of a weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// As `…ForCausalLM` of transformers names it.
    pub name: String,
    /// (outputs, inputs) or (numbers,)
    pub shape: Vec<usize>,
}

/// All weights of a model with their tensors, in load order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Each weight with the tensors that stand in it, one below the other.
    pub weights: Vec<(Destination, Vec<Part>)>,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// How the checkpoint says that the matrices are stored.
    pub storage: Storage,
}

/// A weight with the tensors found for it.
#[derive(Debug)]
pub struct Load {
    /// Where the numbers go.
    pub to: Destination,
    /// One below the other. Their columns agree.
    pub parts: Vec<TensorRef>,
}

impl Plan {
    /// The weights that `spec` needs.
    pub fn new(spec: &Spec) -> Self {
        let mut plan = Self { weights: Vec::new(), tied: spec.tied, storage: spec.storage };
        plan.one(Destination::Embedding, EMBEDDING, &[spec.vocab, spec.width]);
        for layer in 0..spec.layers.len() {
            plan.attention(spec, layer);
            plan.feed_forward(spec, layer);
        }
        plan.one(Destination::Norm, "model.norm.weight", &[spec.width]);
        if !spec.tied {
            plan.one(Destination::Head, HEAD, &[spec.vocab, spec.width]);
        }
        plan
    }

    fn one(&mut self, to: Destination, name: &str, shape: &[usize]) {
        self.weights.push((to, vec![Part { name: name.to_owned(), shape: shape.to_vec() }]));
    }

    fn attention(&mut self, spec: &Spec, layer: usize) {
        let Mixer::Attention(attention) = &spec.layers[layer].mixer;
        let (q, kv) = (attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim);
        let prefix = format!("model.layers.{layer}");
        let stacked = |last: &str, inputs: &[usize]| {
            let part = |letter: char, outputs: usize| Part {
                name: format!("{prefix}.self_attn.{letter}_proj.{last}"),
                shape: [&[outputs], inputs].concat(),
            };
            vec![part('q', q), part('k', kv), part('v', kv)]
        };
        self.one(
            Destination::AttentionNorm(layer),
            &format!("{prefix}.input_layernorm.weight"),
            &[spec.width],
        );
        self.weights.push((Destination::Qkv(layer), stacked("weight", &[spec.width])));
        if attention.bias {
            self.weights.push((Destination::QkvBias(layer), stacked("bias", &[])));
        }
        if attention.qk_norm {
            let dim = [attention.head_dim];
            self.one(Destination::QNorm(layer), &format!("{prefix}.self_attn.q_norm.weight"), &dim);
            self.one(Destination::KNorm(layer), &format!("{prefix}.self_attn.k_norm.weight"), &dim);
        }
        self.one(Destination::Output(layer), &format!("{prefix}.self_attn.o_proj.weight"), &[spec.width, q]);
        if attention.bias {
            let name = format!("{prefix}.self_attn.o_proj.bias");
            self.one(Destination::OutputBias(layer), &name, &[spec.width]);
        }
    }

    fn feed_forward(&mut self, spec: &Spec, layer: usize) {
        let FeedForward::Gated(gated) = &spec.layers[layer].feed_forward;
        let prefix = format!("model.layers.{layer}");
        let part = |name: &str| Part {
            name: format!("{prefix}.mlp.{name}_proj.weight"),
            shape: vec![gated.inner, spec.width],
        };
        let norm = format!("{prefix}.post_attention_layernorm.weight");
        self.one(Destination::FeedForwardNorm(layer), &norm, &[spec.width]);
        self.weights.push((Destination::GateUp(layer), vec![part("gate"), part("up")]));
        let down = format!("{prefix}.mlp.down_proj.weight");
        self.one(Destination::Down(layer), &down, &[spec.width, gated.inner]);
    }

    /// Finds every tensor of the plan, each once and with its shape, and checks that none is left over.
    ///
    /// # Errors
    /// `invalid_checkpoint` with all tensors that are missing, left over, or of another shape or type;
    /// `unsupported_architecture` where only types are at fault, or names show that the tensors are quantised in a form
    /// that is not read.
    pub fn claim(&self, mut tensors: Tensors) -> Result<Vec<Load>> {
        tensors.stored_as(self.storage)?;
        // The base class saves its tensors without the name of the field that holds it.
        let bare = EMBEDDING.trim_start_matches("model.");
        let is_base = !tensors.contains(EMBEDDING) && tensors.contains(bare);
        let mut loads = Vec::with_capacity(self.weights.len());
        for (to, parts) in &self.weights {
            let mut found = Vec::with_capacity(parts.len());
            for part in parts {
                let name = part.name.strip_prefix("model.").filter(|_| is_base).unwrap_or(&part.name);
                if *to == Destination::Head && !tensors.contains(HEAD) {
                    tensors.note(format!(
                        "tensor \"{HEAD}\" is missing, and config.json does not tie the head to the embedding: \
                         get the file that holds it, or set tie_word_embeddings to true if they are one"
                    ));
                    continue;
                }
                found.extend(tensors.claim(name, &part.shape));
            }
            loads.push(Load { to: *to, parts: found });
        }
        let spare = if self.tied { tensors.take(HEAD) } else { None };
        tensors.finish(|name| name.ends_with(".rotary_emb.inv_freq"))?;
        if let (Some(spare), [Load { parts, .. }, ..]) = (spare, loads.as_slice())
            && parts.iter().any(|embedding| !embedding.same_bytes(&spare))
        {
            tracing::warn!(
                "{HEAD} differs from the embedding, but config.json ties the two: the embedding is used for both"
            );
        }
        // As in transformers, which multiplies matrices of more than a byte a number as they are.
        let mut parts = loads.iter().flat_map(|load| &load.parts);
        if self.storage != Storage::Unsaid && !parts.any(|part| part.dtype().needs_scale()) {
            tracing::warn!(
                "config.json holds a quantization_config, but no weight is quantised: they are used as they stand"
            );
        }
        Ok(loads)
    }
}
