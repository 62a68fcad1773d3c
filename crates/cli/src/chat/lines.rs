//! Lines of a person at a terminal, with what editing they expect, or of a file.

use anyhow::{Context, Result};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Completer, Config, Editor, Helper, Highlighter, Hinter};
use std::io::{IsTerminal, stdin, stdout};

/// Where lines come from.
pub struct Lines {
    editor: Editor<Quotes, MemHistory>,
    is_terminal: bool,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Text(String),
    /// Ctrl-C instead of a text.
    Interrupted,
}

/// Has a text that begins with three quotes go on until three quotes end it.
#[derive(Completer, Helper, Highlighter, Hinter)]
struct Quotes;

impl Validator for Quotes {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let is_open = is_open(context.input());
        Ok(if is_open { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

/// Whether more lines are to follow.
fn is_open(text: &str) -> bool {
    let text = text.trim();
    let text = text.strip_prefix("/system").map_or(text, str::trim_start);
    text.strip_prefix("\"\"\"").is_some_and(|rest| !rest.ends_with("\"\"\""))
}

impl Lines {
    /// Lines of stdin.
    pub fn new() -> Result<Self> {
        let config = Config::builder().auto_add_history(true).max_history_size(1000);
        let config = config.context("cannot set up the terminal")?.build();
        let history = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).context("cannot set up the terminal")?;
        editor.set_helper(Some(Quotes));
        Ok(Self { editor, is_terminal: stdin().is_terminal() && stdout().is_terminal() })
    }

    /// Whether a person sees what is written.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// The next line, for which `prompt` asks where a person sees it; none at the end.
    pub fn next(&mut self, prompt: &str) -> Result<Option<Line>> {
        match self.editor.readline(if self.is_terminal { prompt } else { "" }) {
            Ok(text) => Ok(Some(Line::Text(text))),
            Err(ReadlineError::Interrupted) => Ok(Some(Line::Interrupted)),
            Err(ReadlineError::Eof) => Ok(None),
            Err(error) => Err(error).context("cannot read the next line"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_open;

    #[test]
    fn quotes_open_and_close() {
        assert!(is_open("\"\"\"a"));
        assert!(is_open("\"\"\""));
        assert!(is_open("/system \"\"\"a\nb"));
        for text in ["", "a", "\"\"\"a\nb\"\"\"", "a \"\"\"", "/system a", "\"\""] {
            assert!(!is_open(text), "{text}");
        }
    }
}
