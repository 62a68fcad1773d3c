//! Rows of activations, and what is done to one row at a time.

use super::buffer::Buffer;
use super::isa::Isa;
use crate::int8::{ACTIVATION_MAX, SMALLEST, WEIGHT_MAX, largest};
use crate::{Activation, Best, Gating, Result, Rotation, reference};

/// Activations in f32: (rows, width).
#[derive(Debug)]
pub struct Rows {
    width: usize,
    values: Buffer<f32>,
}

impl Rows {
    pub(super) fn new(rows: usize, width: usize) -> Result<Self> {
        Ok(Self { width, values: Buffer::new(rows * width, "activations")? })
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The numbers of one row: (width,).
    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.values.values()[row * self.width..(row + 1) * self.width]
    }

    /// All numbers.
    pub(super) fn values(&self) -> &[f32] {
        self.values.values()
    }

    /// All numbers, to write.
    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        self.values.values_mut()
    }

    /// Makes this (`rows`, `width`) or larger; for numbers that nobody keeps from one use to the next.
    pub(super) fn reshape(&mut self, rows: usize, width: usize) -> Result<()> {
        if self.values.values().len() < rows * width {
            *self = Self::new(rows, width)?;
        }
        self.width = width;
        Ok(())
    }
}

/// As [`crate::int8::quantize_activations`], to the bit.
pub fn quantize<I: Isa>(isa: I, x: &[f32], q: &mut [i16]) -> f32 {
    let max = isa.run(|| largest(x));
    if !max.is_finite() || max < SMALLEST {
        q.fill(0);
        return if max.is_finite() { 0.0 } else { f32::NAN };
    }
    let inverse = ACTIVATION_MAX / max;
    isa.run(|| {
        for (q, x) in q.iter_mut().zip(x) {
            *q = nearest(x * inverse) as i16;
        }
    });
    max / ACTIVATION_MAX
}

/// As [`crate::int8::quantize_weights`], to the bit.
pub fn quantize_weights<I: Isa>(isa: I, w: &[f32], q: &mut [i8]) -> Option<f32> {
    let max = isa.run(|| largest(w));
    if !max.is_finite() || max < SMALLEST {
        q.fill(0);
        return max.is_finite().then_some(0.0);
    }
    let scale = max / WEIGHT_MAX;
    isa.run(|| {
        for (q, w) in q.iter_mut().zip(w) {
            *q = nearest(w / scale) as i8;
        }
    });
    Some(scale)
}

/// The nearest integer, ties to even, of a magnitude below 2²²: adding 1.5 · 2²³ leaves it in the low bits. Quotients
/// by a row's largest magnitude exceed the bound by less than half a step, so nothing is left to clamp.
#[inline(always)]
fn nearest(x: f32) -> i32 {
    const ROUND: f32 = 12_582_912.0;
    (x + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i32
}

/// What [`crate::Norm`] says, for rows of f32.
#[derive(Clone, Copy)]
pub struct Norm<'a> {
    pub weight: &'a [f32],
    pub eps: f32,
    pub centred: bool,
}

/// `out = (x − mean) / √(mean((x − mean)²) + eps) · weight`, the mean being zero where the norm is not centred.
pub fn norm<I: Isa>(isa: I, x: &[f32], norm: Norm<'_>, out: &mut [f32]) {
    assert!(x.len() == norm.weight.len() && x.len() == out.len(), "width of the norm");
    isa.run(|| {
        let (mean, inverse) = moments::<I>(x, norm);
        for ((out, x), weight) in out.iter_mut().zip(x).zip(norm.weight) {
            *out = (x - mean) * inverse * weight;
        }
    });
}

/// The same in place.
pub fn norm_in_place<I: Isa>(isa: I, x: &mut [f32], norm: Norm<'_>) {
    assert_eq!(x.len(), norm.weight.len(), "width of the norm");
    isa.run(|| {
        let (mean, inverse) = moments::<I>(x, norm);
        for (x, weight) in x.iter_mut().zip(norm.weight) {
            *x = (*x - mean) * inverse * weight;
        }
    });
}

/// `x += out · scale`
pub fn add_scaled<I: Isa>(isa: I, out: &[f32], scale: f32, x: &mut [f32]) {
    isa.run(|| {
        for (x, out) in x.iter_mut().zip(out) {
            *x += out * scale;
        }
    });
}

/// `x ·= scale`
pub fn scale<I: Isa>(isa: I, x: &mut [f32], scale: f32) {
    isa.run(|| x.iter_mut().for_each(|x| *x *= scale));
}

