//! How results and failures reach the user.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::Value;

/// Prints `error[code]: message`, with what caused it. A reader that has gone away is no failure.
pub fn failure(error: &anyhow::Error) -> ExitCode {
    if error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_closed)) {
        return ExitCode::SUCCESS;
    }
    let known = error.downcast_ref::<whin::Error>();
    let code = known.map_or("io", whin::Error::code);
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    // Nothing is left to do where stderr itself is closed.
    let _ = writeln!(io::stderr(), "error[{code}]: {}", causes.join(": "));
    ExitCode::FAILURE
}

fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Writes to stdout at once.
pub fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes one JSON value and a newline to stdout.
pub fn json(value: &Value) -> io::Result<()> {
    text(&format!("{value}\n"))
}

/// Writes a line to stderr, unless that is closed.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
