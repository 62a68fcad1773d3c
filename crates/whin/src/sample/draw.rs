//! Cuts a distribution over the vocabulary and draws from it, without sorting it.
//!
//! Best first means: larger logit first, then smaller id. Top-k, min-p and top-p each keep a beginning of
//! that order, so each comes down to finding the last token it keeps.

/// Numbers that are added side by side, in a fixed order, so that the compiler may use vectors and every
/// machine gets the same sum.
const LANES: usize = 16;

/// How many weights are skipped at once while the drawn token is sought.
const BLOCK: usize = 512;

/// What is kept of a distribution: the best `top_k`, of these the ones with `min_p` times the weight of
/// the best, of these the smallest set that weighs `top_p` of the rest.
pub(super) struct Cuts {
    pub(super) temperature: f32,
    pub(super) top_k: Option<usize>,
    pub(super) min_p: f32,
    pub(super) top_p: f32,
}

/// Working space, reused from call to call.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) weights: Vec<f32>, // (vocabulary): probabilities, up to a factor; 0 for tokens cut away
    keys: Vec<u64>,
}

impl Scratch {
    /// The weight of each token: softmax of `logits / temperature` before it is normalised. `best` is the
    /// largest logit, which gets weight 1.
    pub(super) fn weigh(&mut self, logits: &[f32], best: f32, temperature: f32) {
        self.weights.clear();
        // The maximum comes off before the division: so no temperature can overflow.
        self.weights.extend(logits.iter().map(|&logit| exp((logit - best) / temperature)));
    }

    /// Sets the weights of the tokens that `cuts` cuts away to 0.
    pub(super) fn cut(&mut self, logits: &[f32], best: f32, cuts: &Cuts) {
        if let Some(top_k) = cuts.top_k {
            self.keys.clear();
            self.keys.extend(logits.iter().enumerate().map(|(id, &logit)| key(logit, id)));
            let (_, &mut last, _) = self.keys.select_nth_unstable(top_k - 1);
            self.keep_up_to(last, logits);
        }
        if cuts.min_p > 0.0 {
            // On logits, so that min_p = 1 keeps the best and its ties and nothing that rounds to them.
            let least = best + cuts.temperature * cuts.min_p.ln();
            self.keep_up_to(key(least, u32::MAX as usize), logits);
        }
        if cuts.top_p < 1.0 {
            let top_p = f64::from(cuts.top_p);
            let total = sum(&self.weights);
            // Tokens below this weight are so light that all of them together are not needed.
            let least = (1.0 - top_p) * total / logits.len() as f64;
            let heavy = |(id, (&logit, &weight)): (usize, (&f32, &f32))| {
                (f64::from(weight) > least).then(|| key(logit, id))
            };
            self.keys.clear();
            self.keys.extend(logits.iter().zip(&self.weights).enumerate().filter_map(heavy));
            let last = last_to_reach(top_p * total, &mut self.keys, &self.weights);
            self.keep_up_to(last, logits);
        }
    }

    /// The token that `uniform`, in [0, 1), points at, when the tokens lie one after the other by id, each
    /// as long as its weight.
    pub(super) fn draw(&self, uniform: f64) -> usize {
        let mut left = uniform * sum(&self.weights);
        let mut chosen = 0;
        for (block, weights) in self.weights.chunks(BLOCK).enumerate() {
            let weight = sum_of_block(weights);
            if left >= weight {
                left -= weight;
                continue;
            }
            for (place, &weight) in weights.iter().enumerate() {
                if weight > 0.0 {
                    chosen = block * BLOCK + place;
                    left -= f64::from(weight);
                    if left < 0.0 {
                        return chosen;
                    }
                }
            }
            // Rounding took the point past the last token of its block.
            return chosen;
        }
        // Rounding took the point past the last token of all.
        self.weights.iter().rposition(|&weight| weight > 0.0).unwrap_or(0)
    }

    fn keep_up_to(&mut self, last: u64, logits: &[f32]) {
        for (id, (weight, &logit)) in self.weights.iter_mut().zip(logits).enumerate() {
            *weight = if key(logit, id) <= last { *weight } else { 0.0 };
        }
    }
}

