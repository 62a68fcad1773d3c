//! The arithmetic of 8-bit products with a scale for each group of inputs, in one place: what every backend has to compute
//! to the bit.
//!
//! Each [`GROUP`] inputs of an output share one f16 scale `d`, and a weight is `w ≈ d · q` with `q` in −127 ..= 127: the
//! numbers of GGUF's Q8_0, whose files may hold −128 as well. Activations are the 16-bit integers of [`crate::int8`]. The
//! sum of a group, `S = Σ xq · q`, is an exact integer below 2²⁷, more than f32 holds: it is rounded to the nearest f32,
//! ties to even, once. From there on all is as in [`crate::int4`]: a product adds `S · d` group after group in f32, the
//! multiplication rounded, then the addition, and multiplies the total with the scale of the activations. The order of
//! groups is fixed and nothing is fused, so no thread count or instruction set can change a bit of it.

use half::f16;

pub use crate::int4::{GROUP, SCALE_MAX, product};
use crate::int8::{WEIGHT_MAX, largest};

/// From here on, f16 rounds to infinity.
const BEYOND_F16: f32 = 65_520.0;

/// Quantises one group into `q` and returns its scale; none where a weight is infinite or NaN.
///
/// As ggml's `quantize_row_q8_0_ref`, to the bit: `d = max |w| / 127` is rounded to f16 only after `q = w · (1 / d)` has
/// been rounded, ties away from zero. Where ggml has no number, groups of weights below 127 · 2⁻¹²⁸ are zero, and those
/// beyond 127 times [`SCALE_MAX`] are clipped.
#[inline(always)]
pub fn quantize(w: &[f32], q: &mut [i8]) -> Option<f16> {
    assert!(w.len() == q.len() && w.len() <= GROUP, "length of the group");
    let max = largest(w);
    if !max.is_finite() {
        return None;
    }
    let scale = max / WEIGHT_MAX;
    let scale = if scale < BEYOND_F16 { scale } else { SCALE_MAX };
    let inverse = 1.0 / scale;
    if !inverse.is_finite() {
        q.fill(0);
        return Some(f16::ZERO);
    }
    for (q, w) in q.iter_mut().zip(w) {
        *q = integer(w * inverse);
    }
    Some(f16::from_f32(scale))
}

/// The nearest of −127 ..= 127, ties away from zero. In arithmetic that compilers vectorise.
#[inline(always)]
fn integer(x: f32) -> i8 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³: adding it leaves no room for a fraction
    let x = if x > -WEIGHT_MAX { x } else { -WEIGHT_MAX };
    let x = if x < WEIGHT_MAX { x } else { WEIGHT_MAX };
    let shifted = x + ROUND;
    let even = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    // What was a tie and went towards zero goes back, and as far again.
    let rest = x - (shifted - ROUND);
    let up = i32::from((rest == 0.5) & (x > 0.0));
    let down = i32::from((rest == -0.5) & (x < 0.0));
    (even + up - down) as i8
}

/// The weight that `q` and the scale of its group stand for, exactly.
#[inline(always)]
pub fn weight(q: i8, scale: f16) -> f32 {
    f32::from(q) * scale.to_f32()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ggml's definition, in its own words.
    fn ggml(w: &[f32]) -> (f16, Vec<i8>) {
        let amax = w.iter().fold(0.0_f32, |max, w| max.max(w.abs()));
        let d = amax / 127.0;
        let id = if d == 0.0 { 0.0 } else { 1.0 / d };
        (f16::from_f32(d), w.iter().map(|w| (w * id).round() as i8).collect())
    }

    fn group(w: &[f32]) -> (f16, Vec<i8>) {
        let mut q = vec![99; w.len()];
        let scale = quantize(w, &mut q).unwrap();
        (scale, q)
    }

    #[test]
    fn groups_are_ggmls_to_the_bit() {
        let mut bits = 0x9e37_79b9_u32;
        for round in 0..4000 {
            let size = [1.0, 1e-3, 3e-8, 1e-30, 8.3e6][round % 5];
            let w: Vec<f32> = (0..1 + round % GROUP)
                .map(|_| {
                    bits ^= bits << 13;
                    bits ^= bits >> 17;
                    bits ^= bits << 5;
                    bits as i32 as f32 / i32::MAX as f32 * size
                })
                .collect();
            assert_eq!(group(&w), ggml(&w));
        }
        // Ties, on both sides of zero.
        let w: Vec<f32> = (0..GROUP).map(|i| if i == 0 { 127.0 } else { i as f32 * 7.0 - 110.5 }).collect();
        assert_eq!(group(&w), ggml(&w));
        assert_eq!(group(&[127.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5]).1, [127, 1, -1, 2, -2, 3, -3]);
    }

    #[test]
    fn rounding_is_away_from_zero_throughout() {
        for bits in (0..200.0_f32.to_bits()).step_by(4_093).chain(0.499_f32.to_bits()..0.501_f32.to_bits()) {
            for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
                assert_eq!(integer(x), x.clamp(-127.0, 127.0).round() as i8, "{x:e}");
            }
        }
    }

    #[test]
    fn scales_beyond_f16_are_clipped_or_zero() {
        for w in [&[0.0; 32][..], &[-0.0, 1e-40], &[1e-37, -1e-37], &[]] {
            assert_eq!(group(w), (f16::ZERO, vec![0; w.len()]), "{w:?}");
        }
        assert_eq!(group(&[1e-9, -1e-9]), (f16::ZERO, vec![127, -127])); // as in ggml's files
        assert_eq!(group(&[f32::MAX, f32::MIN, 65_504.0, 0.0]), (f16::MAX, vec![127, -127, 1, 0]));
        // The last scale that f16 rounds down.
        let last = 65_519.0 * 127.0;
        assert_eq!(group(&[last, -last / 2.0]), ggml(&[last, -last / 2.0]));
        for fault in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(quantize(&[1.0, fault, 3.0], &mut [0; 3]), None);
        }
    }

    #[test]
    fn sums_enter_f32_rounded_once() {
        // 2²⁴ + 1 lies between two f32 and goes to the even one.
        assert_eq!(product([((1 << 24) + 1, f16::ONE)].into_iter(), 1.0), 16_777_216.0);
        assert_eq!(product([((1 << 24) + 3, f16::ONE)].into_iter(), 1.0), 16_777_220.0);
        let most = GROUP as i32 * 128 * 32_512;
        assert!(most < 1 << 27);
        assert_eq!(product([(most, f16::NEG_ONE), (0, f16::NEG_ONE)].into_iter(), 0.5), most as f32 * -0.5);
    }
}
