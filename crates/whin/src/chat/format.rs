//! How one checkpoint talks: its templates, the control tokens they use, and the conventions of its answers.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::messages::normalise;
use super::provenance::StandIns;
use super::template::Template;
use super::{Chat, Conventions, Encoding, Phase, Router, ToolChoice};
use crate::Result;
use crate::checkpoint::Source;
use crate::tokenizer::Tokenizer;

/// A checkpoint's chat template, and what follows from it.
pub(crate) struct ChatFormat {
    template: Template,
    conventions: Conventions,
    /// Added tokens that steer a model, as opposed to those that spell blanks or HTML.
    control: HashSet<u32>,
    /// Characters with which these begin and end.
    ends: BTreeSet<char>,
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
        let (mut control, mut ends) = (HashSet::new(), BTreeSet::new());
        for (id, text) in tokenizer.added_tokens() {
            if tokenizer.is_special(id) || all.contains(&text) || !is_plain(&text) {
                control.insert(id);
                ends.extend(text.chars().next());
                ends.extend(text.chars().next_back());
            }
        }
        // Letters are no sign of a token, and templates compare and change words and blanks.
        ends.retain(|c| !c.is_alphanumeric() && !c.is_whitespace());
        let shown = conventions.markers().iter().filter_map(|marker| tokenizer.token_to_id(marker)).collect();
        Ok(Self { template, conventions, control, ends, shown })
    }

    /// What takes an answer to `chat` apart that begins in this phase.
    pub fn router(&self, chat: &Chat, start: Phase) -> Router {
        let tools = &chat.conversation.tools;
        let may_call = !tools.is_empty() && chat.tool_choice != ToolChoice::None;
        let mut conventions = self.conventions.clone();
        if !chat.split_reasoning {
            conventions.reasoning = None;
        }
        let start = if chat.split_reasoning { start } else { Phase::Content };
        let mut router = Router::new(&conventions, start, may_call).with_tools(tools);
        if chat.conversation.continue_final_message
            && let Some(begun) = chat.conversation.messages.last().and_then(|last| last["content"].as_str())
        {
            // What the answer begins with has been told already.
            router.push(begun);
        }
        router
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

    /// The rendered text, and the places in it where others wrote what a control token could begin or end with.
    fn render(&self, chat: &Chat) -> Result<(String, Vec<usize>)> {
        chat.validate()?;
        let mut conversation = chat.conversation.clone();
        conversation.messages = normalise(&chat.conversation, self.template.shape(&chat.conversation)?)?;
        let mut texts = Vec::new();
        let values = conversation.messages.iter().chain(&conversation.tools);
        let values = values.chain(conversation.template_kwargs.values());
        values.chain(conversation.documents.iter().flatten()).for_each(|value| strings(value, &mut texts));
        let stand_ins = StandIns::new(&self.ends, texts.into_iter().chain(self.template.sources()));
        if chat.encoding == Encoding::Safe {
            stand_ins.mark_messages(&mut conversation.messages);
            conversation.documents.iter_mut().flatten().for_each(|document| stand_ins.mark(document));
        }
        let rendered = self.template.render(&conversation.messages, &conversation)?;
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

/// Whether an added token is plain text that people write: blanks, words, simple HTML.
fn is_plain(token: &str) -> bool {
    let tag = token.strip_prefix('<').and_then(|tag| tag.strip_suffix('>'));
    let inner = tag.map_or(token, |tag| tag.strip_prefix('/').unwrap_or(tag));
    inner.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || c == '▁')
}
