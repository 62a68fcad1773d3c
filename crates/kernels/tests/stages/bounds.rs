//! How far from the exact result a correct backend may be: the stages in f64, each number with a bound of its error.
//!
//! `U` is the unit roundoff of f32, 2⁻²⁴: one rounding changes a number by at most that share of it.
//!
//! - A sum of `K` products rounds each product once, is added up in spans of 128 terms, and then over the spans:
//!   `|error| ≤ (min(K, 128) + K / 128 + 4) · U · Σ |x| |w|`, and an error `e` of `x` adds `Σ e |w|`.
//! - An 8-bit product is exact in its integers. It differs where an error of `x` carries a number over the border
//!   between two integers, by one quantum times that weight: `|error| ≤ scale · Σ(near a border) |w|`, besides the
//!   relative error of the scale. Without an error of `x` backends agree to the bit, which tests demand apart.
//! - A product with groups differs in the same way, by `scale · Σ(near a border) |d q|`. Its groups `S · d` are rounded
//!   twice each, 8-bit ones as they enter f32 and all as they are multiplied, and added one after the other:
//!   `(groups + 3) · U · scale · Σ |S · d|`. Offsets `X · m` are further terms of that sum.
//! - All else follows by the chain rule from the formulas of the stages; every function says its own.

use std::cell::Cell;

use half::bf16;
use whin_kernels::{Activation, Gating, KvKind, WeightKind, int4, int4_affine, int8, int8_groups};

use crate::cases::Matrix;

/// Half the distance from 1 to the next f32.
pub const U: f64 = 1.0 / (1 << 24) as f64;
/// What the loss of bits near the smallest f32 can cost one operation.
pub const TINY: f64 = 1e-44;

/// What a bf16 and another for what it lacks may miss of a number: half a step of the second, 2⁻¹⁸, and as much again for
/// numbers that are cut off rather than rounded.
pub const PAIR: f64 = 1.0 / (1 << 17) as f64;

thread_local! {
    static LOSS: Cell<f64> = const { Cell::new(0.0) };
}

/// What `bounds` finds for a backend whose float products may miss the share `loss` of each activation.
pub fn with_loss<T>(loss: f64, bounds: impl FnOnce() -> T) -> T {
    LOSS.set(loss);
    let found = bounds();
    LOSS.set(0.0);
    found
}

/// Numbers and the largest error each may have.
#[derive(Clone, Debug, Default)]
pub struct Bounded {
    pub values: Vec<f64>,
    pub errors: Vec<f64>,
}

