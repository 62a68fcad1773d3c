//! The forward pass: one function for prefill and decode, for every family and every backend.

use std::sync::Arc;

use whin_kernels::{
    Attend, Backend, CacheShape, Convolution, Delta, Embed, Experts, Gated, Head, HeadNorm, Norm, Project,
    Qkv, Result, ShortConv, Step,
};

use super::spec::{self, Attention, FeedForward, Mixer, Spec};
use super::weights::{
    AttentionWeights, ConvolutionWeights, DeltaWeights, ExpertsWeights, FeedForwardWeights, GatedWeights,
    LayerWeights, MixerWeights, Model, SharedWeights, ShortConvWeights,
};

/// The rows and the cache that a step works on.
pub struct Run<B: Backend> {
    x: B::Rows,       // (rows, width)
    queries: Rows<B>, // of heads · head_dim, or twice that
    found: Rows<B>,   // of what a mixer finds
    hidden: Rows<B>,  // of what stands between the products of a gated layer
    /// (wanted, vocab)
    pub logits: B::Rows,
    /// Keys, values and states of all sequences.
    pub state: B::State,
}

/// Rows of several widths, of which each layer uses those of its own.
struct Rows<B: Backend>(Vec<(usize, B::Rows)>);

impl<B: Backend> Rows<B> {
    fn new(backend: &mut B, rows: usize, widths: Vec<usize>) -> Result<Self> {
        let of = |width| Ok((width, backend.rows(rows, width)?));
        Ok(Self(widths.into_iter().map(of).collect::<Result<_>>()?))
    }

    /// Those of a width that a layer has.
    fn of(&mut self, width: usize) -> &mut B::Rows {
        let found = self.0.iter_mut().find(|(known, _)| *known == width);
        &mut found.expect("the widths are those of all layers").1
    }
}

impl<B: Backend> Run<B> {
    /// Room for steps of up to `rows` rows that want up to `wanted` rows of logits, and a cache without blocks and states.
    ///
    /// # Errors
    /// When the device has no memory for it.
    pub fn new(
        backend: &mut B,
        spec: &Spec,
        cache: &CacheShape,
        (rows, wanted): (usize, usize),
    ) -> Result<Self> {
        let mut of = |widths: Vec<usize>| Rows::new(backend, rows, widths);
        let [queries, found, hidden] = spec.row_widths();
        let (queries, found, hidden) = (of(queries)?, of(found)?, of(hidden)?);
        Ok(Self {
            x: backend.rows(rows, spec.width)?,
            queries,
            found,
            hidden,
            logits: backend.rows(wanted, spec.vocab)?,
            state: backend.state(cache)?,
        })
    }
}

/// Runs the rows of `step` through the model; the wanted logits stand in `run.logits` afterwards.
pub fn forward<B: Backend>(backend: &mut B, spec: &Spec, model: &Model<B>, step: &Step, run: &mut Run<B>) {
    backend.embed(&Embed { table: &model.embedding, scale: spec.embedding_scale }, step, &mut run.x);
    for (index, (layer, weights)) in spec.layers.iter().zip(&model.layers).enumerate() {
        let (out, out_bias) = mix(backend, spec, index, (&layer.mixer, weights), step, run);
        let out = project(spec, (out, out_bias), &weights.mixer_post_norm);
        // Parts that stand side by side read the same rows: nothing is added before both have.
        let found = layer.mixer.found(spec.width);
        if !layer.parallel {
            backend.project_add(&out, step, run.found.of(found), &mut run.x);
        }
        let before = if layer.parallel { &weights.mixer_norm } else { &weights.feed_forward_norm };
        let mut h = layer.feed_forward.gated().map(|gated| run.hidden.of(gated.inner));
        let own = gated(spec, &layer.feed_forward, (before, &weights.feed_forward));
        if let (Some((args, _)), Some(h)) = (&own, &mut h) {
            backend.gated(args, step, &run.x, h);
        }
        if let (FeedForward::Experts(experts), FeedForwardWeights::Experts(weights)) =
            (&layer.feed_forward, &weights.feed_forward)
        {
            backend.experts_add(&self::experts(spec, (experts, weights), before), step, &mut run.x);
        }
        if layer.parallel {
            backend.project_add(&out, step, run.found.of(found), &mut run.x);
        }
        if let (Some((_, GatedWeights { down, down_bias, .. })), Some(h)) = (own, h) {
            let down = project(spec, (down, down_bias), &weights.feed_forward_post_norm);
            backend.project_add(&down, step, h, &mut run.x);
        }
    }
    if !step.wanted.is_empty() {
        let norm = Norm { weight: &model.norm, eps: spec.norm_eps, centred: spec.norm_centred };
        let weight = model.head.as_ref().unwrap_or(&model.embedding).as_ref();
        let head = Head { norm, weight, scale: spec.logit_scale, softcap: spec.logit_softcap };
        backend.logits(&head, step, &run.x, &mut run.logits);
    }
}

