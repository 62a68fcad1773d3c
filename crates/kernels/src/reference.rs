//! What is right: every stage in plain loops over f32, with sums in f64 so that they are as good as f32 can hold.
//!
//! Nothing here is fast. Every other backend is compared with this one.

mod recurrent;
mod weight;

use std::cmp::Ordering;

use half::bf16;

use crate::{
    Activation, Attend, BLOCK, Backend, Best, CacheShape, Delta, Embed, Experts, Gated, Head, HeadNorm,
    KvKind, LayerCache, Norm, Project, Qkv, Result, Rotation, Shares, ShortConv, Span, StateShape, Step,
    Tensor, WeightKind, int8,
};
pub use weight::Weight;

/// The backend that defines what is right.
#[derive(Debug, Default)]
pub struct Reference;

/// Activations.
#[derive(Debug)]
pub struct Rows {
    width: usize,
    values: Vec<f32>, // (rows, width)
}

impl Rows {
    fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.width..(index + 1) * self.width]
    }

    fn row_mut(&mut self, index: usize) -> &mut [f32] {
        &mut self.values[index * self.width..(index + 1) * self.width]
    }
}

/// Keys, values and the states of recurrent layers.
#[derive(Debug)]
pub struct State {
    kind: KvKind,
    layers: Vec<Layer>,
}

#[derive(Debug)]
enum Layer {
    Positions(Positions),
    States(States),
}

#[derive(Debug)]
struct Positions {
    heads: usize,          // kv_heads
    width: usize,          // kv_heads · head_dim
    keys: Vec<f32>,        // (blocks · BLOCK, kv_heads · head_dim), integers where they are quantised
    values: Vec<f32>,      // (blocks · BLOCK, kv_heads · head_dim), likewise
    scales: Vec<[f32; 2]>, // (blocks · BLOCK, kv_heads), of keys and values, 1 where they are not quantised
}

#[derive(Debug)]
struct States {
    shape: StateShape,
    numbers: Vec<f32>, // (states, inputs and then matrices)
}

impl State {
    fn new(shape: &CacheShape) -> Self {
        let layer = |layer: &LayerCache| match *layer {
            LayerCache::Positions { kv_heads, head_dim } => Layer::Positions(Positions {
                heads: kv_heads,
                width: kv_heads * head_dim,
                keys: vec![],
                values: vec![],
                scales: vec![],
            }),
            LayerCache::State(shape) => Layer::States(States { shape, numbers: vec![] }),
        };
        Self { kind: shape.kind, layers: shape.layers.iter().map(layer).collect() }
    }

    fn positions(&self, layer: usize) -> &Positions {
        match &self.layers[layer] {
            Layer::Positions(positions) => positions,
            Layer::States(_) => panic!("layer {layer} keeps no keys and values"),
        }
    }

    fn positions_mut(&mut self, layer: usize) -> &mut Positions {
        match &mut self.layers[layer] {
            Layer::Positions(positions) => positions,
            Layer::States(_) => panic!("layer {layer} keeps no keys and values"),
        }
    }
}

impl Backend for Reference {
    type Weight = Weight;
    type Vector = Vec<f32>;
    type Rows = Rows;
    type State = State;

    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn weight(&mut self, kind: WeightKind, outputs: usize, inputs: usize) -> Result<Weight> {
        Ok(Weight::new(kind, outputs, inputs))
    }

    fn write(&mut self, weight: &mut Weight, first: usize, source: &Tensor<'_>) -> Result<()> {
        (0..source.rows()).try_for_each(|row| weight.write(first + row, source, row))
    }

    fn vector(&mut self, values: &[f32]) -> Result<Vec<f32>> {
        Ok(values.to_vec())
    }

    fn rows(&mut self, rows: usize, width: usize) -> Result<Rows> {
        Ok(Rows { width, values: vec![0.0; rows * width] })
    }

    fn state(&mut self, shape: &CacheShape) -> Result<State> {
        Ok(State::new(shape))
    }

    fn grow(&mut self, state: &mut State, blocks: usize) -> Result<()> {
        for layer in &mut state.layers {
            let Layer::Positions(layer) = layer else { continue };
            let len = layer.keys.len().max(blocks * BLOCK * layer.width);
            layer.keys.resize(len, 0.0);
            layer.values.resize(len, 0.0);
            layer.scales.resize(layer.scales.len().max(blocks * BLOCK * layer.heads), [1.0; 2]);
        }
        Ok(())
    }

    fn shrink(&mut self, state: &mut State, blocks: usize) {
        for layer in &mut state.layers {
            let Layer::Positions(layer) = layer else { continue };
            for numbers in [&mut layer.keys, &mut layer.values] {
                numbers.truncate(blocks * BLOCK * layer.width);
                numbers.shrink_to_fit();
            }
            layer.scales.truncate(blocks * BLOCK * layer.heads);
            layer.scales.shrink_to_fit();
        }
    }

