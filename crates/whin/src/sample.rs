//! From logits to the next token: greedy or drawn, under penalties, biases and masks.
//!
//! The chain, in this order: logit bias and mask → repetition penalty (prompt and output), presence and
//! frequency penalty (output) → temperature → top-k → min-p → top-p → seeded draw. It knows ids and
//! numbers only, neither text nor the model.

mod draw;
mod logprobs;

use std::cell::RefCell;
use std::collections::HashMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{Error, ErrorKind, Result};
use draw::{Cuts, Scratch};
pub use logprobs::{Logprobs, NO_CHANCE, logprobs};

/// Temperatures up to this one are greedy: dividing by them would overflow, and would choose no other token.
const GREEDY_TEMPERATURE: f32 = 1e-5;

/// How the next token is chosen. The default is greedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by this; 0, and anything up to 1e-5, is greedy.
    pub temperature: f32,
    /// Only so many of the best tokens stay; 0 and -1 are off, as is a number past the vocabulary; 1 is greedy.
    pub top_k: i64,
    /// Only the smallest set of best tokens that reaches this probability stays, the one that crosses
    /// included; 1 is off, 0 keeps the single best.
    pub top_p: f32,
    /// Only tokens at least this many times as likely as the best stay; 0 is off, 1 keeps the best and
    /// its ties.
    pub min_p: f32,
    /// Logits of tokens in prompt or output are divided by this if positive, else multiplied; 1 is off.
    pub repetition_penalty: f32,
    /// Taken off the logit of each token in the output.
    pub presence_penalty: f32,
    /// Taken off the logit of each token in the output, once for each time it stands there.
    pub frequency_penalty: f32,
    /// Added to the logits of these ids before anything else.
    pub logit_bias: Vec<(u32, f32)>,
    /// The seed that was asked for; none means a random one, chosen by the caller.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl Sampling {
    /// Checks every field for a model with `vocab` logits.
    ///
    /// # Errors
    /// `invalid_arguments`, with one message that names all problems.
    pub fn validate(&self, vocab: usize) -> Result<()> {
        let mut problems = Vec::new();
        let mut check = |fine: bool, problem: String| {
            if !fine {
                problems.push(problem);
            }
        };
        let Self { temperature, top_k, top_p, min_p, repetition_penalty, .. } = *self;
        check(
            temperature.is_finite() && temperature >= 0.0,
            format!("temperature is {temperature}; it must be 0 or more, and finite"),
        );
        check(top_k >= -1, format!("top_k is {top_k}; it must be 1 or more, or 0 or -1 for off"));
        for (name, value) in [("top_p", top_p), ("min_p", min_p)] {
            check((0.0..=1.0).contains(&value), format!("{name} is {value}; it must lie within 0 and 1"));
        }
        check(
            repetition_penalty.is_finite() && repetition_penalty > 0.0,
            format!("repetition_penalty is {repetition_penalty}; it must be more than 0, and finite"),
        );
        for (name, value) in
            [("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)]
        {
            check((-2.0..=2.0).contains(&value), format!("{name} is {value}; it must lie within -2 and 2"));
        }
        let mut biased: Vec<u32> = Vec::with_capacity(self.logit_bias.len());
        for &(id, bias) in &self.logit_bias {
            check(
                (id as usize) < vocab,
                format!("logit_bias names token {id}; the last one is {}", vocab.saturating_sub(1)),
            );
            check(bias.is_finite(), format!("logit_bias of token {id} is {bias}; it must be finite"));
            biased.push(id);
        }
        biased.sort_unstable();
        if let Some(twice) = biased.windows(2).find(|pair| pair[0] == pair[1]) {
            check(false, format!("logit_bias names token {} twice", twice[0]));
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidArguments, problems.join("; ")))
    }

    /// Whether the plain arg-max of the raw logits is the answer, so that no logits need to be read.
    pub fn is_greedy(&self) -> bool {
        self.takes_the_best() && !self.has_penalties() && self.logit_bias.is_empty()
    }

    /// Whether nothing is drawn: the best token, after bias and penalties, is the answer.
    fn takes_the_best(&self) -> bool {
        self.temperature <= GREEDY_TEMPERATURE || self.top_k == 1 || self.top_p == 0.0
    }

    fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}

thread_local! {
    /// Working space of the draw. It holds nothing between calls; one for each sampler would cost two
    /// megabytes a request.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Chooses the tokens of one answer.
///
/// Step `t` of choice `c` draws with one random number that depends on (seed, `c`, `t`) and nothing else:
/// ChaCha8 keyed by the seed, stream `c`, words `2t` and `2t + 1`. So the same seed gives the same answer
/// whatever else runs beside it.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    /// The distinct ids of prompt and output, with how often they stand in the output. Kept only if
    /// there are penalties.
    seen: HashMap<u32, u32>,
    random: ChaCha8Rng,
    n_prompt: usize,
    step: u64,
}

impl Sampler {
    /// A sampler before its first token. `sampling` must have passed [`Sampling::validate`]; `seed` is
    /// used instead of `sampling.seed`, which may be unset; `choice_index` tells apart several answers to
    /// one request.
    pub fn new(sampling: Sampling, seed: u64, prompt_ids: &[u32], choice_index: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(choice_index);
        let seen = if sampling.has_penalties() {
            prompt_ids.iter().map(|&id| (id, 0)).collect()
        } else {
            HashMap::new()
        };
        Self { sampling, seen, random, n_prompt: prompt_ids.len(), step: 0 }
    }

