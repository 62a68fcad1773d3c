//! Lines of a person at a terminal, with what editing they expect, or of a file.

use anyhow::{Context, Result};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Completer, Config, Editor, Helper, Highlighter, Hinter};
use std::io::{BufRead, IsTerminal, stdin, stdout};

use crate::out;

/// Where lines come from.
pub enum Lines {
    /// A person, whom `prompt` asks.
    Editor(Box<Editor<Quotes, MemHistory>>),
    /// A file or a pipe.
    Plain,
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
pub struct Quotes;

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
        if !stdin().is_terminal() || !stdout().is_terminal() {
            return Ok(Self::Plain);
        }
        let config = Config::builder().auto_add_history(true).max_history_size(1000);
        let config = config.context("cannot set up the terminal")?.build();
        let history = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).context("cannot set up the terminal")?;
        editor.set_helper(Some(Quotes));
        Ok(Self::Editor(Box::new(editor)))
    }

    /// Whether a person sees what is written.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Editor(_))
    }

    /// The next line, for which `prompt` asks a person; none at the end.
    pub fn next(&mut self, prompt: &str) -> Result<Option<Line>> {
        let Self::Editor(editor) = self else { return next_plain(&mut stdin().lock()) };
        match editor.readline(prompt) {
            Ok(text) => Ok(Some(Line::Text(text))),
            Err(ReadlineError::Interrupted) => Ok(Some(Line::Interrupted)),
            Err(ReadlineError::Eof) => Ok(None),
            Err(error) => Err(error).context("cannot read the next line"),
        }
    }
}

/// The next line of a file; the lines of a text that quotes hold together are one. The end of the file closes such a text.
fn next_plain(file: &mut impl BufRead) -> Result<Option<Line>> {
    let mut bytes = Vec::new();
    loop {
        let more = file.read_until(b'\n', &mut bytes).context("cannot read the next line")?;
        let is_open = std::str::from_utf8(&bytes).is_ok_and(is_open);
        if more == 0 && bytes.is_empty() {
            return Ok(None);
        }
        if more == 0 && is_open {
            bytes.extend(b"\"\"\"");
        }
        if more == 0 || !is_open {
            break;
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(Line::Text(text.trim_end_matches(['\r', '\n']).to_owned()))),
        Err(_) => {
            out::note("a line that is not UTF-8 text is left out");
            Ok(Some(Line::Interrupted))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, is_open, next_plain};

    #[test]
    fn quotes_open_and_close() {
        assert!(is_open("\"\"\"a"));
        assert!(is_open("\"\"\""));
        assert!(is_open("/system \"\"\"a\nb"));
        for text in ["", "a", "\"\"\"a\nb\"\"\"", "a \"\"\"", "/system a", "\"\""] {
            assert!(!is_open(text), "{text}");
        }
    }

    #[test]
    fn files_are_read_line_by_line() {
        let mut file: &[u8] = b"a\r\n\n\"\"\"b\nc\"\"\"\n\xff\n\"\"\"d\n e";
        let mut lines = Vec::new();
        while let Some(line) = next_plain(&mut file).unwrap() {
            lines.push(line);
        }
        let text = |text: &str| Line::Text(text.to_owned());
        let expected =
            [text("a"), text(""), text("\"\"\"b\nc\"\"\""), Line::Interrupted, text("\"\"\"d\n e\"\"\"")];
        assert_eq!(lines, expected);
    }
}
