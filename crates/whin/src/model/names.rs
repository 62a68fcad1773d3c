//! Where the tensors of a model are in a checkpoint, and in which order they hold their rows.

use std::sync::Arc;

use super::inventory::{Destination, Shape};
use super::spec::{Mixer, Spec};

/// How checkpoints of a family name their tensors. Names of modules are without `.weight` or `.bias`; several make one
/// weight, one below the other, each one of its sections, while one alone holds all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// What stands before all names but the head's: the first with which the embedding is there.
    pub prefixes: &'static [&'static str],
    /// Names of the head, of which one is there.
    pub heads: &'static [&'static str],
    /// The token embedding.
    pub embedding: &'static str,
    /// The norm before the head.
    pub norm: &'static str,
    /// What stands before the names of layer `{}`.
    pub layer: &'static str,
    /// The norm before the mixer, and in a layer whose parts stand side by side before both.
    pub mixer_norm: &'static str,
    /// The projections to queries, keys and values.
    pub qkv: &'static [&'static str],
    /// The norm of queries.
    pub q_norm: &'static str,
    /// The norm of keys.
    pub k_norm: &'static str,
    /// The tensor, not a module, of the scores that stand for no position.
    pub sinks: &'static str,
    /// The projection of the attention's result.
    pub output: &'static str,
    /// The norm behind the mixer.
    pub mixer_post_norm: &'static str,
    /// The norm before the feed-forward part.
    pub feed_forward_norm: &'static str,
    /// The projections to the gate and to what it multiplies.
    pub gate_up: &'static [&'static str],
    /// The projection back.
    pub down: &'static str,
    /// The norm behind the feed-forward part.
    pub feed_forward_post_norm: &'static str,
    /// Whether norms are stored as what they exceed one by.
    pub ones_off: bool,
    /// Whether the two numbers of a pair that turns stand side by side, rather than half of what turns apart.
    pub pairs_adjacent: bool,
    /// What begins the names of tensors that are for other than text.
    pub ignored: &'static [&'static str],
}

/// As most classes of transformers have it.
pub const COMMON: Names = Names {
    // The base class saves its tensors without the name of the field that holds it.
    prefixes: &["model.", ""],
    heads: &["lm_head"],
    embedding: "embed_tokens",
    norm: "norm",
    layer: "layers.{}.",
    mixer_norm: "input_layernorm",
    qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    q_norm: "self_attn.q_norm",
    k_norm: "self_attn.k_norm",
    sinks: "self_attn.sinks",
    output: "self_attn.o_proj",
    mixer_post_norm: "post_attention_layernorm",
    feed_forward_norm: "post_attention_layernorm",
    gate_up: &["mlp.gate_proj", "mlp.up_proj"],
    down: "mlp.down_proj",
    feed_forward_post_norm: "post_feedforward_layernorm",
    ones_off: false,
    pairs_adjacent: false,
    ignored: &[],
};

/// As GGUF files have it. Norms have had their ones added, and the head is simply there or not.
pub const GGUF: Names = Names {
    prefixes: &[""],
    heads: &["output"],
    embedding: "token_embd",
    norm: "output_norm",
    layer: "blk.{}.",
    mixer_norm: "attn_norm",
    qkv: &["attn_q", "attn_k", "attn_v"],
    q_norm: "attn_q_norm",
    k_norm: "attn_k_norm",
    sinks: "attn_sinks.weight",
    output: "attn_output",
    mixer_post_norm: "post_attention_norm",
    feed_forward_norm: "ffn_norm",
    gate_up: &["ffn_gate", "ffn_up"],
    down: "ffn_down",
    feed_forward_post_norm: "post_ffw_norm",
    // Frequencies are read with the metadata.
    ignored: &["rope_freqs.", "rope_factors_"],
    ..COMMON
};

impl Names {
    /// The tensors of a weight, without the prefix: one for each section, or one with all.
    pub fn tensors(&self, to: Destination) -> Vec<String> {
        use Destination as To;
        let own = |layer: usize, modules: &[&str], last: &str| {
            let layer = self.layer.replace("{}", &layer.to_string());
            modules.iter().map(|module| format!("{layer}{module}{last}")).collect()
        };
        let weight = |layer, modules: &[&str]| own(layer, modules, ".weight");
        let bias = |layer, modules: &[&str]| own(layer, modules, ".bias");
        match to {
            To::Embedding => vec![format!("{}.weight", self.embedding)],
            To::Norm => vec![format!("{}.weight", self.norm)],
            To::Head => self.heads.iter().map(|head| format!("{head}.weight")).collect(),
            To::MixerNorm(layer) => weight(layer, &[self.mixer_norm]),
            To::Qkv(layer) => weight(layer, self.qkv),
            To::QkvBias(layer) => bias(layer, self.qkv),
            To::QNorm(layer) => weight(layer, &[self.q_norm]),
            To::KNorm(layer) => weight(layer, &[self.k_norm]),
            To::Sinks(layer) => own(layer, &[self.sinks], ""),
            To::Output(layer) => weight(layer, &[self.output]),
            To::OutputBias(layer) => bias(layer, &[self.output]),
            To::MixerPostNorm(layer) => weight(layer, &[self.mixer_post_norm]),
            To::FeedForwardNorm(layer) => weight(layer, &[self.feed_forward_norm]),
            To::GateUp(layer) => weight(layer, self.gate_up),
            To::GateUpBias(layer) => bias(layer, self.gate_up),
            To::Down(layer) => weight(layer, &[self.down]),
            To::DownBias(layer) => bias(layer, &[self.down]),
            To::FeedForwardPostNorm(layer) => weight(layer, &[self.feed_forward_post_norm]),
        }
    }

    /// Whether what is stored has to be raised by one.
    pub fn is_raised(&self, to: Destination) -> bool {
        use Destination as To;
        self.ones_off
            && matches!(
                to,
                To::MixerNorm(_)
                    | To::QNorm(_)
                    | To::KNorm(_)
                    | To::MixerPostNorm(_)
                    | To::FeedForwardNorm(_)
                    | To::FeedForwardPostNorm(_)
                    | To::Norm
            )
    }

    /// For each section of a weight the rows of its tensors in the order in which the model wants them; none where it
    /// is the order of the file.
    pub fn order(&self, spec: &Spec, to: Destination, shape: &Shape) -> Option<Vec<Arc<[u32]>>> {
        use Destination as To;
        let (To::Qkv(layer) | To::QkvBias(layer)) = to else { return None };
        let Mixer::Attention(attention) = &spec.layers[layer].mixer;
        let pairs = spec.ropes[attention.rope.filter(|_| self.pairs_adjacent)?].pairs;
        let sections = shape.sections.iter().enumerate();
        let order = |(section, rows): (usize, &usize)| -> Arc<[u32]> {
            let turned = section < 2; // queries and keys
            let place = |row: usize| match row % attention.head_dim {
                i if turned && i < pairs => row + i,
                i if turned && i < 2 * pairs => row - i + 2 * (i - pairs) + 1,
                _ => row,
            };
            (0..*rows).map(|row| place(row) as u32).collect()
        };
        Some(sections.map(order).collect())
    }
}