/// `1 / (1 + e^-(x · w))`
pub fn sigmoid_of_product<I: Isa>(isa: I, x: &[f32], w: &[f32]) -> f32 {
    assert_eq!(x.len(), w.len(), "width of the gate");
    isa.run(|| {
        let mut lanes = [0.0; 16];
        for (x, w) in x.chunks(16).zip(w.chunks(16)) {
            for ((sum, x), w) in lanes.iter_mut().zip(x).zip(w) {
                *sum = fused::<I>(*x, *w, *sum);
            }
        }
        1.0 / (1.0 + exp::<I>(-halved(lanes, |a, b| a + b)))
    })
}

/// `x = softcap(x · scale)`
pub fn scale_and_cap<I: Isa>(isa: I, x: &mut [f32], scale: f32, softcap: Option<f32>) {
    isa.run(|| {
        x.iter_mut().for_each(|x| *x *= scale);
        if let Some(cap) = softcap {
            x.iter_mut().for_each(|x| *x = cap * tanh::<I>(*x / cap));
        }
    });
}

/// `out ·= sigmoid(gate)`
pub fn gate_by_sigmoid<I: Isa>(isa: I, gate: &[f32], out: &mut [f32]) {
    isa.run(|| {
        for (out, gate) in out.iter_mut().zip(gate) {
            *out /= 1.0 + exp::<I>(-*gate);
        }
    });
}

/// All lanes put together, half with half: four steps that each wait for the one before, where one after another would be
/// sixteen.
#[inline(always)]
pub fn halved(mut lanes: [f32; 16], join: impl Fn(f32, f32) -> f32) -> f32 {
    for half in [8, 4, 2, 1] {
        for j in 0..half {
            lanes[j] = join(lanes[j], lanes[j + half]);
        }
    }
    lanes[0]
}

/// All numbers put into a sum by `add`, in sixteen lanes.
#[inline(always)]
fn sum(x: &[f32], add: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; 16];
    let (whole, rest) = x.as_chunks::<16>();
    for chunk in whole {
        for (sum, x) in lanes.iter_mut().zip(chunk) {
            *sum = add(*sum, *x);
        }
    }
    for (sum, x) in lanes.iter_mut().zip(rest) {
        *sum = add(*sum, *x);
    }
    halved(lanes, |a, b| a + b)
}

/// What is taken off the numbers of a row, and what they are multiplied with then.
#[inline(always)]
fn moments<I: Isa>(x: &[f32], norm: Norm<'_>) -> (f32, f32) {
    let count = x.len() as f32;
    let mean = if norm.centred { sum(x, |sum, x| sum + x) / count } else { 0.0 };
    let square = |sum: f32, x: f32| fused::<I>(x - mean, x - mean, sum);
    let square = sum(x, square) / count;
    if square.is_finite() { (mean, 1.0 / (square + norm.eps).sqrt()) } else { moments_of_large(x, norm) }
}

/// The same for rows whose squares leave the range of f32, which would otherwise turn into zeros unnoticed.
#[cold]
fn moments_of_large(x: &[f32], norm: Norm<'_>) -> (f32, f32) {
    let count = x.len() as f64;
    let mean = if norm.centred { x.iter().map(|x| f64::from(*x)).sum::<f64>() / count } else { 0.0 };
    let square = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / count;
    (mean as f32, (1.0 / (square + f64::from(norm.eps)).sqrt()) as f32)
}

/// Turns the pairs of one head by the angles of row `row`.
pub fn rotate<I: Isa>(isa: I, head: &mut [f32], rotation: &Rotation, row: usize) {
    let pairs = rotation.pairs;
    let (cos, sin) = (&rotation.cos[row * pairs..][..pairs], &rotation.sin[row * pairs..][..pairs]);
    isa.run(|| {
        let (first, rest) = head.split_at_mut(pairs);
        for (((a, b), cos), sin) in first.iter_mut().zip(&mut rest[..pairs]).zip(cos).zip(sin) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    });
}

/// `x = activation(x)`
pub fn activate<I: Isa>(isa: I, activation: Activation, x: &mut [f32]) {
    if activation == Activation::Silu {
        isa.run(|| x.iter_mut().for_each(|x| *x = silu::<I>(*x)));
    } else {
        x.iter_mut().for_each(|x| *x = activation.apply(*x));
    }
}

/// `out ·= silu(gate)`
pub fn gate_by_silu<I: Isa>(isa: I, gate: &[f32], out: &mut [f32]) {
    isa.run(|| {
        for (out, gate) in out.iter_mut().zip(gate) {
            *out *= silu::<I>(*gate);
        }
    });
}

/// `x / √(Σ x² + eps) · scale`
pub fn unit<I: Isa>(isa: I, x: &mut [f32], eps: f32, scale: f32) {
    isa.run(|| {
        let square = sum(x, |sum, x| fused::<I>(x, x, sum));
        let length = if square.is_finite() { (square + eps).sqrt() } else { large_length(x) };
        let factor = 1.0 / length * scale;
        x.iter_mut().for_each(|x| *x *= factor);
    });
}

