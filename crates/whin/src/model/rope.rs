//! Rotary position embeddings: by how much each pair of a head turns at each position. Knows no key of `config.json`.
//!
//! Follows `modeling_rope_utils.py` of transformers 5.17 operation by operation: what is a torch tensor there is
//! computed in f32 here, what is a Python float there in f64. Two of torch's own habits matter for the last bit:
//! a number divided by a tensor is the tensor's reciprocal times the number, and a power of f32 is within one unit in
//! the last place of the correctly rounded one, which is what stands here.

use std::collections::HashMap;
use std::f64::consts::PI;

use whin_kernels::Rotation;

/// One rotary embedding. Su et al., arXiv:2104.09864.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Pairs that turn: half of the head.
    pub pairs: usize,
    /// The base of the wavelengths.
    pub theta: f64,
    /// How the frequencies are stretched for longer texts.
    pub scaling: Scaling,
}

/// How frequencies are changed so that a model copes with longer texts than it was first trained on.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// Not at all.
    Default,
    /// All frequencies divided by `factor`. Chen et al., arXiv:2306.15595.
    Linear {
        /// By what the frequencies are divided.
        factor: f64,
    },
    /// A larger base for texts longer than `original`, growing with the text.
    Dynamic {
        /// How many times longer texts may become.
        factor: f64,
        /// The length up to which frequencies stay as they are.
        original: usize,
    },
    /// Low frequencies divided by `factor`, high ones kept, those between blended. Llama 3.1.
    Llama3 {
        /// By what the low frequencies are divided.
        factor: f64,
        /// Wavelengths above `original / low` are divided.
        low: f64,
        /// Wavelengths below `original / high` are kept.
        high: f64,
        /// The length of the texts that the model was first trained on.
        original: usize,
    },
    /// As Llama 3, blended by the number of turns, with sharper attention. Peng et al., arXiv:2309.00071.
    Yarn {
        /// By what the low frequencies are divided.
        factor: f64,
        /// The length of the texts that the model was first trained on.
        original: usize,
        /// Pairs that turn more often than this in `original` positions are kept.
        beta_fast: f64,
        /// Pairs that turn less often than this are divided.
        beta_slow: f64,
        /// Whether the bounds of the blend are rounded to whole pairs.
        truncate: bool,
        /// Factor of cosine and sine.
        attention: f64,
    },
    /// A divisor for each pair, one list for short texts and one for long ones. Ding et al., arXiv:2402.13753.
    LongRope {
        /// Up to `original` positions. (pairs,)
        short: Vec<f64>,
        /// Beyond. (pairs,)
        long: Vec<f64>,
        /// The length up to which a text is short.
        original: usize,
        /// Whether a text that grows beyond that length while it is answered is run anew, so that none of its keys stay
        /// turned for a short one.
        anew: bool,
        /// Factor of cosine and sine.
        attention: f64,
    },
}

impl Rope {
    /// Factor of cosine and sine.
    pub fn attention_factor(&self) -> f32 {
        match self.scaling {
            Scaling::Yarn { attention, .. } | Scaling::LongRope { attention, .. } => attention as f32,
            _ => 1.0,
        }
    }

    /// Radians a position of each pair, in a text of `span` tokens. (pairs,)
    pub fn frequencies(&self, span: u32) -> Vec<f32> {
        let theta = self.theta as f32;
        match &self.scaling {
            Scaling::Default => self.powers(theta).map(f32::recip).collect(),
            Scaling::Linear { factor } => self.powers(theta).map(|p| p.recip() / *factor as f32).collect(),
            Scaling::Dynamic { factor, original } => {
                self.powers(self.grown(*factor, *original, span)).map(f32::recip).collect()
            }
            Scaling::Llama3 { factor, low, high, original } => {
                let original = *original as f64;
                self.powers(theta).map(|p| llama3(p.recip(), *factor, *low, *high, original)).collect()
            }
            Scaling::Yarn { .. } => self.yarn(),
            Scaling::LongRope { short, long, original, .. } => {
                let divisors = if span as usize > *original { long } else { short };
                self.powers(theta).zip(divisors).map(|(p, divisor)| (*divisor as f32 * p).recip()).collect()
            }
        }
    }

