//! The load cache, as it is met from outside: always the right tokens, at most one line about it, and nothing left over.

mod changes;
mod commands;
mod damages;
mod disks;
mod writers;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::checkpoints::{Folder, seedling};
use crate::process::{Outcome, command, finish};

const PROMPT: &str = "The capital of France is";
/// Where the checkpoint's own cells are, and the one of the default form.
const CACHE: &str = ".whin-cache";
const CELL: &str = "int8-panels16";

/// A checkpoint with a tokenizer, to keep packed weights beside.
struct Model {
    folder: Folder,
}

/// How a run went.
struct Answer {
    is_from_cache: bool,
    /// Lines on stderr.
    lines: Vec<String>,
}

impl Model {
    fn new() -> Self {
        Self { folder: Folder::copy(&seedling()) }
    }

    /// One that has been loaded once.
    fn cached() -> Self {
        let model = Self::new();
        assert!(!model.answers().is_from_cache);
        assert!(model.answers().is_from_cache);
        model
    }

    fn path(&self) -> &str {
        self.folder.path()
    }

    fn cell(&self) -> PathBuf {
        self.folder.file(CACHE).join(CELL)
    }

    /// The file of packed weights.
    fn data(&self) -> PathBuf {
        let data = files(&self.cell()).into_keys().filter(|name| name.ends_with(".bin"));
        let data: Vec<String> = data.collect();
        assert_eq!(data.len(), 1, "{data:?}");
        self.cell().join(&data[0])
    }

    fn command(&self) -> Command {
        command(["run", "-m", self.path(), PROMPT, "-n", "3", "--json"])
    }

    /// Runs it, and finds the tokens right and at most one line on stderr.
    #[track_caller]
    fn answers(&self) -> Answer {
        self.answers_with(&[])
    }

    #[track_caller]
    fn answers_with(&self, args: &[&str]) -> Answer {
        let mut command = self.command();
        command.args(args);
        right(finish(command.spawn().unwrap()))
    }

    /// Runs it twice: the first finds that `what` has happened to the cell, says so in one line and mends it, the second
    /// is quick again. Nothing is left over.
    #[track_caller]
    fn recovers(&self, what: &str) -> String {
        let first = self.answers();
        assert!(!first.is_from_cache, "{what}: used all the same");
        assert_eq!(first.lines.len(), 1, "{what}: {:?}", first.lines);
        assert!(first.lines[0].starts_with("warning: the load cache in "), "{what}: {:?}", first.lines);
        let second = self.answers();
        assert!(second.is_from_cache, "{what}: not mended: {:?}", second.lines);
        assert_eq!(second.lines.len(), 0, "{what}: {:?}", second.lines);
        self.is_tidy();
        first.lines[0].clone()
    }

    /// Finds nothing in the cell but what belongs there.
    #[track_caller]
    fn is_tidy(&self) {
        let expected = [
            "lock".to_owned(),
            "manifest.json".to_owned(),
            self.data().file_name().unwrap().to_str().unwrap().to_owned(),
            "witness.json".to_owned(),
        ];
        assert_eq!(files(&self.cell()).into_keys().collect::<Vec<_>>(), expected);
    }
}

/// What a run that must go well said.
#[track_caller]
fn right(outcome: Outcome) -> Answer {
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let result = outcome.json();
    assert_eq!(result["generated_text"], " Paris.", "{outcome:?}");
    let lines: Vec<String> = outcome.stderr.lines().map(str::to_owned).collect();
    assert!(lines.len() <= 1, "{lines:?}");
    Answer { is_from_cache: result["loaded_from_cache"] == Value::Bool(true), lines }
}

/// The files of a folder by name, with their bytes. Folders in it are left out.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let bytes = if entry.path().is_file() { fs::read(entry.path()).unwrap() } else { continue };
        files.insert(entry.file_name().into_string().unwrap(), bytes);
    }
    files
}

#[test]
fn the_cache_changes_no_bit_of_any_result() {
    let model = Model::new();
    for weights in ["f32", "bf16", "int8", "int8-groups", "int4", "int4-all"] {
        let score = |args: &[&str]| {
            let text = "The capital of France is Paris. The capital of Japan is Tokyo.";
            let mut command = command(["score", "-m", model.path(), text, "--json", "--weights", weights]);
            command.args(args);
            finish(command.spawn().unwrap()).succeeded().json()
        };
        let without = score(&["--no-cache"]);
        assert!(!model.folder.file(CACHE).join(format!("{weights}-panels16")).exists());
        assert_eq!(score(&[]), without, "{weights}, cold");
        assert_eq!(score(&[]), without, "{weights}, warm");
        let answer = model.answers_with(&["--weights", weights]);
        assert!(answer.is_from_cache && answer.lines.is_empty(), "{weights}");
        assert!(!model.answers_with(&["--weights", weights, "--no-cache"]).is_from_cache);
    }
    // Integers make the same tokens with every instruction set, out of the same cache; the reference keeps none.
    for device in ["cpu:scalar", "cpu"] {
        assert!(model.answers_with(&["--device", device]).is_from_cache, "{device}");
    }
    assert!(!model.answers_with(&["--device", "reference"]).is_from_cache);
}

#[test]
fn nothing_in_the_checkpoint_changes_but_the_cache() {
    let model = Model::new();
    let before = files(model.folder.file(".").as_path());
    let times = || {
        let entries = fs::read_dir(model.path()).unwrap().map(|entry| entry.unwrap());
        let mut times: Vec<_> =
            entries.map(|entry| (entry.file_name(), entry.metadata().unwrap().modified().unwrap())).collect();
        times.retain(|(name, _)| name != CACHE);
        times.sort();
        times
    };
    let before_times = times();
    for _ in 0..2 {
        model.answers();
    }
    assert_eq!(files(model.folder.file(".").as_path()), before);
    assert_eq!(times(), before_times);
    let folders = fs::read_dir(model.path()).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
    assert_eq!(folders, [model.folder.file(CACHE)]);
    assert_eq!(files(&model.folder.file(CACHE)).into_keys().collect::<Vec<_>>(), [".gitignore"]);
    model.is_tidy();
}
