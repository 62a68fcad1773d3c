//! Answers drawn at random from the tokens that a matcher allows.

use std::time::{Duration, Instant};

use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use whin::constrain::{Format, Grammar, Grammars, Matcher};
use whin::tokenizer::{TextStream, Tokenizer};

/// Tokens after which a walk looks for the way out, and after which it gives up.
const LONG: usize = 40;
const TOO_LONG: usize = 10_000;

pub struct Walker {
    pub tokenizer: Tokenizer,
    pub grammars: Grammars,
    pub eos: Vec<u32>,
    /// Special tokens that grammars may name, and that the text shows.
    pub shown: Vec<u32>,
    /// The bytes of each token.
    bytes: Vec<Vec<u8>>,
}

impl Walker {
    /// For a model with some more logits than the tokenizer has tokens.
    pub fn new(json: &[u8], ends: &[&str]) -> Self {
        let tokenizer = Tokenizer::from_bytes(json, "tokenizer.json").expect("a walk that goes on");
        let vocab = tokenizer.vocab_size().next_multiple_of(64) + 64;
        let eos: Vec<u32> =
            ends.iter().map(|end| tokenizer.token_to_id(end).expect("a walk that goes on")).collect();
        let grammars = Grammars::new(&tokenizer, vocab, &eos).expect("a walk that goes on");
        let bytes = (0..vocab as u32).map(|id| tokenizer.token_bytes(id)).collect();
        Self { tokenizer, grammars, eos, shown: Vec::new(), bytes }
    }

    pub fn matcher(&self, format: &Format) -> Matcher {
        self.grammars
            .compile(&Grammar::new(format).expect("a walk that goes on"))
            .expect("a walk that goes on")
    }

    /// The ids that `mask` allows, all of which must be tokens of text or ends.
    pub fn allowed(&self, mask: &[u32]) -> Vec<u32> {
        let bit = |id: &u32| mask.get(*id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1);
        (0..mask.len() as u32 * 32).filter(bit).collect()
    }

    /// The texts of `count` walks to the end. Wherever the end is allowed, `accepts` must agree with the text so far.
    pub fn walks(&self, start: &Matcher, count: u64, accepts: &dyn Fn(&str) -> bool) -> Vec<String> {
        (0..count).map(|seed| self.walk(start.clone(), seed, accepts)).collect()
    }

    fn walk(&self, mut matcher: Matcher, seed: u64, accepts: &dyn Fn(&str) -> bool) -> String {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut stream = TextStream::new(&self.tokenizer, true).showing(&self.shown);
        let mut text = String::new();
        let mut ids = Vec::new();
        for step in 0..TOO_LONG {
            let mask =
                matcher.mask().unwrap_or_else(|error| panic!("{error} after {text:?} ({ids:?})")).to_vec();
            let allowed = self.allowed(&mask);
            let ends = allowed.iter().filter(|id| self.eos.contains(id)).count();
            assert!(ends == 0 || ends == self.eos.len(), "all ends or none: {text:?}");
            assert_eq!(ends > 0, matcher.is_accepting(), "ends where it may: {text:?}");
            assert_eq!(ends == allowed.len() && ends > 0, matcher.is_over(), "over: {text:?}");
            assert!(ends == 0 || accepts(&text), "may end, but is no answer: {text:?}");
            for &id in &allowed {
                let text = !self.tokenizer.is_special(id) && !self.bytes[id as usize].is_empty();
                let fine = text || self.eos.contains(&id) || self.shown.contains(&id);
                assert!(fine, "token {id} after {text:?}");
            }
            if ends == allowed.len() || ends > 0 && random.random_bool(0.3) {
                matcher
                    .accept(*self.eos.iter().choose(&mut random).expect("a walk that goes on"))
                    .expect("a walk that goes on");
                assert!(
                    matcher.is_over()
                        && matcher.mask().expect("a walk that goes on").iter().all(|&word| word == 0)
                );
                return text + &stream.finish();
            }
            let tries = if step > LONG && random.random_bool(0.7) { 200 } else { random.random_range(1..4) };
            let draws = allowed.iter().filter(|id| !self.eos.contains(id)).sample(&mut random, tries);
            let id = **draws.iter().min_by_key(|id| self.length_to_come(***id)).expect("a walk that goes on");
            matcher.accept(id).unwrap_or_else(|error| panic!("{error}: {id} after {text:?}"));
            text += &stream.push(id);
            ids.push(id);
        }
        panic!("a walk without an end: {text:?}");
    }

    /// A walk of up to 300 tokens, whose masks and steps are timed.
    pub fn timed_walk(&self, mut matcher: Matcher, seed: u64, times: &mut Vec<Duration>) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for step in 0..300 {
            let started = Instant::now();
            let mask = matcher.mask().expect("a walk that goes on");
            let taken = started.elapsed();
            let allowed = self.allowed(mask);
            let tries = if step % 12 == 11 { 200 } else { 1 };
            let draws = allowed.iter().sample(&mut random, tries);
            let id = **draws.iter().min_by_key(|id| self.length_to_come(***id)).expect("a walk that goes on");
            if self.eos.contains(&id) {
                return;
            }
            let started = Instant::now();
            matcher.accept(id).expect("a walk that goes on");
            times.push(taken + started.elapsed());
        }
    }

    /// Less for tokens that lead out of a JSON value.
    fn length_to_come(&self, id: u32) -> usize {
        let bytes = &self.bytes[id as usize];
        let closes = bytes.iter().filter(|byte| b"\"}])<".contains(byte)).count();
        let opens = bytes.iter().filter(|byte| b"{[(,\\ \n".contains(byte)).count();
        (8 * opens + bytes.len() + 8).saturating_sub(8 * closes.min(1))
    }
}

/// Qwen3's tokenizer, from the folder that `tools/test` fetches it into.
pub fn qwen3() -> Walker {
    let folder = std::env::var("WHIN_QWEN3_TOKENIZER").expect("WHIN_QWEN3_TOKENIZER; run tools/test");
    let json =
        std::fs::read(std::path::Path::new(&folder).join("tokenizer.json")).expect("a walk that goes on");
    Walker::new(&json, &["<|im_end|>", "<|endoftext|>"])
}

pub fn seedling() -> Walker {
    let json = include_bytes!("../../../../models/seedling/tokenizer.json");
    Walker::new(json, &["<|im_end|>", "<|endoftext|>"])
}
