//! The metadata of a GGUF file as `config.json` would say it, so that the readers of the families read it.

mod derive;
mod rope;
mod table;

use serde_json::{Map, Value, json};

use crate::checkpoint::gguf::{Gguf, Metadata};
use crate::model::names::{GGUF, Names};
use crate::{Error, ErrorKind, Result};
use table::{ARCHITECTURES, Architecture, COMMON, To};

/// The largest number of layers that is looked at one by one; the families have bounds of their own.
const LAYERS: u64 = 1 << 12;

/// More problems than this are counted, not listed.
const MOST_LISTED: usize = 50;

/// The config that the metadata of `gguf` stands for.
///
/// # Errors
/// `unsupported_architecture` where its architecture is not known, or with every key that is not known or has a value
/// that cannot be taken over; `invalid_checkpoint` where a key has the wrong type, or one that must be there is missing.
pub(in crate::model) fn config_of_gguf(gguf: &Gguf) -> Result<Map<String, Value>> {
    let metadata = gguf.metadata();
    let architecture = architecture(metadata)?;
    let mut reading = Reading { gguf, architecture, map: Map::new(), problems: Vec::new() };
    reading.put("model_type", json!(architecture.model_type));
    reading.read_keys()?;
    reading.sizes()?;
    reading.tokens()?;
    rope::read(&mut reading)?;
    (architecture.derive)(&mut reading)?;
    match reading.problems.is_empty() {
        true => Ok(reading.map),
        false => Err(reading.refusal()),
    }
}

/// Where the tensors of a file of an architecture are.
pub(in crate::model) fn names_in_gguf(architecture: &str) -> &'static Names {
    let found = ARCHITECTURES.iter().find(|known| known.name == architecture);
    found.map_or(&GGUF, |architecture| &architecture.names)
}

fn architecture(metadata: &Metadata) -> Result<&'static Architecture> {
    let unsupported = |message| Err(Error::new(ErrorKind::UnsupportedArchitecture, message));
    let file = metadata.file();
    if let Some(kind) = metadata.text("general.type")?.filter(|kind| *kind != "model") {
        let kind = crate::error::shortened(kind.to_owned(), 100);
        return unsupported(format!(
            "{file} holds no language model: its general.type is {kind:?}; give the file of the model that it belongs to"
        ));
    }
    let Some(name) = metadata.text("general.architecture")? else {
        return Err(metadata.refuse("general.architecture", "the name of an architecture"));
    };
    if let Some(architecture) = ARCHITECTURES.iter().find(|architecture| architecture.name == name) {
        return Ok(architecture);
    }
    let names: Vec<_> = ARCHITECTURES.iter().map(|architecture| architecture.name).collect();
    let found = crate::error::shortened(name.to_owned(), 100);
    unsupported(format!(
        "{file} holds a model of the architecture {found:?} (general.architecture); accepted: {}",
        names.join(", ")
    ))
}

/// What has been read so far.
struct Reading<'a> {
    gguf: &'a Gguf,
    architecture: &'static Architecture,
    map: Map<String, Value>,
    /// One line for each problem: key, value, what would be accepted.
    problems: Vec<String>,
}

