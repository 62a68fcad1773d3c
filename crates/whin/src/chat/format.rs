//! How one checkpoint talks: its templates, the control tokens they use, and the conventions of its answers.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use aho_corasick::AhoCorasick;
use serde_json::Value;

use super::messages::normalise;
use super::provenance::{StandIns, finder};
use super::template::Template;
use super::{Chat, Conventions, Encoding, Phase, Router, Syntax, ToolChoice, channels};
use crate::checkpoint::Source;
use crate::constrain::{
    Calls, Enforcer, Grammar, Grammars, Matcher, final_channel, strict_grammar, tool_grammar,
};
use crate::tokenizer::{TextStream, Tokenizer};
use crate::{Error, ErrorKind, Result};

/// A checkpoint's chat template, and what follows from it.
pub(crate) struct ChatFormat {
    template: Template,
    conventions: Conventions,
    /// Added tokens that steer a model, as opposed to those that spell blanks, words or HTML.
    control: HashSet<u32>,
    /// The characters of these that are neither letters nor blanks.
    signs: BTreeSet<char>,
    /// Those that no assistant writes.
    never_written: Option<AhoCorasick>,
    /// The texts of all added tokens.
    added: Vec<String>,
    /// Special tokens that an answer's text must show all the same, since it is taken apart by them.
    shown: Vec<u32>,
}

/// A conversation as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatPrompt {
    /// What the template made of the messages.
    pub text: String,
    /// Its tokens.
    pub token_ids: Vec<u32>,
    /// Where the answer begins: in the middle of reasoning, for example.
    pub start: Phase,
}

impl ChatFormat {
    /// Reads the template of a checkpoint.
    pub fn read(source: &Source, tokenizer: &Tokenizer) -> Result<Self> {
        let template = Template::open(source)?;
        let all: String = template.sources().collect::<Vec<_>>().join("\n");
        let conventions = Conventions::detect(&all, &|token| tokenizer.token_to_id(token).is_some());
        let markers = conventions.markers();
        let (mut control, mut signs, mut never_written) = (HashSet::new(), BTreeSet::new(), Vec::new());
        let (mut added, mut is_normalized) = (Vec::new(), false);
        for token in tokenizer.added_tokens() {
            let is_marker = markers.contains(&token.text.as_str());
            if token.is_special || is_marker || all.contains(&token.text) || !is_plain(&token.text) {
                control.insert(token.id);
                signs.extend(token.text.chars().filter(|c| is_sign(*c)));
                is_normalized |= token.is_normalized;
                if token.is_special && !is_marker {
                    never_written.push(token.text.clone());
                }
            }
            added.push(token.text);
        }
        if is_normalized {
            let variants: Vec<char> = signs.iter().flat_map(|c| variants(*c)).collect();
            signs.extend(variants);
        }
        let shown = markers.iter().filter_map(|marker| tokenizer.token_to_id(marker)).collect();
        let never_written = finder(&never_written);
        Ok(Self { template, conventions, control, signs, never_written, added, shown })
    }

    /// What takes an answer to `chat` apart that begins in this phase, and looks for calls of tools if it `may_call` any.
    pub fn router(&self, chat: &Chat, start: Phase, may_call: bool) -> Router {
        self.router_that(chat.split_reasoning, chat, start, may_call)
    }

    /// The same; what follows an answer for a grammar splits the reasoning off whatever is asked for.
    fn router_that(&self, splits_reasoning: bool, chat: &Chat, start: Phase, may_call: bool) -> Router {
        let tools = &chat.conversation.tools;
        let may_call = may_call && !tools.is_empty() && chat.tool_choice != ToolChoice::None;
        let mut conventions = self.conventions.clone();
        if !splits_reasoning {
            conventions.reasoning = None;
        }
        let start = if splits_reasoning { start } else { Phase::Content };
        let mut router = Router::new(&conventions, start, may_call).with_tools(tools);
        if chat.conversation.continue_final_message
            && let Some(begun) = chat.conversation.messages.last().and_then(|last| last["content"].as_str())
        {
            // What the answer begins with has been told already.
            router.push(begun);
        }
        router
    }

