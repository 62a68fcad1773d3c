//! The arithmetic of 4-bit products whose groups have an offset, in one place: what every backend has to compute to the
//! bit.
//!
//! Each [`GROUP`] inputs of an output share a scale `d` and an offset `m`, both f16, and a weight is `w ≈ d · q + m` with
//! `q` in 0 ..= 15: the numbers of GGUF's Q4_1, and those of Q4_K once the scales of its scales are multiplied out.
//! Activations are the 16-bit integers of [`crate::int8`]. The sums of a group, `S = Σ xq · q` and `X = Σ xq`, are exact
//! integers below 2²⁴, so f32 holds them; a product adds `S · d` and then `X · m`, group after group in f32, each
//! multiplication rounded, then the addition, and multiplies the total with the scale of the activations. The order of
//! groups is fixed and nothing is fused, so no thread count or instruction set can change a bit of it.

use half::f16;

pub use crate::int4::{GROUP, SCALE_MAX};

/// The largest `q`.
const Q_MAX: f32 = 15.0;

/// Quantises one group into `q` and returns its scale and offset; none where a weight is infinite or NaN.
///
/// The offset is the least weight, and the scale what takes the integers to the greatest one. Both are rounded to f16
/// first, so the rounding of the integers makes up for theirs; weights beyond what f16 holds are clipped.
#[inline(always)]
pub fn quantize(w: &[f32], q: &mut [u8]) -> Option<(f16, f16)> {
    assert!(w.len() == q.len() && w.len() <= GROUP, "length of the group");
    if !w.iter().all(|w| w.is_finite()) {
        return None;
    }
    let rounded = |x: f32| f16::from_f32(x.clamp(-SCALE_MAX, SCALE_MAX));
    // Comparisons, and not `min` and `max`, which may return either zero.
    let first = w.first().copied().unwrap_or(0.0);
    let (least, most) = w.iter().fold((first, first), |(least, most), w| {
        (if *w < least { *w } else { least }, if *w > most { *w } else { most })
    });
    let least = rounded(least);
    // Divided before it is subtracted: the difference of two weights may be beyond f32.
    let scale = rounded(most / Q_MAX - least.to_f32() / Q_MAX);
    let (d, m) = (scale.to_f32(), least.to_f32());
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    for (q, w) in q.iter_mut().zip(w) {
        *q = ((w - m) * inverse).clamp(0.0, Q_MAX).round_ties_even() as u8;
    }
    Some((scale, least))
}

/// The weight that `q` stands for in a group with this scale and this offset, rounded to f32 once.
#[inline(always)]
pub fn weight(q: u8, scale: f16, least: f16) -> f32 {
    f32::from(q) * scale.to_f32() + least.to_f32()
}

/// The product of a quantised activation row with an output, from the exact integer sums `S` and `X` of its groups, their
/// scales and their offsets.
pub fn product(groups: impl Iterator<Item = (i32, i32, f16, f16)>, scale: f32) -> f32 {
    let mut total = 0.0;
    for (sum, inputs, group_scale, least) in groups {
        let part = sum as f32 * group_scale.to_f32();
        total += part;
        let part = inputs as f32 * least.to_f32();
        total += part;
    }
    total * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scale, offset and integers.
    fn group(w: &[f32]) -> (f32, f32, Vec<u8>) {
        let mut q = vec![99; w.len()];
        let (scale, least) = quantize(w, &mut q).unwrap();
        (scale.to_f32(), least.to_f32(), q)
    }

    #[test]
    fn what_fits_is_exact() {
        for (scale, least) in [(1.0, -3.0), (0.25, 7.0), (0.125, -1.0), (512.0, -4096.0), (0.0, 0.5)] {
            let w: Vec<f32> = (0..32).map(|i| (i * 7 % 16) as f32 * scale + least).collect();
            let (d, m, q) = group(&w);
            assert_eq!((d, m), (scale, least));
            for (q, w) in q.iter().zip(&w) {
                assert_eq!(weight(*q, f16::from_f32(d), f16::from_f32(m)), *w);
            }
        }
        assert_eq!(group(&[]), (0.0, 0.0, vec![]));
    }

    #[test]
    fn weights_are_off_by_half_a_step_and_what_f16_rounds() {
        let mut bits = 0x9e37_79b9_u32;
        for round in 0..4000 {
            let size = [1.0, 1e-3, 40.0, 3e4][round % 4];
            let mut next = || {
                bits ^= bits << 13;
                bits ^= bits >> 17;
                bits ^= bits << 5;
                bits as i32 as f32 / i32::MAX as f32 * size
            };
            let w: Vec<f32> = (0..1 + round % GROUP).map(|_| next()).collect();
            let (d, m, q) = group(&w);
            for (q, w) in q.iter().zip(&w) {
                let off = (weight(*q, f16::from_f32(d), f16::from_f32(m)) - w).abs();
                // The offset may be rounded up above the least weight, the scale down below what reaches the greatest.
                let rounded = m.abs() / 2048.0 + 15.0 * d / 2048.0 + 1e-6;
                assert!(off <= d * 0.5001 + rounded, "{off} of {w} with {d} and {m}");
            }
        }
    }

    #[test]
    fn weights_beyond_f16_are_clipped() {
        assert_eq!(group(&[f32::MAX, f32::MIN]), (SCALE_MAX, -SCALE_MAX, vec![15, 0]));
        assert_eq!(group(&[1e-9, -1e-9]), (0.0, -0.0, vec![0, 0]));
        for fault in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(quantize(&[1.0, fault, 3.0], &mut [0; 3]), None);
        }
    }

    #[test]
    fn sums_fit_f32() {
        let most = GROUP as i32 * 15 * 32_512;
        assert!(most < 1 << 24);
        let groups = [(most, 1 << 20, f16::ONE, f16::NEG_ONE), (3, -2, f16::ONE, f16::ONE)];
        assert_eq!(product(groups.into_iter(), 0.5), (most - (1 << 20) + 1) as f32 * 0.5);
    }
}
