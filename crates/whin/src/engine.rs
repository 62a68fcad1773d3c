//! A checkpoint that is ready to answer: load once, generate often, from any number of threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use whin_kernels::KvKind;

use crate::cache::{CacheMode, Sources, Verify};
use crate::chat::Phase;
use crate::constrain::{Enforcer, Grammar};
use crate::device::Device;
use crate::fit::Window;
use crate::launch::{self, Launched, Prepared};
use crate::model::Weights;
use crate::model::weights::Origin;
use crate::opened::Checkpoint;
use crate::request::{Canceller, Event, Generation, Prompt, Request, Score, validate_ids, worker_is_gone};
use crate::sample::Sampler;
use crate::sequence::{Generate, Goal, Job};
use crate::stop::StopStrings;
use crate::text_out::{Calls, TextOut};
use crate::tokenizer::TextStream;
use crate::{Error, ErrorKind, Result};

/// How a checkpoint is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where to compute.
    pub device: Device,
    /// The form in which matrices are kept.
    pub weights: Weights,
    /// The form in which keys and values are kept.
    pub kv: KvKind,
    /// Threads of the processor, at most 1024; unset, all that this process may use.
    pub threads: Option<usize>,
    /// The longest text in tokens, at most what the model declares; unset, that, or what memory has room for.
    pub context: Option<usize>,
    /// Rows that run in one step: fewer take less memory, more run a prompt faster. Up to 64 requests run at once, and
    /// no more than this. No result depends on it.
    pub prefill_chunk: usize,
    /// Where packed weights are kept for the next load.
    pub cache: CacheMode,
    /// How closely they are compared with the checkpoint.
    pub verify: Verify,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: Device::Auto,
            weights: Weights::Auto,
            kv: KvKind::Bf16,
            threads: None,
            context: None,
            prefill_chunk: 512,
            cache: CacheMode::Auto,
            verify: Verify::Quick,
        }
    }
}

/// A loaded checkpoint. Clones share it.
#[derive(Clone)]
pub struct Engine {
    checkpoint: Checkpoint,
    jobs: Sender<Job>,
    device: String,
    window: Window,
    load_seconds: f64,
    weights: Weights,
    kv: KvKind,
    origin: Arc<Origin>,
    worker: Arc<JoinHandle<()>>,
    sources: Arc<Sources>,
}

impl Engine {
    /// Loads the checkpoint at `path`, as [`Checkpoint::open`] finds it.
    ///
    /// # Errors
    /// [`CheckpointNotFound`](ErrorKind::CheckpointNotFound), [`InvalidCheckpoint`](ErrorKind::InvalidCheckpoint),
    /// [`UnsupportedArchitecture`](ErrorKind::UnsupportedArchitecture),
    /// [`DeviceUnavailable`](ErrorKind::DeviceUnavailable), [`OutOfMemory`](ErrorKind::OutOfMemory),
    /// [`InvalidArguments`](ErrorKind::InvalidArguments) or [`Io`](ErrorKind::Io).
    pub fn load(path: Option<&Path>, options: &Options) -> Result<Self> {
        Self::start(&Checkpoint::open(path)?, options, &mut |_, _| ())
    }