    fn grow_states(&mut self, state: &mut State, states: usize) -> Result<()> {
        for layer in &mut state.layers {
            let Layer::States(layer) = layer else { continue };
            let len = layer.numbers.len().max(states * layer.shape.numbers());
            layer.numbers.resize(len, 0.0);
        }
        Ok(())
    }

    fn shrink_states(&mut self, state: &mut State, states: usize) {
        for layer in &mut state.layers {
            let Layer::States(layer) = layer else { continue };
            layer.numbers.truncate(states * layer.shape.numbers());
            layer.numbers.shrink_to_fit();
        }
    }

    fn fill(&mut self, rows: &mut Rows, values: &[f32]) -> Result<()> {
        rows.values[..values.len()].copy_from_slice(values);
        Ok(())
    }

    fn read(&mut self, rows: &Rows, count: usize) -> Result<Vec<f32>> {
        Ok(rows.values[..count * rows.width].to_vec())
    }

    fn embed(&mut self, args: &Embed<'_, Self>, step: &Step, x: &mut Rows) {
        for (row, &token) in step.tokens.iter().enumerate() {
            for (input, x) in x.row_mut(row).iter_mut().enumerate() {
                *x = args.table.number(token as usize, input) * args.scale;
            }
        }
    }

    fn qkv(&mut self, args: &Qkv<'_, Self>, step: &Step, x: &Rows, state: &mut State, q: &mut Rows) {
        let (heads, kv_heads, dim) = (args.heads, args.kv_heads, args.head_dim);
        let (kind, layer) = (state.kind, state.positions_mut(args.layer));
        for row in 0..step.rows() {
            let mut out = args.weight.multiply(&normalize(x.row(row), args.norm.as_ref()));
            add_bias(&mut out, args.bias);
            let (queries, rest) = out.split_at_mut(heads * dim);
            let (keys, rest) = rest.split_at_mut(kv_heads * dim);
            let (values, gates) = rest.split_at_mut(kv_heads * dim);
            for (part, norm) in [(&mut *queries, &args.q_norm), (&mut *keys, &args.k_norm)] {
                normalize_heads(part, dim, norm.as_ref());
                for (head, rotation) in part.chunks_exact_mut(dim).zip(args.rotation.iter().cycle()) {
                    rotate(head, &step.rotations[*rotation], row);
                }
            }
            assert_eq!(!gates.is_empty(), args.gated, "gates of the projection");
            q.row_mut(row).copy_from_slice(&[queries, gates].concat());
            let at = entry(step, row, step.positions[row] as usize);
            for head in 0..kv_heads {
                let scales = &mut layer.scales[at * kv_heads + head];
                let to = at * layer.width + head * dim..at * layer.width + (head + 1) * dim;
                let part = head * dim..(head + 1) * dim;
                scales[0] = store(kind, &keys[part.clone()], &mut layer.keys[to.clone()]);
                scales[1] = store(kind, &values[part], &mut layer.values[to]);
            }
        }
    }

    fn attend(&mut self, args: &Attend<'_, Self>, step: &Step, q: &Rows, state: &State, y: &mut Rows) {
        let (dim, group) = (args.head_dim, args.heads / args.kv_heads);
        let layer = state.positions(args.layer);
        for row in 0..step.rows() {
            let position = step.positions[row] as usize;
            let first = args.window.map_or(0, |window| (position + 1).saturating_sub(window));
            for head in 0..args.heads {
                let query = &q.row(row)[head * dim..(head + 1) * dim];
                let at = |p: usize| entry(step, row, p) * layer.width + head / group * dim;
                let scales = |p: usize| layer.scales[entry(step, row, p) * layer.heads + head / group];
                let (query, scale) = match state.kind {
                    KvKind::F32 | KvKind::Bf16 => (query.to_vec(), 1.0),
                    KvKind::Int8 => {
                        let mut quantized = vec![0; dim];
                        let scale = int8::quantize_activations(query, &mut quantized);
                        (quantized.iter().map(|q| f32::from(*q)).collect(), scale)
                    }
                };
                // The sum of integers is exact, and a scale of one changes nothing.
                let product =
                    |p: usize| dot(&query, &layer.keys[at(p)..at(p) + dim]) as f32 * (scale * scales(p)[0]);
                let score = |p: usize| capped(product(p) * args.scale, args.softcap);
                let scores: Vec<f32> = (first..=position).map(score).collect();
                let weights = softmax(&scores, args.sinks.map(|sinks| sinks[head]));
                for (i, out) in y.row_mut(row)[head * dim..(head + 1) * dim].iter_mut().enumerate() {
                    let value = |p: usize| f64::from(layer.values[at(p) + i]) * f64::from(scales(p)[1]);
                    let terms = (first..=position).zip(&weights).map(|(p, w)| w * value(p));
                    *out = terms.sum::<f64>() as f32;
                    if args.gated {
                        *out *= Activation::Sigmoid.apply(q.row(row)[(args.heads + head) * dim + i]);
                    }
                }
            }
        }
    }

