//! Doors for the fuzzers and for the replay of their corpus: what cannot be reached through the rest of the library.
//! Each runs what loading runs. Nothing else uses them, and nothing about them is promised.

use std::collections::BTreeMap;
use std::path::Path;

use whin_kernels::Backend;
use whin_kernels::cpu::Cpu;
use whin_kernels::cpu::isa::scalar::Scalar;

use crate::cache::{CacheMode, Cell, Sources, Verify};
use crate::chat::{Conventions, Delta, Phase, ReasoningTags, Router, Syntax, split_tool_calls};
use crate::checkpoint::Source;
use crate::model::weights::Model;
use crate::{Checkpoint, Result, Weights};

/// A checkpoint of which these files, by name, are all there is.
pub fn source<const N: usize>(files: [(&str, &[u8]); N]) -> Source {
    let files = files.map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
    Source::Memory(BTreeMap::from(files).into())
}

/// Opens the load cache of one checkpoint, again and again.
pub struct CacheReader {
    checkpoint: Checkpoint,
    sources: Sources,
    mode: CacheMode,
    backend: Cpu<Scalar>,
}

impl CacheReader {
    /// For the checkpoint in a folder, and caches in another one.
    ///
    /// # Errors
    /// As [`Checkpoint::open`] and [`Checkpoint::tensors`].
    pub fn new(checkpoint: &Path, caches: &Path) -> Result<Self> {
        let checkpoint = Checkpoint::open(Some(checkpoint))?;
        let sources = Sources::new(&checkpoint, &checkpoint.tensors()?);
        let mode = CacheMode::Folder(caches.to_owned());
        Ok(Self { checkpoint, sources, mode, backend: Cpu::new(1)? })
    }

    /// Whether the cache has all weights in this form. Reads whatever is there now, and takes every weight from it.
    pub fn is_whole(&mut self, form: Weights) -> bool {
        let cell = Cell::new(
            self.sources.clone(),
            self.checkpoint.spec(),
            (form, self.backend.layout()),
            (&self.mode, Verify::Quick),
            1,
        );
        let (spec, backend) = (self.checkpoint.spec(), &mut self.backend);
        cell.and_then(|mut cell| Model::open(&mut cell, backend, spec, form)).is_some()
    }
}

/// Splits an answer as a whole and in pieces. The first byte chooses the conventions and whether the answer is cut off,
/// the second the sizes of the pieces, and the others are the text. Says whether it holds a call.
///
/// # Panics
/// If the pieces change what comes out, or the arguments of a call are no JSON object.
pub fn answer(data: &[u8]) -> bool {
    let [choice, size, text @ ..] = data else { return false };
    let text = String::from_utf8_lossy(text);
    let choice = usize::from(*choice);
    let syntax = Syntax::ALL.get(choice % (Syntax::ALL.len() + 1)).copied();
    let start = match choice / (Syntax::ALL.len() + 1) % 3 {
        0 => Phase::Undecided,
        1 => Phase::Reasoning,
        _ => Phase::Content,
    };
    let conventions = Conventions { reasoning: Some(ReasoningTags::THINK), syntax };
    let is_cut = choice / (3 * (Syntax::ALL.len() + 1)) % 2 == 1;
    let run = |pieces: &[&str]| {
        let mut router = Router::new(&conventions, start, true);
        let mut deltas: Vec<Delta> = pieces.iter().flat_map(|piece| router.push(piece)).collect();
        deltas.extend(if is_cut { router.finish_cut() } else { router.finish() });
        let mut joined = Vec::new();
        deltas.into_iter().for_each(|delta| crate::chat::add(&mut joined, delta));
        joined
    };
    let characters = text.char_indices().map(|(place, _)| place);
    let mut places: Vec<_> = characters.step_by(usize::from(*size) + 1).collect();
    places.push(text.len());
    let pieces: Vec<_> = places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
    let whole = run(&[&text]);
    assert_eq!(whole, run(&pieces), "{conventions:?} {start:?} {text:?}");
    split_tool_calls(&text);
    let calls =
        whole.iter().filter_map(|delta| if let Delta::Call(call) = delta { Some(call) } else { None });
    let sound = |arguments: &str| {
        serde_json::from_str::<serde_json::Value>(arguments).is_ok_and(|value| value.is_object())
    };
    calls.inspect(|call| assert!(!call.name.is_empty() && sound(&call.arguments), "{call:?}")).count() > 0
}