fn norm<'a, B: Backend>(spec: &Spec, weight: &'a Option<B::Vector>) -> Option<Norm<'a, B>> {
    weight.as_ref().map(|weight| Norm { weight, eps: spec.norm_eps, centred: spec.norm_centred })
}

/// What a feed-forward part does with every row, up to the way back: that of the layer, or of its shared expert.
fn gated<'a, B: Backend>(
    spec: &Spec,
    layer: &FeedForward,
    (before, weights): (&'a Option<B::Vector>, &'a FeedForwardWeights<B>),
) -> Option<(Gated<'a, B>, &'a GatedWeights<B>)> {
    let (weights, row_gate) = match weights {
        FeedForwardWeights::Gated(weights) => (weights, None),
        FeedForwardWeights::Experts(weights) => {
            let SharedWeights { gated, row_gate } = weights.shared.as_ref()?;
            (gated, row_gate.as_ref())
        }
    };
    let args = Gated {
        norm: norm(spec, before),
        weight: weights.gate_up.as_ref(),
        bias: weights.gate_up_bias.as_ref(),
        activation: layer.gated()?.activation,
        row_gate,
    };
    Some((args, weights))
}

/// What the chosen experts do.
fn experts<'a, B: Backend>(
    spec: &Spec,
    (experts, weights): (&spec::Experts, &'a ExpertsWeights<B>),
    before: &'a Option<B::Vector>,
) -> Experts<'a, B> {
    let &spec::Experts { count, top_k, shares, gating, .. } = experts;
    let ExpertsWeights { router, router_bias, gate_up, gate_up_bias, down, down_bias, .. } = weights;
    Experts {
        norm: norm(spec, before),
        router,
        router_bias: router_bias.as_ref(),
        experts: count,
        top_k,
        shares,
        gate_up,
        gate_up_bias: gate_up_bias.as_ref(),
        gating,
        down,
        down_bias: down_bias.as_ref(),
        scale: spec.residual_scale,
    }
}

/// The way back to the width of the model, behind which `post_norm` may stand.
fn project<'a, B: Backend>(
    spec: &Spec,
    (weight, bias): (&'a Arc<B::Weight>, &'a Option<B::Vector>),
    post_norm: &'a Option<B::Vector>,
) -> Project<'a, B> {
    Project { weight, bias: bias.as_ref(), norm: norm(spec, post_norm), scale: spec.residual_scale }
}

/// The projection of what a mixer finds, and its bias.
type Out<'a, B> = (&'a Arc<<B as Backend>::Weight>, &'a Option<<B as Backend>::Vector>);

