//! The arithmetic of 4-bit products, in one place: what every backend has to compute to the bit.
//!
//! Each [`GROUP`] inputs of an output share one f16 scale `d`, and a weight is `w ≈ d · (q − 8)` with `q` in 0 ..= 15.
//! Activations are the 16-bit integers of [`crate::int8`]. The sum of a group, `S = Σ xq · (q − 8)`, is an exact
//! integer below 2²⁴, so f32 holds it; a product adds `S · d` group after group in f32, the multiplication rounded, then
//! the addition, and multiplies the total with the scale of the activations. The order of groups is fixed and nothing
//! is fused, so no thread count or instruction set can change a bit of it.

use half::f16;

/// Inputs that share a scale. The last group of an output may have fewer.
pub const GROUP: usize = 32;
/// The `q` of a weight that is zero.
pub const ZERO: u8 = 8;
/// The largest scale: that of f16. Groups with weights beyond eight times this are clipped.
pub const SCALE_MAX: f32 = 65_504.0;

/// What the weight of largest magnitude is tried as. As −8 it uses the integers to their end; the others trade it for
/// the rest of its group.
const TRIED_AS: [f32; 5] = [-8.0, -8.4, -8.8, -9.2, -7.6];

/// Quantises one group of each of `N` outputs: `w` and `q` are (inputs, `N`). Returns their scales, which f16 holds
/// exactly; NaN where a weight is infinite or NaN.
///
/// A scale is the one of least squared error among a few: those that make the weight of largest magnitude one of
/// `TRIED_AS`, and the one of least squares for the integers that the best of them gives. All are rounded to f16
/// first, so a group of weights below 2⁻²⁵ becomes zero.
#[inline(always)]
pub fn quantize<const N: usize>(w: &[[f32; N]], q: &mut [[u8; N]]) -> [f32; N] {
    assert!(w.len() == q.len() && w.len() <= GROUP, "length of the group");
    let (mut largest, mut magnitude) = ([0.0; N], [0; N]);
    for w in w {
        for j in 0..N {
            // As integers, magnitudes of floats compare like the floats, and NaN above all.
            let bits = w[j].to_bits() & 0x7fff_ffff;
            let larger = bits > magnitude[j];
            magnitude[j] = if larger { bits } else { magnitude[j] };
            largest[j] = if larger { w[j] } else { largest[j] };
        }
    }
    let mut best = [0.0; N];
    let mut least = [0.0; N];
    for (index, as_what) in TRIED_AS.into_iter().enumerate() {
        let mut scales = [0.0; N];
        for j in 0..N {
            scales[j] = round_to_f16(largest[j] / as_what);
        }
        let errors = squared_error(w, &scales);
        for j in 0..N {
            let better = index == 0 || errors[j] < least[j];
            best[j] = if better { scales[j] } else { best[j] };
            least[j] = if better { errors[j] } else { least[j] };
        }
    }
    let scales = least_squares(w, &best);
    let errors = squared_error(w, &scales);
    for j in 0..N {
        best[j] = if errors[j] < least[j] { scales[j] } else { best[j] };
    }
    let inverses = invert(&best);
    for (q, w) in q.iter_mut().zip(w) {
        for j in 0..N {
            q[j] = (integer(w[j] * inverses[j]) as i32 as u8).wrapping_add(ZERO);
        }
    }
    for j in 0..N {
        best[j] = if magnitude[j] < f32::INFINITY.to_bits() { best[j] } else { f32::NAN };
    }
    best
}

/// The scale for which `scale · v` comes nearest to the weights, `v` being what `scales` make of them.
#[inline(always)]
fn least_squares<const N: usize>(w: &[[f32; N]], scales: &[f32; N]) -> [f32; N] {
    let inverses = invert(scales);
    let (mut products, mut squares) = ([0.0; N], [0.0; N]);
    for w in w {
        for j in 0..N {
            let v = integer(w[j] * inverses[j]);
            products[j] += w[j] * v;
            squares[j] += v * v;
        }
    }
    let mut better = [0.0; N];
    for j in 0..N {
        better[j] = if squares[j] > 0.0 { round_to_f16(products[j] / squares[j]) } else { 0.0 };
    }
    better
}

/// `Σ (w − scale · v)²`
#[inline(always)]
fn squared_error<const N: usize>(w: &[[f32; N]], scales: &[f32; N]) -> [f32; N] {
    let inverses = invert(scales);
    let mut errors = [0.0; N];
    for w in w {
        for j in 0..N {
            let error = w[j] - scales[j] * integer(w[j] * inverses[j]);
            errors[j] += error * error;
        }
    }
    errors
}

#[inline(always)]
fn invert<const N: usize>(scales: &[f32; N]) -> [f32; N] {
    let mut inverses = [0.0; N];
    for j in 0..N {
        inverses[j] = if scales[j] == 0.0 { 0.0 } else { 1.0 / scales[j] };
    }
    inverses
}

/// The nearest of −8 ..= 7, ties to even.
#[inline(always)]
fn integer(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³: adding it leaves no room for a fraction
    let x = if x > -8.0 { x } else { -8.0 };
    let x = if x < 7.0 { x } else { 7.0 };
    (x + ROUND) - ROUND
}

