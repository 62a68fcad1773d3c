//! The activation functions of feed-forward layers.

/// The activation function between the gate and the product of a feed-forward layer, `x` being one gate value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x · σ(x)`, also called swish. Elfwing et al., arXiv:1702.03118.
    Silu,
    /// `x · Φ(x)` with the exact normal distribution, by the error function. Hendrycks and Gimpel, arXiv:1606.08415.
    Gelu,
    /// The approximation of [`Self::Gelu`] by a hyperbolic tangent.
    GeluTanh,
    /// The approximation of [`Self::Gelu`] by `x · σ(1.702 x)`.
    GeluSigmoid,
    /// `min(x · Φ(x), 10)`: [`Self::Gelu`] clipped to -10 ..= 10, whose lower end it never comes near. Wu et al.,
    /// arXiv:2004.09602.
    GeluClipped,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`. So et al., arXiv:2109.08668.
    ReluSquared,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `x` where it is positive, otherwise `x / 100`. Maas et al., "Rectifier nonlinearities improve neural network
    /// acoustic models".
    LeakyRelu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// `x · tanh(ln(1 + e^x))`. Misra, arXiv:1908.08681.
    Mish,
    /// `x · min(max(x + 3, 0), 6) / 6`. Howard et al., arXiv:1905.02244.
    HardSwish,
    /// `(1 + erf((x - 0.707107) / (0.282095 √2))) / 2`, a bounded likeness of [`Self::ReluSquared`]. Ma et al.,
    /// arXiv:2209.10655, with the digits of `LaplaceActivation` in transformers 5.17.
    Laplace,
    /// `√(ln(1 + e^x))`, as `SqrtSoftplusActivation` in transformers 5.17.
    SqrtSoftplus,
    /// `x` itself.
    Identity,
}

impl Activation {
    /// The value at `x`. NaN stays NaN.
    pub fn apply(self, x: f32) -> f32 {
        match self {
            Self::Silu => x * sigmoid(x),
            Self::Gelu => gelu(x),
            Self::GeluTanh => {
                let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
                0.5 * x * (1.0 + inner.tanh())
            }
            Self::GeluSigmoid => x * sigmoid(1.702 * x),
            Self::GeluClipped => cap(gelu(x), 10.0),
            Self::Relu => rectify(x),
            Self::ReluSquared => rectify(x) * rectify(x),
            Self::Relu6 => cap(rectify(x), 6.0),
            // Both are NaN where x is.
            Self::LeakyRelu => x.max(0.01 * x),
            Self::Sigmoid => sigmoid(x),
            Self::Tanh => x.tanh(),
            Self::Mish => x * softplus(x).tanh(),
            Self::HardSwish => x * cap(rectify(x + 3.0), 6.0) / 6.0,
            Self::Laplace => {
                #[expect(clippy::approx_constant)] // six digits of √½, as the models were trained with
                const MEAN: f32 = 0.707_107;
                const DEVIATION: f32 = 0.282_095;
                0.5 * (1.0 + libm::erff((x - MEAN) / (DEVIATION * std::f32::consts::SQRT_2)))
            }
            Self::SqrtSoftplus => softplus(x).sqrt(),
            Self::Identity => x,
        }
    }
}

/// How a gate and what it multiplies, the output of the up projection, become one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gating {
    /// `activation(gate) · up`
    Plain(Activation),
    /// `g · σ(1.702 g) · (u + 1)` with `g = min(gate, limit)` and `u = min(max(up, −limit), limit)`.
    Clamped {
        /// Positive.
        limit: f32,
    },
}

impl Gating {
    /// The number of one gate and its partner. NaN stays NaN.
    pub fn apply(self, gate: f32, up: f32) -> f32 {
        match self {
            Self::Plain(activation) => activation.apply(gate) * up,
            Self::Clamped { limit } => {
                let (gate, up) = (cap(gate, limit), -cap(-cap(up, limit), limit));
                (up + 1.0) * Activation::GeluSigmoid.apply(gate)
            }
        }
    }
}

fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2))
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `ln(1 + e^x)`, which is `x` itself, to the last bit, long before `e^x` leaves the range of f32.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// `max(x, 0)` that, unlike `f32::max`, keeps NaN.
fn rectify(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// `min(x, limit)` that keeps NaN.
fn cap(x: f32, limit: f32) -> f32 {
    if x > limit { limit } else { x }
}

#[cfg(test)]
mod tests {
    use super::Activation::*;
    use super::Gating;

    #[test]
    fn a_clamped_gate_keeps_its_bounds_and_nan() {
        let gating = Gating::Clamped { limit: 7.0 };
        // By numpy in f64.
        for (gate, up, right) in
            [(1.0, 2.0, 2.537_387_5), (9.0, 9.0, 55.999_626), (-9.0, -9.0, 1.201_906_8e-5), (0.0, 3.0, 0.0)]
        {
            let found = gating.apply(gate, up);
            assert!((found - right).abs() <= 4e-6 * right.abs(), "{gate} and {up}: {found}, not {right}");
        }
        assert!(gating.apply(f32::NAN, 1.0).is_nan() && gating.apply(1.0, f32::NAN).is_nan());
        assert_eq!(Gating::Plain(Silu).apply(200.0, -2.0), -400.0);
    }

    #[test]
    fn known_values_and_lost_faults() {
        let table = [
            (Silu, 1.0, 0.731_058_6),
            (Gelu, 1.0, 0.841_344_7),
            (GeluTanh, 1.0, 0.841_192),
            (GeluSigmoid, 1.0, 0.845_795_8),
            (GeluClipped, 1.0, 0.841_344_7),
            (GeluClipped, 11.0, 10.0),
            (Relu, -1.0, 0.0),
            (ReluSquared, 3.0, 9.0),
            (Relu6, 7.0, 6.0),
            (LeakyRelu, 2.5, 2.5),
            (LeakyRelu, -2.5, -0.025),
            (Sigmoid, 0.0, 0.5),
            (Tanh, 0.5, 0.462_117_15),
            (Mish, 1.0, 0.865_098_4),
            (Mish, 50.0, 50.0),
            (HardSwish, 1.0, 0.666_666_7),
            (Laplace, 0.0, 0.006_094_46),
            (Laplace, 1.0, 0.850_429_65),
            (SqrtSoftplus, 0.0, 0.832_554_6),
            (SqrtSoftplus, 100.0, 10.0),
            (Identity, -2.5, -2.5),
        ];
        for (activation, x, y) in table {
            let got: f32 = activation.apply(x);
            assert!((got - y).abs() < 1e-6, "{activation:?}({x}) = {got}, not {y}");
            assert!(activation.apply(f32::NAN).is_nan(), "{activation:?}(NaN)");
        }
        assert_eq!(Silu.apply(-200.0), 0.0);
        assert_eq!(Silu.apply(200.0), 200.0);
    }
}