    /// The grammar of a whole answer that begins in this phase, for that of its content: where answers are written into
    /// channels, the content has a header.
    pub fn answer_grammar(&self, content: Grammar, start: Phase, tokenizer: &Tokenizer) -> Grammar {
        match self.conventions.syntax {
            Some(Syntax::Harmony) if start != Phase::Content => final_channel(&content, tokenizer),
            _ => content,
        }
    }

    /// The grammar of the calls that `chat` requires.
    ///
    /// # Errors
    /// `unsupported_chat_template` where the template shows no way to write calls; else as [`tool_grammar`].
    pub fn call_grammar(&self, chat: &Chat, tokenizer: &Tokenizer) -> Result<Grammar> {
        let Some(syntax) = self.conventions.syntax else {
            return Err(Error::new(
                ErrorKind::UnsupportedChatTemplate,
                "a tool call is required, but this checkpoint's chat template shows no way to write one that is known here",
            ));
        };
        let calls = match &chat.tool_choice {
            ToolChoice::Function(name) => Calls::Named(name.clone()),
            _ => Calls::Required { parallel: chat.parallel_tool_calls },
        };
        tool_grammar(tokenizer, syntax, &chat.conversation.tools, &calls)
    }

    /// What keeps an answer to `chat` that begins in this phase to a grammar, behind its reasoning.
    ///
    /// # Errors
    /// `invalid_arguments` where the answer has begun in another way.
    pub fn enforcer(
        &self,
        chat: &Chat,
        start: Phase,
        (grammars, mut matcher): (&Grammars, Matcher),
        tokenizer: &Tokenizer,
    ) -> Result<Enforcer> {
        let router = self.router_that(true, chat, start, false);
        let phase = if chat.conversation.continue_final_message { router.phase() } else { start };
        let begun = if phase == Phase::Content { router.since_phase() } else { "" };
        if !matcher.accept_text(begun) {
            return Err(Error::new(
                ErrorKind::InvalidArguments,
                "the message that is to be continued does not begin as the form of the answer wants it",
            ));
        }
        let tags = match (self.conventions.syntax, self.conventions.reasoning) {
            (Some(Syntax::Harmony), _) => (&channels::THOUGHTS[..], channels::END),
            (_, Some(tags)) => (&[tags.open][..], tags.close),
            (_, None) => (&[][..], ""),
        };
        let stream = TextStream::new(tokenizer, true).showing(&self.shown);
        Ok(Enforcer::behind_reasoning(grammars, matcher, (tokenizer, stream), (router, phase), tags))
    }