impl Bounded {
    pub fn exact(x: &[f32]) -> Self {
        Self { values: x.iter().map(|x| f64::from(*x)).collect(), errors: vec![0.0; x.len()] }
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn part(&self, range: std::ops::Range<usize>) -> Self {
        Self { values: self.values[range.clone()].to_vec(), errors: self.errors[range].to_vec() }
    }

    pub fn extend(&mut self, other: &Self) {
        self.values.extend(&other.values);
        self.errors.extend(&other.errors);
    }

    pub fn collect(pairs: impl Iterator<Item = (f64, f64)>) -> Self {
        let (values, errors) = pairs.unzip();
        Self { values, errors }
    }

    pub fn pairs(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.values.iter().copied().zip(self.errors.iter().copied())
    }

    /// The errors of a sum with exact numbers, rounded once.
    pub fn plus(&self, other: &[f32]) -> Self {
        Self::collect(self.pairs().zip(other).map(|((v, e), o)| {
            let sum = v + f64::from(*o);
            (sum, e + U * (sum.abs() + e))
        }))
    }

    /// The errors of products with an exact factor, rounded once.
    pub fn times(&self, factor: f32) -> Self {
        let factor = f64::from(factor);
        Self::collect(self.pairs().map(|(v, e)| {
            let (product, error) = (v * factor, e * factor.abs());
            (product, error + U * (product.abs() + error) + TINY)
        }))
    }

    /// The same with a number that may be off, too.
    pub fn times_uncertain(&self, (factor, off): (f64, f64)) -> Self {
        Self::collect(self.pairs().map(|(v, e)| {
            let error = e * (factor.abs() + off) + v.abs() * off;
            (v * factor, 1.001 * (error + U * (v * factor).abs()) + TINY)
        }))
    }
}

/// `y = x · inverse · w` with `inverse = (mean(x²) + eps)^-½`.
///
/// A relative error `t` of the mean changes `inverse` by `t / 2` and less than `t²`; `t` comes from the errors of `x`,
/// `Σ (2 |x| e + e²) / n / mean`, and from rounding a sum of positive numbers, `(n / 16 + 24) · U`.
pub fn norm(x: &Bounded, weight: &[f32], eps: f32) -> Bounded {
    let n = x.len() as f64;
    let mean = x.values.iter().map(|v| v * v).sum::<f64>() / n + f64::from(eps);
    let spread = x.pairs().map(|(v, e)| (2.0 * v.abs() + e) * e).sum::<f64>() / n;
    let t = spread / mean + (n / 16.0 + 24.0) * U + TINY / mean;
    let (inverse, off) = (1.0 / mean.sqrt(), 0.5 * t / (1.0 - t) + 5.0 * U);
    assert!(t < 0.1, "inputs of a norm too uncertain for a test: {t}");
    Bounded::collect(x.pairs().zip(weight).map(|((v, e), w)| {
        let scale = inverse * f64::from(*w);
        (v * scale, scale.abs() * (e * (1.0 + off) + v.abs() * off) + TINY)
    }))
}

/// `d = x − mean(x)`
///
/// The mean is off by the mean of the errors of `x`, and by rounding: `n / 16` additions in each of sixteen lanes, four
/// between them and a division, each of numbers whose magnitudes add up to at most `Σ |x|`. Taking it off rounds once
/// more. A single number less itself is zero to the bit.
pub fn centred(x: &Bounded) -> Bounded {
    if x.len() == 1 {
        return Bounded { values: vec![0.0], errors: vec![0.0] };
    }
    let n = x.len() as f64;
    let mean = x.values.iter().sum::<f64>() / n;
    let size = x.pairs().map(|(v, e)| v.abs() + e).sum::<f64>() / n;
    let off = x.errors.iter().sum::<f64>() / n + 1.001 * (n / 16.0 + 6.0) * U * size;
    Bounded::collect(x.pairs().map(|(v, e)| {
        let (d, carried) = (v - mean, e + off);
        (d, carried + U * (d.abs() + carried) + TINY)
    }))
}

/// `y = cap · tanh(x / cap)`
///
/// An error of `x`, and the rounding of `x / cap`, count as often as the function is steep: `1 − tanh²` where it is
/// steepest within reach. The function itself: `1 − 2 / (1 + e^2u)`, with an exponential within 4.2 · U, misses less than
/// `6 · U`; by the series that takes its place below 0.2, and down to there, less than `24 · U` of the value.
pub fn capped(x: &Bounded, cap: Option<f32>) -> Bounded {
    let Some(cap) = cap else { return x.clone() };
    Bounded::collect(x.pairs().map(|pair| capped_number(pair, f64::from(cap))))
}

fn capped_number((v, e): (f64, f64), cap: f64) -> (f64, f64) {
    let (tanh, reach) = ((v / cap).tanh(), e + U * (v.abs() + e));
    let steep = 1.0 - ((v.abs() - reach).max(0.0) / cap).tanh().powi(2);
    let own = U * (24.0 * tanh.abs()).min(6.0);
    (cap * tanh, 1.001 * (steep * reach + cap * (own + U * tanh.abs())) + TINY)
}

/// `y = x · σ(g)`
///
/// An error of `g` counts as often as the sigmoid is steep: `σ · (1 − σ)` where it is steepest within reach. An exponential
/// within 4.2 · U, a sum, a quotient and a product round it; where the exponential leaves the range of f32, what is left
/// of the number is lost.
pub fn gated_by_sigmoid(x: &Bounded, gates: &Bounded) -> Bounded {
    let sigmoid = |g: f64| 1.0 / (1.0 + (-g).exp());
    Bounded::collect(x.pairs().zip(gates.pairs()).map(|((v, e), (g, eg))| {
        let (nearest, share) = ((g.abs() - eg).max(0.0), sigmoid(g));
        let off = sigmoid(nearest) * sigmoid(-nearest) * eg + 8.0 * U * share + 1e-37;
        (v * share, 1.001 * (e * share + (v.abs() + e) * off) + TINY)
    }))
}

/// `y = w · x`, as the head of this file says.
pub fn product(matrix: &Matrix, x: &Bounded) -> Bounded {
    let rows = matrix.values.chunks_exact(matrix.inputs);
    match matrix.kind {
        // Only what is multiplied with bf16 enters as a pair.
        WeightKind::F32 => {
            Bounded::collect(rows.map(|w| float_product(w.iter().map(|w| f64::from(*w)), x, 0.0)))
        }
        WeightKind::Bf16 => Bounded::collect(
            rows.map(|w| float_product(w.iter().map(|w| bf16::from_f32(*w).to_f64()), x, LOSS.get())),
        ),
        WeightKind::Int8 => int8_product(matrix, x),
        WeightKind::Int8Groups => grouped_product(matrix, x, |w, weights| {
            let mut q = vec![0; w.len()];
            let d = f64::from(int8_groups::quantize(w, &mut q).expect("finite weights"));
            weights.extend(q.iter().map(|q| f64::from(*q) * d));
            None
        }),
        WeightKind::Int4 => grouped_product(matrix, x, |w, weights| {
            let mut q = vec![[0]; w.len()];
            let [d] = int4::quantize(w.as_chunks::<1>().0, &mut q).map(f64::from);
            assert!(d.is_finite(), "finite weights");
            weights.extend(q.iter().map(|[q]| (f64::from(*q) - f64::from(int4::ZERO)) * d));
            None
        }),
        WeightKind::Int4Affine => grouped_product(matrix, x, |w, weights| {
            let mut q = vec![0; w.len()];
            let (d, m) = int4_affine::quantize(w, &mut q).expect("finite weights");
            weights.extend(q.iter().map(|q| f64::from(*q) * f64::from(d)));
            Some(f64::from(m))
        }),
    }
}

fn float_product(w: impl Iterator<Item = f64>, x: &Bounded, loss: f64) -> (f64, f64) {
    let (mut sum, mut size, mut carried) = (0.0, 0.0, 0.0);
    for ((v, e), w) in x.pairs().zip(w) {
        sum += v * w;
        size += v.abs() * w.abs();
        carried += e * w.abs();
    }
    let count = x.len() as f64;
    (sum, 1.001 * (carried + (sum_roundings(count) * U + loss) * size) + count * TINY)
}

/// How often a number is rounded on its way through a sum of `count` products.
fn sum_roundings(count: f64) -> f64 {
    count.min(128.0) + count / 128.0 + 4.0
}

/// Activations as integers, each with how many integers it may be off.
struct Integers {
    scale: f64,
    /// The relative error of `scale`.
    off: f64,
    numbers: Vec<(f64, f64)>,
}

/// None where the row counts as zero.
fn quantized(x: &Bounded) -> Option<Integers> {
    let max = x.values.iter().fold(0.0_f64, |max, v| max.max(v.abs()));
    if max < f64::from(int8::SMALLEST) {
        return None;
    }
    let scale = max / f64::from(int8::ACTIVATION_MAX);
    // Of the scale, from the error of the largest number and three roundings.
    let off = x.errors.iter().fold(0.0_f64, |max, e| max.max(*e)) / max + 3.0 * U;
    let numbers = x.pairs().map(|(v, e)| {
        let exact = v / scale;
        let whole = exact.round_ties_even();
        let (error, border) = (e / scale + exact.abs() * (off + 4.0 * U), 0.5 - (exact - whole).abs());
        (whole, if error < border { 0.0 } else { 1.0 + (error - border).floor() })
    });
    Some(Integers { scale, off, numbers: numbers.collect() })
}

fn zeros(matrix: &Matrix) -> Bounded {
    Bounded { values: vec![0.0; matrix.outputs], errors: vec![0.0; matrix.outputs] }
}

fn int8_product(matrix: &Matrix, x: &Bounded) -> Bounded {
    let Some(Integers { scale, off, numbers }) = quantized(x) else { return zeros(matrix) };
    let mut bytes = vec![0; matrix.inputs];
    Bounded::collect(matrix.values.chunks_exact(matrix.inputs).map(|w| {
        let step = f64::from(int8::quantize_weights(w, &mut bytes).expect("finite weights")) * scale;
        let (mut sum, mut flips) = (0.0, 0.0);
        for ((whole, flip), byte) in numbers.iter().zip(&bytes) {
            sum += whole * f64::from(*byte);
            flips += flip * f64::from(*byte).abs();
        }
        let value = sum * step;
        (value, value.abs() * (off + 6.0 * U) + 1.001 * step * flips + TINY)
    }))
}

/// `weights` appends what the weights of a group become, which f64 holds exactly, and returns the offset that joins each
/// of them, where there is one.
fn grouped_product(
    matrix: &Matrix,
    x: &Bounded,
    weights: impl Fn(&[f32], &mut Vec<f64>) -> Option<f64>,
) -> Bounded {
    const GROUP: usize = int4::GROUP;
    let Some(Integers { scale, off, numbers }) = quantized(x) else { return zeros(matrix) };
    Bounded::collect(matrix.values.chunks_exact(matrix.inputs).map(|w| {
        let (mut total, mut size, mut flips, mut terms) = (0.0, 0.0, 0.0, 0.0);
        for (w, numbers) in w.chunks(GROUP).zip(numbers.chunks(GROUP)) {
            let mut scaled = Vec::new();
            let offset = weights(w, &mut scaled);
            let (mut sum, mut inputs) = (0.0, 0.0);
            for ((whole, flip), w) in numbers.iter().zip(scaled) {
                let offset = offset.unwrap_or(0.0);
                sum += whole * w;
                inputs += whole;
                flips += flip * (w + offset).abs();
                size += flip * (w.abs() + offset.abs());
            }
            for term in [Some(sum), offset.map(|offset| offset * inputs)].into_iter().flatten() {
                total += term;
                size += term.abs();
                terms += 1.0;
            }
        }
        let value = total * scale;
        let error = scale * (flips + (terms + 3.0) * U * size) + value.abs() * (off + 2.0 * U);
        (value, 1.001 * error + TINY)
    }))
}

/// Two numbers turned by an angle: `a · cos − b · sin`, three roundings.
pub fn rotate(x: &mut Bounded, cos: &[f32], sin: &[f32]) {
    let pairs = cos.len();
    for i in 0..pairs {
        let (cos, sin) = (f64::from(cos[i]), f64::from(sin[i]));
        let [(a, ea), (b, eb)] = [i, i + pairs].map(|i| (x.values[i], x.errors[i]));
        let turn = |a: f64, ea: f64, b: f64, eb: f64, sin: f64| {
            let size = (a * cos).abs() + (b * sin).abs();
            let error = ea * cos.abs() + eb * sin.abs();
            (a * cos + b * sin, 1.001 * (error + 3.0 * U * size) + TINY)
        };
        (x.values[i], x.errors[i]) = turn(a, ea, b, eb, -sin);
        (x.values[i + pairs], x.errors[i + pairs]) = turn(b, eb, a, ea, sin);
    }
}

/// A key or value as it is stored. In bf16 it differs only where its error carries it over the border between two
/// numbers.
pub fn stored(kind: KvKind, x: Bounded) -> Bounded {
    match kind {
        KvKind::F32 => x,
        KvKind::Bf16 => Bounded::collect(x.pairs().map(|(v, e)| {
            let [low, value, high] =
                [v - 1.001 * e, v, v + 1.001 * e].map(|x| bf16::from_f32(x as f32).to_f64());
            (value, (high - value).max(value - low))
        })),
        KvKind::Int8 => in_steps(&x, f64::from(int8::WEIGHT_MAX)),
    }
}

/// A row that is rounded to whole multiples of its largest number / `steps`. Where an error carries a number over the
/// border between two of them, it differs by one.
fn in_steps(x: &Bounded, steps: f64) -> Bounded {
    let max = x.values.iter().fold(0.0_f64, |max, v| max.max(v.abs()));
    if max < f64::from(int8::SMALLEST) {
        return Bounded { values: vec![0.0; x.len()], errors: vec![0.0; x.len()] };
    }
    let scale = max / steps;
    let off = x.errors.iter().fold(0.0_f64, |max, e| max.max(*e)) / max + 3.0 * U;
    Bounded::collect(x.pairs().map(|(v, e)| {
        let exact = v / scale;
        let whole = exact.round_ties_even();
        let (error, border) = (e / scale + exact.abs() * (off + 4.0 * U), 0.5 - (exact - whole).abs());
        let flip = if error < border { 0.0 } else { 1.0 + (error - border).floor() };
        (whole * scale, (whole.abs() * (off + 8.0 * U) + 1.001 * flip) * scale + TINY)
    }))
}

/// `h = a(g) · u`: an error of `g` counts as often as the function is steep, and the function itself may be off by some
/// roundings of its value and, where it is a difference of close numbers, of its argument.
pub fn gate(activation: Activation, gate: &Bounded, up: &Bounded) -> Bounded {
    Bounded::collect(gate.pairs().zip(up.pairs()).map(|((g, eg), (u, eu))| {
        let steep = match activation {
            Activation::ReluSquared => 2.0 * (g.abs() + eg),
            // The steepest is Laplace, a normal distribution function: 1 / (0.282095 √2π) = 1.414.
            _ => 1.5,
        };
        let a = activate(activation, g);
        let own = match activation {
            Activation::Silu => 12.0 * U * a.abs() + 1e-36,
            // Around zero it is `1 − 0.99`, and so off by roundings of one.
            Activation::Laplace => 16.0 * U * (a.abs() + g.abs()) + 4.0 * U,
            _ => 16.0 * U * (a.abs() + g.abs()) + TINY,
        };
        let ea = steep * eg + own;
        (a * u, 1.001 * (ea * (u.abs() + eu) + a.abs() * eu + U * (a * u).abs()) + TINY)
    }))
}

/// [`gate`], and what a clamped one comes to: its gate is that of `GeluSigmoid`, and clamping carries no error further
/// than it was.
pub fn gate_as(gating: Gating, gate: &Bounded, up: &Bounded) -> Bounded {
    let limit = match gating {
        Gating::Plain(activation) => return self::gate(activation, gate, up),
        Gating::Clamped { limit } => f64::from(limit),
    };
    let gate = Bounded::collect(gate.pairs().map(|(g, e)| (g.min(limit), e)));
    let up = Bounded::collect(up.pairs().map(|(u, e)| (u.clamp(-limit, limit), e)));
    self::gate(Activation::GeluSigmoid, &gate, &up.plus(&vec![1.0; up.len()]))
}

/// `1 / (1 + e^-(x · w))`, nowhere steeper than a quarter, its exponential and the rest off by some roundings.
pub fn sigmoid_of_product(x: &Bounded, w: &[f32]) -> (f64, f64) {
    let (sum, error) = float_product(w.iter().map(|w| f64::from(*w)), x, 0.0);
    let sigmoid = activate(Activation::Sigmoid, sum);
    (sigmoid, 0.25 * error + 12.0 * U * sigmoid + TINY)
}

/// Beyond this share of each weight a test would tell nothing. What activations in pairs lose leaves less.
fn assert_certain(share: f64) {
    let most = if LOSS.get() > 0.0 { 0.2 } else { 0.1 };
    assert!(share < most, "scores too uncertain for a test: {share}");
}

/// `Σ p v` over the `chosen`, with `p = e^(s − max) / Σ e^(s − max)`, the last sum being over `among`, and `v` in `outs`.
///
/// An error `d` of every score and the rounding of `s − max` change each exponential by a factor within
/// `e^±(2 d + U · distance)`, and so a share by the square of that, besides some roundings; the terms are then rounded
/// once each and added one after the other.
pub fn mix(scores: &Bounded, (chosen, among): (&[usize], &[usize]), outs: &[Bounded]) -> Bounded {
    let of = |expert: &usize| scores.values[*expert];
    let max = chosen.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
    let distance = among.iter().map(|expert| max - of(expert)).fold(0.0, f64::max).min(110.0);
    let off = among.iter().map(|expert| scores.errors[*expert]).fold(0.0, f64::max);
    let r = (2.0 * (2.0 * off + U * distance)).exp_m1() + 16.0 * U;
    assert_certain(r);
    let total: f64 = among.iter().map(|expert| (of(expert) - max).exp()).sum();
    let shares: Vec<f64> = chosen.iter().map(|expert| (of(expert) - max).exp() / total).collect();
    Bounded::collect((0..outs[0].len()).map(|i| {
        let (mut sum, mut size, mut carried) = (0.0, 0.0, 0.0);
        for (p, out) in shares.iter().zip(outs) {
            sum += p * out.values[i];
            size += p * out.values[i].abs();
            carried += p * out.errors[i];
        }
        let roundings = (shares.len() as f64 + 2.0) * U;
        // A share below the range of f32 is lost.
        let lost = outs.iter().map(|out| out.values[i].abs()).fold(0.0, f64::max) * 1e-38;
        (sum, 1.001 * ((1.0 + r) * carried + (r + roundings) * (size + carried)) + lost + TINY)
    }))
}

fn activate(activation: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let softplus = |x: f64| if x > 40.0 { x } else { x.exp().ln_1p() };
    match activation {
        Activation::Silu => x * sigmoid(x),
        Activation::Gelu => 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
        }
        Activation::GeluSigmoid => x * sigmoid(1.702 * x),
        Activation::GeluClipped => activate(Activation::Gelu, x).min(10.0),
        Activation::Relu => x.max(0.0),
        Activation::ReluSquared => x.max(0.0) * x.max(0.0),
        Activation::Relu6 => x.clamp(0.0, 6.0),
        Activation::LeakyRelu => x.max(0.01 * x),
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::Mish => x * softplus(x).tanh(),
        Activation::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Activation::Laplace => {
            #[expect(clippy::approx_constant)] // six digits of √½ by definition
            let from_mean = x - 0.707_107;
            0.5 * (1.0 + libm::erf(from_mean / (0.282_095 * std::f64::consts::SQRT_2)))
        }
        Activation::SqrtSoftplus => softplus(x).sqrt(),
        Activation::Identity => x,
    }
}

