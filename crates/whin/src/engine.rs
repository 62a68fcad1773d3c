//! A checkpoint that is ready to answer: load once, generate often, from any number of threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use whin_kernels::cpu::{Cpu, Isa};
use whin_kernels::reference::Reference;
use whin_kernels::{Backend, KvKind};

use crate::device::{Device, WithIsa, with_instruction_set};
use crate::memory;
use crate::model::Weights;
use crate::model::plan::{Load, Plan};
use crate::model::spec::Spec;
use crate::model::weights::Model;
use crate::opened::Checkpoint;
use crate::request::{Canceller, Event, Generation, Prompt, Request, Score, validate_ids, worker_is_gone};
use crate::sample::Sampler;
use crate::sequence::{Generate, Goal, Job, TextOut};
use crate::stop::StopStrings;
use crate::tokenizer::TextStream;
use crate::worker::{MAX_SEQUENCES, Worker};
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
    /// The longest text in tokens, at most what the model declares; unset, that.
    pub context: Option<usize>,
    /// Rows that run in one step: fewer take less memory, more run a prompt faster. Up to 64 requests run at once, and
    /// no more than this. No result depends on it.
    pub prefill_chunk: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: Device::Auto,
            weights: Weights::Int8,
            kv: KvKind::Bf16,
            threads: None,
            context: None,
            prefill_chunk: 512,
        }
    }
}

/// More threads than any processor has: a larger number is a slip, and would exhaust the system.
const MAX_THREADS: usize = 1024;

/// A loaded checkpoint. Clones share it.
#[derive(Clone)]
pub struct Engine {
    checkpoint: Checkpoint,
    jobs: Sender<Job>,
    device: String,
    window: usize,
    load_seconds: f64,
    weights: Weights,
    kv: KvKind,
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
        let spec = checkpoint.spec();
        let window = window(spec, options.context)?;
        check_options(options)?;
        let loads = Plan::new(spec).claim(checkpoint.tensors()?)?;
        check_memory(spec, options.weights, memory::available())?;
        // Room for more rows than one text and the others' single ones would never be used.
        let chunk = options.prefill_chunk.min(window.saturating_add(MAX_SEQUENCES));
        let parts = Parts { checkpoint, loads: &loads, options, chunk, progress };
        let (jobs, device) = match options.device {
            Device::Reference => launch(Reference, parts)?,
            Device::Auto | Device::Cpu(None) => launch_best_cpu(parts)?,
            Device::Cpu(Some(name)) => launch_cpu(name, parts)?,
        };
        Ok(Self {
            checkpoint: checkpoint.clone(),
            jobs,
            device,
            window,
            load_seconds: started.elapsed().as_secs_f64(),
            weights: options.weights,
            kv: options.kv,
        })
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
        self.window
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
        let stops = StopStrings::new(request.stop.clone())?;
        let wants_text = request.detokenize || !request.stop.is_empty();
        let prompt = self.tokens(&request.prompt)?;
        let max_new_tokens = self.budget(prompt.len(), request)?;
        let tokenizer = if wants_text { Some(self.checkpoint.tokenizer()?) } else { None };
        let text = tokenizer.map(|tokenizer| TextOut {
            stream: TextStream::new(tokenizer, true),
            stops,
            names: request.stop.clone(),
        });
        let seed = request.sampling.seed.unwrap_or_else(random_seed);
        let eos = if request.ignore_eos { Arc::from([]) } else { self.checkpoint.end_tokens() };
        let generate = Generate {
            sampler: Sampler::new(request.sampling.clone(), seed, &prompt, 0),
            max_new_tokens,
            eos,
            logprobs: request.logprobs,
            text,
        };
        let (events, canceller) = self.submit(prompt.clone(), Goal::Generate(Box::new(generate)))?;
        Ok(Generation::new(events, canceller, prompt, seed, request))
    }

    /// The log-probability of each token of a text.
    ///
    /// # Errors
    /// As [`Self::generate`].
    pub fn score(&self, prompt: &Prompt) -> Result<Score> {
        let token_ids = self.tokens(prompt)?;
        if token_ids.len() > self.window {
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

    fn tokens(&self, prompt: &Prompt) -> Result<Vec<u32>> {
        let vocab = self.checkpoint.spec().vocab;
        prompt.validate(vocab)?;
        let text = match prompt {
            Prompt::Ids(ids) => return Ok(ids.clone()),
            Prompt::Text(text) => text,
        };
        let ids = self.checkpoint.tokenizer()?.encode(text)?;
        // A tokenizer may know more tokens than the model, and may make none of a text.
        validate_ids(&ids, vocab)?;
        Ok(ids)
    }

    /// How many tokens may be generated.
    fn budget(&self, n_prompt: usize, request: &Request) -> Result<usize> {
        let limit = request.max_ctx.map_or(self.window, |guard| guard.min(self.window));
        let by_guard = request.max_ctx.is_some_and(|guard| guard < self.window);
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
        let model = self.checkpoint.spec().max_positions;
        let why = if self.window < model {
            format!("the context of {} that was set (the model can do {model})", self.window)
        } else {
            format!("the model's window of {}", self.window)
        };
        Error::new(
            ErrorKind::ContextExceeded,
            format!("{what}, more than {why}: shorten the text, or ask for less"),
        )
    }
}

fn window(spec: &Spec, context: Option<usize>) -> Result<usize> {
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArguments, message));
    match context {
        Some(0 | 1) => {
            invalid("context must hold at least 2 tokens: one of the prompt and one new".to_owned())
        }
        Some(context) if context > spec.max_positions => invalid(format!(
            "context {context} is more than the {} positions that the model declares in config.json",
            spec.max_positions
        )),
        Some(context) => Ok(context),
        None => Ok(spec.max_positions),
    }
}

