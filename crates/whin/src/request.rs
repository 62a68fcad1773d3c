//! What is asked of the engine, and what it answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use crate::chat::{Answer, Chat, Delta};
use crate::constrain::Format;
use crate::sample::{Logprobs, Sampling};
use crate::stop::StopStrings;
use crate::text_out::Piece;
use crate::{Error, ErrorKind, Result};

/// What a text begins with.
#[derive(Clone, Debug)]
pub enum Prompt {
    /// A text, tokenized as it stands. Special strings in it map to their own tokens.
    Text(String),
    /// Tokens. The tokenizer is not loaded for them.
    Ids(Vec<u32>),
    /// Messages, which the checkpoint's template turns into a text. Control tokens in what users and tools wrote are
    /// ordinary text, unless [`Chat::encoding`] says otherwise.
    Chat(Box<Chat>),
}

impl Prompt {
    /// Checks what can be checked without a tokenizer, for a model that knows `vocab` tokens.
    ///
    /// # Errors
    /// [`InvalidArguments`](ErrorKind::InvalidArguments).
    pub fn validate(&self, vocab: usize) -> Result<()> {
        match self {
            Self::Text(text) if text.is_empty() => Err(empty()),
            Self::Text(_) => Ok(()),
            Self::Ids(ids) => validate_ids(ids, vocab),
            Self::Chat(chat) => chat.validate(),
        }
    }
}

pub(crate) fn validate_ids(ids: &[u32], vocab: usize) -> Result<()> {
    if ids.is_empty() {
        return Err(empty());
    }
    match ids.iter().enumerate().find(|(_, id)| **id as usize >= vocab) {
        None => Ok(()),
        Some((at, id)) => Err(Error::new(
            ErrorKind::InvalidArguments,
            format!("token {id} at position {at} of the prompt: the model knows ids 0 to {}", vocab - 1),
        )),
    }
}

fn empty() -> Error {
    Error::new(ErrorKind::InvalidArguments, "the prompt is empty: give at least one token to continue from")
}

/// One completion to compute. `Request::text("…")` asks for the greedy one up to the end of the window.
#[derive(Clone, Debug)]
pub struct Request {
    /// What the text begins with.
    pub prompt: Prompt,
    /// At most this many tokens are generated; unset, up to the end of the window.
    pub max_new_tokens: Option<usize>,
    /// A guard: a request that could need more positions than this is refused before any work.
    pub max_ctx: Option<usize>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Generation ends before the first of these texts. They need the tokenizer, and so does `detokenize`. In an answer to
    /// messages they count in its content, not in reasoning or calls.
    pub stop: Vec<String>,
    /// The form that the answer must have. In an answer to messages it holds for what follows the reasoning, and what
    /// looks like a call of a tool is content.
    pub format: Option<Format>,
    /// Goes on after tokens that end a text. Where the answer has a form to keep to, it ends with that.
    pub ignore_eos: bool,
    /// Reports the log-probability of each token, and of this many of the likeliest at its place.
    pub logprobs: Option<usize>,
    /// Whether the result holds text: by default for a text prompt, and not for tokens. Answers to messages always do.
    pub detokenize: bool,
}

impl Request {
    fn new(prompt: Prompt, detokenize: bool) -> Self {
        Self {
            prompt,
            max_new_tokens: None,
            max_ctx: None,
            sampling: Sampling::default(),
            stop: Vec::new(),
            format: None,
            ignore_eos: false,
            logprobs: None,
            detokenize,
        }
    }

    /// Checks what can be checked before the checkpoint is loaded, for a model that knows `vocab` tokens.
    ///
    /// # Errors
    /// [`InvalidArguments`](ErrorKind::InvalidArguments).
    pub fn validate(&self, vocab: usize) -> Result<()> {
        self.prompt.validate(vocab)?;
        self.sampling.validate(vocab)?;
        StopStrings::new(self.stop.clone())?;
        if let (Some(_), Prompt::Chat(chat)) = (&self.format, &self.prompt)
            && chat.tool_choice.is_enforced()
        {
            return Err(Error::new(
                ErrorKind::InvalidArguments,
                "the answer cannot both be a call of a tool and have a format of its own: ask for one of them",
            ));
        }
        if self.max_new_tokens == Some(0) {
            return Err(Error::new(
                ErrorKind::InvalidArguments,
                "max_new_tokens is 0: ask for at least one token (whin score gives the log-probabilities of a prompt)",
            ));
        }
        Ok(())
    }

