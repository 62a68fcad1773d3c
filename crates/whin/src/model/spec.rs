//! What every model family is reduced to. Knows no key of `config.json` and no tensor name.

use whin_kernels::{Activation, CacheShape, KvKind};

use super::forms::Weights;
use super::rope::Rope;
use crate::checkpoint::Storage;

/// A decoder-only transformer: token embedding, layers one after the other, final norm, output head.
///
/// The readers of families keep every size below bounds under which no product or sum of this module overflows.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The family that read the config, as `model_type` spells it.
    pub family: &'static str,
    /// Rows of the embedding and of the head.
    pub vocab: usize,
    /// Numbers in the row that runs from layer to layer.
    pub width: usize,
    /// The longest text, in tokens, that the model declares itself good for.
    pub max_positions: usize,
    /// Added to the mean square in every norm.
    pub norm_eps: f32,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// The rotary embeddings in use; layers refer to them by index.
    pub ropes: Vec<Rope>,
    /// From the embedding to the head.
    pub layers: Vec<Layer>,
    /// The tokens after which a text ends, as `config.json` names them.
    pub eos: Vec<u32>,
    /// The token that starts a text, as `config.json` names it.
    pub bos: Option<u32>,
    /// How the files hold the matrices, as far as `config.json` says it. Changes nothing about what is computed.
    pub storage: Storage,
}

/// One layer: `x += mixer(norm(x))`, then `x += feed_forward(norm(x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// What carries information from position to position.
    pub mixer: Mixer,
    /// What works on each position by itself.
    pub feed_forward: FeedForward,
}

/// The part of a layer that looks at other positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Causal softmax attention.
    Attention(Attention),
}

/// Causal softmax attention with grouped key-value heads. Ainslie et al., arXiv:2305.13245.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Numbers a head; even.
    pub head_dim: usize,
    /// Whether all four projections add a bias.
    pub bias: bool,
    /// Whether query and key heads are normalised before they are rotated.
    pub qk_norm: bool,
    /// With a window of `n`, position `p` sees positions `p - n + 1 ..= p`.
    pub window: Option<usize>,
    /// Factor of each score before the softmax.
    pub scale: f32,
    /// Index into [`Spec::ropes`].
    pub rope: usize,
}

impl Attention {
    /// How many positions the one at `position` sees.
    fn seen(&self, position: usize) -> usize {
        self.window.map_or(position + 1, |window| window.min(position + 1))
    }
}

/// The part of a layer that works on each position by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedForward {
    /// `down(activation(gate(x)) · up(x))`.
    Gated(Gated),
}

/// A gated feed-forward layer. Shazeer, arXiv:2002.05202.
#[derive(Clone, Debug, PartialEq)]
pub struct Gated {
    /// Numbers between the two products.
    pub inner: usize,
    /// Applied to the gate.
    pub activation: Activation,
}

impl Spec {
    /// Numbers in all matrices and vectors; a tied head counts once.
    pub fn parameters(&self) -> u64 {
        let mut sum = 0;
        self.each_in_layers(|outputs, inputs| sum += (outputs * inputs) as u64);
        sum += (self.ends() * self.vocab * self.width) as u64;
        self.each_vector(|len| sum += len as u64);
        sum
    }

    /// Bytes of all weights when matrices are kept as `weights` says and vectors as f32; a tied head counts once.
    pub fn weight_bytes(&self, weights: Weights) -> u64 {
        let mut sum = 0;
        self.each_in_layers(|outputs, inputs| sum += weights.layers().bytes(outputs, inputs) as u64);
        sum += (self.ends() * weights.ends().bytes(self.vocab, self.width)) as u64;
        self.each_vector(|len| sum += 4 * len as u64);
        sum
    }

    /// Bytes of weights that one step with an answer reads when matrices are kept as `weights` says: all but an embedding
    /// that is not the head, of which a step reads single rows.
    pub fn step_bytes(&self, weights: Weights) -> u64 {
        // An embedding has the shape of the head.
        self.weight_bytes(weights) - if self.tied { 0 } else { self.head_bytes(weights) }
    }

    /// Bytes of the head, which a step without an answer leaves alone.
    pub fn head_bytes(&self, weights: Weights) -> u64 {
        weights.ends().bytes(self.vocab, self.width) as u64
    }

    /// Bytes of the rows that steps of up to `rows` rows and `wanted` rows of logits work on: those of the forward pass,
    /// and those that a product reads, rounded, and writes.
    pub fn scratch_bytes(&self, rows: usize, wanted: usize) -> u64 {
        let (mut heads, mut inner, mut inputs, mut outputs) = (0, 0, self.width, 0);
        for layer in &self.layers {
            let (Mixer::Attention(attention), FeedForward::Gated(gated)) =
                (&layer.mixer, &layer.feed_forward);
            heads = heads.max(attention.heads * attention.head_dim);
            inner = inner.max(gated.inner);
        }
        self.each_in_layers(|out, input| (inputs, outputs) = (inputs.max(input), outputs.max(out)));
        let row = (self.width + 2 * heads + inner) + inputs + outputs;
        4 * (rows as u64 * row as u64 + wanted as u64 * self.vocab as u64)
    }

