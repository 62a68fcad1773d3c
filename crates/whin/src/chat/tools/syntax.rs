//! The table of syntaxes.

use std::sync::Arc;

use super::block::{Block, End};
use super::gemma::Gemma;
use super::llama::Llama;
use super::markup::{Form, Markup};
use super::mistral::Mistral;
use super::pythonic::Pythonic;
use super::sections::{Marks, Sections};
use super::tagged::Tagged;
use super::{Reader, Schemas};
use crate::chat::channels;

/// The closing tags of calls in Python's spelling, in the order of their opening ones.
const PYTHONIC_ENDS: [&str; 3] = ["<|tool_call_end|>", "<|python_end|>", "</function_calls>"];

/// How a checkpoint writes tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Syntax {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes, Qwen, SmolLM and many others.
    Hermes,
    /// `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`: Qwen3-Coder.
    Qwen3Coder,
    /// `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`: GLM 4.5.
    Glm4,
    /// As Qwen3-Coder's, between `<seed:tool_call>` tags: Seed-OSS.
    SeedOss,
    /// `<minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke></minimax:tool_call>`.
    MiniMaxM2,
    /// `{"name": …, "parameters": {…}}` as the whole answer, several in a list or with `;` between them: Llama 3.
    /// Behind `<|python_tag|>` the same, or `NAME.call(KEY=VALUE)`, or code for the tool `python`.
    Llama3Json,
    /// `[TOOL_CALLS][{"name": …, "arguments": {…}}]`, or with `named` `[TOOL_CALLS]NAME[ARGS]{…}`: Mistral. Either is
    /// read in both cases.
    Mistral {
        /// Whether the name stands outside of the JSON, as since Mistral Small 3.2.
        named: bool,
    },
    /// `[NAME(KEY=VALUE), …]` in Python's spelling as the whole answer, or between the tags of Llama 4, LFM2 and
    /// OLMo 3.
    Pythonic,
    /// `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME` and the arguments in a Markdown fence: DeepSeek V3 and R1.
    DeepSeekV3,
    /// `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`: DeepSeek V3.1.
    DeepSeekV31,
    /// `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`: Kimi K2.
    KimiK2,
    /// `<|tool_call|>[{"name": …, "arguments": {…}}]`: Granite 3 and Phi-4-mini.
    Granite,
    /// `<TOOLCALL>[{"name": …, "arguments": {…}}]</TOOLCALL>`: Nemotron.
    Nemotron,
    /// `<|START_ACTION|>[{"tool_name": …, "parameters": {…}}]<|END_ACTION|>`: Command R7B.
    Command,
    /// `<|tool_call>call:NAME{KEY:VALUE}<tool_call|>`, with `<|"|>` around strings: Gemma 4.
    Gemma4,
    /// OpenAI's channels: `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>`: gpt-oss.
    Harmony,
}

impl Syntax {
    /// All of them, in the order in which they are looked for: none is hidden by one before it.
    pub const ALL: [Self; 17] = [
        Self::Harmony,
        Self::DeepSeekV3,
        Self::DeepSeekV31,
        Self::KimiK2,
        Self::Mistral { named: true },
        Self::Mistral { named: false },
        Self::Command,
        Self::Nemotron,
        Self::Gemma4,
        Self::SeedOss,
        Self::MiniMaxM2,
        Self::Glm4,
        Self::Qwen3Coder,
        Self::Hermes,
        Self::Granite,
        Self::Pythonic,
        Self::Llama3Json,
    ];

    /// The syntax of a chat template. One that offers tools but shows no call leaves it to the tokens that the
    /// tokenizer knows.
    pub(in crate::chat) fn detect(template: &str, has_token: &dyn Fn(&str) -> bool) -> Option<Self> {
        let shown = |syntax: &&Self| syntax.is_shown(template);
        // What several syntaxes have in common counts for the most common one.
        let known = |syntax: &&Self| match syntax {
            Self::Harmony | Self::Glm4 | Self::Qwen3Coder | Self::Pythonic | Self::DeepSeekV3 => false,
            Self::Mistral { named: true } => has_token("[TOOL_CALLS]") && has_token("[ARGS]"),
            _ => syntax.starts().iter().all(|start| has_token(start)),
        };
        let shown = Self::ALL.iter().find(shown);
        let offers = || template.contains("tools");
        shown.or_else(|| offers().then(|| Self::ALL.iter().find(known)).flatten()).copied()
    }

    /// Whether a template speaks of calls in this syntax.
    fn is_shown(self, template: &str) -> bool {
        let all = |texts: &[&str]| texts.iter().all(|text| template.contains(text));
        let any = |texts: &[&str]| texts.iter().any(|text| template.contains(text));
        match self {
            Self::Harmony => all(&["<|channel|>", "<|message|>"]),
            Self::DeepSeekV3 => all(&["<｜tool▁calls▁begin｜>", "```json"]),
            Self::Mistral { named: true } => all(&["[TOOL_CALLS]", "[ARGS]"]),
            Self::Glm4 => all(&["<tool_call>", "<arg_key>"]),
            Self::Qwen3Coder => all(&["<tool_call>", "<function="]),
            Self::Pythonic => any(&[
                "<|python_start|>",
                "<function_calls>",
                "<|tool_call_start|>",
                "func_name1(params_name1",
            ]),
            Self::Llama3Json => any(&["<|python_tag|>"]) || all(&["tools", "\"parameters\": "]),
            _ => self.starts().first().is_some_and(|start| template.contains(start)),
        }
    }