/// The largest number; −∞ if there is none. None may be NaN.
pub(super) fn largest(logits: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = logits.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// Whether each number is less than +∞, and none is NaN.
pub(super) fn all_below_infinity(logits: &[f32]) -> bool {
    logits.chunks(BLOCK).all(|block| block.iter().fold(true, |fine, &logit| fine & (logit < f32::INFINITY)))
}

/// A number that is smaller for better tokens: those with larger logits, then those with smaller ids.
fn key(logit: f32, id: usize) -> u64 {
    let bits = (logit + 0.0).to_bits(); // -0.0 becomes 0.0, its equal
    // Floats order like sign-and-magnitude integers; this makes them order like plain ones.
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(!ascending) << 32 | id as u64
}

/// The last of the best tokens that together weigh at least `target`. Halves the candidates until few
/// are left, so the work is linear in their number.
fn last_to_reach(target: f64, keys: &mut [u64], weights: &[f32]) -> u64 {
    let weight_of = |key: u64| f64::from(weights[key as u32 as usize]);
    let mut candidates = keys;
    let mut reached = 0.0;
    while candidates.len() > 32 {
        let middle = candidates.len() / 2;
        candidates.select_nth_unstable(middle);
        let (better, worse) = candidates.split_at_mut(middle);
        let weight: f64 = better.iter().map(|&key| weight_of(key)).sum();
        if reached + weight >= target {
            candidates = better;
        } else {
            reached += weight;
            candidates = worse;
        }
    }
    candidates.sort_unstable();
    for &key in candidates.iter() {
        reached += weight_of(key);
        if reached >= target {
            return key;
        }
    }
    // Only rounding leads here; the last candidate is then the one that crosses.
    candidates.last().copied().unwrap_or(u64::MAX)
}

fn sum(weights: &[f32]) -> f64 {
    weights.chunks(BLOCK).map(sum_of_block).sum()
}

fn sum_of_block(weights: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    for chunk in weights.chunks(LANES) {
        for (lane, &weight) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(weight);
        }
    }
    lanes.iter().sum()
}

/// e to the power of `x`, for x ≤ 0, within two units in the last place; 0 below −87.
///
/// Not the standard library's: that one calls the system's, which differs from machine to machine, and
/// with it the tokens drawn. Reduction and polynomial are `expf` of the Cephes library (S. Moshier).
fn exp(x: f32) -> f32 {
    const TO_INTEGER: f32 = 12_582_912.0; // 1.5 · 2^23: adding it rounds to an integer, in the low bits
    let bounded = if x < -87.0 { -87.0 } else { x };
    let shifted = bounded * std::f32::consts::LOG2_E + TO_INTEGER;
    let twos = shifted - TO_INTEGER;
    let r = bounded - twos * 0.693_359_4 + twos * 2.121_944_4e-4; // ln 2 in two parts
    let mut y = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        y = y * r + coefficient;
    }
    let y = y * r * r + r + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(TO_INTEGER.to_bits()).wrapping_add(127) << 23;
    let power = y * f32::from_bits(exponent);
    if x < -87.0 { 0.0 } else { power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_exact_at_zero_and_close_elsewhere() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-87.1), 0.0);
        for step in 0..87_000 {
            let x = -0.001 * step as f32;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.0 * f64::from(f32::EPSILON), "exp({x}) is off by {error:e}");
        }
    }

    #[test]
    fn keys_order_by_logit_then_by_id() {
        let best_first = [(f32::MAX, 9), (2.0, 0), (1.0, 3), (1.0, 4), (0.0, 5), (-0.0, 6), (-1.0, 1)];
        let keys: Vec<u64> = best_first.iter().map(|&(logit, id)| key(logit, id)).collect();
        assert!(keys.is_sorted());
        assert!(key(-1.0, 0) < key(f32::NEG_INFINITY, 0));
    }

    #[test]
    fn sums_and_maxima_see_every_number() {
        for length in [1, 15, 16, 17, 511, 512, 513, 2000] {
            let numbers: Vec<f32> = (0..length).map(|n| n as f32).collect();
            assert_eq!(largest(&numbers), (length - 1) as f32);
            assert_eq!(sum(&numbers), (length * (length - 1) / 2) as f64);
            for place in [0, length / 2, length - 1] {
                let mut broken = numbers.clone();
                broken[place] = f32::NAN;
                assert!(!all_below_infinity(&broken));
            }
            assert!(all_below_infinity(&numbers));
        }
        assert_eq!(largest(&[]), f32::NEG_INFINITY);
    }

    #[test]
    fn a_draw_walks_the_weights_by_id() {
        let scratch = Scratch { weights: vec![0.0, 1.0, 0.0, 2.0, 1.0, 0.0], keys: Vec::new() };
        for (uniform, token) in [(0.0, 1), (0.24, 1), (0.25, 3), (0.74, 3), (0.75, 4), (1.0, 4)] {
            assert_eq!(scratch.draw(uniform), token, "{uniform}");
        }
        let mut weights = vec![0.0; 3 * BLOCK];
        weights[BLOCK + 7] = 1.0;
        assert_eq!(Scratch { weights, keys: Vec::new() }.draw(0.999_999), BLOCK + 7);
    }
}