    fn short_conv(
        &mut self,
        args: &ShortConv<'_, Self>,
        step: &Step,
        x: &Rows,
        state: &mut State,
        y: &mut Rows,
    ) {
        recurrent::short_conv(args, step, x, state, y);
    }

    fn delta(&mut self, args: &Delta<'_, Self>, step: &Step, x: &Rows, state: &mut State, y: &mut Rows) {
        recurrent::delta(args, step, x, state, y);
    }

    fn gated(&mut self, args: &Gated<'_, Self>, step: &Step, x: &Rows, h: &mut Rows) {
        for row in 0..step.rows() {
            let x = normalize(x.row(row), args.norm.as_ref());
            let mut out = args.weight.multiply(&x);
            add_bias(&mut out, args.bias);
            let (gate, up) = out.split_at(out.len() / 2);
            let open = args.row_gate.map_or(1.0, |gate| Activation::Sigmoid.apply(dot(&x, gate) as f32));
            for ((h, gate), up) in h.row_mut(row).iter_mut().zip(gate).zip(up) {
                *h = args.activation.apply(*gate) * up * open;
            }
        }
    }

    fn experts_add(&mut self, args: &Experts<'_, Self>, step: &Step, x: &mut Rows) {
        let (width, inner) = (args.down.outputs / args.experts, args.down.inputs);
        for row in 0..step.rows() {
            let normed = normalize(x.row(row), args.norm.as_ref());
            let mut scores = args.router.multiply(&normed);
            add_bias(&mut scores, args.router_bias);
            let mut sums = vec![0.0; width];
            for (expert, share) in choose(&scores, args.top_k, args.shares) {
                let out = outputs_of(args.gate_up, args.gate_up_bias, (expert, 2 * inner), &normed);
                let (gate, up) = out.split_at(inner);
                let h: Vec<f32> =
                    gate.iter().zip(up).map(|(gate, up)| args.gating.apply(*gate, *up)).collect();
                let out = outputs_of(args.down, args.down_bias, (expert, width), &h);
                sums.iter_mut().zip(&out).for_each(|(sum, out)| *sum += share * f64::from(*out));
            }
            for (x, sum) in x.row_mut(row).iter_mut().zip(&sums) {
                *x += *sum as f32 * args.scale;
            }
        }
    }

    fn project_add(&mut self, args: &Project<'_, Self>, step: &Step, h: &Rows, x: &mut Rows) {
        for row in 0..step.rows() {
            let mut out = args.weight.multiply(h.row(row));
            add_bias(&mut out, args.bias);
            for (x, out) in x.row_mut(row).iter_mut().zip(normalize(&out, args.norm.as_ref())) {
                *x += out * args.scale;
            }
        }
    }

    fn logits(&mut self, args: &Head<'_, Self>, step: &Step, x: &Rows, logits: &mut Rows) {
        for (index, &row) in step.wanted.iter().enumerate() {
            let out = args.weight.multiply(&normalize(x.row(row as usize), Some(&args.norm)));
            for (logit, out) in logits.row_mut(index).iter_mut().zip(&out) {
                *logit = capped(out * args.scale, args.softcap);
            }
        }
    }

    fn argmax(&mut self, logits: &Rows, count: usize) -> Result<Vec<Best>> {
        Ok((0..count).map(|row| best(logits.row(row))).collect())
    }
}

/// Puts a key or a value of one head into the cache and returns its scale.
fn store(kind: KvKind, numbers: &[f32], out: &mut [f32]) -> f32 {
    match kind {
        KvKind::F32 => out.copy_from_slice(numbers),
        KvKind::Bf16 => {
            for (out, number) in out.iter_mut().zip(numbers) {
                *out = bf16::from_f32(*number).to_f32();
            }
        }
        KvKind::Int8 => {
            let mut quantized = vec![0; numbers.len()];
            let scale = int8::quantize_weights(numbers, &mut quantized);
            for (out, number) in out.iter_mut().zip(&quantized) {
                *out = f32::from(*number);
            }
            return scale.unwrap_or(f32::NAN);
        }
    }
    1.0
}