    /// The texts that begin a call; none is the beginning of another.
    pub(crate) fn starts(self) -> &'static [&'static str] {
        match self {
            Self::Hermes | Self::Glm4 => &["<tool_call>"],
            Self::Qwen3Coder => &["<tool_call>", "<function="],
            Self::SeedOss => &["<seed:tool_call>"],
            Self::MiniMaxM2 => &["<minimax:tool_call>"],
            Self::Llama3Json => &["<|python_tag|>"],
            Self::Mistral { .. } => &["[TOOL_CALLS]"],
            Self::Pythonic => &["<|tool_call_start|>", "<|python_start|>", "<function_calls>"],
            Self::DeepSeekV3 | Self::DeepSeekV31 => &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
            Self::KimiK2 => &["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
            Self::Granite => &["<|tool_call|>"],
            Self::Nemotron => &["<TOOLCALL>"],
            Self::Command => &["<|START_ACTION|>"],
            Self::Gemma4 => &["<|tool_call>"],
            Self::Harmony => &[],
        }
    }

    /// Tags that may stand behind a call, and are no content there: those that close calls, which models may repeat.
    pub(in crate::chat) fn tail(self) -> &'static [&'static str] {
        match self {
            Self::Hermes | Self::Qwen3Coder | Self::Glm4 => &["</tool_call>"],
            Self::SeedOss => &["</seed:tool_call>"],
            Self::MiniMaxM2 => &["</minimax:tool_call>"],
            Self::Pythonic => &PYTHONIC_ENDS,
            Self::DeepSeekV3 | Self::DeepSeekV31 => &["<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
            Self::KimiK2 => &["<|tool_call_end|>", "<|tool_calls_section_end|>"],
            Self::Granite => &["<|/tool_call|>"],
            Self::Nemotron => &["</TOOLCALL>"],
            Self::Command => &["<|END_ACTION|>"],
            Self::Gemma4 => &["<tool_call|>"],
            Self::Llama3Json | Self::Mistral { .. } | Self::Harmony => &[],
        }
    }

    /// The tags besides those of [`Self::starts`] and [`Self::tail`].
    fn inner(self) -> &'static [&'static str] {
        match self {
            Self::Mistral { .. } => &["[ARGS]", "[CALL_ID]"],
            Self::DeepSeekV3 | Self::DeepSeekV31 => &["<｜tool▁sep｜>"],
            Self::KimiK2 => &["<|tool_call_argument_begin|>"],
            Self::Gemma4 => &["<|\"|>"],
            Self::Harmony => &channels::MARKERS,
            _ => &[],
        }
    }

    /// Every tag that may be a token.
    pub(in crate::chat) fn markers(self) -> impl Iterator<Item = &'static str> {
        [self.starts(), self.inner(), self.tail()].into_iter().flatten().copied()
    }

    /// Whether a call without a start marker may begin with this byte, at the very start of the content.
    pub(in crate::chat) fn leads(self, byte: u8) -> bool {
        matches!((self, byte), (Self::Llama3Json, b'{' | b'[') | (Self::Pythonic, b'['))
    }

    /// A reader for the text behind the start marker with this place in [`Self::starts`]; behind none, for a call
    /// that leads.
    pub(in crate::chat) fn reader(self, marker: Option<usize>, schemas: &Arc<Schemas>) -> Box<dyn Reader> {
        let tag = |close, again| Block::new(End::Tag { close, again });
        match (self, marker) {
            (Self::Qwen3Coder, Some(1)) => Box::new(Markup::named(Form::QWEN, schemas)),
            (Self::Hermes | Self::Qwen3Coder, _) => Box::new(Tagged::new(Form::QWEN, schemas)),
            (Self::SeedOss, _) => Box::new(Tagged::new(Form::SEED, schemas)),
            (Self::MiniMaxM2, _) => Box::new(Tagged::new(Form::MINI_MAX, schemas)),
            (Self::Glm4, _) => Box::new(Tagged::new(Form::GLM, schemas)),
            (Self::Llama3Json, marker) => Box::new(Llama::new(marker.is_some())),
            (Self::Mistral { .. }, _) => Box::new(Mistral::new()),
            (Self::Pythonic, marker) => Box::new(Pythonic::new(marker.map(|marker| PYTHONIC_ENDS[marker]))),
            (Self::DeepSeekV3 | Self::DeepSeekV31, marker) => {
                Box::new(Sections::new(Marks::DEEP_SEEK, marker))
            }
            (Self::KimiK2, marker) => Box::new(Sections::new(Marks::KIMI, marker)),
            (Self::Gemma4, _) => Box::new(Gemma::new()),
            (Self::Granite | Self::Harmony, _) => Box::new(Block::new(End::Value)),
            (Self::Nemotron, _) => Box::new(tag("</TOOLCALL>", "<TOOLCALL>")),
            (Self::Command, _) => Box::new(tag("<|END_ACTION|>", "<|START_ACTION|>")),
        }
    }
}
