//! Options that every command with a model shares, and what they lead to.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use whin::memory::size;
use whin::{CacheMode, Checkpoint, Device, Download, Engine, Error, ErrorKind, KvKind, Options, Prompt};

use crate::out;

/// Which checkpoint.
#[derive(Args)]
pub struct ModelArgs {
    /// Folder of a checkpoint (config.json, *.safetensors, tokenizer.json), a GGUF file, or a name on the Hugging Face
    /// hub (owner/name, owner/name@revision), which is downloaded once; without it, the built-in demo model
    #[arg(short, long, value_name = "FOLDER|NAME")]
    pub model: Option<PathBuf>,
}

impl ModelArgs {
    /// Reads the shape of the checkpoint.
    pub fn open(&self) -> Result<Checkpoint> {
        open(self.model.as_deref())
    }
}

/// Reads the shape of the checkpoint at `path`, and shows what is downloaded for it.
pub fn open(path: Option<&Path>) -> Result<Checkpoint> {
    let mut shown = Downloads::default();
    let checkpoint = Checkpoint::open_with(path, &mut |download| shown.hear(download));
    if let Some(bar) = shown.bar {
        bar.finish_and_clear();
    }
    Ok(checkpoint?)
}

/// Downloads, as stderr shows them: a bar to a person, one line a file to anything else.
#[derive(Default)]
struct Downloads {
    file: String,
    bar: Option<ProgressBar>,
}