    /// Whether the answer has a form of its own, and ends with that.
    pub(crate) fn has_form(&self) -> bool {
        self.format.is_some() || matches!(&self.prompt, Prompt::Chat(chat) if chat.tool_choice.is_enforced())
    }

    /// Asks for the greedy continuation of a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Prompt::Text(text.into()), true)
    }

    /// Asks for the greedy answer to messages.
    pub fn chat(chat: Chat) -> Self {
        Self::new(Prompt::Chat(Box::new(chat)), true)
    }

    /// Asks for the greedy continuation of tokens, in tokens.
    pub fn ids(ids: impl Into<Vec<u32>>) -> Self {
        Self::new(Prompt::Ids(ids.into()), false)
    }
}

/// One generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// The text that is certain now; empty while a character or a possible stop string is incomplete. In an answer to
    /// messages, its content.
    pub text: String,
    /// What is certain now of an answer to messages; empty for other prompts.
    pub deltas: Vec<Delta>,
    /// Its log-probability, where the request asks for it.
    pub logprobs: Option<Logprobs>,
    /// When the model chose it, which may be well before the caller hears of it.
    pub at: Instant,
}

/// Why a completion ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// The model chose a token that ends a text.
    Eos,
    /// A stop string stood in the text, or the one tool call that was wanted was complete.
    Stop,
    /// `max_new_tokens`, or the end of the window.
    Length,
    /// The caller gave up.
    #[default]
    Cancelled,
}

impl FinishReason {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eos => "eos",
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A finished completion.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The prompt, then what was generated, the token that ended it included.
    pub token_ids: Vec<u32>,
    /// How many of `token_ids` are the prompt.
    pub n_prompt: usize,
    /// The generated text, where the request asks for text; for messages as the model wrote it, reasoning and markup
    /// included.
    pub generated_text: Option<String>,
    /// The same, taken apart, for messages.
    pub answer: Option<Answer>,
    /// How many of the generated tokens are reasoning, its marks included.
    pub n_reasoning: usize,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The stop string that ended it.
    pub stop: Option<String>,
    /// The seed of the draws: the one that was given, or the one that was made up.
    pub seed: u64,
    /// For each generated token, where the request asks for it.
    pub logprobs: Option<Vec<Logprobs>>,
    /// From the start of the prompt to its last logits.
    pub prefill_seconds: f64,
    /// From the first generated token to the last.
    pub decode_seconds: f64,
}

impl Completion {
    /// How many tokens were generated.
    pub fn n_generated(&self) -> usize {
        self.token_ids.len() - self.n_prompt
    }

    /// Prompt tokens a second.
    pub fn prefill_tokens_per_sec(&self) -> f64 {
        rate(self.n_prompt, self.prefill_seconds)
    }

    /// Generated tokens a second, the first not counted: it came with the prompt. 0 where there is no other.
    pub fn decode_tokens_per_sec(&self) -> f64 {
        rate(self.n_generated().saturating_sub(1), self.decode_seconds)
    }
}

fn rate(tokens: usize, seconds: f64) -> f64 {
    if tokens == 0 || seconds <= 0.0 { 0.0 } else { tokens as f64 / seconds }
}

/// How well the model foresaw a text.
#[derive(Clone, Debug)]
pub struct Score {
    /// The tokens of the text.
    pub token_ids: Vec<u32>,
    /// The natural logarithm of each token's probability after those before it; none for the first.
    pub logprobs: Vec<Option<f64>>,
}

impl Score {
    /// `e^-mean(logprobs)`; none where there is no token after the first.
    pub fn perplexity(&self) -> Option<f64> {
        let known: Vec<f64> = self.logprobs.iter().copied().flatten().collect();
        (!known.is_empty()).then(|| (-known.iter().sum::<f64>() / known.len() as f64).exp())
    }
}

