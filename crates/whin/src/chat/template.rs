//! The checkpoint's own chat template: found, read once, and rendered to the bytes that transformers would give, within
//! limits that hold for any template. Knows nothing of tokens.

mod casing;
mod clock;
mod collections;
mod filters;
mod find;
mod limits;
mod markup;
mod methods;
mod operands;
mod operators;
mod python;
mod settings;
mod shape;
mod syntax;
#[cfg(test)]
mod tests;
mod value;

use std::sync::{Arc, OnceLock};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value as Variable;
use minijinja::{AutoEscape, Environment};
use serde_json::{Map, Value};

use self::clock::Clock;
use self::filters::Raised;
use self::limits::Sink;
use super::messages::{Conversation, Shape, normalise};
use crate::checkpoint::Source;
use crate::{Error, ErrorKind, Result};

/// What transformers appends to the last message, to find where it ends in the rendered text.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// The longest template, in bytes.
const MAX_SOURCE: usize = 256 << 10;

/// A checkpoint's chat template, ready to render. Clones share it.
#[derive(Clone, Debug)]
pub struct Template(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    /// The template for conversations without tools, and for those with tools unless there is another for them.
    default: Option<Compiled>,
    tool_use: Option<Compiled>,
    /// All names there are, for the message where none fits.
    names: Vec<String>,
    /// `bos_token` and so on.
    special_tokens: Map<String, Value>,
}

/// One Jinja template.
#[derive(Debug)]
struct Compiled {
    env: Environment<'static>,
    /// The file that it is from.
    place: String,
    text: String,
    shape: OnceLock<Shape>,
}

impl Template {
    /// The chat template of a checkpoint; none where it has none. `chat_template.jinja` wins (with
    /// `additional_chat_templates/tool_use.jinja` of a folder for conversations with tools), then `chat_template` in
    /// `tokenizer_config.json`, which may be a list of named ones, then `chat_template.json`.
    ///
    /// # Errors
    /// [`UnsupportedChatTemplate`](ErrorKind::UnsupportedChatTemplate) where a template is too long or cannot be read,
    /// [`InvalidCheckpoint`](ErrorKind::InvalidCheckpoint) where one of those files is broken, or
    /// [`Io`](ErrorKind::Io).
    pub fn find(source: &Source) -> Result<Option<Self>> {
        let Some(found) = find::templates(source)? else { return Ok(None) };
        let special_tokens = find::special_tokens(source)?;
        Self::compile(found, special_tokens, Clock::System).map(Some)
    }

    /// As [`Self::find`], where the absence of a template is an error too.
    ///
    /// # Errors
    /// As [`Self::find`]; [`UnsupportedChatTemplate`](ErrorKind::UnsupportedChatTemplate) where there is none.
    pub fn open(source: &Source) -> Result<Self> {
        Self::find(source)?.ok_or_else(|| {
            unsupported(
                "the checkpoint has no chat template: neither chat_template.jinja nor chat_template in \
                 tokenizer_config.json is there. Give the prompt as a text, or put the template of the model beside its \
                 files",
            )
        })
    }

    fn compile(found: find::Found, special_tokens: Map<String, Value>, clock: Clock) -> Result<Self> {
        let names = found.keys().cloned().collect();
        let compiled = |name: &str| {
            let found = found.get(name);
            found.map(|(text, place)| Compiled::new(text, place, clock)).transpose()
        };
        let (default, tool_use) = (compiled("default")?, compiled("tool_use")?);
        Ok(Self(Arc::new(Parts { default, tool_use, names, special_tokens })))
    }

    /// The prompt for a conversation: its messages in the shape that the template wants, rendered.
    ///
    /// # Errors
    /// As [`normalise`] and [`Self::render`].
    pub fn apply(&self, conversation: &Conversation) -> Result<String> {
        self.render(&normalise(conversation, self.shape(conversation)?)?, conversation)
    }

