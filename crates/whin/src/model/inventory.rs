//! Which weights a model has, and of which shapes. Knows no name of a tensor.

use std::fmt;

use whin_kernels::Span;

use super::spec::{Attention, Delta, Experts, FeedForward, Gated, Mixer, ShortConv, Spec};

/// A weight of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// (vocab, width)
    Embedding,
    /// The norm before the mixer. (width,)
    MixerNorm(usize),
    /// ((heads + 2 · kv_heads) · head_dim, width), and (heads · head_dim, width) of gates below.
    Qkv(usize),
    /// (outputs of the projection,)
    QkvBias(usize),
    /// (head_dim,) or (heads · head_dim,)
    QNorm(usize),
    /// (head_dim,) or (kv_heads · head_dim,)
    KNorm(usize),
    /// (heads,)
    Sinks(usize),
    /// What a recurrent mixer projects: queries, keys, values, gates, `b` and `a` of the delta rule, or the gates before
    /// and behind a convolution and its inputs. (outputs, width)
    Inputs(usize),
    /// (outputs of the projection,)
    InputsBias(usize),
    /// Of a convolution, the oldest position first. (taps, channels)
    Taps(usize),
    /// Of a convolution. (channels,)
    TapsBias(usize),
    /// How fast the matrices of the delta rule fade. (value_heads,)
    Rates(usize),
    /// Added to `a` of the delta rule. (value_heads,)
    TimeBias(usize),
    /// The norm of what the delta rule finds. (value_dim,)
    DeltaNorm(usize),
    /// (width, numbers that the mixer finds)
    Output(usize),
    /// (width,)
    OutputBias(usize),
    /// The norm behind the mixer. (width,)
    MixerPostNorm(usize),
    /// The norm before the feed-forward part. (width,)
    FeedForwardNorm(usize),
    /// (2 · inner, width)
    GateUp(usize),
    /// (2 · inner,)
    GateUpBias(usize),
    /// (width, inner)
    Down(usize),
    /// (width,)
    DownBias(usize),
    /// (experts, width)
    Router(usize),
    /// (experts,)
    RouterBias(usize),
    /// (experts · 2 · inner, width): for one expert after the other its gate, and what that multiplies below it.
    ExpertsGateUp(usize),
    /// (experts · 2 · inner,)
    ExpertsGateUpBias(usize),
    /// (experts · width, inner)
    ExpertsDown(usize),
    /// (experts · width,)
    ExpertsDownBias(usize),
    /// Of the expert for every row. (2 · inner, width)
    SharedGateUp(usize),
    /// (2 · inner,)
    SharedGateUpBias(usize),
    /// (width, inner)
    SharedDown(usize),
    /// (width,)
    SharedDownBias(usize),
    /// Of the share of that expert. (width,)
    SharedGate(usize),
    /// The norm behind the feed-forward part. (width,)
    FeedForwardPostNorm(usize),
    /// The norm before the head. (width,)
    Norm,
    /// (vocab, width); none where the head is the embedding.
    Head,
}

