//! The tags between which a checkpoint writes its reasoning.

/// The tags around the reasoning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningTags {
    /// Begins the reasoning, such as `<think>`.
    pub open: &'static str,
    /// Ends it, such as `</think>`.
    pub close: &'static str,
}

/// Of Command-R, Magistral, Seed-OSS, Gemma 4, and nearly everyone else (Qwen, DeepSeek, SmolLM, GLM, …).
const TABLE: [ReasoningTags; 6] = [
    ReasoningTags { open: "<|START_THINKING|>", close: "<|END_THINKING|>" },
    ReasoningTags { open: "[THINK]", close: "[/THINK]" },
    ReasoningTags { open: "<seed:think>", close: "</seed:think>" },
    ReasoningTags { open: "<|channel>thought", close: "<channel|>" },
    ReasoningTags::THINK,
    ReasoningTags { open: "<reasoning>", close: "</reasoning>" },
];

impl ReasoningTags {
    /// The tags that most families use.
    pub const THINK: Self = Self { open: "<think>", close: "</think>" };

    /// Those of a chat template, else those that the tokenizer knows as tokens.
    pub(super) fn detect(template: &str, has_token: &dyn Fn(&str) -> bool) -> Option<Self> {
        // Templates may speak of one of the tags only: DeepSeek's V3.1 cuts histories at the closing one.
        let named = |tags: &&Self| template.contains(tags.close) || template.contains(tags.open);
        let known = |tags: &&Self| has_token(tags.open) && has_token(tags.close);
        TABLE.iter().find(named).or_else(|| TABLE.iter().find(known)).copied()
    }
}
