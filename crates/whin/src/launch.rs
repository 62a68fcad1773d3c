//! From options to a backend, its weights and the thread that works with them.

use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use whin_kernels::Backend;
use whin_kernels::cpu::{Cpu, Isa};
use whin_kernels::reference::Reference;

use crate::cache::{CacheMode, Cell, Sources};
use crate::device::{Device, WithIsa, available_threads, best_instruction_set, with_instruction_set};
use crate::engine::Options;
use crate::fit::{Window, step_rows};
use crate::memory;
use crate::model::weights::{Model, Origin, Progress, pack};
use crate::model::{Load, Plan};
use crate::opened::Checkpoint;
use crate::sequence::Job;
use crate::worker::Worker;
use crate::{Error, ErrorKind, Result};

/// More threads than any processor has: a larger number is a slip, and would exhaust the system.
const MAX_THREADS: usize = 1024;

/// A model at work.
pub(crate) struct Launched {
    /// Where requests go. Without senders the worker ends after the last of them.
    pub jobs: Sender<Job>,
    /// The thread that owns the weights.
    pub worker: JoinHandle<()>,
    /// The device, for people.
    pub device: String,
    /// The longest text.
    pub window: Window,
    /// Where its weights came from.
    pub origin: Origin,
    /// The files that it was read from.
    pub sources: Sources,
}

/// What [`Engine::prepare`](crate::Engine::prepare) has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Where the packed weights are.
    pub folder: PathBuf,
    /// Whether they have been written now, and were not there before.
    pub is_new: bool,
}

/// Loads the weights and starts the thread that owns them.
pub(crate) fn launch(
    checkpoint: &Checkpoint,
    options: &Options,
    progress: &mut Progress<'_>,
) -> Result<Launched> {
    check_options(options)?;
    Window::check(checkpoint.spec(), options)?;
    let found = Found::new(checkpoint)?;
    // The files are mapped by now, which counts where addresses are limited.
    let window = Window::fit(checkpoint.spec(), options, memory::available())?;
    with_backend(options, Launch { found, checkpoint, options, window, progress })
}

/// Writes the load cache of a checkpoint.
pub(crate) fn prepare(
    checkpoint: &Checkpoint,
    options: &Options,
    progress: &mut Progress<'_>,
) -> Result<Prepared> {
    let invalid = |what: &str| Err(Error::new(ErrorKind::InvalidArguments, what));
    if options.cache == CacheMode::Off {
        return invalid("a load cache is to be prepared, but the options say that none is kept");
    }
    if *checkpoint.source() == crate::checkpoint::Source::BuiltIn {
        return invalid(
            "the built-in model is part of the program and needs no load cache: name a checkpoint",
        );
    }
    check_options(options)?;
    let found = Found::new(checkpoint)?;
    with_backend(options, Prepare { found, checkpoint, options, progress })
}

/// The tensors of a checkpoint that has been checked in full, and the files that they are in.
struct Found {
    loads: Vec<Load>,
    sources: Sources,
}

impl Found {
    fn new(checkpoint: &Checkpoint) -> Result<Self> {
        let tensors = checkpoint.tensors()?;
        let sources = Sources::new(checkpoint, &tensors);
        Ok(Self { loads: Plan::new(checkpoint.spec()).claim(tensors)?, sources })
    }

    /// The place of the packed weights; none where `backend` or the options keep none.
    fn cell<B: Backend>(&self, backend: &B, checkpoint: &Checkpoint, options: &Options) -> Option<Cell> {
        Cell::new(
            self.sources.clone(),
            checkpoint.spec(),
            (options.weights.settled(checkpoint.spec()), backend.layout()),
            (&options.cache, options.verify),
            threads(options),
        )
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

/// Something to do with a backend, whichever it is.
trait WithBackend {
    type Out;

    fn run<B: Backend>(self, backend: B) -> Result<Self::Out>;
}

/// Does it with the backend that the options ask for.
fn with_backend<W: WithBackend>(options: &Options, with: W) -> Result<W::Out> {
    struct OnCpu<W>(usize, W);

    impl<W: WithBackend> WithIsa for OnCpu<W> {
        type Out = Result<W::Out>;

        fn run<I: Isa>(self) -> Self::Out {
            self.1.run(Cpu::<I>::new(self.0)?)
        }
    }

    let name = match options.device {
        Device::Reference => return with.run(Reference),
        Device::Auto | Device::Cpu(None) => best_instruction_set(),
        Device::Cpu(Some(name)) => name,
    };
    let (count, all) = (threads(options), available_threads());
    if count > all {
        tracing::warn!("{count} threads share {all} cores: fewer would be faster");
    }
    with_instruction_set(name, OnCpu(count, with))
}

fn threads(options: &Options) -> usize {
    options.threads.unwrap_or_else(|| available_threads().min(MAX_THREADS))
}

struct Launch<'a, 'p> {
    found: Found,
    checkpoint: &'a Checkpoint,
    options: &'a Options,
    window: Window,
    progress: &'a mut Progress<'p>,
}

impl WithBackend for Launch<'_, '_> {
    type Out = Launched;

    fn run<B: Backend>(self, mut backend: B) -> Result<Launched> {
        let Self { found, checkpoint, options, window, progress } = self;
        let (device, spec) = (backend.name(), checkpoint.spec());
        let cell = found.cell(&backend, checkpoint, options);
        let (loads, form) = (found.loads.as_slice(), options.weights.settled(spec));
        let (model, origin) = match cell {
            Some(cell) => Model::load_through(cell, &mut backend, spec, (loads, form), progress)?,
            None => (Model::load(&mut backend, spec, loads, form, progress)?, Origin::default()),
        };
        let worker = Worker::new(backend, spec.clone(), model, step_rows(spec, options), options.kv)?;
        let (jobs, receiver) = channel();
        let worker = std::thread::Builder::new()
            .name("whin-worker".to_owned())
            .spawn(move || worker.serve(&receiver))
            .map_err(|error| Error::new(ErrorKind::Io, "cannot start the worker thread").caused_by(error))?;
        Ok(Launched { jobs, worker, device, window, origin, sources: found.sources })
    }
}

struct Prepare<'a, 'p> {
    found: Found,
    checkpoint: &'a Checkpoint,
    options: &'a Options,
    progress: &'a mut Progress<'p>,
}

impl WithBackend for Prepare<'_, '_> {
    type Out = Prepared;

    fn run<B: Backend>(self, mut backend: B) -> Result<Prepared> {
        let Self { found, checkpoint, options, progress } = self;
        let Some(mut cell) = found.cell(&backend, checkpoint, options) else {
            let message = format!("{} keeps no packed weights: prepare for another device", backend.name());
            return Err(Error::new(ErrorKind::InvalidArguments, message));
        };
        let mut has_waited = false;
        loop {
            if let Some((_, folder)) =
                Model::open(&mut cell, &mut backend, checkpoint.spec(), options.weights)
            {
                return Ok(Prepared { folder, is_new: false });
            }
            let mut keeper = cell.keep();
            if keeper.is_taken() {
                if !std::mem::replace(&mut has_waited, true) {
                    tracing::warn!("another process is writing this load cache: waiting for it");
                }
                cell = keeper.into_cell();
                cell.wait_for_writer();
                continue;
            }
            if keeper.is_writing() {
                let loads = (found.loads.as_slice(), options.weights.settled(checkpoint.spec()));
                pack(&mut backend, checkpoint.spec(), loads, &mut keeper, progress)?;
            }
            return Ok(Prepared { folder: keeper.finish_now()?, is_new: true });
        }
    }
}
