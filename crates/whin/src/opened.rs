//! A checkpoint that has been looked at: its shape is known, its weights are not yet read.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::Result;
use crate::chat::{Chat, ChatFormat, ChatPrompt};
use crate::checkpoint::safetensors::INDEX;
use crate::checkpoint::seen::Seen;
use crate::checkpoint::source::SMALL;
use crate::checkpoint::storage::refuse_beside;
use crate::checkpoint::{Download, Source, TensorRef, Tensors, end_tokens};
use crate::constrain::Grammars;
use crate::engine::Options;
use crate::fit::Window;
use crate::memory;
use crate::model::spec::Spec;
use crate::model::{Plan, config};
use crate::tokenizer::Tokenizer;
use crate::{Error, ErrorKind};

/// An opened checkpoint. Clones share it.
#[derive(Clone)]
pub struct Checkpoint(Arc<Parts>);

struct Parts {
    source: Source,
    /// Its small files, as they were before any was read.
    seen: Seen,
    spec: Spec,
    end_tokens: Arc<[u32]>,
    tokenizer: OnceLock<Tokenizer>,
    chat: OnceLock<ChatFormat>,
    grammars: OnceLock<Grammars>,
    loading: Mutex<()>,
}

impl Checkpoint {
    /// [`Self::open_with`] without a listener.
    ///
    /// # Errors
    /// As there.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        Self::open_with(path, &mut |_| ())
    }

    /// Opens a folder, a GGUF file (the first one where it was split), or the built-in demo model where `path` is none,
    /// and reads its config and its end tokens. Where there is no such folder or file, `path` may be a name on the Hugging Face hub: `owner/name`, or
    /// `owner/name@revision`. It is looked up in the cache of Hugging Face, else downloaded into it, of which `progress`
    /// hears; the variables `HF_HOME`, `HF_HUB_CACHE`, `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE` and
    /// `HF_HUB_DOWNLOAD_TIMEOUT` mean what they mean elsewhere.
    ///
    /// # Errors
    /// [`CheckpointNotFound`](ErrorKind::CheckpointNotFound), [`InvalidCheckpoint`](ErrorKind::InvalidCheckpoint),
    /// [`UnsupportedArchitecture`](ErrorKind::UnsupportedArchitecture) with every reason,
    /// [`InvalidArguments`](ErrorKind::InvalidArguments) for such a variable, or [`Io`](ErrorKind::Io).
    pub fn open_with(path: Option<&Path>, progress: &mut dyn FnMut(Download<'_>)) -> Result<Self> {
        let source = Source::open_with(path, progress)?;
        let mut seen = Seen::default();
        SMALL.into_iter().chain([INDEX]).for_each(|name| seen.look(&source, name));
        let mut spec = read_config(&source, &mut seen)?;
        let plan = Plan::new(&spec);
        spec.native = match source {
            Source::Gguf(_) => plan.native(&Tensors::open(&source)?),
            _ => plan.native_by_config(),
        };
        refuse_beside(&source)?;
        let end_tokens = end_tokens(&source, &spec)?.into();
        let (tokenizer, chat, grammars) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let loading = Mutex::new(());
        let parts = Parts { source, seen, spec, end_tokens, tokenizer, chat, grammars, loading };
        Ok(Self(Arc::new(parts)))
    }

    /// Where it lies.
    pub fn source(&self) -> &Source {
        &self.0.source
    }

    /// Its small files, as they were before any was read.
    pub(crate) fn seen(&self) -> &Seen {
        &self.0.seen
    }

    /// Its shape.
    pub fn spec(&self) -> &Spec {
        &self.0.spec
    }

    /// Its tensors, none claimed yet.
    ///
    /// # Errors
    /// [`InvalidCheckpoint`](ErrorKind::InvalidCheckpoint) naming the file, or [`Io`](ErrorKind::Io).
    pub fn tensors(&self) -> Result<Tensors> {
        Tensors::open(&self.0.source)
    }

    /// Finds every tensor that the spec implies, and reads none but scales. Returns how matrices are stored, each way
    /// once, as in `BF16` or `F8_E4M3 with one scale for 128x128`.
    ///
    /// # Errors
    /// [`InvalidCheckpoint`](ErrorKind::InvalidCheckpoint) with all tensors that are missing, left over or of another
    /// shape, [`UnsupportedArchitecture`](ErrorKind::UnsupportedArchitecture) where they are stored in a form that is not
    /// read, or as [`Self::tensors`].
    pub fn check(&self) -> Result<BTreeSet<String>> {
        let loads = Plan::new(&self.0.spec).claim(self.tensors()?)?;
        let matrices = loads.iter().filter(|load| load.is_matrix).flat_map(|load| &load.parts);
        Ok(matrices.map(TensorRef::storage).collect())
    }

    /// The longest text, prompt and answer together, that an engine with these options would take, in tokens: as memory is
    /// now.
    ///
    /// # Errors
    /// [`OutOfMemory`](ErrorKind::OutOfMemory) where it has no room for the weights and a text, or for the context that is
    /// asked for; [`InvalidArguments`](ErrorKind::InvalidArguments) where the model cannot do that.
    pub fn window(&self, options: &Options) -> Result<usize> {
        Ok(Window::fit(&self.0.spec, options, memory::available())?.positions)
    }

    /// Whether there is a tokenizer.
    pub fn has_tokenizer(&self) -> bool {
        if let Some(metadata) = self.0.source.metadata() {
            return Tokenizer::is_in(metadata);
        }
        self.0.source.read("tokenizer.json").is_ok_and(|bytes| bytes.is_some())
    }

    /// Its tokenizer, read when it is first asked for.
    ///
    /// # Errors
    /// [`InvalidCheckpoint`](ErrorKind::InvalidCheckpoint) where `tokenizer.json`, or what a GGUF file has in place of it,
    /// is missing or broken.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        let parts = &*self.0;
        if let Some(tokenizer) = parts.tokenizer.get() {
            return Ok(tokenizer);
        }
        let _one_at_a_time = parts.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tokenizer) = parts.tokenizer.get() {
            return Ok(tokenizer);
        }
        let tokenizer = match parts.source.metadata() {
            Some(metadata) => Tokenizer::from_gguf(metadata, parts.spec.vocab)?,
            None => {
                let bytes = parts.source.read("tokenizer.json")?;
                let bytes = bytes.ok_or_else(|| missing(&parts.source, "tokenizer.json"))?;
                Tokenizer::from_bytes(&bytes, &parts.source.describe("tokenizer.json"))?
            }
        };
        Ok(parts.tokenizer.get_or_init(|| tokenizer))
    }

    /// How messages become prompts and answers become messages, read when it is first asked for.
    ///
    /// # Errors
    /// [`UnsupportedChatTemplate`](ErrorKind::UnsupportedChatTemplate) where there is no template or it cannot be read,
    /// or as [`Self::tokenizer`].
    pub(crate) fn chat_format(&self) -> Result<&ChatFormat> {
        if let Some(format) = self.0.chat.get() {
            return Ok(format);
        }
        let format = ChatFormat::read(&self.0.source, self.tokenizer()?)?;
        Ok(self.0.chat.get_or_init(|| format))
    }

    /// What its tokenizer has to do with enforced formats, read when it is first asked for.
    ///
    /// # Errors
    /// As [`Grammars::new`] and [`Self::tokenizer`].
    pub fn grammars(&self) -> Result<&Grammars> {
        let parts = &*self.0;
        if let Some(grammars) = parts.grammars.get() {
            return Ok(grammars);
        }
        let tokenizer = self.tokenizer()?;
        let _one_at_a_time = parts.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(grammars) = parts.grammars.get() {
            return Ok(grammars);
        }
        let grammars = Grammars::new(tokenizer, parts.spec.vocab, &parts.end_tokens)?;
        Ok(parts.grammars.get_or_init(|| grammars))
    }

    /// The prompt that its template makes of messages: the text, and its tokens.
    ///
    /// # Errors
    /// [`UnsupportedChatTemplate`](ErrorKind::UnsupportedChatTemplate) where there is no template, or it cannot be
    /// rendered or refuses the messages; [`InvalidArguments`](ErrorKind::InvalidArguments) for messages that are none;
    /// or as [`Self::tokenizer`].
    pub fn chat_prompt(&self, chat: &Chat) -> Result<ChatPrompt> {
        self.chat_format()?.prompt(chat, self.tokenizer()?)
    }

    /// The tokens after which a text ends: those of `generation_config.json`, `config.json` and
    /// `tokenizer_config.json`, settled when the checkpoint was opened.
    pub fn end_tokens(&self) -> Arc<[u32]> {
        self.0.end_tokens.clone()
    }
}

/// The spec that `config.json` asks for, or the metadata of a GGUF file; notes what the system says of the file.
fn read_config(source: &Source, seen: &mut Seen) -> Result<Spec> {
    if let Source::Gguf(gguf) = source {
        gguf.note(seen);
        return config::read_gguf(gguf);
    }
    let config = source.read_stamped("config.json")?;
    let (config, stamp) = config.ok_or_else(|| missing(source, "config.json"))?;
    if stamp.is_some() {
        seen.note("config.json", stamp);
    }
    config::read(&config)
}

fn missing(source: &Source, name: &str) -> Error {
    Error::new(
        ErrorKind::InvalidCheckpoint,
        format!("{} is missing: fetch it from where the checkpoint came from", source.describe(name)),
    )
}