    /// Cosine and sine for rows at `positions`, row `i` belonging to a text of `spans[i]` tokens.
    ///
    /// A row's span is what is known of its text when the row is run: the prompt's length for every row of the prompt,
    /// `p + 1` for a generated token at position `p`, and what was known at the [border](Self::border) for those before it. Only dynamic and longrope scaling look at it, and by
    /// this rule a prompt run in pieces gives the same numbers as a prompt run at once.
    ///
    /// transformers chooses by the largest position of a forward call instead, and for dynamic scaling keeps the
    /// frequencies of the longest text that the model has seen until one shorter than `original` comes: an answer
    /// there depends on what ran before. Here it does not; a first call there gives the numbers that stand here.
    ///
    /// # Panics
    /// When the two slices differ in length.
    pub fn rotation(&self, positions: &[u32], spans: &[u32]) -> Rotation {
        assert_eq!(positions.len(), spans.len(), "one span for each position");
        let factor = self.attention_factor();
        let mut known: HashMap<u32, Vec<f32>> = HashMap::new();
        let mut rotation = Rotation { pairs: self.pairs, ..Rotation::default() };
        rotation.cos.reserve(positions.len() * self.pairs);
        rotation.sin.reserve(positions.len() * self.pairs);
        for (position, span) in positions.iter().zip(spans) {
            let frequencies =
                known.entry(self.regime(*span)).or_insert_with_key(|span| self.frequencies(*span));
            for frequency in frequencies {
                // The angle is rounded to f32, as in the reference; its cosine is then taken exactly, because the
                // cosine of f32 differs between systems.
                let angle = f64::from(*position as f32 * *frequency);
                rotation.cos.push(angle.cos() as f32 * factor);
                rotation.sin.push(angle.sin() as f32 * factor);
            }
        }
        rotation
    }

    /// The length beyond which all positions of a text have to run anew, since their frequencies are others; none where no
    /// length changes them, or keys stay as they are.
    pub fn border(&self) -> Option<usize> {
        match &self.scaling {
            Scaling::LongRope { short, long, original, anew: true, .. } if short != long => Some(*original),
            _ => None,
        }
    }

    /// A span with the same frequencies as `span`, the same one for as many spans as possible.
    fn regime(&self, span: u32) -> u32 {
        match &self.scaling {
            Scaling::Dynamic { original, .. } => span.max(*original as u32),
            Scaling::LongRope { original, .. } if span as usize > *original => *original as u32 + 1,
            _ => 0,
        }
    }

    /// `base ^ (2 i / head_dim)` of each pair `i`: exponent and result in f32.
    fn powers(&self, base: f32) -> impl Iterator<Item = f32> {
        let dim = (2 * self.pairs) as f32;
        (0..self.pairs).map(move |pair| {
            let exponent = (2 * pair) as f32 / dim;
            f64::from(base).powf(f64::from(exponent)) as f32
        })
    }

    /// The base of dynamic scaling. The span is a tensor in the reference, hence f32 where it takes part.
    fn grown(&self, factor: f64, original: usize, span: u32) -> f32 {
        if span as usize <= original {
            return self.theta as f32;
        }
        let dim = (2 * self.pairs) as f64;
        let ratio = factor as f32 * span as f32 / original as f32 - (factor - 1.0) as f32;
        let exponent = (dim / (dim - 2.0)) as f32;
        self.theta as f32 * f64::from(ratio).powf(f64::from(exponent)) as f32
    }