    /// As [`Sampling::is_greedy`].
    pub fn is_greedy(&self) -> bool {
        self.sampling.is_greedy()
    }

    /// The next token for `logits` (vocabulary), which are overwritten. `mask`, if given, allows id `i`
    /// where bit `i % 32` of word `i / 32` is set; ids past its end are not allowed.
    ///
    /// # Errors
    /// `device_failed` if a logit is NaN or +∞ or if all are −∞; `invalid_arguments` if the mask leaves no
    /// token. The sampler is then as it was before.
    pub fn sample(&mut self, logits: &mut [f32], mask: Option<&[u32]>) -> Result<u32> {
        self.check(logits)?;
        for &(id, bias) in &self.sampling.logit_bias {
            if let Some(logit) = logits.get_mut(id as usize) {
                change(logit, |logit| logit + bias);
            }
        }
        if let Some(mask) = mask {
            apply_mask(logits, mask);
        }
        self.apply_penalties(logits);

        let best = draw::largest(logits);
        if best == f32::NEG_INFINITY {
            let message = format!("the mask leaves no token to choose for position {}", self.position());
            return Err(Error::new(ErrorKind::InvalidArguments, message));
        }
        let token = if self.sampling.takes_the_best() {
            logits.iter().position(|&logit| logit == best).unwrap_or(0)
        } else {
            let uniform = self.uniform();
            let cuts = self.cuts(logits.len());
            SCRATCH.with_borrow_mut(|scratch| {
                scratch.weigh(logits, best, self.sampling.temperature);
                scratch.cut(logits, best, &cuts);
                scratch.draw(uniform)
            })
        } as u32;
        self.accept(token);
        Ok(token)
    }

    /// Takes note of a token of the output that was chosen elsewhere, such as by the device's arg-max.
    pub fn accept(&mut self, id: u32) {
        self.step += 1;
        if self.sampling.has_penalties() {
            *self.seen.entry(id).or_insert(0) += 1;
        }
    }

    /// The place in the text, counted from 0, of the token that comes next.
    fn position(&self) -> u64 {
        self.n_prompt as u64 + self.step
    }

    fn check(&self, logits: &[f32]) -> Result<()> {
        let failed = |what: String| {
            let position = self.position();
            Error::new(
                ErrorKind::DeviceFailed,
                format!(
                    "the logits for position {position} have no finite maximum ({what}): a weight of the checkpoint is \
                     infinite, not a number, or so large that sums overflow, or the device is faulty; see what \
                     --device reference gives"
                ),
            )
        };
        if !draw::all_below_infinity(logits) {
            let broken = |logit: f32| logit.is_nan() || logit == f32::INFINITY;
            let id = logits.iter().position(|&logit| broken(logit)).unwrap_or(0);
            return Err(failed(format!("the logit of token {id} is {}", logits[id])));
        }
        if draw::largest(logits) == f32::NEG_INFINITY {
            return Err(failed(format!("each of the {} logits is -inf", logits.len())));
        }
        Ok(())
    }

    fn apply_penalties(&self, logits: &mut [f32]) {
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, .. } = self.sampling;
        for (&id, &count) in &self.seen {
            // A prompt given as ids may hold any; those without a logit cannot be chosen anyway.
            let Some(logit) = logits.get_mut(id as usize) else { continue };
            change(logit, |logit| {
                let logit = if logit > 0.0 { logit / repetition_penalty } else { logit * repetition_penalty };
                if count > 0 { logit - presence_penalty - frequency_penalty * count as f32 } else { logit }
            });
        }
    }

    /// A number in [0, 1) for this step, with 53 random bits.
    fn uniform(&mut self) -> f64 {
        self.random.set_word_pos(2 * u128::from(self.step));
        (self.random.next_u64() >> 11) as f64 * (0.5_f64).powi(53)
    }

    fn cuts(&self, vocab: usize) -> Cuts {
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        let top_k = usize::try_from(top_k).ok().filter(|&top_k| top_k > 0 && top_k < vocab);
        Cuts { temperature, top_k, min_p, top_p }
    }
}

/// Changes a logit that is not banned, and keeps it finite: at the edge of f32 a penalty could make +∞,
/// which is an error, or −∞, which is a ban, and nobody asked for either.
fn change(logit: &mut f32, change: impl FnOnce(f32) -> f32) {
    if *logit > f32::NEG_INFINITY {
        *logit = change(*logit).clamp(f32::MIN, f32::MAX);
    }
}

/// Takes all chance from the ids that `mask` does not allow, as in [`Sampler::sample`].
pub(crate) fn apply_mask(logits: &mut [f32], mask: &[u32]) {
    for (word, logits) in logits.chunks_mut(32).enumerate() {
        let allowed = mask.get(word).copied().unwrap_or(0);
        if allowed == u32::MAX {
            continue;
        }
        for (bit, logit) in logits.iter_mut().enumerate() {
            if allowed >> bit & 1 == 0 {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

#[cfg(test)]
mod tests;