    /// Loads an opened checkpoint. `progress` hears how many bytes of weights, of how many, have been read.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn start(
        checkpoint: &Checkpoint,
        options: &Options,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let started = std::time::Instant::now();
        let Launched { jobs, worker, device, window, origin, sources } =
            launch::launch(checkpoint, options, progress)?;
        Ok(Self {
            checkpoint: checkpoint.clone(),
            jobs,
            device,
            window,
            load_seconds: started.elapsed().as_secs_f64(),
            weights: options.weights.settled(checkpoint.spec()),
            kv: options.kv,
            origin: Arc::new(origin),
            worker: Arc::new(worker),
            sources: Arc::new(sources),
        })
    }

    /// Packs the weights of a checkpoint into its load cache, ahead of time, unless they are there: in the folder that
    /// the options name. No more than one weight is in memory at once. `progress` is as in [`Self::start`].
    ///
    /// # Errors
    /// As [`Self::load`]; [`Io`](ErrorKind::Io) where the cache cannot be written, and
    /// [`InvalidArguments`](ErrorKind::InvalidArguments) where the options ask for none.
    pub fn prepare(
        checkpoint: &Checkpoint,
        options: &Options,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Prepared> {
        launch::prepare(checkpoint, options, progress)
    }

    /// What was loaded.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The device that computes, for people.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The form in which matrices are kept.
    pub fn weights(&self) -> Weights {
        self.weights
    }

    /// The form in which keys and values are kept.
    pub fn kv(&self) -> KvKind {
        self.kv
    }

    /// The longest text in tokens, prompt and answer together.
    pub fn window(&self) -> usize {
        self.window.positions
    }

    /// Whether the weights came out of the load cache.
    pub fn is_from_cache(&self) -> bool {
        self.origin.is_cache
    }

    /// Waits until the weights that this load has packed are safely in the load cache, or cannot be: until then a
    /// thread is busy with them. Dropping the last clone waits too.
    pub fn wait_for_cache(&self) {
        if let Some(kept) = &self.origin.kept {
            kept.wait();
        }
    }

    /// Whether this is a clone of `other`, or `other` of this.
    pub fn shares_weights_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.worker, &other.worker)
    }

    /// Whether the files that it was loaded from are still what they were.
    pub(crate) fn is_current(&self) -> bool {
        self.sources.are_unchanged()
    }

    /// A way to ask whether the weights are gone: they stay while clones or requests use them.
    pub(crate) fn ending(&self) -> impl Fn() -> bool + use<> {
        let worker = self.worker.clone();
        move || worker.is_finished()
    }

    /// How long loading took.
    pub fn load_seconds(&self) -> f64 {
        self.load_seconds
    }

    /// Starts a completion.
    ///
    /// # Errors
    /// [`InvalidArguments`](ErrorKind::InvalidArguments) or [`ContextExceeded`](ErrorKind::ContextExceeded) before
    /// any work; those of the tokenizer where it is needed.
    pub fn generate(&self, request: &Request) -> Result<Generation> {
        request.validate(self.checkpoint.spec().vocab)?;
        let (prompt, start) = self.tokens(&request.prompt)?;
        let max_new_tokens = self.budget(prompt.len(), request)?;
        let seed = request.sampling.seed.unwrap_or_else(random_seed);
        let enforcer = self.enforcer(request, start)?;
        // An answer of a form ends where that ends.
        let eos = if request.ignore_eos && !request.has_form() {
            Arc::from([])
        } else {
            self.checkpoint.end_tokens()
        };
        let generate = Generate {
            sampler: Sampler::new(request.sampling.clone(), seed, &prompt, 0),
            max_new_tokens,
            eos,
            logprobs: request.logprobs,
            text: self.text_out(request, start)?,
            enforcer,
        };
        let (events, canceller) = self.submit(prompt.clone(), Goal::Generate(Box::new(generate)))?;
        Ok(Generation::new(events, canceller, prompt, seed, request))
    }

    /// What keeps an answer to the form that it must have, if it must have one.
    fn enforcer(&self, request: &Request, start: Phase) -> Result<Option<Enforcer>> {
        let tokenizer = || self.checkpoint.tokenizer();
        let grammar = match (&request.format, &request.prompt) {
            (Some(format), Prompt::Chat(_)) => {
                self.checkpoint.chat_format()?.answer_grammar(Grammar::new(format)?, start, tokenizer()?)
            }
            (Some(format), _) => Grammar::new(format)?,
            (None, Prompt::Chat(chat)) if chat.tool_choice.is_enforced() => {
                self.checkpoint.chat_format()?.call_grammar(chat, tokenizer()?)?
            }
            (None, Prompt::Chat(chat)) if !chat.conversation.tools.is_empty() => {
                let grammars = || self.checkpoint.grammars().cloned();
                return self.checkpoint.chat_format()?.strict_enforcer(chat, start, &grammars, tokenizer()?);
            }
            (None, _) => return Ok(None),
        };
        for what in grammar.loosened() {
            tracing::warn!("of the form of the answer, this is not enforced: {what}");
        }
        let grammars = self.checkpoint.grammars()?;
        let matcher = grammars.compile(&grammar)?;
        let Prompt::Chat(chat) = &request.prompt else {
            return Ok(Some(Enforcer::at_once(grammars, matcher)));
        };
        self.checkpoint.chat_format()?.enforcer(chat, start, (grammars, matcher), tokenizer()?).map(Some)
    }

    /// How the tokens of an answer become text, where that is wanted.
    fn text_out(&self, request: &Request, start: Phase) -> Result<Option<TextOut>> {
        let stops = StopStrings::new(request.stop.clone())?;
        let plain = |shown: &[u32]| -> Result<TextOut> {
            let stream = TextStream::new(self.checkpoint.tokenizer()?, true).showing(shown);
            Ok(TextOut::new(stream, stops, request.stop.clone()))
        };
        if let Prompt::Chat(chat) = &request.prompt {
            let format = self.checkpoint.chat_format()?;
            let router = format.router(chat, start, request.format.is_none());
            let calls = Calls { alone: chat.tool_choice.is_enforced(), one: !chat.parallel_tool_calls };
            return Ok(Some(plain(format.shown())?.routed(router, calls)));
        }
        let wants_text = request.detokenize || !request.stop.is_empty();
        if wants_text { plain(&[]).map(Some) } else { Ok(None) }
    }

    /// The log-probability of each token of a text.
    ///
    /// # Errors
    /// As [`Self::generate`].
    pub fn score(&self, prompt: &Prompt) -> Result<Score> {
        let (token_ids, _) = self.tokens(prompt)?;
        if token_ids.len() > self.window() {
            return Err(self.too_long(&format!("the text has {} tokens", token_ids.len())));
        }
        let mut logprobs = vec![None];
        if token_ids.len() > 1 {
            let (events, _canceller) = self.submit(token_ids.clone(), Goal::Score(Vec::new()))?;
            match events.recv() {
                Ok(Event::Scored(scores)) => logprobs.extend(scores.into_iter().map(Some)),
                Ok(Event::Failed(error)) => return Err(error),
                _ => return Err(worker_is_gone()),
            }
        }
        Ok(Score { token_ids, logprobs })
    }

    fn submit(&self, prompt: Vec<u32>, goal: Goal) -> Result<(Receiver<Event>, Canceller)> {
        let (events, receiver) = channel();
        let canceller = Canceller::default();
        let job = Job { prompt, goal, events, canceller: canceller.clone() };
        self.jobs.send(job).map_err(|_| worker_is_gone())?;
        Ok((receiver, canceller))
    }

    /// The tokens of a prompt, and in which phase they leave an answer to messages.
    fn tokens(&self, prompt: &Prompt) -> Result<(Vec<u32>, Phase)> {
        let vocab = self.checkpoint.spec().vocab;
        prompt.validate(vocab)?;
        let (ids, start) = match prompt {
            Prompt::Ids(ids) => return Ok((ids.clone(), Phase::Content)),
            Prompt::Text(text) => (self.checkpoint.tokenizer()?.encode(text)?, Phase::Content),
            Prompt::Chat(chat) => {
                let prompt = self.checkpoint.chat_prompt(chat)?;
                (prompt.token_ids, prompt.start)
            }
        };
        // A tokenizer may know more tokens than the model, and may make none of a text.
        validate_ids(&ids, vocab)?;
        Ok((ids, start))
    }

    /// How many tokens may be generated.
    fn budget(&self, n_prompt: usize, request: &Request) -> Result<usize> {
        let limit = request.max_ctx.map_or(self.window(), |guard| guard.min(self.window()));
        let by_guard = request.max_ctx.is_some_and(|guard| guard < self.window());
        let exceeded = |what: String| {
            if by_guard {
                let message = format!("{what}, more than max_ctx ({limit}): raise it, or ask for less");
                Error::new(ErrorKind::ContextExceeded, message)
            } else {
                self.too_long(&what)
            }
        };
        match request.max_new_tokens {
            Some(new) if n_prompt.saturating_add(new) > limit => {
                Err(exceeded(format!("{n_prompt} prompt tokens and {new} new tokens are asked for")))
            }
            Some(new) => Ok(new),
            None if n_prompt >= limit => {
                Err(exceeded(format!("the prompt has {n_prompt} tokens and leaves no room for an answer")))
            }
            None => Ok(limit - n_prompt),
        }
    }

    fn too_long(&self, what: &str) -> Error {
        let why = self.window.describe(self.checkpoint.spec().max_positions);
        Error::new(
            ErrorKind::ContextExceeded,
            format!("{what}, more than {why}: shorten the text, or ask for less"),
        )
    }
}

fn random_seed() -> u64 {
    // 53 bits, so that JSON readers that keep numbers as f64 show the seed that reproduces the run.
    rand::random::<u64>() >> 11
}
