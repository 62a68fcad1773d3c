//! Checkpoints that change after their weights have been packed.

use std::fs::{self, File};
use std::path::Path;

use serde_json::{Value, json};

use super::{Model, right};
use crate::process::finish;

/// Writes a file anew and gives it its old times back.
fn edit_unseen(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
    File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

#[test]
fn a_changed_value_of_the_config_is_noticed() {
    let model = Model::cached();
    model.folder.config(&[("rms_norm_eps", json!(1.01e-6))]);
    assert!(model.recovers("another value").contains("config.json has changed"));
}

#[test]
fn a_changed_tokenizer_is_noticed() {
    let model = Model::cached();
    let path = model.folder.file("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    tokenizer["model"]["dropout"] = json!(0.1);
    fs::write(&path, tokenizer.to_string()).unwrap();
    assert!(model.recovers("another tokenizer").contains("tokenizer.json has changed"));
    model.folder.write("chat_template.json", "{}");
    assert!(model.recovers("a new file").contains("chat_template.json is new"));
    model.folder.remove("chat_template.json");
    assert!(model.recovers("a file less").contains("chat_template.json is gone"));
}

#[test]
fn a_single_changed_weight_is_noticed() {
    let model = Model::cached();
    let shard = model.folder.file("model-00002-of-00002.safetensors");
    // In the middle, where no sample looks.
    edit_unseen(&shard, |bytes| {
        let place = bytes.len() / 3 + 5001;
        bytes[place] ^= 1;
    });
    let mut command = model.command();
    let answer = right(finish(command.args(["--verify", "full"]).spawn().unwrap()));
    assert!(!answer.is_from_cache);
    assert!(answer.lines[0].contains("model-00002-of-00002.safetensors has changed"), "{:?}", answer.lines);
    assert!(model.answers_with(&["--verify", "full"]).is_from_cache);
    // Where the system says when a file last changed in any way, the quick look finds it too.
    if cfg!(unix) {
        edit_unseen(&shard, |bytes| {
            let place = bytes.len() / 3 + 9001;
            bytes[place] ^= 1;
        });
        model.recovers("a weight, and the old time");
    }
}

#[test]
fn a_touched_or_copied_checkpoint_is_not_packed_anew() {
    let model = Model::cached();
    let witness = || fs::read(model.cell().join("witness.json")).unwrap();
    let before = witness();
    let shard = model.folder.file("model-00001-of-00002.safetensors");
    File::options().write(true).open(shard).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    // As if a process had been killed while it noted that.
    fs::write(model.cell().join("tmp-witness"), "{").unwrap();
    let answer = model.answers();
    assert!(answer.is_from_cache && answer.lines.is_empty());
    assert_ne!(witness(), before, "what the files look like now is noted");
    assert!(model.answers().is_from_cache);
    model.is_tidy();

    let copy = Model::new();
    fs::create_dir_all(copy.cell()).unwrap();
    for (name, bytes) in super::files(&model.cell()) {
        fs::write(copy.cell().join(name), bytes).unwrap();
    }
    let answer = copy.answers();
    assert!(answer.is_from_cache && answer.lines.is_empty(), "{:?}", answer.lines);
}