    /// The form in which the template for this conversation wants its messages. Found out by rendering small
    /// conversations, once.
    ///
    /// # Errors
    /// [`UnsupportedChatTemplate`](ErrorKind::UnsupportedChatTemplate) where no template is for it.
    pub fn shape(&self, conversation: &Conversation) -> Result<Shape> {
        let compiled = self.choose(conversation)?;
        Ok(*compiled.shape.get_or_init(|| shape::find_out(compiled, &self.0.special_tokens)))
    }

    /// Renders `messages`, which are those of the conversation in [shape](Self::shape), with everything else that the
    /// conversation holds.
    ///
    /// # Errors
    /// [`UnsupportedChatTemplate`](ErrorKind::UnsupportedChatTemplate) with the template's own message where it raises
    /// one, else with what it does that is wrong, not supported or too much;
    /// [`InvalidArguments`](ErrorKind::InvalidArguments) where the last message cannot be continued.
    pub fn render(&self, messages: &[Value], conversation: &Conversation) -> Result<String> {
        let compiled = self.choose(conversation)?;
        if conversation.continue_final_message {
            return compiled.continued(messages, conversation, &self.0.special_tokens);
        }
        compiled.render(messages, conversation, &self.0.special_tokens)
    }

    /// The texts of its templates.
    pub(super) fn sources(&self) -> impl Iterator<Item = &str> {
        [&self.0.default, &self.0.tool_use].into_iter().flatten().map(|compiled| compiled.text.as_str())
    }

    /// As transformers does: `tool_use` where there are tools, else `default`.
    fn choose(&self, conversation: &Conversation) -> Result<&Compiled> {
        let parts = &*self.0;
        let tool_use = parts.tool_use.as_ref().filter(|_| !conversation.tools.is_empty());
        tool_use.or(parts.default.as_ref()).ok_or_else(|| {
            unsupported(format!(
                "the checkpoint has several chat templates ({}) and none is named \"default\": name one so",
                parts.names.join(", ")
            ))
        })
    }
}

impl Compiled {
    fn new(text: &str, place: &str, clock: Clock) -> Result<Self> {
        if text.len() > MAX_SOURCE {
            let size = text.len();
            return Err(unsupported(format!(
                "{place} has {size} bytes, more than the {MAX_SOURCE} that are allowed"
            )));
        }
        let env = limits::with_stack(|| parse(text, clock).map_err(|error| describe(place, &error)))?;
        Ok(Self { env, place: place.to_owned(), text: text.to_owned(), shape: OnceLock::new() })
    }

    fn render(
        &self,
        messages: &[Value],
        conversation: &Conversation,
        tokens: &Map<String, Value>,
    ) -> Result<String> {
        self.render_within(
            limits::fuel(messages, conversation, self.text.len()),
            messages,
            conversation,
            tokens,
        )
    }

    /// Renders with no more work than `fuel`.
    fn render_within(
        &self,
        fuel: u64,
        messages: &[Value],
        conversation: &Conversation,
        tokens: &Map<String, Value>,
    ) -> Result<String> {
        let mut env = self.env.clone();
        env.set_fuel(Some(fuel));
        let mut sink = Sink::default();
        let outcome = limits::with_stack(|| {
            let template = env.get_template(NAME).map_err(|error| describe(&self.place, &error))?;
            let rendered = template.render_captured_to(variables(messages, conversation, tokens), &mut sink);
            rendered.map(drop).map_err(|error| describe(&self.place, &error))
        });
        match outcome {
            Ok(()) => Ok(sink.into_text()),
            Err(_) if sink.is_full() => Err(unsupported(format!(
                "{} renders more than {} bytes, which is more than is allowed; shorten the conversation",
                self.place,
                limits::MAX_OUTPUT
            ))),
            Err(error) => Err(error),
        }
    }

