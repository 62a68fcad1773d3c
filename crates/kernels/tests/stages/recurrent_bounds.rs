//! How far from the exact result a correct recurrent stage may be.
//!
//! - Convolutions are sums of few products: `|error| ≤ Σ e |w| + (count + 2) · U · Σ |x| |w|`.
//! - The delta rule carries its errors from position to position. For one column `s` of a matrix, the map from one
//!   position to the next is `s ↦ α (1 − β k kᵀ) s + β v k`. With `|k| ≤ 1` and `0 ≤ β ≤ 1` it shrinks an error of `s`
//!   by `α` at least, in the Euclidean norm. What comes along at each position is the error of `k`, `v`, `α`, `β`, and
//!   that of rounding: of a sum of `key_dim` products in any order, `γ = (key_dim + 4) · U` times the norms of both, and
//!   of each number stored. So one norm for each column bounds its errors, however long the text.

use whin_kernels::{Activation, delta};

use crate::bounds::{Bounded, TINY, U};

/// `x · y`, number by number.
pub fn times(x: &Bounded, y: &Bounded) -> Bounded {
    Bounded::collect(x.pairs().zip(y.pairs()).map(|((x, ex), (y, ey))| {
        let error = ex * (y.abs() + ey) + x.abs() * ey;
        (x * y, 1.001 * (error + U * (x * y).abs()) + TINY)
    }))
}

/// The results of a convolution at the last position of `inputs`, of which there are at most as many as it takes in.
pub fn convolve(inputs: &[&Bounded], taps: &[f32], bias: Option<&[f32]>) -> Bounded {
    let channels = inputs[0].len();
    let count = taps.len() / channels;
    let taps = &taps[(count - inputs.len()) * channels..];
    let sums = Bounded::collect((0..channels).map(|channel| {
        let (mut sum, mut size, mut carried) = (0.0, 0.0, 0.0);
        for (x, taps) in inputs.iter().zip(taps.chunks_exact(channels)) {
            let tap = f64::from(taps[channel]);
            sum += x.values[channel] * tap;
            size += (x.values[channel] * tap).abs();
            carried += x.errors[channel] * tap.abs();
        }
        (sum, 1.001 * (carried + (count as f64 + 2.0) * U * size) + count as f64 * TINY)
    }));
    match bias {
        None => sums,
        Some(bias) => sums.plus(bias),
    }
}

/// `a(x)`
pub fn activated(activation: Activation, x: &Bounded) -> Bounded {
    crate::bounds::gate(activation, x, &Bounded::exact(&vec![1.0; x.len()]))
}

/// `x / √(Σ x² + EPS) · scale`, whose errors follow as those of a norm.
pub fn unit(x: &Bounded, scale: f64) -> Bounded {
    let square = x.values.iter().map(|v| v * v).sum::<f64>() + f64::from(delta::EPS);
    let spread = x.pairs().map(|(v, e)| (2.0 * v.abs() + e) * e).sum::<f64>();
    let t = spread / square + (x.len() as f64 / 16.0 + 24.0) * U + TINY / square;
    assert!(t < 0.1, "a length too uncertain for a test: {t}");
    let (factor, off) = (scale / square.sqrt(), 0.5 * t / (1.0 - t) + 8.0 * U);
    Bounded::collect(x.pairs().map(|(v, e)| (v * factor, factor * (e * (1.0 + off) + v.abs() * off) + TINY)))
}

/// `σ(b)`, which is nowhere steeper than a quarter.
pub fn share((b, e): (f64, f64)) -> (f64, f64) {
    let share = 1.0 / (1.0 + (-b).exp());
    (share, 0.25 * e + 2.0 * U * share + TINY)
}

/// `e^(−rate · ln(1 + e^time))` with `time = a + bias`, in which an error of `a` counts `rate` times at most.
pub fn decay(rate: f32, (a, e): (f64, f64), bias: f32) -> (f64, f64) {
    let time = a + f64::from(bias);
    let decay = (-f64::from(rate) * if time > 40.0 { time } else { time.exp().ln_1p() }).exp();
    (decay, decay * (f64::from(rate) * e).exp_m1() + 2.0 * U * decay + TINY)
}

/// What one position brings to one head.
pub struct Position<'a> {
    pub query: &'a Bounded,
    pub key: &'a Bounded,
    pub value: &'a Bounded,
    pub share: (f64, f64),
    pub decay: (f64, f64),
}

/// The matrix of one head.
pub struct Matrix {
    columns: Vec<Vec<f64>>, // (value_dim, key_dim)
    errors: Vec<f64>,       // (value_dim,), each the norm of a column's errors
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Matrix {
    pub fn new(key_dim: usize, value_dim: usize) -> Self {
        Self { columns: vec![vec![0.0; key_dim]; value_dim], errors: vec![0.0; value_dim] }
    }

    /// Takes in a position and returns what it reads: (value_dim,).
    pub fn advance(&mut self, position: &Position<'_>) -> Bounded {
        let Position { query, key, value, .. } = position;
        let [(share, share_off), (decay, decay_off)] = [position.share, position.decay];
        let count = key.len() as f64;
        let (rounding, tiny) = ((count + 4.0) * U, count * TINY);
        let [(k, dk), (q, dq)] = [key, query].map(|x| (norm(&x.values), norm(&x.errors)));
        let columns = self.columns.iter_mut().zip(&mut self.errors).zip(value.pairs());
        Bounded::collect(columns.map(|((column, error), (v, dv))| {
            let size = norm(column) + *error;
            let change = share * (v - decay * dot(&key.values, column));
            for (s, k) in column.iter_mut().zip(&key.values) {
                *s = decay * *s + k * change;
            }
            // Of what is left of the value, and of what it changes.
            let rest = v.abs() + decay * k * size;
            let rest_off = dv
                + (decay_off * k + (decay + decay_off) * dk + rounding * (decay + decay_off) * (k + dk))
                    * size
                + 2.0 * U * rest;
            let change_off = share_off * (rest + rest_off) + share * rest_off + 2.0 * U * rest;
            let brought = decay_off * size
                + dk * share * rest
                + (k + dk) * change_off
                + 3.0 * U * (decay * size + k * share * rest);
            *error = 1.001 * (decay * *error + brought) + tiny;
            let size = norm(column) + *error;
            let found_off = q * *error + dq * size + rounding * (q + dq) * size;
            (dot(&query.values, column), 1.001 * found_off + tiny)
        }))
    }
}