fn check_options(options: &Options) -> Result<()> {
    let problem = match options {
        Options { threads: Some(0), .. } => "threads must be at least 1".to_owned(),
        Options { threads: Some(threads), .. } if *threads > MAX_THREADS => {
            format!("{threads} threads are asked for: at most {MAX_THREADS} can work together")
        }
        Options { threads: Some(threads), device: Device::Reference, .. } if *threads > 1 => {
            "the reference works with one thread: leave threads away".to_owned()
        }
        Options { prefill_chunk: 0, .. } => "prefill_chunk must be at least 1".to_owned(),
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::InvalidArguments, problem))
}

/// Refuses weights that cannot fit, before anything is allocated.
fn check_memory(spec: &Spec, weights: Weights, available: Option<u64>) -> Result<()> {
    let needed = spec.weight_bytes(weights);
    match available {
        Some(available) if needed > available => Err(Error::new(
            ErrorKind::OutOfMemory,
            format!(
                "the weights take {} as {}, and {} of memory are free: choose a smaller --weights or a smaller model, \
                 or free memory",
                memory::size(needed),
                weights.name(),
                memory::size(available)
            ),
        )),
        _ => Ok(()),
    }
}

/// What a backend is started with.
struct Parts<'a, 'p> {
    checkpoint: &'a Checkpoint,
    loads: &'a [Load],
    options: &'a Options,
    chunk: usize,
    progress: &'a mut (dyn FnMut(u64, u64) + 'p),
}

/// Loads the weights and starts the thread that owns them.
fn launch<B: Backend>(mut backend: B, parts: Parts<'_, '_>) -> Result<(Sender<Job>, String)> {
    let Parts { checkpoint, loads, options, chunk, progress } = parts;
    let device = backend.name();
    let model = Model::load(&mut backend, checkpoint.spec(), loads, options.weights, progress)?;
    let worker = Worker::new(backend, checkpoint.spec().clone(), model, chunk, options.kv)?;
    let (sender, jobs) = channel();
    std::thread::Builder::new()
        .name("whin-worker".to_owned())
        .spawn(move || worker.serve(&jobs))
        .map_err(|error| Error::new(ErrorKind::Io, "cannot start the worker thread").caused_by(error))?;
    Ok((sender, device))
}

fn launch_best_cpu(parts: Parts<'_, '_>) -> Result<(Sender<Job>, String)> {
    launch_cpu(crate::device::best_instruction_set(), parts)
}

fn launch_cpu(name: &str, parts: Parts<'_, '_>) -> Result<(Sender<Job>, String)> {
    let all = crate::device::available_threads().min(MAX_THREADS);
    let threads = parts.options.threads.unwrap_or(all);
    if threads > all {
        tracing::warn!("{threads} threads share {all} cores: fewer would be faster");
    }
    with_instruction_set(name, Start { threads, parts })
}

/// Starts the processor.
struct Start<'a, 'p> {
    threads: usize,
    parts: Parts<'a, 'p>,
}

impl WithIsa for Start<'_, '_> {
    type Out = Result<(Sender<Job>, String)>;

    fn run<I: Isa>(self) -> Self::Out {
        launch(Cpu::<I>::new(self.threads)?, self.parts)
    }
}

fn random_seed() -> u64 {
    // 53 bits, so that JSON readers that keep numbers as f64 show the seed that reproduces the run.
    rand::random::<u64>() >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_that_do_not_fit_are_refused_with_the_sum() {
        let checkpoint = Checkpoint::open(None).unwrap();
        let check = |weights, free| check_memory(checkpoint.spec(), weights, free);
        let error = check(Weights::F32, Some(20 << 20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("50.6 MiB") && error.to_string().contains("20.0 MiB"), "{error}");
        assert!(check(Weights::Int8, Some(20 << 20)).is_ok());
        assert!(check(Weights::F32, None).is_ok(), "a system that does not say is trusted");
    }
}
