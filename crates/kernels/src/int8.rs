//! The arithmetic of 8-bit products, in one place: what every backend has to compute to the bit.
//!
//! A weight row is `w[k] ≈ weight_scale · wq[k]` with `wq` in −127 ..= 127; an activation row is
//! `x[k] ≈ scale · xq[k]` with `xq` in −32,512 ..= 32,512. The product is
//! `(Σ xq[k] · wq[k]) as f32 · (scale · weight_scale)`: the sum is an exact integer, rounded once to f32, so no order
//! of summation, thread count or instruction set can change a bit of it.
//!
//! Keys and values in the cache are weights in this sense, one row a position: a score is the product of a query as an
//! activation with a key. Weights of the softmax, each times the scale of its value, are activations of which none is
//! negative; they are quantised block by block.
//!
//! The bound of 32,512 = 127 · 256 lets hardware split `xq` into two signed 8-bit planes.

/// The largest magnitude of a quantised activation.
pub const ACTIVATION_MAX: f32 = 32_512.0;
/// The largest magnitude of a quantised weight.
pub const WEIGHT_MAX: f32 = 127.0;
/// A row whose largest magnitude is below this counts as zero: its scale's inverse would leave the range of f32.
pub const SMALLEST: f32 = 1e-30;

/// Quantises an activation row into `q` and returns its scale; NaN where a value is infinite or NaN, so that the
/// fault shows in every product of the row.
pub fn quantize_activations(x: &[f32], q: &mut [i16]) -> f32 {
    assert_eq!(x.len(), q.len(), "length of the quantised row");
    let max = largest(x);
    if !max.is_finite() {
        q.fill(0);
        return f32::NAN;
    }
    if max < SMALLEST {
        q.fill(0);
        return 0.0;
    }
    let inverse = ACTIVATION_MAX / max;
    for (q, x) in q.iter_mut().zip(x) {
        *q = (x * inverse).round_ties_even().clamp(-ACTIVATION_MAX, ACTIVATION_MAX) as i16;
    }
    max / ACTIVATION_MAX
}

/// Quantises a weight row into `q` and returns its scale; none where a value is infinite or NaN.
pub fn quantize_weights(w: &[f32], q: &mut [i8]) -> Option<f32> {
    assert_eq!(w.len(), q.len(), "length of the quantised row");
    let max = largest(w);
    if !max.is_finite() {
        return None;
    }
    if max < SMALLEST {
        q.fill(0);
        return Some(0.0);
    }
    let scale = max / WEIGHT_MAX;
    for (q, w) in q.iter_mut().zip(w) {
        *q = (w / scale).round_ties_even().clamp(-WEIGHT_MAX, WEIGHT_MAX) as i8;
    }
    Some(scale)
}

/// The product of a quantised activation row and a quantised weight row, from its exact integer sum.
pub fn product(sum: i64, scale: f32, weight_scale: f32) -> f32 {
    sum as f32 * (scale * weight_scale)
}

/// The largest magnitude; infinite or NaN where any value is.
pub fn largest(x: &[f32]) -> f32 {
    // As integers, magnitudes of floats compare like the floats, and NaN above all: no NaN gets lost.
    f32::from_bits(x.iter().fold(0, |max, x| max.max(x.to_bits() & 0x7fff_ffff)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_map_to_the_bounds() {
        let mut q = [0; 4];
        let scale = quantize_activations(&[-2.0, 1.0, 0.0, 2.0], &mut q);
        assert_eq!((q, scale), ([-32_512, 16_256, 0, 32_512], 2.0 / 32_512.0));
        let mut q = [0; 3];
        assert_eq!(quantize_weights(&[-1.0, 0.5, 0.0], &mut q), Some(1.0 / 127.0));
        assert_eq!(q, [-127, 64, 0]); // 63.5 is a tie and goes to the even neighbour
    }

    #[test]
    fn rows_without_a_scale_are_zero_and_faults_show() {
        let mut q = [1; 2];
        assert_eq!(quantize_activations(&[0.0, -1e-31], &mut q), 0.0);
        assert_eq!(q, [0, 0]);
        assert!(quantize_activations(&[f32::NAN, 1.0], &mut q).is_nan());
        assert!(quantize_activations(&[f32::NEG_INFINITY, 1.0], &mut q).is_nan());
        assert_eq!(quantize_weights(&[f32::INFINITY], &mut [0]), None);
        assert_eq!(quantize_weights(&[0.0, 0.0], &mut [1, 1]), Some(0.0));
    }
}