/// The name under which a weight is kept in files.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (layer, name) = match self {
            Self::Embedding => return f.write_str("embedding"),
            Self::Norm => return f.write_str("norm"),
            Self::Head => return f.write_str("head"),
            Self::MixerNorm(layer) => (layer, "mixer_norm"),
            Self::Qkv(layer) => (layer, "qkv"),
            Self::QkvBias(layer) => (layer, "qkv_bias"),
            Self::QNorm(layer) => (layer, "q_norm"),
            Self::KNorm(layer) => (layer, "k_norm"),
            Self::Sinks(layer) => (layer, "sinks"),
            Self::Inputs(layer) => (layer, "inputs"),
            Self::InputsBias(layer) => (layer, "inputs_bias"),
            Self::Taps(layer) => (layer, "taps"),
            Self::TapsBias(layer) => (layer, "taps_bias"),
            Self::Rates(layer) => (layer, "rates"),
            Self::TimeBias(layer) => (layer, "time_bias"),
            Self::DeltaNorm(layer) => (layer, "delta_norm"),
            Self::Output(layer) => (layer, "output"),
            Self::OutputBias(layer) => (layer, "output_bias"),
            Self::MixerPostNorm(layer) => (layer, "mixer_post_norm"),
            Self::FeedForwardNorm(layer) => (layer, "feed_forward_norm"),
            Self::GateUp(layer) => (layer, "gate_up"),
            Self::GateUpBias(layer) => (layer, "gate_up_bias"),
            Self::Down(layer) => (layer, "down"),
            Self::DownBias(layer) => (layer, "down_bias"),
            Self::Router(layer) => (layer, "router"),
            Self::RouterBias(layer) => (layer, "router_bias"),
            Self::ExpertsGateUp(layer) => (layer, "experts_gate_up"),
            Self::ExpertsGateUpBias(layer) => (layer, "experts_gate_up_bias"),
            Self::ExpertsDown(layer) => (layer, "experts_down"),
            Self::ExpertsDownBias(layer) => (layer, "experts_down_bias"),
            Self::SharedGateUp(layer) => (layer, "shared_gate_up"),
            Self::SharedGateUpBias(layer) => (layer, "shared_gate_up_bias"),
            Self::SharedDown(layer) => (layer, "shared_down"),
            Self::SharedDownBias(layer) => (layer, "shared_down_bias"),
            Self::SharedGate(layer) => (layer, "shared_gate"),
            Self::FeedForwardPostNorm(layer) => (layer, "feed_forward_post_norm"),
        };
        write!(f, "layers.{layer}.{name}")
    }
}

/// The shape of a weight: sections of outputs, one below the other, each of which may be a tensor of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Outputs of each section, or numbers of a vector.
    pub sections: Vec<usize>,
    /// How often the sections come, one set of them below the other: once for each expert.
    pub sets: usize,
    /// Of a matrix; none for a vector.
    pub inputs: Option<usize>,
}

impl Shape {
    /// Outputs of all sections of all sets.
    pub fn outputs(&self) -> usize {
        self.sets * self.sections.iter().sum::<usize>()
    }

    /// Numbers in all.
    pub fn count(&self) -> u64 {
        self.outputs() as u64 * self.inputs.unwrap_or(1) as u64
    }
}

/// All weights of a model, in load order.
pub fn weights(spec: &Spec) -> Vec<(Destination, Shape)> {
    use Destination as To;
    let mut list = List { width: spec.width, weights: Vec::new() };
    list.matrix(To::Embedding, &[spec.vocab], spec.width);
    for (index, layer) in spec.layers.iter().enumerate() {
        if layer.norms.before {
            list.vector(To::MixerNorm(index), &[spec.width]);
        }
        match &layer.mixer {
            Mixer::Attention(attention) => list.attention(index, attention),
            Mixer::Delta(delta) => list.delta(index, delta),
            Mixer::ShortConv(conv) => list.short_conv(index, conv),
        }
        if layer.norms.after {
            list.vector(To::MixerPostNorm(index), &[spec.width]);
        }
        // Side by side, both parts read the same rows.
        if layer.norms.before && !layer.parallel {
            list.vector(To::FeedForwardNorm(index), &[spec.width]);
        }
        match &layer.feed_forward {
            FeedForward::Gated(gated) => list.gated(index, gated),
            FeedForward::Experts(experts) => list.experts(index, experts),
        }
        if layer.norms.after {
            list.vector(To::FeedForwardPostNorm(index), &[spec.width]);
        }
    }
    list.vector(To::Norm, &[spec.width]);
    if !spec.tied {
        list.matrix(To::Head, &[spec.vocab], spec.width);
    }
    list.weights
}

struct List {
    width: usize,
    weights: Vec<(Destination, Shape)>,
}

impl List {
    fn matrix(&mut self, to: Destination, sections: &[usize], inputs: usize) {
        self.weights.push((to, Shape { sections: sections.to_vec(), sets: 1, inputs: Some(inputs) }));
    }

    fn vector(&mut self, to: Destination, sections: &[usize]) {
        self.weights.push((to, Shape { sections: sections.to_vec(), sets: 1, inputs: None }));
    }