    fn yarn(&self) -> Vec<f32> {
        let Scaling::Yarn { factor, original, beta_fast, beta_slow, truncate, .. } = self.scaling else {
            unreachable!("called for yarn alone");
        };
        let dim = (2 * self.pairs) as f64;
        // The pair that turns `turns` times in `original` positions.
        let pair = |turns: f64| dim * (original as f64 / (turns * 2.0 * PI)).ln() / (2.0 * self.theta.ln());
        let (mut low, mut high) = (pair(beta_fast), pair(beta_slow));
        if truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(dim - 1.0));
        if low == high {
            high += 0.001; // as the reference, against a division by zero
        }
        let blend = |(index, power): (usize, f32)| {
            let ramp = ((index as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
            let kept = 1.0 - ramp;
            (factor as f32 * power).recip() * (1.0 - kept) + power.recip() * kept
        };
        self.powers(self.theta as f32).enumerate().map(blend).collect()
    }
}

/// One frequency after Llama 3's scaling.
fn llama3(frequency: f32, factor: f64, low: f64, high: f64, original: f64) -> f32 {
    let wavelength = frequency.recip() * (2.0 * PI) as f32;
    if wavelength > (original / low) as f32 {
        frequency / factor as f32
    } else if wavelength < (original / high) as f32 {
        frequency
    } else {
        let smooth = (wavelength.recip() * original as f32 - low as f32) / (high - low) as f32;
        (1.0 - smooth) * frequency / factor as f32 + smooth * frequency
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn floats(value: &Value) -> Vec<f32> {
        value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
    }

    fn cases() -> Vec<(String, Rope, Value)> {
        let table = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/rope.json"));
        let cases: Vec<Value> = serde_json::from_slice(table).unwrap();
        let rope = |case: &Value| {
            let config = serde_json::to_vec(&case["config"]).unwrap();
            crate::model::config::read(&config).unwrap().ropes[0].clone()
        };
        cases.into_iter().map(|case| (case["name"].to_string(), rope(&case), case)).collect()
    }

    #[test]
    fn frequencies_are_those_of_transformers() {
        for (name, rope, case) in cases() {
            let span = case["span"].as_u64().unwrap_or(0) as u32;
            let expected = floats(&case["inv_freq"]);
            let found = rope.frequencies(span);
            assert_eq!(found.len(), expected.len(), "{name}");
            for (pair, (found, expected)) in found.iter().zip(&expected).enumerate() {
                // One unit for each power in which torch is not rounded correctly: two for a grown base.
                let apart = found.to_bits().abs_diff(expected.to_bits());
                assert!(apart <= 2, "{name}, pair {pair}: {found:e} is {apart} units from {expected:e}");
            }
            assert_eq!(rope.attention_factor(), case["factor"].as_f64().unwrap() as f32, "{name}");
        }
    }

    #[test]
    fn rotations_are_those_of_transformers() {
        for (name, rope, case) in cases() {
            let positions: Vec<u32> = floats(&case["positions"]).iter().map(|p| *p as u32).collect();
            let span = case["span"].as_u64().unwrap_or(0) as u32;
            let found = rope.rotation(&positions, &vec![span; positions.len()]);
            assert_eq!(found.pairs, rope.pairs);
            for (index, (expected_cos, expected_sin)) in
                floats(&case["cos"]).iter().zip(floats(&case["sin"])).enumerate()
            {
                // A frequency that is two units off moves the angle by that much, and the angle is rounded once.
                let angle = positions[index / rope.pairs] as f32 * rope.frequencies(span)[index % rope.pairs];
                let tolerance = (4.0 * angle + 2.0) * f32::EPSILON * rope.attention_factor();
                assert!((found.cos[index] - expected_cos).abs() <= tolerance, "{name}, cos {index}");
                assert!((found.sin[index] - expected_sin).abs() <= tolerance, "{name}, sin {index}");
            }
        }
    }

    #[test]
    fn a_row_depends_on_its_own_span_alone() {
        for (name, rope, _) in cases() {
            let positions = [0, 5, 4000, 50_000, 50_001];
            let spans = [4096, 4096, 50_000, 50_001, 50_002];
            let whole = rope.rotation(&positions, &spans);
            for row in 0..positions.len() {
                let alone = rope.rotation(&positions[row..=row], &spans[row..=row]);
                assert_eq!(alone.cos, whole.cos[row * rope.pairs..(row + 1) * rope.pairs], "{name}");
                assert_eq!(alone.sin, whole.sin[row * rope.pairs..(row + 1) * rope.pairs], "{name}");
            }
        }
    }
}