/// What the worker tells about one sequence.
pub(crate) enum Event {
    Token(Token),
    Scored(Vec<f64>),
    Done(End),
    Failed(Error),
}

/// How a sequence ended.
#[derive(Default)]
pub(crate) struct End {
    pub reason: FinishReason,
    pub stop: Option<String>,
    /// What was held back when it was cancelled.
    pub rest: Piece,
    /// Everything that the model wrote, for messages.
    pub raw: Option<String>,
    pub n_reasoning: usize,
    pub prefill_seconds: f64,
    pub decode_seconds: f64,
}

/// A completion under way: an iterator over its tokens. Dropping it ends the work within one step.
pub struct Generation {
    events: Receiver<Event>,
    canceller: Canceller,
    done: bool,
    completion: Completion,
}

/// Ends a [`Generation`] from elsewhere; what was generated so far stays.
#[derive(Clone, Debug, Default)]
pub struct Canceller(Arc<AtomicBool>);

impl Canceller {
    /// Ends the generation within one step.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Generation {
    pub(crate) fn new(
        events: Receiver<Event>,
        canceller: Canceller,
        prompt: Vec<u32>,
        seed: u64,
        request: &Request,
    ) -> Self {
        let is_chat = matches!(request.prompt, Prompt::Chat(_));
        let completion = Completion {
            n_prompt: prompt.len(),
            token_ids: prompt,
            generated_text: (request.detokenize && !is_chat).then(String::new),
            answer: is_chat.then(Answer::default),
            n_reasoning: 0,
            finish_reason: FinishReason::Cancelled,
            stop: None,
            seed,
            logprobs: request.logprobs.map(|_| Vec::new()),
            prefill_seconds: 0.0,
            decode_seconds: 0.0,
        };
        Self { events, canceller, done: false, completion }
    }

    /// A handle that ends this generation from elsewhere, another thread for example.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Waits for the end and returns the whole.
    ///
    /// # Errors
    /// As the iterator's items.
    pub fn finish(mut self) -> Result<Completion> {
        for token in self.by_ref() {
            token?;
        }
        let nothing = Completion { token_ids: Vec::new(), generated_text: None, ..self.completion.clone() };
        Ok(std::mem::replace(&mut self.completion, nothing))
    }

    fn hear(&mut self, text: &str, deltas: &[Delta]) {
        if let Some(all) = &mut self.completion.generated_text {
            all.push_str(text);
        }
        if let Some(answer) = &mut self.completion.answer {
            deltas.iter().for_each(|delta| answer.push(delta));
        }
    }

    fn take_in(&mut self, token: &Token) {
        self.completion.token_ids.push(token.id);
        self.hear(&token.text, &token.deltas);
        if let (Some(all), Some(logprobs)) = (&mut self.completion.logprobs, &token.logprobs) {
            all.push(logprobs.clone());
        }
    }
}

impl Iterator for Generation {
    type Item = Result<Token>;

    fn next(&mut self) -> Option<Result<Token>> {
        if self.done {
            return None;
        }
        let event = self.events.recv().unwrap_or_else(|_| Event::Failed(worker_is_gone()));
        self.done = !matches!(event, Event::Token(_));
        match event {
            Event::Token(token) => {
                self.take_in(&token);
                Some(Ok(token))
            }
            Event::Failed(error) => Some(Err(error)),
            Event::Scored(_) => None,
            Event::Done(end) => {
                self.completion.finish_reason = end.reason;
                self.completion.stop = end.stop;
                self.completion.n_reasoning = end.n_reasoning;
                self.hear(&end.rest.text, &end.rest.deltas);
                if end.raw.is_some() {
                    self.completion.generated_text = end.raw;
                }
                self.completion.prefill_seconds = end.prefill_seconds;
                self.completion.decode_seconds = end.decode_seconds;
                None
            }
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.canceller.cancel();
    }
}

/// The worker thread only ends before its engine when a stage panicked.
pub(crate) fn worker_is_gone() -> Error {
    Error::new(
        ErrorKind::DeviceFailed,
        "the engine's worker stopped after an internal fault; the message before this one says where. Load the \
         engine anew, and please report it",
    )
}
