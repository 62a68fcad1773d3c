//! One request on its way: what it has, what it still needs, and what becomes of each new token.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use whin_kernels::BLOCK;

use crate::constrain::Enforcer;
use crate::request::{Canceller, End, Event, FinishReason, Token};
use crate::sample::{Logprobs, NO_CHANCE, Sampler, apply_mask, logprobs};
use crate::text_out::{Next, Piece, TextOut};
use crate::{Error, ErrorKind, Result};

/// A request as the worker receives it: checked, and reduced to tokens.
pub(crate) struct Job {
    pub prompt: Vec<u32>,
    pub goal: Goal,
    pub events: Sender<Event>,
    pub canceller: Canceller,
}

/// What a sequence is run for.
pub(crate) enum Goal {
    /// New tokens.
    Generate(Box<Generate>),
    /// The log-probabilities of the prompt.
    Score(Vec<f64>),
}

/// How new tokens are chosen, and when to stop.
pub(crate) struct Generate {
    pub sampler: Sampler,
    /// At least 1.
    pub max_new_tokens: usize,
    /// None when they are to be ignored.
    pub eos: Arc<[u32]>,
    pub logprobs: Option<usize>,
    pub text: Option<TextOut>,
    /// Keeps to the form that was asked for.
    pub enforcer: Option<Enforcer>,
}

impl Generate {
    /// Whether the plain largest logit decides.
    fn is_greedy(&self) -> bool {
        self.logprobs.is_none() && self.enforcer.is_none() && self.sampler.is_greedy()
    }
}

/// One request in work.
pub(crate) struct Sequence {
    /// The prompt, then what was generated.
    pub tokens: Vec<u32>,
    pub n_prompt: usize,
    /// The length of the text when its first token ran, or ran anew.
    known: usize,
    /// How many tokens have run: their keys and values are in the cache.
    pub done: usize,
    /// The blocks of the cache that hold them.
    pub table: Vec<u32>,
    /// What recurrent layers remember of them; none before the first has run, and where there are no such layers.
    pub state: Option<u32>,
    pub goal: Goal,
    pub canceller: Canceller,
    events: Sender<Event>,
    clock: Clock,
}

struct Clock {
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

impl Sequence {
    pub fn new(job: Job) -> Self {
        Self {
            n_prompt: job.prompt.len(),
            known: job.prompt.len(),
            tokens: job.prompt,
            done: 0,
            table: Vec::new(),
            state: None,
            goal: job.goal,
            canceller: job.canceller,
            events: job.events,
            clock: Clock { started: None, first_token: None, last_token: None },
        }
    }

    /// Tells the caller of a request that never began that it was cancelled.
    pub fn end_unstarted(job: &Job) {
        let end = End { reason: FinishReason::Cancelled, ..End::default() };
        // The receiver may have gone; then nobody wants to know.
        let _ = job.events.send(Event::Done(end));
    }

    /// Tokens that have yet to run. A scored text's last token is not among them: nothing follows it.
    pub fn remaining(&self) -> usize {
        let last = matches!(self.goal, Goal::Score(_)) as usize;
        self.tokens.len() - last - self.done
    }

    /// Whether the logits of every row are wanted, not only those of the last.
    pub fn wants_every_row(&self) -> bool {
        matches!(self.goal, Goal::Score(_))
    }

    /// Whether the plain largest logit decides.
    pub fn is_greedy(&self) -> bool {
        matches!(&self.goal, Goal::Generate(generate) if generate.is_greedy())
    }

    /// The length of the text that was known when the token at `position` ran, which rotary embeddings that adapt to the
    /// text's length go by. It does not depend on how a prompt is cut into steps.
    pub fn span(&self, position: usize) -> u32 {
        self.known.max(position + 1) as u32
    }

    /// Has all tokens run anew if the text has just outgrown `border`: what the cache holds of them is of no use then.
    pub fn cross(&mut self, border: usize) {
        if self.known <= border && self.tokens.len() > border {
            (self.known, self.done) = (self.tokens.len(), 0);
        }
    }

    /// Blocks that are missing until `rows` more tokens can run.
    pub fn missing_blocks(&self, rows: usize) -> usize {
        (self.done + rows).div_ceil(BLOCK).saturating_sub(self.table.len())
    }

    /// Marks the beginning of the work.
    pub fn start(&mut self) {
        self.clock.started.get_or_insert_with(Instant::now);
    }

    /// Takes in what the step computed for this sequence: the logits of its wanted rows, (rows, vocab), of which the
    /// last is changed while sampling. Returns whether the sequence has ended.
    pub fn take_logits(&mut self, first: usize, logits: &mut [f32], vocab: usize) -> bool {
        let result = match &mut self.goal {
            Goal::Score(scores) => {
                for (row, logits) in logits.chunks_exact(vocab).enumerate() {
                    if logits.iter().any(|logit| logit.is_nan()) {
                        return self.fail(not_finite(first + row + 1, f32::NAN));
                    }
                    let next = self.tokens[first + row + 1];
                    scores.push(f64::from(logprobs(logits, next, 0).logprob));
                }
                return self.end_of_score();
            }
            Goal::Generate(generate) => choose(generate, logits),
        };
        match result {
            Ok((id, logprobs)) => self.take_token(id, logprobs),
            Err(error) => self.fail(error),
        }
    }