/// Which entry of the cache holds position `p` of the sequence that `row` belongs to.
fn entry(step: &Step, row: usize, p: usize) -> usize {
    step.tables[step.slots[row] as usize][p / BLOCK] as usize * BLOCK + p % BLOCK
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// The experts with the `top_k` highest scores, the lowest index of equals, by falling scores, with their shares.
fn choose(scores: &[f32], top_k: usize, shares: Shares) -> Vec<(usize, f64)> {
    let mut experts: Vec<usize> = (0..scores.len()).collect();
    // The sort is stable. NaN is higher than any number.
    let order =
        |a: f32, b: f32| b.is_nan().cmp(&a.is_nan()).then(b.partial_cmp(&a).unwrap_or(Ordering::Equal));
    experts.sort_by(|a, b| order(scores[*a], scores[*b]));
    experts.truncate(top_k);
    let chosen: Vec<f32> = experts.iter().map(|expert| scores[*expert]).collect();
    let all = if shares == Shares::OfAll { scores } else { &chosen };
    let max = chosen[0];
    let power = |score: &f32| f64::from(score - max).exp();
    let sum: f64 = all.iter().map(power).sum();
    experts.into_iter().zip(&chosen).map(|(expert, score)| (expert, power(score) / sum)).collect()
}

/// The outputs of one expert, of which each has `count`, in a matrix of all.
fn outputs_of(
    weight: &Weight,
    bias: Option<&Vec<f32>>,
    (expert, count): (usize, usize),
    x: &[f32],
) -> Vec<f32> {
    let outputs = expert * count..(expert + 1) * count;
    let mut out = weight.multiply_part(outputs.clone(), x);
    for (out, bias) in out.iter_mut().zip(bias.into_iter().flat_map(|bias| &bias[outputs.clone()])) {
        *out += bias;
    }
    out
}

/// The row as it is where there is no norm.
fn normalize(x: &[f32], norm: Option<&Norm<'_, Reference>>) -> Vec<f32> {
    let Some(norm) = norm else { return x.to_vec() };
    assert_eq!(x.len(), norm.weight.len(), "width of the norm");
    let count = x.len() as f64;
    let mean = if norm.centred { x.iter().map(|x| f64::from(*x)).sum::<f64>() / count } else { 0.0 };
    let centred = || x.iter().map(|x| f64::from(*x) - mean);
    let square = centred().map(|x| x * x).sum::<f64>() / count;
    let inverse = 1.0 / (square + f64::from(norm.eps)).sqrt();
    centred().zip(norm.weight).map(|(x, w)| (x * inverse * f64::from(*w)) as f32).collect()
}

/// The heads of a projection, of `dim` numbers each.
fn normalize_heads(heads: &mut [f32], dim: usize, norm: Option<&HeadNorm<'_, Reference>>) {
    let Some(HeadNorm { norm, span }) = norm else { return };
    let together = if *span == Span::Head { dim } else { heads.len() };
    for part in heads.chunks_exact_mut(together) {
        part.copy_from_slice(&normalize(part, Some(norm)));
    }
}

/// `cap · tanh(x / cap)`
fn capped(x: f32, cap: Option<f32>) -> f32 {
    cap.map_or(x, |cap| (f64::from(cap) * (f64::from(x) / f64::from(cap)).tanh()) as f32)
}

fn add_bias(out: &mut [f32], bias: Option<&Vec<f32>>) {
    assert!(bias.is_none_or(|bias| bias.len() == out.len()), "length of the bias");
    for (out, bias) in out.iter_mut().zip(bias.into_iter().flatten()) {
        *out += bias;
    }
}

fn rotate(head: &mut [f32], rotation: &Rotation, row: usize) {
    let pairs = rotation.pairs;
    for i in 0..pairs {
        let (cos, sin) = (rotation.cos[row * pairs + i], rotation.sin[row * pairs + i]);
        let (a, b) = (head[i], head[i + pairs]);
        head[i] = a * cos - b * sin;
        head[i + pairs] = b * cos + a * sin;
    }
}

/// The shares of all scores but the sink's.
fn softmax(scores: &[f32], sink: Option<f32>) -> Vec<f64> {
    let max = scores.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
    let power = |score: &f32| f64::from(score - max).exp();
    let powers: Vec<f64> = scores.iter().map(power).collect();
    let sum: f64 = powers.iter().chain(&sink.as_ref().map(power)).sum();
    powers.iter().map(|p| p / sum).collect()
}

/// The largest logit, the lowest index of equals, NaN where any is.
pub(crate) fn best(logits: &[f32]) -> Best {
    let mut best = Best { id: 0, logit: f32::NEG_INFINITY };
    for (id, &logit) in logits.iter().enumerate() {
        if logit.is_nan() {
            return Best { id: id as u32, logit };
        }
        if logit > best.logit {
            best = Best { id: id as u32, logit };
        }
    }
    best
}
