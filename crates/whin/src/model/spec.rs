//! What every model family is reduced to. Knows no key of `config.json`, and carries the names of tensors unread.

use std::collections::HashMap;

use whin_kernels::{
    Activation, CacheShape, Gating, KvKind, LayerCache, Shares, Span, StateShape, WeightKind,
};

use super::forms::Weights;
use super::inventory::{self, Destination, Shape};
use super::names::Names;
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
    /// Whether norms take the mean off first.
    pub norm_centred: bool,
    /// Factor of what the embedding gives.
    pub embedding_scale: f32,
    /// Factor of what each part of a layer adds to the row.
    pub residual_scale: f32,
    /// Factor of the logits.
    pub logit_scale: f32,
    /// A logit `l`, scaled, becomes `softcap · tanh(l / softcap)`.
    pub logit_softcap: Option<f32>,
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
    /// Where files of the family, other than GGUF files, have their tensors. Changes nothing about what is computed.
    pub names: Names,
    /// For each matrix of a GGUF file that stores some in blocks, and for experts in MXFP4, the form that comes closest to
    /// the file's own; else empty. Changes what is computed only where [`Weights::Auto`] asks for it.
    pub native: HashMap<Destination, WeightKind>,
}

/// One layer: `x += norm(mixer(norm(x)))`, then `x += norm(feed_forward(norm(x)))`, of which norms either may be missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// What carries information from position to position.
    pub mixer: Mixer,
    /// What works on each position by itself.
    pub feed_forward: FeedForward,
    /// Which norms there are.
    pub norms: Norms,
    /// Whether both parts read the same row, by way of the norm before the mixer, and their results are added together.
    pub parallel: bool,
}

/// The norms of both parts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Norms {
    /// Of what a part reads.
    pub before: bool,
    /// Of what it adds.
    pub after: bool,
}

/// The part of a layer that looks at other positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Causal softmax attention.
    Attention(Attention),
    /// The gated delta rule.
    Delta(Delta),
    /// A gated convolution.
    ShortConv(ShortConv),
}

/// Causal softmax attention with grouped key-value heads. Ainslie et al., arXiv:2305.13245.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Numbers a head.
    pub head_dim: usize,
    /// Which projections add a bias.
    pub bias: Bias,
    /// What of queries and keys is normalised together before they are rotated; none where they are not.
    pub qk_norm: Option<Span>,
    /// With a window of `n`, position `p` sees positions `p - n + 1 ..= p`.
    pub window: Option<usize>,
    /// Factor of each score before the softmax.
    pub scale: f32,
    /// A score `s`, scaled, becomes `softcap · tanh(s / softcap)`.
    pub softcap: Option<f32>,
    /// Whether each head has a score that stands for no position and takes a share of the softmax.
    pub sinks: bool,
    /// Whether the result is multiplied with the sigmoids of gates, projected beside the queries.
    pub gated: bool,
    /// Index into [`Spec::ropes`]; none where queries and keys are not rotated.
    pub rope: Option<usize>,
}

/// Which projections of an attention add a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bias {
    /// Those to queries, keys and values.
    pub qkv: bool,
    /// That of the result.
    pub out: bool,
}

/// The gated delta rule, by which each position changes and reads a matrix for each value head. Yang et al.,
/// arXiv:2412.06464.
#[derive(Clone, Debug, PartialEq)]
pub struct Delta {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values, a multiple of `key_heads`.
    pub value_heads: usize,
    /// Numbers of a query and of a key.
    pub key_dim: usize,
    /// Numbers of a value.
    pub value_dim: usize,
    /// How many positions the convolution of queries, keys and values takes in.
    pub taps: usize,
    /// Applied to what the convolution gives.
    pub activation: Activation,
}

impl Delta {
    /// Numbers of all keys, and of all values.
    pub fn widths(&self) -> (usize, usize) {
        (self.key_heads * self.key_dim, self.value_heads * self.value_dim)
    }

    /// Channels of the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        let (keys, values) = self.widths();
        2 * keys + values
    }

    fn state(&self) -> StateShape {
        StateShape {
            inputs: (self.taps - 1, self.channels()),
            matrices: (self.value_heads, self.key_dim, self.value_dim),
        }
    }
}

/// A convolution over the last positions, with gates before and behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortConv {
    /// How many positions it takes in.
    pub taps: usize,
    /// Whether both projections and the convolution add a bias.
    pub bias: bool,
}

impl ShortConv {
    fn state(&self, width: usize) -> StateShape {
        StateShape { inputs: (self.taps - 1, width), matrices: (0, 0, 0) }
    }
}

impl Mixer {
    /// Numbers that it finds for a row of a model of so much `width`.
    pub fn found(&self, width: usize) -> usize {
        match self {
            Self::Attention(attention) => attention.heads * attention.head_dim,
            Self::Delta(delta) => delta.widths().1,
            Self::ShortConv(_) => width,
        }
    }
}