    /// Takes in the token with the largest logit. Returns whether the sequence has ended.
    pub fn take_best(&mut self, id: u32, logit: f32) -> bool {
        if !logit.is_finite() {
            return self.fail(not_finite(self.tokens.len(), logit));
        }
        if let Goal::Generate(generate) = &mut self.goal {
            generate.sampler.accept(id);
        }
        self.take_token(id, None)
    }

    fn take_token(&mut self, id: u32, logprobs: Option<Logprobs>) -> bool {
        let now = Instant::now();
        self.clock.first_token.get_or_insert(now);
        self.clock.last_token = Some(now);
        self.tokens.push(id);
        let count = self.tokens.len() - self.n_prompt;
        let Goal::Generate(generate) = &mut self.goal else { return true };
        let is_eos = generate.eos.contains(&id);
        let is_whole = !is_eos && generate.enforcer.as_mut().is_some_and(Enforcer::must_end);
        let next = match () {
            () if is_eos || is_whole => Next::End,
            () if count >= generate.max_new_tokens => Next::Cut,
            () => Next::More,
        };
        let piece = match &mut generate.text {
            Some(out) => out.push((!is_eos).then_some(id), next),
            None => Piece::default(),
        };
        let end = match () {
            () if piece.stop.is_some() || piece.is_over => Some(FinishReason::Stop),
            () if next == Next::End => Some(FinishReason::Eos),
            () if next == Next::Cut => Some(FinishReason::Length),
            () => None,
        };
        let token = Token { id, text: piece.text, deltas: piece.deltas, logprobs, at: now };
        let heard = self.events.send(Event::Token(token)).is_ok();
        if let Some(reason) = end {
            self.end(reason, piece.stop, Piece::default());
        }
        end.is_some() || !heard
    }

    fn end_of_score(&mut self) -> bool {
        let Goal::Score(scores) = &mut self.goal else { return true };
        if scores.len() + 1 < self.tokens.len() {
            return false;
        }
        // The receiver may have gone; then nobody wants the score.
        let _ = self.events.send(Event::Scored(std::mem::take(scores)));
        true
    }

    /// Ends with what was generated so far, held back or not.
    pub fn cancel(&mut self) {
        let rest = match &mut self.goal {
            Goal::Generate(generate) => generate.text.as_mut().map(|out| out.push(None, Next::Cut)),
            Goal::Score(_) => None,
        };
        self.end(FinishReason::Cancelled, None, rest.unwrap_or_default());
    }

    /// Tells the caller why and how it ended, and `rest`, which came with no token.
    fn end(&self, reason: FinishReason, stop: Option<String>, rest: Piece) {
        let seconds = |from: Option<Instant>, to: Option<Instant>| match (from, to) {
            (Some(from), Some(to)) => (to - from).as_secs_f64(),
            _ => 0.0,
        };
        let Clock { started, first_token, last_token } = self.clock;
        let text = match &self.goal {
            Goal::Generate(generate) => generate.text.as_ref(),
            Goal::Score(_) => None,
        };
        let (raw, n_reasoning) = text.map_or((None, 0), TextOut::raw);
        let end = End {
            reason,
            stop,
            rest,
            raw,
            n_reasoning,
            prefill_seconds: seconds(started, first_token),
            decode_seconds: seconds(first_token, last_token),
        };
        // The receiver may have gone; then nobody wants to know.
        let _ = self.events.send(Event::Done(end));
    }

    /// Ends with an error. Returns true, since that is an end.
    pub fn fail(&self, error: Error) -> bool {
        // The receiver may have gone; then nobody wants to know.
        let _ = self.events.send(Event::Failed(error));
        true
    }
}

fn not_finite(position: usize, logit: f32) -> Error {
    Error::new(
        ErrorKind::DeviceFailed,
        format!(
            "the logits for position {position} have no finite maximum (found {logit}): a weight of the checkpoint is \
             infinite, not a number, or so large that sums overflow, or the device is faulty; see what --device \
             reference gives"
        ),
    )
}

/// Samples from the last row of logits, among the tokens that the form of the answer allows. Log-probabilities are those
/// among these tokens.
fn choose(generate: &mut Generate, logits: &mut [f32]) -> Result<(u32, Option<Logprobs>)> {
    let mask = match &mut generate.enforcer {
        Some(enforcer) => {
            if enforcer.listens() {
                enforcer.hear(generate.sampler.clone().sample(&mut logits.to_vec(), None)?);
            }
            Some(enforcer.mask()?)
        }
        None => None,
    };
    let raw = generate.logprobs.map(|_| {
        let mut raw = logits.to_vec();
        mask.iter().for_each(|mask| apply_mask(&mut raw, mask));
        raw
    });
    let mut id = generate.sampler.sample(logits, mask)?;
    if let Some(enforcer) = &mut generate.enforcer {
        id = enforcer.accept(id)?;
    }
    let mut logprobs = raw.zip(generate.logprobs).map(|(raw, k)| logprobs(&raw, id, k));
    if let (Some(logprobs), true) = (&mut logprobs, generate.enforcer.is_some()) {
        // What the form does not allow was no candidate.
        logprobs.top.retain(|(_, logprob)| *logprob > NO_CHANCE);
    }
    Ok((id, logprobs))
}
