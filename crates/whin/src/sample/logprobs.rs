//! Log-probabilities of one step, as the model gave them: before temperature, penalties and masks.

/// The log-probability that stands for none at all: JSON has no −∞. OpenAI's interface writes it so.
pub const NO_CHANCE: f32 = -9999.0;

/// Natural logarithms of the probabilities at one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// The token that was chosen.
    pub token_id: u32,
    /// Its log-probability.
    pub logprob: f32,
    /// The most likely tokens, best first, smaller ids first among equals.
    pub top: Vec<(u32, f32)>,
}

/// The log-probability of `chosen` and of the `k` most likely tokens, for raw `logits` (vocabulary).
///
/// The softmax is summed in f64. Where a token has no chance (−∞, NaN, or an id past the logits) the
/// figure is [`NO_CHANCE`].
pub fn logprobs(logits: &[f32], chosen: u32, k: usize) -> Logprobs {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max); // leaves NaN out
    let total: f64 =
        logits.iter().filter(|logit| !logit.is_nan()).map(|&logit| f64::from(logit - best).exp()).sum();
    let normalizer = f64::from(best) + total.ln();
    let logprob = |logit: f32| {
        let value = (f64::from(logit) - normalizer) as f32;
        if value.is_finite() { value } else { NO_CHANCE }
    };

    let best_first = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let comparable = |logit: f32| if logit.is_nan() { f32::NEG_INFINITY } else { logit + 0.0 }; // no -0.0
    let mut top: Vec<(u32, f32)> = (0..).zip(logits.iter().copied().map(comparable)).collect();
    if k < top.len() {
        top.select_nth_unstable_by(k, best_first);
        top.truncate(k);
    }
    for (_, value) in &mut top {
        *value = logprob(*value);
    }
    // After the rounding to f32, which makes equals of near ones.
    top.sort_unstable_by(best_first);
    let logprob = logits.get(chosen as usize).map_or(NO_CHANCE, |&logit| logprob(logit));
    Logprobs { token_id: chosen, logprob, top }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_computed() {
        // Weights 1, 2, 1, 4 of 8.
        let logits = [0.0, 2.0_f32.ln(), -0.0, 4.0_f32.ln()];
        let eighths = |weight: f32| (weight / 8.0).ln();
        let found = logprobs(&logits, 1, 4);
        assert_eq!(found.token_id, 1);
        assert!((found.logprob - eighths(2.0)).abs() < 1e-6);
        let expected = [(3, eighths(4.0)), (1, eighths(2.0)), (0, eighths(1.0)), (2, eighths(1.0))];
        for (found, expected) in found.top.iter().zip(expected) {
            assert_eq!(found.0, expected.0);
            assert!((found.1 - expected.1).abs() < 1e-6);
        }
    }

    #[test]
    fn the_top_is_cut_after_the_smaller_ids() {
        let ids = |k| logprobs(&[1.0; 6], 5, k).top.into_iter().map(|(id, _)| id).collect::<Vec<u32>>();
        assert!(ids(0).is_empty());
        assert_eq!(ids(3), [0, 1, 2]);
        assert_eq!(ids(6), [0, 1, 2, 3, 4, 5]);
        assert_eq!(ids(100), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn no_figure_is_infinite() {
        let found = logprobs(&[f32::NEG_INFINITY, 3.0, f32::NAN], 0, 3);
        assert_eq!(found.logprob, NO_CHANCE);
        assert_eq!(found.top, [(1, 0.0), (0, NO_CHANCE), (2, NO_CHANCE)]);
        assert_eq!(logprobs(&[3.0], 7, 0).logprob, NO_CHANCE);
        assert_eq!(logprobs(&[f32::NEG_INFINITY; 2], 0, 1).top, [(0, NO_CHANCE)]);
        assert_eq!(logprobs(&[], 0, 1).top, []);
        assert_eq!(logprobs(&[f32::MAX, f32::MIN], 0, 1).logprob, 0.0);
    }
}