    fn attention(&mut self, layer: usize, attention: &Attention) {
        use Destination as To;
        let (q, kv) = (attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim);
        let sections = if attention.gated { vec![q, kv, kv, q] } else { vec![q, kv, kv] };
        self.matrix(To::Qkv(layer), &sections, self.width);
        if attention.bias.qkv {
            self.vector(To::QkvBias(layer), &sections);
        }
        if let Some(span) = attention.qk_norm {
            let numbers = |all| if span == Span::Head { attention.head_dim } else { all };
            self.vector(To::QNorm(layer), &[numbers(q)]);
            self.vector(To::KNorm(layer), &[numbers(kv)]);
        }
        if attention.sinks {
            self.vector(To::Sinks(layer), &[attention.heads]);
        }
        self.matrix(To::Output(layer), &[self.width], q);
        if attention.bias.out {
            self.vector(To::OutputBias(layer), &[self.width]);
        }
    }

    fn delta(&mut self, layer: usize, delta: &Delta) {
        use Destination as To;
        let ((keys, values), heads) = (delta.widths(), delta.value_heads);
        self.matrix(To::Inputs(layer), &[keys, keys, values, values, heads, heads], self.width);
        self.vector(To::Taps(layer), &vec![delta.channels(); delta.taps]);
        self.vector(To::Rates(layer), &[heads]);
        self.vector(To::TimeBias(layer), &[heads]);
        self.vector(To::DeltaNorm(layer), &[delta.value_dim]);
        self.matrix(To::Output(layer), &[self.width], values);
    }

    fn short_conv(&mut self, layer: usize, conv: &ShortConv) {
        use Destination as To;
        let sections = [self.width; 3];
        self.matrix(To::Inputs(layer), &sections, self.width);
        self.vector(To::Taps(layer), &vec![self.width; conv.taps]);
        self.matrix(To::Output(layer), &[self.width], self.width);
        if conv.bias {
            self.vector(To::InputsBias(layer), &sections);
            self.vector(To::TapsBias(layer), &[self.width]);
            self.vector(To::OutputBias(layer), &[self.width]);
        }
    }

    fn gated(&mut self, layer: usize, gated: &Gated) {
        use Destination as To;
        let sections = [gated.inner, gated.inner];
        self.matrix(To::GateUp(layer), &sections, self.width);
        if gated.bias {
            self.vector(To::GateUpBias(layer), &sections);
        }
        self.matrix(To::Down(layer), &[self.width], gated.inner);
        if gated.bias {
            self.vector(To::DownBias(layer), &[self.width]);
        }
    }

    /// As many sets of sections as there are experts.
    fn sets(&mut self, to: Destination, sets: usize, sections: &[usize], inputs: Option<usize>) {
        self.weights.push((to, Shape { sections: sections.to_vec(), sets, inputs }));
    }

    fn experts(&mut self, layer: usize, experts: &Experts) {
        use Destination as To;
        let (width, count, inner) = (self.width, experts.count, experts.inner);
        self.matrix(To::Router(layer), &[count], width);
        if experts.router_bias {
            self.vector(To::RouterBias(layer), &[count]);
        }
        self.sets(To::ExpertsGateUp(layer), count, &[inner, inner], Some(width));
        if experts.bias {
            self.sets(To::ExpertsGateUpBias(layer), count, &[inner, inner], None);
        }
        self.sets(To::ExpertsDown(layer), count, &[width], Some(inner));
        if experts.bias {
            self.sets(To::ExpertsDownBias(layer), count, &[width], None);
        }
        let Some(shared) = &experts.shared else { return };
        let sections = [shared.gated.inner, shared.gated.inner];
        self.matrix(To::SharedGateUp(layer), &sections, width);
        if shared.gated.bias {
            self.vector(To::SharedGateUpBias(layer), &sections);
        }
        self.matrix(To::SharedDown(layer), &[width], shared.gated.inner);
        if shared.gated.bias {
            self.vector(To::SharedDownBias(layer), &[width]);
        }
        if shared.row_gate {
            self.vector(To::SharedGate(layer), &[width]);
        }
    }
}