impl Attention {
    /// Numbers of the queries of a row, with their gates.
    pub fn queries(&self) -> usize {
        self.heads * self.head_dim * if self.gated { 2 } else { 1 }
    }

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
    /// A few of many gated layers, chosen for each row. No norm stands behind them.
    Experts(Experts),
}

/// A mixture of experts, each a gated layer. Shazeer et al., arXiv:1701.06538.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// How many there are.
    pub count: usize,
    /// How many work on a row: 1 to `count`.
    pub top_k: usize,
    /// Numbers between the two products of an expert.
    pub inner: usize,
    /// How a gate and what it multiplies become one number.
    pub gating: Gating,
    /// What the shares of the chosen experts are.
    pub shares: Shares,
    /// Whether all projections of the experts add a bias.
    pub bias: bool,
    /// Whether the scores have a bias.
    pub router_bias: bool,
    /// The expert that works on every row.
    pub shared: Option<Shared>,
}

/// An expert that works on every row, beside those that are chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// What it is.
    pub gated: Gated,
    /// Whether its result is multiplied with the sigmoid of a product with the row.
    pub row_gate: bool,
}

/// A gated feed-forward layer. Shazeer, arXiv:2002.05202.
#[derive(Clone, Debug, PartialEq)]
pub struct Gated {
    /// Numbers between the two products.
    pub inner: usize,
    /// Applied to the gate.
    pub activation: Activation,
    /// Whether all three projections add a bias.
    pub bias: bool,
}

impl FeedForward {
    /// What works on every row: the layer itself, or its shared expert.
    pub fn gated(&self) -> Option<&Gated> {
        match self {
            Self::Gated(gated) => Some(gated),
            Self::Experts(experts) => experts.shared.as_ref().map(|shared| &shared.gated),
        }
    }
}

impl Experts {
    /// The most rows that the products of experts have when `rows` rows go to `top_k` experts each, and those of each
    /// expert come in blocks of sixteen.
    fn rows(&self, rows: usize) -> usize {
        let all = rows * self.top_k;
        all + 15 * all.min(self.count)
    }
}

impl Spec {
    /// Numbers in all matrices and vectors; a tied head counts once.
    pub fn parameters(&self) -> u64 {
        inventory::weights(self).iter().map(|(_, shape)| shape.count()).sum()
    }

    /// Those of [`Self::parameters`] that take part in the step of one row: of experts as many as work on it.
    pub fn active_parameters(&self) -> u64 {
        let count = |(to, shape): &(Destination, Shape)| {
            self.active_outputs(*to, shape) as u64 * shape.inputs.unwrap_or(1) as u64
        };
        inventory::weights(self).iter().map(count).sum()
    }

    /// Bytes of all weights when matrices are kept as `weights` says and vectors as f32; a tied head counts once.
    pub fn weight_bytes(&self, weights: Weights) -> u64 {
        self.bytes(weights, |_, shape| shape.outputs())
    }

    /// Bytes of weights that a step of one row with an answer reads when matrices are kept as `weights` says: all but an
    /// embedding that is not the head, of which a step reads single rows, and experts that do not work on the row.
    pub fn step_bytes(&self, weights: Weights) -> u64 {
        let bytes = self.bytes(weights, |to, shape| self.active_outputs(to, shape));
        let embedding = weights.of(self, Destination::Embedding).bytes(self.vocab, self.width) as u64;
        bytes - if self.tied { 0 } else { embedding }
    }

    /// Bytes of so many outputs of each weight.
    fn bytes(&self, weights: Weights, outputs: impl Fn(Destination, &Shape) -> usize) -> u64 {
        let bytes = |(to, shape): &(Destination, Shape)| match shape.inputs {
            Some(inputs) => weights.of(self, *to).bytes(outputs(*to, shape), inputs) as u64,
            None => 4 * outputs(*to, shape) as u64,
        };
        inventory::weights(self).iter().map(bytes).sum()
    }

    /// How many outputs of a weight one row has to do with.
    fn active_outputs(&self, to: Destination, shape: &Shape) -> usize {
        use Destination as To;
        let layer = match to {
            To::ExpertsGateUp(layer)
            | To::ExpertsGateUpBias(layer)
            | To::ExpertsDown(layer)
            | To::ExpertsDownBias(layer) => layer,
            _ => return shape.outputs(),
        };
        match &self.layers[layer].feed_forward {
            FeedForward::Experts(experts) => shape.outputs() / experts.count * experts.top_k,
            FeedForward::Gated(_) => shape.outputs(),
        }
    }

    /// Bytes of the head, which a step without an answer leaves alone.
    pub fn head_bytes(&self, weights: Weights) -> u64 {
        let head = if self.tied { Destination::Embedding } else { Destination::Head };
        weights.of(self, head).bytes(self.vocab, self.width) as u64
    }

