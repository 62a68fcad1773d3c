//! Compiled grammars of one tokenizer: compiled once, within limits, and kept while there is room.

use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use llguidance::api::{GrammarInit, ParserLimits, StopReason};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{ParserFactory, TokenParser, panic_utils};

use super::grammar::Grammar;
use super::matcher::Matcher;
use super::tokens::Tokens;
use super::watch::Watch;
use crate::error::shortened;
use crate::tokenizer::Tokenizer;
use crate::{Error, ErrorKind, Result};

/// How long a caller waits for a grammar.
const PATIENCE: Duration = Duration::from_secs(2);

/// Grammars that may be in the compiler's hands at once: one that outlasts the patience cannot be stopped.
const MAX_COMPILING: usize = 4;

/// Stack of the compiler, which calls itself for each level of nesting. Memory is only taken as it is touched.
const STACK: usize = 128 << 20;

/// Compiled grammars that are kept.
const MAX_KEPT: usize = 64;

/// Bytes of their texts.
const MAX_KEPT_BYTES: usize = 8 << 20;

/// Bytes of the lexers of all grammars that are kept.
const MAX_KEPT_MEMORY: usize = 256 << 20;

/// Bytes of a state, with what the lexer does not count.
const STATE_BYTES: usize = 2000;

/// States of one lexer, which it adds as answers need them.
const MAX_STATES: usize = 50_000;

/// Ways in which a grammar may go on at one place: four for each property that may be left out.
const MAX_ITEMS: usize = 5000;

/// Steps of the lexer for one mask, and ways to go on that are looked at for it: other answers wait meanwhile.
const MAX_STEPS: u64 = 50_000;
const MAX_STEP_ITEMS: usize = 25_000;

/// Texts behind which a grammar is looked at before it is used: there, the names of all properties may follow.
const BEGINNINGS: [&str; 4] = ["{\"", "{ \"", "[{\"", "\""];

/// Characters of the compiler's reason in a message.
const LONGEST_REASON: usize = 400;

/// What a checkpoint's tokenizer has to do with grammars: built once, shared by clones, for any number of answers.
#[derive(Clone)]
pub struct Grammars(Arc<Shared>);

struct Shared {
    tokens: Arc<Tokens>,
    factory: ParserFactory,
    kept: Mutex<Kept>,
    compiling: Mutex<usize>,
    done: Condvar,
    watched: Mutex<Vec<Arc<Watch>>>,
}

impl Grammars {
    /// Reads the vocabulary of `tokenizer` for a model with `vocab` logits, whose answers end with one of `eos`. For
    /// 150,000 tokens this takes some tenths of a second, so it is done when the first grammar is asked for.
    ///
    /// # Errors
    /// [`UnsupportedArchitecture`](ErrorKind::UnsupportedArchitecture) where tokens have no bytes of their own, or the
    /// vocabulary is too large.
    pub fn new(tokenizer: &Tokenizer, vocab: usize, eos: &[u32]) -> Result<Self> {
        let tokens = Arc::new(Tokens::new(tokenizer, vocab, eos)?);
        let build = || {
            let slices = SlicedBiasComputer::json_slices();
            ParserFactory::new(&tokens.env(), InferenceCapabilities::default(), &slices)
        };
        let mut factory = panic_utils::catch_unwind(AssertUnwindSafe(build)).map_err(|error| {
            let why = reason(&error);
            let message = format!("this tokenizer's vocabulary cannot be used for enforced formats: {why}");
            Error::new(ErrorKind::UnsupportedArchitecture, message)
        })?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            max_lexer_states: MAX_STATES,
            max_items_in_row: MAX_ITEMS,
            step_lexer_fuel: MAX_STEPS,
            step_max_items: MAX_STEP_ITEMS,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        let (kept, compiling, done) = (Mutex::default(), Mutex::default(), Condvar::new());
        Ok(Self(Arc::new(Shared { tokens, factory, kept, compiling, done, watched: Mutex::default() })))
    }