/// The length of a row whose squares leave the range of f32.
#[cold]
fn large_length(x: &[f32]) -> f32 {
    x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt() as f32
}

/// `out = activation(gate) · up`
pub fn gate<I: Isa>(isa: I, activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    let terms = out.iter_mut().zip(gate).zip(up);
    if activation == Activation::Silu {
        isa.run(|| terms.for_each(|((out, gate), up)| *out = silu::<I>(*gate) * up));
    } else {
        terms.for_each(|((out, gate), up)| *out = activation.apply(*gate) * up);
    }
}

/// `out = gating(gate, up)`
pub fn gate_as<I: Isa>(isa: I, gating: Gating, (gate, up): (&[f32], &[f32]), out: &mut [f32]) {
    match gating {
        Gating::Plain(activation) => self::gate(isa, activation, gate, up, out),
        Gating::Clamped { limit } => isa.run(|| {
            // Comparisons keep NaN.
            let cap = |x: f32| if x > limit { limit } else { x };
            for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
                let (gate, up) = (cap(*gate), -cap(-cap(*up)));
                *out = (up + 1.0) * (gate / (1.0 + exp::<I>(-1.702 * gate)));
            }
        }),
    }
}

/// `x · sigmoid(x)`
#[inline(always)]
fn silu<I: Isa>(x: f32) -> f32 {
    x / (1.0 + exp::<I>(-x))
}

/// The hyperbolic tangent within ten units in the last place; NaN stays.
///
/// Near zero, where `1 − 2 / (1 + e^2x)` would lose most digits, its series up to the seventh power.
#[inline(always)]
pub fn tanh<I: Isa>(x: f32) -> f32 {
    let far = 1.0 - 2.0 / (1.0 + exp::<I>(2.0 * x));
    let square = x * x;
    let mut p = -17.0 / 315.0;
    for coefficient in [2.0 / 15.0, -1.0 / 3.0] {
        p = fused::<I>(p, square, coefficient);
    }
    let near = fused::<I>(p * square, x, x);
    if x.abs() < 0.2 { near } else { far }
}

/// The largest logit, the lowest index of equals, NaN where any is: as the reference's, a piece at a time, of which
/// only those with something new are looked at number by number.
pub fn best<I: Isa>(isa: I, logits: &[f32]) -> Best {
    const PIECE: usize = 1024;
    let mut best = Best { id: 0, logit: f32::NEG_INFINITY };
    for (index, piece) in logits.chunks(PIECE).enumerate() {
        let (max, faults) = isa.run(|| {
            let (mut max, mut faults) = ([f32::NEG_INFINITY; 16], [0_u32; 16]);
            let (whole, rest) = piece.as_chunks::<16>();
            for chunk in whole {
                for ((max, faults), x) in max.iter_mut().zip(&mut faults).zip(chunk) {
                    *max = if *x > *max { *x } else { *max };
                    *faults += u32::from(x.is_nan());
                }
            }
            let max = max.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
            (max, faults.iter().sum::<u32>() > 0 || rest.iter().any(|x| x.is_nan()))
        });
        if faults || max > best.logit {
            let found = reference::best(piece);
            best = Best { id: (index * PIECE) as u32 + found.id, logit: found.logit };
            if found.logit.is_nan() {
                break;
            }
        }
    }
    best
}

/// `a · b + c`, in one instruction where there is one; a call of the library's exact version would be far slower than
/// two roundings.
#[inline(always)]
pub fn fused<I: Isa>(a: f32, b: f32, c: f32) -> f32 {
    if I::FMA { a.mul_add(b, c) } else { a * b + c }
}

