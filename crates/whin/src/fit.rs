//! What a model needs of memory, known before anything large is allocated, and what of it there is.

use whin_kernels::BLOCK;

use crate::engine::Options;
use crate::memory;
use crate::model::Spec;
use crate::worker::MAX_SEQUENCES;
use crate::{Error, ErrorKind, Result};

/// Where no context is asked for, memory has to have room for at least this many positions.
const LEAST: usize = 512;

/// What a model needs of memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// All weights.
    pub weights: u64,
    /// Rows of activations and of logits.
    pub scratch: u64,
    /// Keys and values of one position.
    pub position: u64,
    /// What recurrent layers remember of a text, however long it is.
    pub state: u64,
}

/// The longest text, prompt and answer together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// In tokens.
    pub positions: usize,
    is_asked: bool,
}

impl Needs {
    /// Those of `spec`, run as `options` say.
    pub fn new(spec: &Spec, options: &Options) -> Self {
        let rows = step_rows(spec, options);
        let cache = spec.cache_shape(options.kv);
        Self {
            weights: spec.weight_bytes(options.weights),
            scratch: spec.scratch_bytes(rows, rows.min(MAX_SEQUENCES)),
            position: cache.bytes_per_position() as u64,
            state: cache.bytes_per_state() as u64,
        }
    }

    /// Keys and values of a text of so many tokens, which come in blocks, and its state.
    pub fn cache(&self, positions: usize) -> u64 {
        self.position.saturating_mul(positions.next_multiple_of(BLOCK) as u64).saturating_add(self.state)
    }

    /// Everything for one text of so many tokens.
    pub fn total(&self, positions: usize) -> u64 {
        self.weights.saturating_add(self.scratch).saturating_add(self.cache(positions))
    }

    /// The most tokens for which `available` bytes are enough.
    fn positions(&self, available: u64) -> usize {
        let room = available.saturating_sub(self.total(0));
        let blocks = room / self.position.saturating_mul(BLOCK as u64).max(1);
        usize::try_from(blocks).unwrap_or(usize::MAX).saturating_mul(BLOCK)
    }
}

impl Window {
    /// Checks what is asked for.
    ///
    /// # Errors
    /// `invalid_arguments` where that is more than the model can do, or too little.
    pub fn check(spec: &Spec, options: &Options) -> Result<()> {
        let most = spec.max_positions;
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArguments, message));
        match options.context {
            Some(0 | 1) => {
                invalid("context must hold at least 2 tokens: one of the prompt and one new".to_owned())
            }
            Some(context) if context > most => invalid(format!(
                "context {context} is more than the {most} positions that the model declares in config.json"
            )),
            _ => Ok(()),
        }
    }

    /// The window that is asked for, or the longest of the model that fits.
    ///
    /// # Errors
    /// As [`Self::check`]; `out_of_memory` where weights, scratch rows and the keys and values of the window take more
    /// than the `available` bytes.
    pub fn fit(spec: &Spec, options: &Options, available: Option<u64>) -> Result<Self> {
        Self::check(spec, options)?;
        let most = spec.max_positions;
        let needs = Needs::new(spec, options);
        // A system that does not say what is free is trusted.
        let fitting = available.map_or(most, |available| needs.positions(available));
        let (least, positions) = match options.context {
            Some(context) => (context, context),
            None => (most.min(LEAST), most.min(fitting)),
        };
        match available {
            Some(available) if needs.total(least) > available => {
                Err(too_large(spec, &needs, (least, fitting), options, available))
            }
            _ => Ok(Self { positions, is_asked: options.context.is_some() }),
        }
    }

    /// What it is, to go on after "more than"; the model can do `most`.
    pub fn describe(&self, most: usize) -> String {
        let Self { positions, is_asked } = self;
        if positions == &most {
            format!("the model's window of {most}")
        } else if *is_asked {
            format!("the context of {positions} that was set (the model can do {most})")
        } else {
            format!("the {positions} that free memory has room for (the model can do {most})")
        }
    }
}

/// How many rows a step has at most. Room for more rows than one text and the others' single ones would never be used.
pub(crate) fn step_rows(spec: &Spec, options: &Options) -> usize {
    let window = options.context.unwrap_or(spec.max_positions);
    options.prefill_chunk.min(window.saturating_add(MAX_SEQUENCES))
}

fn too_large(
    spec: &Spec,
    needs: &Needs,
    (least, fitting): (usize, usize),
    options: &Options,
    available: u64,
) -> Error {
    let mut remedies = vec!["--weights with fewer bits", "a smaller model"];
    if options.context.is_some_and(|context| fitting >= 2 && fitting < context) {
        remedies.insert(0, "a smaller --context");
    }
    Error::new(
        ErrorKind::OutOfMemory,
        format!(
            "{} are needed: {} for weights as {}, {} for keys and values of {least} tokens as {}, {} for the rows of a \
             step; {} of memory are free: choose {}, or free memory",
            memory::size(needs.total(least)),
            memory::size(needs.weights),
            options.weights.settled(spec).name(),
            memory::size(needs.cache(least)),
            options.kv.name(),
            memory::size(needs.scratch),
            memory::size(available),
            remedies.join(" or "),
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checkpoint, Weights};

    fn fit(context: Option<usize>, weights: Weights, free: Option<u64>) -> Result<Window> {
        let checkpoint = Checkpoint::open(None).unwrap();
        Window::fit(checkpoint.spec(), &Options { context, weights, ..Options::default() }, free)
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_sum() {
        let error = fit(None, Weights::F32, Some(20 << 20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        for part in ["50.6 MiB", "20.0 MiB", "512 tokens", "4.0 MiB", "f32", "--weights"] {
            assert!(error.to_string().contains(part), "{part:?} is not in: {error}");
        }
        assert!(!error.to_string().contains("--context"), "{error}");
        let error = fit(Some(4000), Weights::Int8, Some(40 << 20)).unwrap_err();
        assert!(error.to_string().contains("a smaller --context"), "{error}");
    }

    #[test]
    fn the_window_is_what_memory_has_room_for() {
        assert_eq!(
            fit(None, Weights::F32, None).unwrap().positions,
            4096,
            "a system that does not say is trusted"
        );
        assert_eq!(fit(None, Weights::Int8, Some(1 << 30)).unwrap().positions, 4096);
        let checkpoint = Checkpoint::open(None).unwrap();
        let needs = Needs::new(checkpoint.spec(), &Options::default());
        let window = fit(None, Weights::Int8, Some(needs.total(1000))).unwrap();
        assert_eq!(window.positions, 1024, "whole blocks of 64");
        assert!(window.describe(4096).contains("free memory"), "{}", window.describe(4096));
        assert_eq!(fit(None, Weights::Int8, Some(needs.total(1024) - 1)).unwrap().positions, 960);
        assert_eq!(fit(Some(1024), Weights::Int8, Some(needs.total(1024))).unwrap().positions, 1024);
        assert!(fit(Some(1024), Weights::Int8, Some(needs.total(1024) - 1)).is_err());
        assert!(fit(None, Weights::Int8, Some(needs.total(512) - 1)).is_err());
    }
}