    /// Bytes of the rows that steps of up to `rows` rows and `wanted` rows of logits work on: those of the forward pass,
    /// those that a product reads, rounded, and writes, and what a convolution makes of them.
    pub fn scratch_bytes(&self, rows: usize, wanted: usize) -> u64 {
        let (mut inputs, mut outputs) = (rows as u64 * self.width as u64, 0);
        for (to, shape) in self.matrices_of_layers() {
            if !matches!(to, Destination::ExpertsGateUp(_) | Destination::ExpertsDown(_)) {
                inputs = inputs.max(rows as u64 * shape.inputs.unwrap_or(0) as u64);
                outputs = outputs.max(rows as u64 * shape.outputs() as u64);
            }
        }
        let mut hidden = 0;
        for layer in &self.layers {
            if let FeedForward::Experts(experts) = &layer.feed_forward {
                let rows = experts.rows(rows) as u64;
                inputs = inputs.max(rows * self.width.max(experts.inner) as u64);
                outputs = outputs.max(rows * self.width.max(2 * experts.inner) as u64);
                hidden = hidden.max(rows * experts.inner as u64);
            }
        }
        let mixed = |layer: &Layer| match &layer.mixer {
            Mixer::Delta(delta) => delta.channels() + 2 * delta.value_heads,
            Mixer::Attention(_) | Mixer::ShortConv(_) => 0,
        };
        let mixed = self.layers.iter().map(mixed).max().unwrap_or(0);
        let row = self.width + self.row_widths().iter().flatten().sum::<usize>() + mixed;
        4 * (rows as u64 * row as u64 + inputs + outputs + hidden + wanted as u64 * self.vocab as u64)
    }

    /// The widths of the rows between the stages of layers, each once: of queries with their gates, of what a mixer finds,
    /// and of what stands between the products of a gated layer.
    pub fn row_widths(&self) -> [Vec<usize>; 3] {
        let mut widths = [vec![], vec![], vec![]];
        for layer in &self.layers {
            if let Mixer::Attention(attention) = &layer.mixer {
                widths[0].push(attention.queries());
            }
            widths[1].push(layer.mixer.found(self.width));
            widths[2].extend(layer.feed_forward.gated().map(|gated| gated.inner));
        }
        for widths in &mut widths {
            widths.sort_unstable();
            widths.dedup();
        }
        widths
    }

    /// Bytes of keys and values, kept as `kind`, and of states that a row at `position` reads; at most `u64::MAX`.
    pub fn attention_bytes(&self, position: usize, kind: KvKind) -> u64 {
        let bytes = |layer: &Layer| match &layer.mixer {
            Mixer::Attention(attention) => {
                let head = kind.bytes(attention.head_dim) as u64;
                (attention.seen(position) as u64).saturating_mul(attention.kv_heads as u64 * head)
            }
            Mixer::Delta(delta) => 4 * delta.state().numbers() as u64,
            Mixer::ShortConv(conv) => 4 * conv.state(self.width).numbers() as u64,
        };
        self.layers.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Floating-point operations, two a multiplication, of the layers' products and mixers for one token at
    /// `position`; at most `u64::MAX`.
    pub fn token_flops(&self, position: usize) -> u64 {
        let product = |(to, shape): (Destination, Shape)| {
            2 * self.active_outputs(to, &shape) as u64 * shape.inputs.unwrap_or(1) as u64
        };
        let products = self.matrices_of_layers().map(product).sum();
        let mixer = |layer: &Layer| match &layer.mixer {
            Mixer::Attention(attention) => {
                let inputs = (attention.heads * attention.head_dim) as u64;
                (attention.seen(position) as u64).saturating_mul(4 * inputs)
            }
            // A matrix is read with the key, faded, changed, and read with the query.
            Mixer::Delta(delta) => {
                let matrices = delta.value_heads * delta.key_dim * delta.value_dim;
                (7 * matrices + 2 * delta.taps * delta.channels()) as u64
            }
            Mixer::ShortConv(conv) => (2 * conv.taps * self.width) as u64,
        };
        self.layers.iter().map(mixer).fold(products, u64::saturating_add)
    }

    /// Those of the head, for one token.
    pub fn head_flops(&self) -> u64 {
        2 * (self.vocab * self.width) as u64
    }

    /// The cache that the layers need, with keys and values kept as `kind`.
    pub fn cache_shape(&self, kind: KvKind) -> CacheShape {
        let layers = self.layers.iter().map(|layer| match &layer.mixer {
            Mixer::Attention(attention) => {
                LayerCache::Positions { kv_heads: attention.kv_heads, head_dim: attention.head_dim }
            }
            Mixer::Delta(delta) => LayerCache::State(delta.state()),
            Mixer::ShortConv(conv) => LayerCache::State(conv.state(self.width)),
        });
        CacheShape { kind, layers: layers.collect() }
    }

    fn matrices_of_layers(&self) -> impl Iterator<Item = (Destination, Shape)> {
        let is_in_layer = |(to, shape): &(Destination, Shape)| {
            shape.inputs.is_some() && !matches!(to, Destination::Embedding | Destination::Head)
        };
        inventory::weights(self).into_iter().filter(is_in_layer)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::Weights;
    use whin_kernels::{KvKind, LayerCache};

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
        assert_eq!(cache.layers, vec![LayerCache::Positions { kv_heads: 4, head_dim: 64 }; 8]);
        assert_eq!(cache.bytes_per_state(), 0);
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