/// The nearest number that f16 holds, ties to even, at most [`SCALE_MAX`]. In arithmetic that compilers vectorise.
#[inline(always)]
fn round_to_f16(x: f32) -> f32 {
    const SMALLEST_NORMAL: f32 = 1.0 / 16_384.0;
    let size = if x.abs() > SCALE_MAX { SCALE_MAX } else { x.abs() };
    let bits = size.to_bits();
    let normal = f32::from_bits((bits + 0xfff + (bits >> 13 & 1)) & !0x1fff);
    // The numbers next to 0.5 are as far apart as those next to zero in f16.
    let small = (size + 0.5) - 0.5;
    (if size < SMALLEST_NORMAL { small } else { normal }).copysign(x)
}

/// The weight that `q` and the scale of its group stand for, exactly.
#[inline(always)]
pub fn weight(q: u8, scale: f16) -> f32 {
    (f32::from(q) - f32::from(ZERO)) * scale.to_f32()
}

/// The product of a quantised activation row with an output, from the exact integer sums of its groups and their
/// scales.
pub fn product(groups: impl Iterator<Item = (i32, f16)>, scale: f32) -> f32 {
    let mut total = 0.0;
    for (sum, group_scale) in groups {
        let part = sum as f32 * group_scale.to_f32();
        total += part;
    }
    total * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(w: &[f32]) -> (f32, Vec<u8>) {
        let w: Vec<[f32; 1]> = w.iter().map(|w| [*w]).collect();
        let mut q = vec![[99]; w.len()];
        let [scale] = quantize(&w, &mut q);
        (scale, q.concat())
    }

    #[test]
    fn what_fits_is_exact() {
        for scale in [1.0, -1.0, 0.25, -0.125, 6e-8_f32, 8_188.0] {
            let scale = f16::from_f32(scale).to_f32();
            let w: Vec<f32> = (0..32).map(|i| ((i % 16) as f32 - 8.0) * scale).collect();
            let (found, q) = group(&w);
            assert_eq!(found, scale);
            for (q, w) in q.iter().zip(&w) {
                assert_eq!(weight(*q, f16::from_f32(found)), *w);
            }
        }
        assert_eq!(group(&[3.0]), (-0.375, vec![0]));
        assert_eq!(group(&[]), (0.0, vec![]));
    }

    #[test]
    fn scales_beyond_f16_are_clipped_or_zero() {
        let zero = |w: &[f32]| {
            let (scale, q) = group(w);
            assert!(scale == 0.0 && q.iter().all(|q| *q == ZERO), "{w:?}: {scale}, {q:?}");
        };
        zero(&[0.0; 32]);
        zero(&[-0.0, 1e-9, -2e-8, f32::MIN_POSITIVE / 4.0]);
        assert_eq!(group(&[1e-6, -1e-6]).0.abs(), 2.0 / (1 << 24) as f32); // a subnormal of f16
        assert_eq!(group(&[1e6, -1e6, 1.0]), (-SCALE_MAX, vec![0, 15, 8]));
        assert_eq!(group(&[f32::MAX, f32::MIN, f32::MAX]), (-SCALE_MAX, vec![0, 15, 0]));
        for fault in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(group(&[1.0, fault, 3.0]).0.is_nan());
        }
    }

    #[test]
    fn rounding_is_that_of_f16() {
        for bits in (0..=f32::MAX.to_bits()).step_by(4_093) {
            let x = f32::from_bits(bits);
            let right = f16::from_f32(x).to_f32().min(SCALE_MAX);
            assert_eq!(round_to_f16(x), right, "{x:e}");
            assert_eq!(round_to_f16(-x), -right, "{x:e}");
        }
    }

    #[test]
    fn the_search_beats_the_simple_scale() {
        let mut bits = 0x9e37_79b9_u32;
        let (mut simple, mut found) = (0.0, 0.0);
        for _ in 0..1000 {
            let mut next = || {
                bits ^= bits << 13;
                bits ^= bits >> 17;
                bits ^= bits << 5;
                bits as i32 as f32 / i32::MAX as f32
            };
            let w: Vec<[f32; 1]> = (0..32).map(|_| [next() + next() + next()]).collect();
            let largest = w.iter().map(|w| w[0]).max_by(|a, b| a.abs().total_cmp(&b.abs()));
            let [first] = squared_error(&w, &[round_to_f16(largest.unwrap() / -8.0)]);
            let scales = quantize(&w, &mut [[0]; 32]);
            let [second] = squared_error(&w, &scales);
            assert!(second <= first);
            (simple, found) = (simple + first, found + second);
        }
        assert!(found < 0.92 * simple, "squared errors {simple} and {found}");
    }

    #[test]
    fn outputs_side_by_side_are_quantised_like_one() {
        let w: Vec<[f32; 16]> = (0..32)
            .map(|k| std::array::from_fn(|j| ((k * 31 + j * 17) % 101) as f32 * 0.37f32.powi(j as i32) - 9.0))
            .collect();
        let mut q = [[0; 16]; 32];
        let scales = quantize(&w, &mut q);
        for j in 0..16 {
            let (scale, alone) = group(&w.iter().map(|w| w[j]).collect::<Vec<_>>());
            assert_eq!((scale, alone), (scales[j], q.iter().map(|q| q[j]).collect()));
        }
    }
}