    /// Renders so that the text ends where the last message does, as transformers does: with a mark behind its content,
    /// at which the text is cut.
    fn continued(
        &self,
        messages: &[Value],
        conversation: &Conversation,
        tokens: &Map<String, Value>,
    ) -> Result<String> {
        let invalid = |message: &str| Error::new(ErrorKind::InvalidArguments, message);
        let mut messages = messages.to_vec();
        let last = messages.last_mut().ok_or_else(|| invalid("there is no message to continue"))?;
        let content = match last.get_mut("content") {
            Some(Value::Array(parts)) => parts.iter_mut().rev().find_map(|part| part.get_mut("text")),
            content => content,
        };
        let Some(Value::String(text)) = content else {
            return Err(invalid("the last message has no text to continue; give it a content"));
        };
        let original = text.clone();
        text.push_str(CONTINUE_TAG);
        let mut rendered = self.render(&messages, conversation, tokens)?;
        let tag = rendered.rfind(CONTINUE_TAG.trim_end());
        let Some(at) =
            tag.filter(|_| self.text.contains("content") && rendered.contains(python_strip(&original)))
        else {
            return Err(unsupported(format!(
                "{} does not show the last message as it is, so that it cannot be continued",
                self.place
            )));
        };
        // Without the blank behind the mark, the template has trimmed the content.
        let keeps_blanks = rendered[at..].starts_with(CONTINUE_TAG);
        rendered.truncate(at);
        if !keeps_blanks {
            rendered.truncate(methods::strip(&rendered, None, false, true).len());
        }
        Ok(rendered)
    }
}

fn python_strip(text: &str) -> &str {
    methods::strip(text, None, true, true)
}

/// What the engine calls the only template of an environment.
const NAME: &str = "chat template";

/// An environment as transformers sets Jinja's up, with one template.
fn parse(text: &str, clock: Clock) -> Result<Environment<'static>, minijinja::Error> {
    let mut env = Environment::new();
    // Errors then name the variable that is undefined.
    env.set_debug(true);
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(false);
    env.set_syntax(syntax.build()?);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_formatter(|out, state, value| {
        let written = match value.as_str() {
            Some(text) => out.write_str(text),
            None => out.write_str(&python::str_of(state, value)?),
        };
        written.map_err(minijinja::Error::from)
    });
    env.set_unknown_method_callback(methods::call);
    filters::add(&mut env, clock);
    // Jinja takes all line ends for \n.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let text = syntax::for_the_engine(&text)?;
    env.add_template_owned(NAME, operators::as_functions(&text, NAME, env.syntax().clone())?)?;
    Ok(env)
}

/// What the template sees.
fn variables(messages: &[Value], conversation: &Conversation, tokens: &Map<String, Value>) -> Variable {
    let list = |values: &[Value]| Variable::from(values.iter().map(value::from_json).collect::<Vec<_>>());
    let tools = match &*conversation.tools {
        [] => Variable::from(()),
        tools => list(tools),
    };
    let fixed = [
        ("messages", list(messages)),
        ("tools", tools),
        ("documents", conversation.documents.as_deref().map_or(Variable::from(()), list)),
        ("add_generation_prompt", Variable::from(!conversation.continue_final_message)),
    ];
    let further = tokens.iter().chain(&conversation.template_kwargs);
    Variable::from_pairs(further.map(|(name, value)| (name.as_str(), value::from_json(value))).chain(fixed))
}

fn unsupported(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::UnsupportedChatTemplate, message)
}

/// An error of the template engine, for people.
fn describe(place: &str, error: &minijinja::Error) -> Error {
    let mut cause = Some(error as &(dyn std::error::Error + 'static));
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref() {
            return unsupported(format!("{place} refuses this conversation: {message}"));
        }
        cause = current.source();
    }
    let line = error.line().map_or(String::new(), |line| format!(", line {line}"));
    let detail = match error.detail() {
        Some(detail) => crate::error::shortened(detail.to_owned(), 500),
        None => error.kind().to_string(),
    };
    match error.kind() {
        minijinja::ErrorKind::OutOfFuel => unsupported(format!(
            "{place}{line}: rendering takes more work than is allowed; shorten the conversation, or give the prompt as a \
             text"
        )),
        minijinja::ErrorKind::SyntaxError
        | minijinja::ErrorKind::UnknownFilter
        | minijinja::ErrorKind::UnknownTest => {
            unsupported(format!("{place}{line}: this cannot be read as a chat template: {detail}"))
        }
        _ => unsupported(format!("{place}{line}: the chat template fails on this conversation: {detail}")),
    }
}
