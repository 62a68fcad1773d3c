//! How results and failures reach the user.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;
use whin::{Completion, Engine};

use crate::faults;

/// Prints `error[code]: message`, with what caused it. A reader that has gone away is no failure.
pub fn failure(error: &anyhow::Error) -> ExitCode {
    if error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_closed)) {
        return ExitCode::SUCCESS;
    }
    let known = error.downcast_ref::<whin::Error>();
    let code = known.map_or("io", whin::Error::code);
    let mut message = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Many a message quotes its cause already.
        if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    faults::show();
    note(&format!("error[{code}]: {message}"));
    ExitCode::FAILURE
}

fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Writes to stdout at once.
pub fn text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to stdout")
}

/// Writes one JSON value and a newline to stdout.
pub fn json(value: &Value) -> Result<()> {
    text(&format!("{value}\n"))
}

/// How fast an answer came, and why it ended, on one line.
pub fn figures(engine: &Engine, completion: &Completion, sampled: bool) -> String {
    let stop = completion.stop.as_ref().map_or(String::new(), |stop| format!(" {stop:?}"));
    let seed = if sampled { format!(" · seed {}", completion.seed) } else { String::new() };
    format!(
        "[prompt {} tokens, {:.1} tok/s · answer {} tokens, {:.1} tok/s · {}{stop}{seed} · {}, {} · loaded{} in {:.2} s]",
        completion.n_prompt,
        completion.prefill_tokens_per_sec(),
        completion.n_generated(),
        completion.decode_tokens_per_sec(),
        completion.finish_reason.name(),
        engine.device(),
        engine.weights().name(),
        if engine.is_from_cache() { " from cache" } else { "" },
        engine.load_seconds(),
    )
}

/// Writes a line to stderr, unless that is closed.
///
/// Messages quote names from files, which could hold sequences that steer a terminal: they are shown, not obeyed.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{}", harmless(line));
}

/// Writes to stderr as it stands, unless that is closed.
pub fn aside(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The same text with control characters spelt out, except for ends of lines.
pub fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !matches!(c, '\n' | '\t') {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    #[test]
    fn control_characters_of_messages_are_spelt_out() {
        assert_eq!(super::harmless("a\x1b[2Jb\rc\u{9b}1m\nd é"), "a\\u{1b}[2Jb\\rc\\u{9b}1m\nd é");
    }
}