/// Softmax attention of one query over keys and values: `y = Σ p v / (z + Σ p)` with `p = e^(s − max)`,
/// `s = softcap(scale · q · k)`, and `z` the same of a sink instead of `s`.
///
/// An error `d` of a score changes its `p` by a factor within `e^±d`; so does rounding `s − max`. Each block adds one
/// more exponential (the rescaling), and so does each span of eight blocks, each of at most 6 · U. With `r` the relative
/// error of every `p`, and of `z`, so found, `y` is off by `Σ p |v| / (z + Σ p)` times `(1 + r) / (1 − r) − 1`, and
/// by the rounding of the sums: of 64 terms in a block, two more for each block and three for each span.
///
/// Where keys and values are quantised, so are the query and the weights of each block: each weight times the scale of
/// its value is off by half of the largest such product / 32,512, and a tenth more for the errors of both.
pub fn attend(
    kind: KvKind,
    query: &Bounded,
    (keys, values): (&[&Bounded], &[&Bounded]),
    scale: f32,
    (softcap, sink): (Option<f32>, Option<f32>),
    blocks: usize,
) -> Bounded {
    let scores = scores(kind, query, keys, scale, softcap);
    let (blocks, spans) = (blocks as f64, (blocks / 8 + 2) as f64);
    let max = scores.values.iter().fold(f64::NEG_INFINITY, |max, s| max.max(*s));
    let farthest = scores.values.iter().copied().chain(sink.map(f64::from));
    let distance = farthest.fold(0.0_f64, |far, s| far.max((max - s).abs()));
    let off = scores.errors.iter().fold(0.0_f64, |max, e| max.max(*e));
    // Beyond e^±87 a weight counts as zero or as all, so rounding the distance to the largest score matters no further.
    let distance = distance.min(90.0) + 2.0 * off;
    let r = (off + 2.0 * distance * U).exp_m1() + 6.0 * U * (blocks + spans + 2.0);
    assert_certain(r);
    let powers: Vec<f64> = scores.values.iter().map(|s| (s - max).exp()).collect();
    let total = powers.iter().sum::<f64>() + sink.map_or(0.0, |sink| (f64::from(sink) - max).exp());
    let scales: Vec<f64> = values
        .iter()
        .map(|value| {
            value.values.iter().fold(0.0_f64, |max, v| max.max(v.abs())) / f64::from(int8::WEIGHT_MAX)
        })
        .collect();
    let largest = powers.iter().zip(&scales).fold(0.0_f64, |max, (p, scale)| max.max(p * scale));
    let half = if kind == KvKind::Int8 { 0.55 * largest / f64::from(int8::ACTIVATION_MAX) } else { 0.0 };
    let share = LOSS.get() + (1.0 + r) / (1.0 - r) - 1.0
        + ((keys.len() as f64).min(64.0) + 2.0 * blocks + 3.0 * spans + 24.0) * U;
    Bounded::collect((0..query.len()).map(|i| {
        let (mut sum, mut size, mut carried, mut largest) = (0.0, 0.0, 0.0, 0.0_f64);
        for ((p, value), scale) in powers.iter().zip(values).zip(&scales) {
            let (v, e) = (value.values[i], value.errors[i]);
            carried += if half > 0.0 && *scale > 0.0 { half * (v.abs() + e) / scale } else { 0.0 };
            sum += p * v;
            size += p * v.abs();
            carried += p * e;
            largest = largest.max(v.abs());
        }
        (sum / total, 1.001 * (share * size + (1.0 + share) * carried) / total + 1e-35 * largest)
    }))
}

/// The scores of a query, of one key each.
fn scores(kind: KvKind, query: &Bounded, keys: &[&Bounded], scale: f32, softcap: Option<f32>) -> Bounded {
    let rounded;
    let query = if kind == KvKind::Int8 {
        rounded = in_steps(query, f64::from(int8::ACTIVATION_MAX));
        &rounded
    } else {
        query
    };
    let scale = f64::from(scale);
    let scores = Bounded::collect(keys.iter().map(|key| {
        let (mut sum, mut size, mut carried) = (0.0, 0.0, 0.0);
        for ((q, eq), (k, ek)) in query.pairs().zip(key.pairs()) {
            sum += q * k;
            size += (q * k).abs();
            carried += q.abs() * ek + k.abs() * eq + eq * ek;
        }
        let rounding = (sum_roundings(query.len() as f64) * U + LOSS.get()) * size;
        (sum * scale, 1.001 * scale.abs() * (carried + rounding) + 2.0 * U * (sum * scale).abs() + TINY)
    }));
    capped(&scores, softcap)
}
