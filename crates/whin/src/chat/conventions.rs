//! How a checkpoint writes its answers, found in the source of its chat template.

use super::{Phase, ReasoningTags, Syntax, channels};

/// The conventions of a checkpoint's answers.
#[derive(Clone, Debug)]
pub struct Conventions {
    /// The tags around the reasoning; none where the checkpoint has none, or writes into channels.
    pub reasoning: Option<ReasoningTags>,
    /// How calls of tools are written.
    pub syntax: Option<Syntax>,
}

impl Conventions {
    /// Of the checkpoint with this template. `has_token` says whether the tokenizer has a token with just this text;
    /// it counts where the template does not tell.
    pub fn detect(template: &str, has_token: &dyn Fn(&str) -> bool) -> Self {
        let syntax = Syntax::detect(template, has_token);
        let reasoning = match syntax {
            Some(Syntax::Harmony) => None,
            _ => ReasoningTags::detect(template, has_token),
        };
        Self { reasoning, syntax }
    }

    /// Texts of tokens that must reach the router even where the tokenizer calls them special and leaves them out
    /// of the text.
    pub fn markers(&self) -> Vec<&'static str> {
        let mut markers: Vec<_> = self.reasoning.iter().flat_map(|tags| [tags.open, tags.close]).collect();
        markers.extend(self.syntax.iter().flat_map(|syntax| syntax.markers()));
        markers
    }

    /// The phase in which a rendered prompt leaves the answer. Only a tag at the very end counts, with nothing but
    /// blanks behind it: whatever tags stand in messages have the end of their turn behind them.
    ///
    /// The beginning of an answer that is to be continued is not looked into: push it through the [`Router`]
    /// first, and throw away what comes out.
    ///
    /// [`Router`]: super::Router
    pub fn start(&self, rendered_prompt: &str) -> Phase {
        let prompt = rendered_prompt.trim_ascii_end();
        match (self.syntax, self.reasoning) {
            (Some(Syntax::Harmony), _) => channels::start(prompt),
            (_, Some(tags)) if prompt.ends_with(tags.open) => Phase::Reasoning,
            (_, Some(tags)) if prompt.ends_with(tags.close) => Phase::Content,
            (_, Some(_)) => Phase::Undecided,
            (_, None) => Phase::Content,
        }
    }
}