    /// What keeps the calls of strict tools to their schemas, where the model calls as it likes and there are such tools.
    ///
    /// # Errors
    /// `invalid_arguments` where the schema of a strict tool cannot be enforced.
    pub fn strict_enforcer(
        &self,
        chat: &Chat,
        start: Phase,
        grammars: &dyn Fn() -> Result<Grammars>,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Enforcer>> {
        if chat.tool_choice != ToolChoice::Auto {
            return Ok(None);
        }
        let calls = strict_grammar(tokenizer, self.conventions.syntax, &chat.conversation.tools)?;
        if calls.is_empty() {
            return Ok(None);
        }
        let grammars = grammars()?;
        let compile = |(grammar, marker): (Grammar, _)| Ok((grammars.compile(&grammar)?, marker));
        let calls = calls.into_iter().map(compile).collect::<Result<_>>()?;
        let router = self.router_that(true, chat, start, true);
        let stream = TextStream::new(tokenizer, true).showing(&self.shown);
        Ok(Enforcer::in_calls(&grammars, calls, (tokenizer, stream), router))
    }

    /// Special tokens that must be seen in an answer's text.
    pub fn shown(&self) -> &[u32] {
        &self.shown
    }

    /// Renders the messages of `chat` and turns them into tokens.
    pub fn prompt(&self, chat: &Chat, tokenizer: &Tokenizer) -> Result<ChatPrompt> {
        let (text, foreign) = self.render(chat)?;
        let token_ids = match chat.encoding {
            Encoding::Parity => tokenizer.encode(&text)?,
            Encoding::Safe => tokenizer.encode_guarded(&text, &foreign, &|id| self.control.contains(&id))?,
        };
        let start = self.conventions.start(&text);
        Ok(ChatPrompt { text, token_ids, start })
    }

    /// The rendered text, and the places in it where others wrote what stands in control tokens.
    fn render(&self, chat: &Chat) -> Result<(String, Vec<usize>)> {
        chat.validate()?;
        let conversation = &chat.conversation;
        let mut messages = normalise(conversation, self.template.shape(conversation)?)?;
        let mut texts = Vec::new();
        let values = messages.iter().chain(&conversation.tools);
        let values = values.chain(conversation.template_kwargs.values());
        values.chain(conversation.documents.iter().flatten()).for_each(|value| strings(value, &mut texts));
        let texts =
            texts.into_iter().chain(self.template.sources()).chain(self.added.iter().map(String::as_str));
        let stand_ins = StandIns::new(&self.signs, self.never_written.as_ref(), texts);
        if !stand_ins.are_enough_for(&self.signs) {
            return Err(Error::new(
                ErrorKind::InvalidArguments,
                "the messages hold every private-use character of Unicode, so that none is left to mark with what users \
                 wrote: leave some of them out",
            ));
        }
        let mut conversation = Cow::Borrowed(conversation);
        if chat.encoding == Encoding::Safe {
            stand_ins.mark_messages(&mut messages);
            if conversation.documents.is_some() {
                let documents = conversation.to_mut().documents.iter_mut().flatten();
                documents.for_each(|document| stand_ins.mark(document));
            }
        }
        let rendered = self.template.render(&messages, &conversation)?;
        Ok(stand_ins.unmark(&rendered))
    }
}

/// Every string in a value, keys included.
fn strings<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(values) => values.iter().for_each(|value| strings(value, texts)),
        Value::Object(map) => {
            for (key, value) in map {
                texts.push(key);
                strings(value, texts);
            }
        }
        _ => {}
    }
}

/// Elements of HTML for which vocabularies have tokens.
const HTML: [&str; 41] = [
    "a",
    "b",
    "blockquote",
    "body",
    "br",
    "caption",
    "code",
    "dd",
    "div",
    "dl",
    "dt",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "hr",
    "html",
    "i",
    "img",
    "li",
    "ol",
    "p",
    "pre",
    "s",
    "span",
    "strong",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
    "u",
    "ul",
];

/// Whether an added token is plain text that people write: blanks, words, HTML.
fn is_plain(token: &str) -> bool {
    match token.strip_prefix('<').and_then(|tag| tag.strip_suffix('>')) {
        Some(tag) => HTML.contains(&tag.strip_prefix('/').unwrap_or(tag)),
        None => token.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || c == '▁'),
    }
}

/// Whether a character of a control token gives it away. Letters and blanks stand in every text, and what quotes or escapes
/// something has to stay what it is where a template quotes.
fn is_sign(c: char) -> bool {
    !c.is_alphanumeric() && !c.is_whitespace() && !matches!(c, '"' | '\'' | '\\' | '{' | '}' | '%')
}

/// What a normalizer could turn into this character.
fn variants(c: char) -> impl Iterator<Item = char> {
    let wide = c.is_ascii_graphic().then(|| char::from_u32(u32::from(c) + 0xfee0)).flatten();
    let others: &[char] = match c {
        '<' => &['\u{fe64}', '\u{226e}'],
        '>' => &['\u{fe65}', '\u{226f}'],
        '|' => &['\u{ffe8}'],
        '_' => &['\u{fe33}', '\u{fe34}', '\u{fe4d}', '\u{fe4e}', '\u{fe4f}'],
        '[' => &['\u{fe47}'],
        ']' => &['\u{fe48}'],
        _ => &[],
    };
    wide.into_iter().chain(others.iter().copied())
}