    /// A matcher at the start of an answer of `grammar`, which is compiled unless it has been lately.
    ///
    /// # Errors
    /// [`InvalidArguments`](ErrorKind::InvalidArguments) where the grammar is wrong, cannot be enforced, or takes more
    /// time or memory than a grammar may; [`OutOfMemory`](ErrorKind::OutOfMemory) where too many others are being compiled,
    /// which says nothing of this one.
    pub fn compile(&self, grammar: &Grammar) -> Result<Matcher> {
        let found = self.kept().find(grammar.key());
        let parser = match found {
            Some(parser) => parser,
            None => {
                let parser = self.compile_within_limits(grammar)?;
                self.kept().keep(grammar.key(), parser.clone());
                parser
            }
        };
        Ok(Matcher::new(parser, self.0.tokens.clone()))
    }

    /// How many compiled grammars are kept.
    pub fn count(&self) -> usize {
        self.kept().entries.len()
    }

    /// The tokens that have to do with these tags: found once, since a checkpoint has the same ones for all answers.
    pub(super) fn watch(&self, tags: &[&str], close: &str) -> Arc<Watch> {
        let mut watched = self.0.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = watched.iter().find(|watch| watch.is_for(tags, close)) {
            return watch.clone();
        }
        let watch = Arc::new(Watch::new(&self.0.tokens, tags, close));
        watched.push(watch.clone());
        watch
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compile_within_limits(&self, grammar: &Grammar) -> Result<TokenParser> {
        let refuse =
            |why: &str| Error::new(ErrorKind::InvalidArguments, format!("the grammar cannot be used: {why}"));
        let Some(turn) = Turn::wait_for(&self.0) else {
            let message =
                "the grammar has not been compiled: too many others are being compiled; try again later";
            return Err(Error::new(ErrorKind::OutOfMemory, message));
        };
        let (sender, receiver) = channel();
        let grammar = grammar.clone();
        let work = move || {
            let init = GrammarInit::Serialized(grammar.top_level());
            let parser = turn.0.factory.create_parser_from_init_default(init);
            // The receiver may have lost its patience.
            let parser = parser.map_err(|error| unfit(&error, &grammar));
            let _ = sender.send(parser.and_then(|parser| begun(parser, &turn.0.tokens)));
        };
        let started = thread::Builder::new().name("whin-grammar".into()).stack_size(STACK).spawn(work);
        if let Err(error) = started {
            let message = format!("no thread for compiling a grammar: {error}");
            return Err(Error::new(ErrorKind::OutOfMemory, message));
        }
        match receiver.recv_timeout(PATIENCE) {
            Ok(parser) => parser.map_err(|why| refuse(&why)),
            Err(RecvTimeoutError::Timeout) => Err(refuse(&format!(
                "compiling it takes more than {} s; make it smaller",
                PATIENCE.as_secs()
            ))),
            Err(RecvTimeoutError::Disconnected) => Err(refuse("its compiler failed")),
        }
    }
}

/// The right to compile a grammar.
struct Turn(Arc<Shared>);

impl Turn {
    /// None if nobody is done in time.
    fn wait_for(shared: &Arc<Shared>) -> Option<Self> {
        let compiling = shared.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut compiling, waited) = shared
            .done
            .wait_timeout_while(compiling, PATIENCE, |compiling| *compiling >= MAX_COMPILING)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return None;
        }
        *compiling += 1;
        Some(Self(shared.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.compiling.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.done.notify_one();
    }
}

/// The parser at its first token. What nothing fits, and what is too large to be followed, is found out here, and its
/// lexer is warm.
fn begun(mut parser: TokenParser, tokens: &Tokens) -> Result<TokenParser, String> {
    if parser.is_fresh() {
        parser.start_without_prompt();
    }
    for beginning in BEGINNINGS {
        let ids = tokens.spelling(beginning.as_bytes());
        let mut further = parser.clone();
        let probe = || {
            if further.validate_tokens_raw(&ids)? == ids.len() {
                ids.iter().try_for_each(|&id| further.consume_token(id).map(|_| ()))?;
                further.compute_mask()?;
            }
            Ok(())
        };
        panic_utils::catch_unwind(AssertUnwindSafe(probe)).or_else(|error| match further.stop_reason() {
            // The text is whole.
            StopReason::NoExtension | StopReason::NoExtensionBias | StopReason::EndOfSentence => Ok(()),
            _ => Err(reason(&error)),
        })?;
    }
    let mut first = parser.clone();
    let mask = panic_utils::catch_unwind(AssertUnwindSafe(|| Ok(first.compute_mask())));
    match mask {
        Ok(Ok(_)) => Ok(parser),
        _ if first.stop_reason() == StopReason::NoExtensionBias && !first.is_accepting() => {
            Err("no answer fits it".into())
        }
        // Without end tokens, an empty answer leaves nothing to choose.
        _ if first.stop_reason() == StopReason::NoExtensionBias => Ok(parser),
        Ok(Err(error)) => Err(reason(&error)),
        Err(error) => Err(reason(&error)),
    }
}

/// Why the compiler refuses a grammar.
fn unfit(error: &dyn std::fmt::Display, grammar: &Grammar) -> String {
    let why = reason(error);
    // It names an option of its own, and no place.
    if !why.contains("oneOf constraints are not supported") {
        return why;
    }
    let mut places = grammar.exclusive().join(", ");
    if places.is_empty() {
        places = "a schema".into();
    }
    let places = shortened(places, LONGEST_REASON);
    format!(
        "{places}: \"oneOf\" cannot be enforced where more than one of its schemas may fit; give them different types, \
         or a required property with a different \"const\" in each, or use \"anyOf\""
    )
}

/// What the compiler says, without the state of its parser and the like.
pub(super) fn reason(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.split("\n<").next().unwrap_or_default().trim();
    shortened(text.to_owned(), LONGEST_REASON)
}

/// Compiled grammars, the latest used last.
#[derive(Default)]
struct Kept {
    entries: Vec<Entry>,
}

struct Entry {
    key: String,
    parser: TokenParser,
}

impl Entry {
    /// The states and bytes of its lexer, which all its matchers share; none once it has failed.
    fn size(&self) -> Option<(usize, usize)> {
        // A lexer that panicked cannot be asked.
        let stats = || Ok(self.parser.parser.lexer_stats());
        let stats = panic_utils::catch_unwind(AssertUnwindSafe(stats)).ok()?;
        (!stats.error).then_some((stats.num_states, stats.num_bytes))
    }
}

impl Kept {
    fn find(&mut self, key: &str) -> Option<TokenParser> {
        let place = self.entries.iter().position(|entry| entry.key == key)?;
        let entry = self.entries.remove(place);
        // Lexers grow with what they read. One that is half full may not last another answer.
        if entry.size().is_none_or(|(states, _)| states > MAX_STATES / 2) {
            return None;
        }
        let parser = entry.parser.clone();
        self.entries.push(entry);
        // The others have grown with the answers since they were compiled.
        self.trim();
        Some(parser)
    }

    fn keep(&mut self, key: &str, parser: TokenParser) {
        self.entries.retain(|entry| entry.key != key);
        self.entries.push(Entry { key: key.to_owned(), parser });
        self.trim();
    }

    /// Forgets those that were not used for longest, until the others are within the limits.
    fn trim(&mut self) {
        let (mut count, mut bytes, mut memory) = (0, 0, 0);
        let mut kept = Vec::with_capacity(self.entries.len());
        for entry in std::mem::take(&mut self.entries).into_iter().rev() {
            // One that has failed is of no use.
            let Some((states, size)) = entry.size() else { continue };
            count += 1;
            bytes += entry.key.len();
            memory += size.max(states * STATE_BYTES);
            if count > MAX_KEPT || bytes > MAX_KEPT_BYTES || memory > MAX_KEPT_MEMORY {
                break;
            }
            kept.push(entry);
        }
        kept.reverse();
        self.entries = kept;
    }
}
