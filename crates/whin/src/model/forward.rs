//! The forward pass: one function for prefill and decode, for every family and every backend.

use whin_kernels::{Attend, Backend, CacheShape, Gated, Head, Project, Qkv, Result, RmsNorm, Step};

use super::spec::{Attention, FeedForward, Mixer, Spec};
use super::weights::{AttentionWeights, GatedWeights, Model};

/// The rows and the key-value cache that a step works on.
pub struct Run<B: Backend> {
    x: B::Rows, // (rows, width)
    q: B::Rows, // (rows, heads · head_dim)
    y: B::Rows, // (rows, heads · head_dim)
    h: B::Rows, // (rows, inner)
    /// (wanted, vocab)
    pub logits: B::Rows,
    /// Keys and values of all sequences.
    pub state: B::State,
}

impl<B: Backend> Run<B> {
    /// Room for steps of up to `rows` rows that want up to `wanted` rows of logits, and a cache without blocks.
    ///
    /// # Errors
    /// When the device has no memory for it.
    pub fn new(
        backend: &mut B,
        spec: &Spec,
        cache: &CacheShape,
        (rows, wanted): (usize, usize),
    ) -> Result<Self> {
        let (mut heads, mut inner) = (0, 0);
        for layer in &spec.layers {
            let (Mixer::Attention(attention), FeedForward::Gated(gated)) =
                (&layer.mixer, &layer.feed_forward);
            heads = attention.heads * attention.head_dim;
            inner = gated.inner;
        }
        Ok(Self {
            x: backend.rows(rows, spec.width)?,
            q: backend.rows(rows, heads)?,
            y: backend.rows(rows, heads)?,
            h: backend.rows(rows, inner)?,
            logits: backend.rows(wanted, spec.vocab)?,
            state: backend.state(cache)?,
        })
    }
}

/// Runs the rows of `step` through the model; the wanted logits stand in `run.logits` afterwards.
pub fn forward<B: Backend>(backend: &mut B, spec: &Spec, model: &Model<B>, step: &Step, run: &mut Run<B>) {
    backend.embed(&model.embedding, step, &mut run.x);
    for (index, (layer, weights)) in spec.layers.iter().zip(&model.layers).enumerate() {
        let Mixer::Attention(mixer) = &layer.mixer;
        attention(backend, spec, index, (mixer, &weights.attention), step, run);
        let FeedForward::Gated(gated) = &layer.feed_forward;
        let args = Gated {
            norm: RmsNorm { weight: &weights.gated.norm, eps: spec.norm_eps },
            weight: weights.gated.gate_up.as_ref(),
            activation: gated.activation,
        };
        backend.gated(&args, step, &run.x, &mut run.h);
        let GatedWeights { down, .. } = &weights.gated;
        backend.project_add(&Project { weight: down, bias: None }, step, &run.h, &mut run.x);
    }
    if !step.wanted.is_empty() {
        let norm = RmsNorm { weight: &model.norm, eps: spec.norm_eps };
        let head = Head { norm, weight: model.head.as_ref().unwrap_or(&model.embedding).as_ref() };
        backend.logits(&head, step, &run.x, &mut run.logits);
    }
}

fn attention<B: Backend>(
    backend: &mut B,
    spec: &Spec,
    layer: usize,
    (mixer, weights): (&Attention, &AttentionWeights<B>),
    step: &Step,
    run: &mut Run<B>,
) {
    fn norm<B: Backend>(weight: &B::Vector, eps: f32) -> RmsNorm<'_, B> {
        RmsNorm { weight, eps }
    }
    let eps = spec.norm_eps;
    let &Attention { heads, kv_heads, head_dim, window, scale, rope, .. } = mixer;
    let qkv = Qkv {
        layer,
        heads,
        kv_heads,
        head_dim,
        norm: norm(&weights.norm, eps),
        weight: weights.qkv.as_ref(),
        bias: weights.qkv_bias.as_ref(),
        q_norm: weights.q_norm.as_ref().map(|weight| norm(weight, eps)),
        k_norm: weights.k_norm.as_ref().map(|weight| norm(weight, eps)),
        rotation: rope,
    };
    backend.qkv(&qkv, step, &run.x, &mut run.state, &mut run.q);
    let attend = Attend { layer, heads, kv_heads, head_dim, scale, window };
    backend.attend(&attend, step, &run.q, &run.state, &mut run.y);
    let out = Project { weight: weights.out.as_ref(), bias: weights.out_bias.as_ref() };
    backend.project_add(&out, step, &run.y, &mut run.x);
}
