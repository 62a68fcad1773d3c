//! Ctrl-C, which ends an answer with the text so far.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use whin::Canceller;

/// Watches for Ctrl-C from its making on.
pub struct Interrupt(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Whether an answer is under way or about to be.
    is_busy: bool,
    /// The answer, once it is.
    answer: Option<Canceller>,
    came: bool,
}

impl Interrupt {
    /// Only one can be made in a process. While no answer is under way or [about to be](Self::prepare), and where the user
    /// insists, Ctrl-C ends the process.
    pub fn watch() -> Result<Self> {
        let state = Arc::<Mutex<State>>::default();
        let watched = Arc::clone(&state);
        let handler = move || {
            let mut state = lock(&watched);
            let again = std::mem::replace(&mut state.came, true);
            if again || !state.is_busy {
                std::process::exit(130);
            }
            state.answer.iter().for_each(Canceller::cancel);
        };
        ctrlc::set_handler(handler).context("cannot watch for Ctrl-C")?;
        Ok(Self(state))
    }

    /// From now on Ctrl-C ends the answer that is about to come; a second one, the process.
    pub fn prepare(&self) {
        *lock(&self.0) = State { is_busy: true, ..State::default() };
    }

    /// This is the answer.
    pub fn cancels(&self, canceller: Canceller) {
        let mut state = lock(&self.0);
        if state.came {
            canceller.cancel();
        }
        (state.is_busy, state.answer) = (true, Some(canceller));
    }

    /// Whether it came; where it did, that is forgotten, and so is the answer.
    pub fn take(&self) -> bool {
        std::mem::take(&mut *lock(&self.0)).came
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