impl<'a> Reading<'a> {
    fn metadata(&self) -> &'a Metadata {
        self.gguf.metadata()
    }

    /// The whole name of a key of the architecture.
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture.name)
    }

    fn has(&self, key: &str) -> bool {
        self.metadata().contains(&self.key(key))
    }

    fn integer(&self, key: &str) -> Result<Option<u64>> {
        self.metadata().integer(&self.key(key))
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        self.metadata().number(&self.key(key))
    }

    /// The whole number that must be there.
    fn required(&self, key: &str) -> Result<u64> {
        self.integer(key)?.ok_or_else(|| self.metadata().refuse(&self.key(key), "a whole number"))
    }

    fn put(&mut self, key: &str, value: Value) {
        self.map.insert(key.to_owned(), value);
    }

    /// A whole number of the config that has been read; zero where it has not.
    fn config(&self, key: &str) -> u64 {
        self.map.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Notes that `key` has a value that cannot be taken over; `accepted` is a noun phrase.
    fn refuse(&mut self, key: &str, accepted: &str) {
        let key = self.key(key);
        let found = self.metadata().found(&key);
        let key = crate::error::shortened(key, 100);
        self.problems.push(format!("{key} is {found}; accepted: {accepted}"));
    }

    /// The divisors of frequencies in the tensor `name`; none where it is missing, or, with a problem noted, where it is not
    /// a vector of f32.
    fn divisors(&mut self, name: &str) -> Option<Vec<f32>> {
        let shape = self.gguf.shape(name)?;
        let found = self.gguf.vector(name);
        if found.is_none() {
            let problem = format!(
                "tensor {name} has the shape {shape:?}, or numbers other than F32; accepted: one F32 for each pair of a head"
            );
            self.problems.push(problem);
        }
        found
    }

    /// Takes over every key that the table knows, and notes those that it does not.
    fn read_keys(&mut self) -> Result<()> {
        let architecture = self.architecture;
        let gguf = self.gguf;
        let prefix = self.key("");
        for key in gguf.metadata().keys().filter_map(|key| key.strip_prefix(&prefix)) {
            let all = architecture.keys.iter().chain(COMMON);
            match all.into_iter().find(|(known, _)| *known == key).map(|(_, to)| *to) {
                None => self.refuse(key, "no such key, since it may change what the model computes"),
                Some(To::Known) => {}
                Some(To::Integer(name) | To::Needed(name)) => {
                    if let Some(number) = self.same_in_all(key)? {
                        self.put(name, json!(number));
                    }
                }
                Some(To::Number(name) | To::NeededNumber(name)) => {
                    if let Some(number) = self.number(key)? {
                        self.put(name, json!(number));
                    }
                }
                Some(To::Only(accepted)) => self.only(key, accepted)?,
            }
        }
        self.check_needed()
    }

    /// Whether all keys are there that have to be.
    fn check_needed(&self) -> Result<()> {
        let is_own = |key: &str| self.architecture.keys.iter().any(|(own, _)| *own == key);
        let common = COMMON.iter().filter(|(key, _)| !is_own(key));
        for (key, to) in self.architecture.keys.iter().chain(common) {
            let what = match to {
                To::Needed(_) => "a whole number",
                To::NeededNumber(_) => "a number",
                _ => continue,
            };
            if !self.has(key) {
                return Err(self.metadata().refuse(&self.key(key), what));
            }
        }
        Ok(())
    }

    /// The whole number under `key`, or the one that all items of a list there have.
    fn same_in_all(&mut self, key: &str) -> Result<Option<u64>> {
        let full = self.key(key);
        if !self.metadata().is_list(&full) {
            return self.metadata().integer(&full);
        }
        let Some(mut items) = self.metadata().integers(&full)? else { return Ok(None) };
        let layers = self.integer("block_count")?.unwrap_or(0);
        if (items.len() as u64) < layers {
            self.refuse(key, &format!("a number, or a list with one for each of {layers} layers"));
            return Ok(None);
        }
        let first = items.next().and_then(|first| u64::try_from(first).ok());
        let is_same = items.all(|item| u64::try_from(item).ok() == first);
        if first.is_none() || !is_same {
            self.refuse(key, "the same number in all layers");
            return Ok(None);
        }
        Ok(first)
    }

    /// Notes `key` unless it says what would be done without it.
    fn only(&mut self, key: &str, accepted: f64) -> Result<()> {
        let full = self.key(key);
        let found = match self.metadata().flag(&full) {
            Ok(flag) => flag.map(|flag| f64::from(u8::from(flag))),
            Err(_) => self.metadata().number(&full)?,
        };
        if found.is_some_and(|found| found != accepted) {
            self.refuse(key, &format!("{accepted}"));
        }
        Ok(())
    }

    /// What follows from numbers and from which tensors there are.
    fn sizes(&mut self) -> Result<()> {
        // Layers that guess further tokens stand behind the others, and are left alone.
        let extra = self.integer("nextn_predict_layers")?.unwrap_or(0);
        let layers = self.required("block_count")?;
        if extra >= layers || layers > LAYERS {
            self.refuse("block_count", &format!("a number of layers up to {LAYERS}"));
            return Ok(());
        }
        self.put("num_hidden_layers", json!(layers - extra));
        let (heads, width) = (self.config("num_attention_heads"), self.required("embedding_length")?);
        if heads == 0 {
            self.refuse("attention.head_count", "a whole number above zero");
            return Ok(());
        }
        if !self.map.contains_key("num_key_value_heads") {
            self.put("num_key_value_heads", json!(heads));
        }
        let key_length = self.integer("attention.key_length")?.unwrap_or(width / heads);
        let value_length = self.integer("attention.value_length")?.unwrap_or(width / heads);
        if value_length != key_length {
            self.refuse("attention.value_length", &format!("the length of keys ({key_length})"));
        }
        self.put("head_dim", json!(key_length));
        let is_tied = self.gguf.shape("output.weight").is_none();
        self.put("tie_word_embeddings", json!(is_tied));
        for (switch, tensor) in self.architecture.switches {
            let is_on = self.gguf.has_in_layer(tensor, layers - extra);
            self.put(switch, json!(is_on));
        }
        Ok(())
    }

    /// The size of the vocabulary, and the tokens at the ends of texts.
    fn tokens(&mut self) -> Result<()> {
        let rows =
            self.gguf.shape("token_embd.weight").and_then(|shape| shape.first()).map(|rows| *rows as u64);
        let listed = self.metadata().texts("tokenizer.ggml.tokens")?.map(|tokens| tokens.len() as u64);
        let said = self.integer("vocab_size")?;
        // Numbers of the tokenizer may be fewer than rows of the embedding.
        let Some(vocab) = rows.or(said).or(listed) else {
            return Err(self.metadata().refuse("tokenizer.ggml.tokens", "a list of tokens"));
        };
        self.put("vocab_size", json!(vocab));
        for name in ["eos_token_id", "bos_token_id"] {
            let key = format!("tokenizer.ggml.{name}");
            match self.metadata().integer(&key)? {
                Some(id) if id < vocab => self.put(name, json!(id)),
                Some(id) => {
                    tracing::warn!("{key} is {id}, past the vocabulary of {vocab}: it is ignored");
                    self.put(name, Value::Null);
                }
                // Not that of the class.
                None => self.put(name, Value::Null),
            }
        }
        Ok(())
    }

    fn refusal(&self) -> Error {
        let mut message = format!(
            "this checkpoint asks for what cannot run here; the metadata of {}:",
            self.metadata().file()
        );
        for problem in self.problems.iter().take(MOST_LISTED) {
            message.push_str("\n  - ");
            message.push_str(problem);
        }
        if self.problems.len() > MOST_LISTED {
            message.push_str(&format!("\n  and {} more", self.problems.len() - MOST_LISTED));
        }
        Error::new(ErrorKind::UnsupportedArchitecture, message)
    }
}