impl Downloads {
    fn hear(&mut self, download: Download<'_>) {
        let Download { file, done, total } = download;
        if self.file != file {
            file.clone_into(&mut self.file);
            if std::io::stderr().is_terminal() {
                let bar = self.bar.get_or_insert_with(download_bar);
                bar.reset();
                bar.set_length(total);
                bar.set_message(file.to_owned());
            } else {
                out::note(&format!("downloading {file}, {}", size(total)));
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

fn download_bar() -> ProgressBar {
    let form = "{msg} {bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta}";
    let style = ProgressStyle::with_template(form);
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// How to run it.
#[derive(Args)]
pub struct EngineArgs {
    #[command(flatten)]
    pub model: ModelArgs,

    /// Where to compute: auto, cpu, cpu:amx, cpu:avx512, cpu:avxvnni, cpu:avx2, cpu:i8mm, cpu:dotprod, cpu:neon, cpu:scalar or
    /// reference (slow, the definition of what is right)
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: String,

    /// The form in which matrices are kept
    #[arg(long, value_enum, default_value_t = Weights::Auto)]
    pub weights: Weights,

    #[command(flatten)]
    pub kv: KvArgs,

    /// Threads of the processor [default: all that this process may use]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// The longest text in tokens, prompt and answer together [default: what the model declares]
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,

    #[command(flatten)]
    pub cache: CacheArgs,

    /// Prompt tokens that run in one step; results do not depend on it
    #[arg(long, default_value_t = 512, value_name = "N", hide_short_help = true)]
    pub prefill_chunk: usize,
}

/// Names of [`whin::Weights`].
#[derive(Clone, Copy, ValueEnum)]
pub enum Weights {
    /// What comes closest to the blocks of a GGUF file, or of experts in MXFP4; int8 where there are none
    Auto,
    /// 32-bit floats: exact for every checkpoint
    F32,
    /// 16-bit floats: exact for checkpoints in bf16
    Bf16,
    /// 8-bit integers with one scale a row: half the memory, nearly the same answers
    Int8,
    /// 8-bit integers with one scale for each 32 inputs, as in GGUF's Q8_0: a sixteenth more memory than int8
    Int8Groups,
    /// 4-bit integers with one scale for each 32 inputs, embedding and head as int8: a third of the memory
    Int4,
    /// 4-bit integers throughout: the least memory
    Int4All,
}

/// How to keep keys and values.
#[derive(Args)]
pub struct KvArgs {
    /// The form in which keys and values are kept
    #[arg(long, value_enum, default_value_t = Kv::Bf16)]
    kv: Kv,
}

/// Names of [`KvKind`].
#[derive(Clone, Copy, ValueEnum)]
enum Kv {
    /// 32-bit floats: nothing is rounded
    F32,
    /// 16-bit floats: half the memory, nearly the same answers
    Bf16,
    /// 8-bit integers with one scale for each key and value of a head: half the memory again
    Int8,
}

impl KvArgs {
    /// The form that was asked for.
    pub fn kind(&self) -> KvKind {
        match self.kv {
            Kv::F32 => KvKind::F32,
            Kv::Bf16 => KvKind::Bf16,
            Kv::Int8 => KvKind::Int8,
        }
    }
}

impl Weights {
    /// The form of that name.
    pub fn form(self) -> whin::Weights {
        match self {
            Self::Auto => whin::Weights::Auto,
            Self::F32 => whin::Weights::F32,
            Self::Bf16 => whin::Weights::Bf16,
            Self::Int8 => whin::Weights::Int8,
            Self::Int8Groups => whin::Weights::Int8Groups,
            Self::Int4 => whin::Weights::Int4,
            Self::Int4All => whin::Weights::Int4All,
        }
    }
}

/// What to do with packed weights.
#[derive(Args)]
pub struct CacheArgs {
    /// Keep packed weights in this folder [default: .whin-cache in the checkpoint's folder, else the user's cache folder]
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_cache", hide_short_help = true)]
    cache_dir: Option<PathBuf>,
    /// Convert the checkpoint anew, and keep nothing for the next start
    #[arg(long, hide_short_help = true)]
    no_cache: bool,
    #[command(flatten)]
    verify: VerifyArgs,
}

/// How closely packed weights are compared with the checkpoint.
#[derive(Args)]
pub struct VerifyArgs {
    /// How to find out whether the checkpoint has changed since its weights were packed
    #[arg(long, value_enum, default_value_t = Verify::Quick, hide_short_help = true)]
    verify: Verify,
}

/// Names of [`whin::Verify`].
#[derive(Clone, Copy, ValueEnum)]
enum Verify {
    /// By the files' sizes, times and samples
    Quick,
    /// By all their bytes
    Full,
}

impl CacheArgs {
    fn mode(&self) -> CacheMode {
        match &self.cache_dir {
            _ if self.no_cache => CacheMode::Off,
            Some(folder) => CacheMode::Folder(folder.clone()),
            None => CacheMode::Auto,
        }
    }
}

impl VerifyArgs {
    /// The way that was asked for.
    pub fn way(&self) -> whin::Verify {
        match self.verify {
            Verify::Quick => whin::Verify::Quick,
            Verify::Full => whin::Verify::Full,
        }
    }
}

impl EngineArgs {
    /// Loads the opened checkpoint; the tokenizer, where one is wanted, is read at the same time.
    pub fn load(&self, checkpoint: &Checkpoint, with_tokenizer: bool) -> Result<Engine> {
        let options = Options {
            device: self.device.parse::<Device>()?,
            weights: self.weights.form(),
            kv: self.kv.kind(),
            threads: self.threads,
            context: self.context,
            prefill_chunk: self.prefill_chunk,
            cache: self.cache.mode(),
            verify: self.cache.verify.way(),
        };
        let bar = progress_bar("loading");
        let mut progress = shown_by(&bar);
        let engine = std::thread::scope(|scope| {
            if with_tokenizer {
                // Its error, if any, is met again where the tokenizer is used; so is a thread that cannot be started.
                let read = || checkpoint.tokenizer().map(|_| ());
                let _ = std::thread::Builder::new().spawn_scoped(scope, read);
            }
            Engine::start(checkpoint, &options, &mut progress)
        });
        bar.finish_and_clear();
        Ok(engine?)
    }
}

/// A bar on stderr where a person sees it, after a moment that quick loads do not need.
pub fn progress_bar(what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {bar:40} {binary_bytes} of {binary_total_bytes}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())).with_message(what)
}

/// Moves the bar to how many bytes, of how many, are done.
pub fn shown_by(bar: &ProgressBar) -> impl FnMut(u64, u64) {
    |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    }
}

/// What to begin with: exactly one of a text and token ids.
#[derive(Args)]
pub struct PromptArgs {
    /// The text to begin with; - reads it from stdin
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,

    /// Token ids to begin with, separated by commas; - reads them from stdin
    #[arg(long, value_name = "IDS", allow_hyphen_values = true)]
    pub prompt_ids: Option<String>,
}

impl PromptArgs {
    /// The prompt.
    pub fn prompt(&self) -> Result<Prompt> {
        match (&self.text, &self.prompt_ids) {
            (Some(_), Some(_)) => {
                Err(invalid("both a text and --prompt-ids are given: give one of them").into())
            }
            (None, None) => Err(invalid("no prompt: give a text, - for stdin, or --prompt-ids 1,2,3").into()),
            (Some(text), None) if text == "-" => Ok(Prompt::Text(read_stdin()?)),
            (Some(text), None) => Ok(Prompt::Text(text.clone())),
            (None, Some(ids)) if ids == "-" => Ok(Prompt::Ids(parse_ids(&read_stdin()?)?)),
            (None, Some(ids)) => Ok(Prompt::Ids(parse_ids(ids)?)),
        }
    }
}

/// A failure of what the user asked for.
pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArguments, message)
}

/// All of stdin, as it stands. Only one option can have it.
pub fn read_stdin() -> Result<String> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(invalid("two options are to be read from stdin (-): put one of them into a file").into());
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read stdin")?;
    let text = String::from_utf8(bytes);
    Ok(text.map_err(|error| invalid(format!("stdin is not UTF-8 text: {}", error.utf8_error())))?)
}

/// Ids separated by commas or blanks.
pub fn parse_ids(ids: &str) -> Result<Vec<u32>, Error> {
    let parts = ids.split(|c: char| c == ',' || c.is_whitespace()).filter(|part| !part.is_empty());
    let id = |part: &str| {
        let wrong = |_| invalid(format!("{part:?} is no token id: give whole numbers, as in 313,410,354"));
        part.parse::<u32>().map_err(wrong)
    };
    parts.map(id).collect()
}
