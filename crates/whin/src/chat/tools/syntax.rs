//! The table of syntaxes.

use std::sync::Arc;

use super::block::{Block, End};
use super::{Reader, Schemas};

/// How a checkpoint writes tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Syntax {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes, Qwen, SmolLM and many others.
    Hermes,
    /// OpenAI's channels: `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>`.
    Harmony,
}

impl Syntax {
    pub(in crate::chat) fn detect(template: &str, _has_token: &dyn Fn(&str) -> bool) -> Option<Self> {
        let has = |text| template.contains(text);
        if has("<|channel|>") && has("<|message|>") {
            return Some(Self::Harmony);
        }
        has("<tool_call>").then_some(Self::Hermes)
    }

    /// The texts that begin a call.
    pub(in crate::chat) fn starts(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => &["<tool_call>"],
            Self::Harmony => &[],
        }
    }

    /// Tags that may stand behind a call.
    pub(in crate::chat) fn tail(self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a call without a start marker may begin with this byte, at the very start of the content.
    pub(in crate::chat) fn leads(self, _byte: u8) -> bool {
        false
    }

    pub(in crate::chat) fn markers(self) -> Vec<&'static str> {
        match self {
            Self::Hermes => vec!["<tool_call>", "</tool_call>"],
            Self::Harmony => super::super::channels::MARKERS.to_vec(),
        }
    }

    /// A reader for the text behind the start marker with this place in [`Self::starts`]; behind none, for a call
    /// that leads.
    pub(in crate::chat) fn reader(self, _marker: Option<usize>, _schemas: &Arc<Schemas>) -> Box<dyn Reader> {
        Box::new(Block::new(End::Tag { close: "</tool_call>", again: "<tool_call>" }))
    }
}