/// What the mixer finds for each row, in `run.found`. Returns what projects it.
fn mix<'a, B: Backend>(
    backend: &mut B,
    spec: &Spec,
    index: usize,
    (mixer, layer): (&Mixer, &'a LayerWeights<B>),
    step: &Step,
    run: &mut Run<B>,
) -> Out<'a, B> {
    let norm = norm(spec, &layer.mixer_norm);
    match (mixer, &layer.mixer) {
        (Mixer::Attention(mixer), MixerWeights::Attention(weights)) => {
            attention(backend, spec, (index, norm), (mixer, weights), step, run);
            (&weights.out, &weights.out_bias)
        }
        (Mixer::Delta(mixer), MixerWeights::Delta(weights)) => {
            delta(backend, spec, (index, norm), (mixer, weights), step, run);
            (&weights.out, &None)
        }
        (Mixer::ShortConv(mixer), MixerWeights::ShortConv(weights)) => {
            short_conv(backend, spec, (index, norm), (mixer, weights), step, run);
            (&weights.out, &weights.out_bias)
        }
        _ => unreachable!("weights are assembled as the spec says"),
    }
}

fn attention<B: Backend>(
    backend: &mut B,
    spec: &Spec,
    (layer, before): (usize, Option<Norm<'_, B>>),
    (mixer, weights): (&Attention, &AttentionWeights<B>),
    step: &Step,
    run: &mut Run<B>,
) {
    let &Attention { heads, kv_heads, head_dim, window, scale, softcap, gated, qk_norm, .. } = mixer;
    let AttentionWeights { qkv, qkv_bias, q_norm, k_norm, sinks, .. } = weights;
    let head_norm = |weight| Some(HeadNorm { norm: norm(spec, weight)?, span: qk_norm? });
    let args = Qkv {
        layer,
        heads,
        kv_heads,
        head_dim,
        norm: before,
        weight: qkv.as_ref(),
        bias: qkv_bias.as_ref(),
        q_norm: head_norm(q_norm),
        k_norm: head_norm(k_norm),
        rotation: mixer.rope,
        gated,
    };
    let queries = run.queries.of(mixer.queries());
    backend.qkv(&args, step, &run.x, &mut run.state, queries);
    let sinks = sinks.as_ref();
    let attend = Attend { layer, heads, kv_heads, head_dim, scale, window, softcap, sinks, gated };
    backend.attend(&attend, step, queries, &run.state, run.found.of(heads * head_dim));
}

fn convolution<B: Backend>(count: usize, weights: &ConvolutionWeights<B>) -> Convolution<'_, B> {
    Convolution { count, taps: &weights.taps, bias: weights.bias.as_ref() }
}

fn delta<B: Backend>(
    backend: &mut B,
    spec: &Spec,
    (layer, norm): (usize, Option<Norm<'_, B>>),
    (mixer, weights): (&spec::Delta, &DeltaWeights<B>),
    step: &Step,
    run: &mut Run<B>,
) {
    let &spec::Delta { key_heads, value_heads, key_dim, value_dim, taps, activation } = mixer;
    let args = Delta {
        layer,
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        norm,
        weight: weights.inputs.as_ref(),
        convolution: convolution(taps, &weights.convolution),
        activation,
        rates: &weights.rates,
        time_bias: &weights.time_bias,
        out_norm: Norm { weight: &weights.norm, eps: spec.norm_eps, centred: false },
    };
    let found = run.found.of(value_heads * value_dim);
    backend.delta(&args, step, &run.x, &mut run.state, found);
}

fn short_conv<B: Backend>(
    backend: &mut B,
    spec: &Spec,
    (layer, norm): (usize, Option<Norm<'_, B>>),
    (mixer, weights): (&spec::ShortConv, &ShortConvWeights<B>),
    step: &Step,
    run: &mut Run<B>,
) {
    let args = ShortConv {
        layer,
        norm,
        weight: weights.inputs.as_ref(),
        bias: weights.inputs_bias.as_ref(),
        convolution: convolution(mixer.taps, &weights.convolution),
    };
    let found = run.found.of(spec.width);
    backend.short_conv(&args, step, &run.x, &mut run.state, found);
}
