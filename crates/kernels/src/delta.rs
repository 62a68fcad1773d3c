//! The gated delta rule: what each position does to the matrix that a value head remembers, and how it reads it.
//!
//! With the query `q` and the key `k` of a position, both divided by their lengths (`√(Σ x² + EPS)`), `q` divided by
//! `√key_dim` as well, its value `v`, its [`share`] `β` and its [`decay`] `α`:
//!
//! ```text
//! S = α · S + k ⊗ β (v − α · Sᵀ k)        S (key_dim, value_dim)
//! y = Sᵀ q
//! ```
//!
//! Then `y` is normalised over the head and multiplied with `z · σ(z)` of its gates `z`. Positions follow one another in
//! order, whatever steps they come in, so that the bits do not depend on how a text is cut.

/// Added to the sum of the squares of queries and of keys.
pub const EPS: f32 = 1e-6;

/// `σ(b)`: how much of what a key stands for is overwritten.
pub fn share(b: f32) -> f32 {
    (1.0 / (1.0 + f64::from(-b).exp())) as f32
}

/// `e^(−rate · ln(1 + e^(a + bias)))`: what remains of the matrix from one position to the next.
pub fn decay(rate: f32, a: f32, bias: f32) -> f32 {
    let time = f64::from(a) + f64::from(bias);
    // From here on it is the time itself, to the last bit.
    let time = if time > 40.0 { time } else { time.exp().ln_1p() };
    (-f64::from(rate) * time).exp() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_decays_at_the_ends() {
        assert_eq!([share(-200.0), share(0.0), share(200.0)], [0.0, 0.5, 1.0]);
        assert_eq!(decay(1.0, 0.0, 0.0), 0.5);
        assert_eq!(decay(2.0, 1.0, -1.0), 0.25);
        assert_eq!([decay(16.0, 1e30, 0.0), decay(16.0, -1e30, 1.0), decay(0.0, 3.0, 1.0)], [0.0, 1.0, 1.0]);
        assert!(share(f32::NAN).is_nan() && decay(1.0, f32::NAN, 0.0).is_nan());
        let near = |a: f32, b: f32| (a / b - 1.0).abs() < 1e-6;
        assert!(near(decay(0.1, 40.5, 0.0), decay(0.1, 40.0, 0.499_999)));
    }
}