    /// Bytes of keys and values that a row at `position` reads when they are kept as `kind`; at most `u64::MAX`.
    pub fn attention_bytes(&self, position: usize, kind: KvKind) -> u64 {
        let bytes = |layer: &Layer| {
            let Mixer::Attention(attention) = &layer.mixer;
            let head = kind.bytes(attention.head_dim) as u64;
            (attention.seen(position) as u64).saturating_mul(attention.kv_heads as u64 * head)
        };
        self.layers.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Floating-point operations, two a multiplication, of the layers' products and attention for one token at
    /// `position`; at most `u64::MAX`.
    pub fn token_flops(&self, position: usize) -> u64 {
        let mut products = 0;
        self.each_in_layers(|outputs, inputs| products += 2 * (outputs * inputs) as u64);
        let attention = |layer: &Layer| {
            let Mixer::Attention(attention) = &layer.mixer;
            let inputs = (attention.heads * attention.head_dim) as u64;
            (attention.seen(position) as u64).saturating_mul(4 * inputs)
        };
        self.layers.iter().map(attention).fold(products, u64::saturating_add)
    }

    /// Those of the head, for one token.
    pub fn head_flops(&self) -> u64 {
        2 * (self.vocab * self.width) as u64
    }

    /// The key-value cache that the layers need, kept as `kind`.
    pub fn cache_shape(&self, kind: KvKind) -> CacheShape {
        let layers = self.layers.iter().map(|layer| match &layer.mixer {
            Mixer::Attention(attention) => (attention.kv_heads, attention.head_dim),
        });
        CacheShape { kind, layers: layers.collect() }
    }

    /// Matrices of (vocab, width).
    fn ends(&self) -> usize {
        if self.tied { 1 } else { 2 }
    }

    /// Calls `matrix` with (outputs, inputs) of every matrix of the layers.
    fn each_in_layers(&self, mut matrix: impl FnMut(usize, usize)) {
        for layer in &self.layers {
            let Mixer::Attention(attention) = &layer.mixer;
            let (q, kv) = (attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim);
            matrix(q + 2 * kv, self.width);
            matrix(self.width, q);
            let FeedForward::Gated(gated) = &layer.feed_forward;
            matrix(2 * gated.inner, self.width);
            matrix(self.width, gated.inner);
        }
    }

    /// Calls `vector` with the length of every vector.
    fn each_vector(&self, mut vector: impl FnMut(usize)) {
        for layer in &self.layers {
            let Mixer::Attention(attention) = &layer.mixer;
            if attention.bias {
                vector((attention.heads + 2 * attention.kv_heads) * attention.head_dim);
                vector(self.width);
            }
            if attention.qk_norm {
                vector(attention.head_dim);
                vector(attention.head_dim);
            }
            vector(self.width);
            vector(self.width);
        }
        vector(self.width);
    }
}

#[cfg(test)]
mod tests {
    use crate::model::Weights;
    use whin_kernels::KvKind;

    #[test]
    fn the_demo_model_is_counted_as_its_index_counts_it() {
        let config =
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/seedling/config.json"));
        let spec = crate::model::config::read(config).unwrap();
        assert_eq!(spec.parameters(), 13_277_504);
        let vectors = 8 * (2 * 320 + 2 * 64) + 320;
        assert_eq!(spec.weight_bytes(Weights::Bf16), 2 * (13_277_504 - vectors) + 4 * vectors);
        // All inputs are whole groups of 32, which take 18 bytes.
        assert_eq!(spec.weight_bytes(Weights::Int4All), (13_277_504 - vectors) / 32 * 18 + 4 * vectors);
        assert_eq!(spec.weight_bytes(Weights::Int8Groups), (13_277_504 - vectors) / 32 * 34 + 4 * vectors);
        let embedding = 6144 * 320;
        let layers = 13_277_504 - vectors - embedding;
        let bytes = layers / 32 * 18 + embedding + 6144 * 4 + 4 * vectors;
        assert_eq!((spec.weight_bytes(Weights::Int4), spec.step_bytes(Weights::Int4)), (bytes, bytes));
        let cache = spec.cache_shape(KvKind::Bf16);
        assert_eq!(cache.layers, vec![(4, 64); 8]);
        assert_eq!(cache.bytes_per_position(), 8 * 4 * 64 * 2 * 2);
        assert_eq!(spec.attention_bytes(99, KvKind::Bf16), 100 * 8 * 4 * 64 * 2 * 2);
    }

    #[test]
    fn sums_over_the_largest_model_do_not_wrap() {
        let config = br#"{"model_type": "qwen3", "vocab_size": 16777216, "hidden_size": 1048576,
            "intermediate_size": 1048576, "num_hidden_layers": 4096, "num_attention_heads": 524288,
            "num_key_value_heads": 524288, "head_dim": 2, "max_position_embeddings": 1073741824}"#;
        let spec = crate::model::config::read(config).unwrap();
        assert_eq!(spec.weight_bytes(Weights::F32) / 4, spec.parameters());
        let last = spec.max_positions - 1;
        assert_eq!(spec.attention_bytes(last, KvKind::F32), u64::MAX);
        assert_eq!(spec.token_flops(last), u64::MAX);
        assert_eq!(spec.token_flops(99), 100 * (4 << 20 << 12) + spec.token_flops(0) - (4 << 20 << 12));
    }
}
