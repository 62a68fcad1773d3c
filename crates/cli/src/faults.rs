//! Panics, which the library turns into errors where a hostile file can cause them: what they say is kept until it is
//! known whether the command failed, and is shown with the error then.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use crate::out;

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Runs the program. A panic that nobody has caught is a failure like others, and asks for a report.
pub fn guard(program: impl FnOnce() -> ExitCode) -> ExitCode {
    panic::set_hook(Box::new(keep));
    panic::catch_unwind(AssertUnwindSafe(program)).unwrap_or_else(|_| {
        show();
        out::note(
            "error[device_failed]: an internal fault, which the note before this describes: please report it",
        );
        ExitCode::FAILURE
    })
}

/// Has a write beyond a limit on the size of files fail, which the load cache can do without, rather than the system
/// end the process.
#[cfg(unix)]
pub fn let_writes_fail() {
    // Whether the signal came is of no interest, and without a handler things are as they were.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
}

/// Shows the last panic, if there was one.
pub fn show() {
    if let Some(fault) = LAST.lock().unwrap_or_else(PoisonError::into_inner).take() {
        out::note(&fault);
    }
}

fn keep(info: &PanicHookInfo<'_>) {
    let place = info.location().map_or("an unknown place".to_owned(), ToString::to_string);
    let mut fault = format!("note: fault at {place}: {}", info.payload_as_str().unwrap_or("no message"));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        fault = format!("{fault}\n{backtrace}");
    }
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
}