/// `e^x` within two units in the last place; 0 below −87.3, infinite above 88.7, NaN stays.
///
/// `x = n · ln 2 + r` with `n` an integer and `|r| ≤ ½ ln 2`; then `e^x = 2ⁿ · e^r`, with a polynomial for `e^r` whose
/// coefficients are those of Cephes' `expf`.
#[inline(always)]
pub fn exp<I: Isa>(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³: adding it leaves the nearest integer in the low bits
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let shifted = fused::<I>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fused::<I>(n, -LN2_LOW, fused::<I>(n, -LN2_HIGH, x));
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        p = fused::<I>(p, r, coefficient);
    }
    let power = fused::<I>(p * r, r, r) + 1.0;
    // 2ⁿ in two factors, since n = 128 alone would be no number.
    let bits = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let scale = |n: i32| f32::from_bits((n.wrapping_add(127) << 23) as u32);
    let value = power * scale(bits >> 1) * scale(bits - (bits >> 1));
    if x < -87.3 {
        0.0
    } else if x > 88.7 {
        f32::INFINITY
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::super::isa::scalar::Scalar;
    use super::*;
    use crate::int8::{self, quantize_activations};

    #[test]
    fn exp_is_close_everywhere() {
        exp_is_close::<Scalar>();
        #[cfg(target_arch = "x86_64")]
        exp_is_close::<super::super::isa::avx2::Avx2>();
        #[cfg(target_arch = "aarch64")]
        exp_is_close::<super::super::isa::neon::Neon>();
    }

    fn exp_is_close<I: Isa>() {
        let Some(isa) = I::detect() else { return };
        let exp = |x: f32| isa.run(|| exp::<I>(x));
        let mut worst = 0.0_f64;
        for i in -87_299..=88_699 {
            let x = i as f32 * 0.001;
            worst = worst.max((f64::from(exp(x)) / f64::from(x).exp() - 1.0).abs());
        }
        assert!(worst < 2.5e-7, "relative error {worst} with {}", I::NAME);
        for (x, y) in [(0.0, 1.0), (-0.0, 1.0), (-87.4, 0.0), (-1e30, 0.0), (f32::MIN, 0.0)] {
            assert_eq!(exp(x), y, "e^{x} with {}", I::NAME);
        }
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        for x in [88.8, 1e30, f32::MAX, f32::INFINITY] {
            assert_eq!(exp(x), f32::INFINITY, "e^{x} with {}", I::NAME);
        }
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_is_close_everywhere() {
        tanh_is_close::<Scalar>();
        #[cfg(target_arch = "x86_64")]
        tanh_is_close::<super::super::isa::avx2::Avx2>();
        #[cfg(target_arch = "aarch64")]
        tanh_is_close::<super::super::isa::neon::Neon>();
    }

    fn tanh_is_close<I: Isa>() {
        let Some(isa) = I::detect() else { return };
        let tanh = |x: f32| isa.run(|| tanh::<I>(x));
        let mut worst = 0.0_f64;
        // All around zero too, and on both sides of where the series takes over.
        for x in (-20_000..=20_000).flat_map(|i| [i as f32 * 0.001, i as f32 * 1.03e-5, i as f32 * 1e-20]) {
            let right = f64::from(x).tanh();
            let allowed = right.abs().max(f64::from(f32::MIN_POSITIVE));
            worst = worst.max(((f64::from(tanh(x)) - right) / allowed).abs());
        }
        assert!(worst < 1.2e-6, "relative error {worst} with {}", I::NAME);
        for (x, y) in [(f32::INFINITY, 1.0), (f32::NEG_INFINITY, -1.0), (1e30, 1.0), (-1e30, -1.0)] {
            assert_eq!(tanh(x), y, "tanh {x} with {}", I::NAME);
        }
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn quantising_is_the_reference_to_the_bit() {
        let x: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1013) as f32 * 0.37 - 180.0).collect();
        for scale in [1.0, 1e-20, 1e-33, 1e30, 0.123_456_7, 3.3e-7] {
            for fault in [None, Some(f32::NAN), Some(f32::INFINITY)] {
                let mut x: Vec<f32> = x.iter().map(|x| x * scale).collect();
                x[17] = fault.unwrap_or(x[17]);
                let (mut ours, mut right) = (vec![1; x.len()], vec![2; x.len()]);
                let (a, b) = (quantize(Scalar, &x, &mut ours), quantize_activations(&x, &mut right));
                assert_eq!((a.to_bits(), ours), (b.to_bits(), right), "scale {scale}, fault {fault:?}");
                let (mut ours, mut right) = (vec![0; x.len()], vec![0; x.len()]);
                let (a, b) =
                    (quantize_weights(Scalar, &x, &mut ours), int8::quantize_weights(&x, &mut right));
                assert_eq!(a, b, "scale {scale}, fault {fault:?}");
                assert!(a.is_none() || ours == right, "scale {scale}, fault {fault:?}");
            }
        }
    }

    #[test]
    fn the_best_is_the_references() {
        let logits: Vec<f32> = (0..5000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as f32).collect();
        let same = |logits: &[f32]| {
            let (ours, right) = (best(Scalar, logits), reference::best(logits));
            assert_eq!((ours.id, ours.logit.to_bits()), (right.id, right.logit.to_bits()));
        };
        for len in [0, 1, 15, 16, 17, 1023, 1024, 1025, 5000] {
            same(&logits[..len]);
            same(&vec![1.0; len]);
            same(&vec![f32::NEG_INFINITY; len]);
        }
        for (at, value) in
            [(0, f32::NAN), (2047, f32::NAN), (4999, f32::NAN), (3000, f32::INFINITY), (4999, 1e9)]
        {
            let mut logits = logits.clone();
            logits[at] = value;
            same(&logits);
        }
    }
}
