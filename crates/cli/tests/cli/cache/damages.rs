//! Cells that something has happened to.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::Model;

/// Changes the bytes of a file.
fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    // Under a new name: the old file may be mapped.
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Changes the manifest, and has the weights agree with it.
fn forge(model: &Model, change: impl FnOnce(&mut Value)) {
    let path = model.cell().join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut manifest);
    let json = manifest.to_string();
    fs::write(&path, &json).unwrap();
    let digest = {
        use sha2::{Digest, Sha256};
        Sha256::digest(&json)
    };
    edit(&model.data(), |bytes| bytes[28..60].copy_from_slice(&digest));
}

#[test]
fn damaged_weights_are_noticed() {
    let model = Model::cached();
    let len = fs::metadata(model.data()).unwrap().len() as usize;
    edit(&model.data(), |bytes| bytes.truncate(len - 1));
    assert!(model.recovers("one byte less").contains("instead of"));
    edit(&model.data(), |bytes| bytes.push(0));
    model.recovers("one byte more");
    edit(&model.data(), |bytes| bytes[len / 2..].fill(0));
    assert!(model.recovers("zeros in the second half").contains("checksum"));
    edit(&model.data(), |bytes| bytes.clear());
    model.recovers("empty");
    fs::remove_file(model.data()).unwrap();
    model.recovers("gone");
    let data = model.data();
    fs::remove_file(&data).unwrap();
    fs::create_dir(&data).unwrap();
    fs::write(data.join("x"), "y").unwrap();
    let line = model.answers().lines;
    assert_eq!(line.len(), 1, "{line:?}");
    assert!(model.answers().is_from_cache);
    model.is_tidy();
}

#[test]
fn every_flipped_bit_is_noticed() {
    let model = Model::cached();
    let len = fs::metadata(model.data()).unwrap().len() as usize;
    // The head, its unused rest, the gap behind the last weight, and places all over the weights.
    let mut places = vec![0, 17, 20, 40, 100, 4095, 4096, len - 1];
    places.extend((1..12).map(|part| len / 12 * part + part));
    for place in places {
        edit(&model.data(), |bytes| bytes[place] ^= 1 << (place % 8));
        model.recovers(&format!("bit {} of byte {place}", place % 8));
    }
}

#[test]
fn damaged_manifests_are_noticed() {
    let model = Model::cached();
    let manifest = model.cell().join("manifest.json");
    let len = fs::metadata(&manifest).unwrap().len() as usize;
    for place in (0..len).step_by(len / 10) {
        edit(&manifest, |bytes| bytes[place] ^= 1);
        model.recovers(&format!("a bit of byte {place} of the manifest"));
    }
    for bytes in ["", "{", "[]", "null", "\u{0}", "{\"format\":1}"] {
        fs::write(&manifest, bytes).unwrap();
        model.recovers(&format!("the manifest is {bytes:?}"));
    }
    fs::write(&manifest, vec![b' '; 17 << 20]).unwrap();
    model.recovers("a manifest of 17 MB");
    fs::write(&manifest, "[".repeat(100_000)).unwrap();
    model.recovers("a deep manifest");
    fs::remove_file(&manifest).unwrap();
    fs::create_dir(&manifest).unwrap();
    fs::write(manifest.join("x"), "y").unwrap();
    model.recovers("a folder for a manifest");
    fs::remove_file(&manifest).unwrap();
    let first = model.answers();
    assert!(!first.is_from_cache && first.lines.is_empty(), "weights without a manifest were never finished");
    assert!(model.answers().is_from_cache);
    model.is_tidy();
}

#[test]
fn manifests_that_were_made_by_others_are_not_believed() {
    let model = Model::cached();
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 12] = [
        ("an older format", |m| m["format"] = json!(0)),
        ("a newer format", |m| m["format"] = json!(1_000_000)),
        ("an older quantiser", |m| m["subject"]["quantiser"] = json!(0)),
        ("another layout", |m| m["subject"]["layout_version"] = json!(0)),
        ("another model", |m| m["subject"]["width"] = json!(64)),
        ("an unknown key", |m| m["subject"]["x"] = json!(1)),
        ("a missing weight", |m| m["weights"][3]["name"] = json!("x")),
        ("another shape", |m| m["weights"][0]["shape"] = json!([320, 6144])),
        ("another kind", |m| m["weights"][0]["kind"] = json!("bf16")),
        ("a hole", |m| m["weights"][0]["offset"] = json!(8192)),
        ("a length beyond the file", |m| m["weights"][0]["size"] = json!(u64::MAX - 63)),
        ("a file elsewhere", |m| m["data"] = json!("../../model.safetensors.index.json")),
    ];
    for (what, change) in changes {
        forge(&model, change);
        model.recovers(what);
    }
}

#[test]
fn cells_of_other_kinds_are_replaced() {
    let model = Model::cached();
    fs::remove_dir_all(model.cell()).unwrap();
    fs::write(model.cell(), "no folder").unwrap();
    let first = model.answers();
    assert!(first.lines.len() <= 1 && !first.is_from_cache, "{:?}", first.lines);
    assert!(model.answers().is_from_cache);
    model.is_tidy();

    let lock = model.cell().join("lock");
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    edit(&model.data(), |bytes| bytes[5000] ^= 1);
    model.recovers("a folder for a lock");
    fs::write(model.cell().join("witness.json"), "{").unwrap();
    assert!(model.answers().is_from_cache, "a broken witness only costs time");
    model.is_tidy();
    fs::write(model.cell().join("witness.json"), vec![b' '; 17 << 20]).unwrap();
    assert!(model.answers().is_from_cache);
    model.is_tidy();
}

#[test]
fn a_cache_of_another_checkpoint_does_not_pass() {
    let model = Model::cached();
    let other = Model::new();
    // The same shapes, other numbers: a checkpoint that was trained on.
    edit(&other.folder.file("model-00001-of-00002.safetensors"), |bytes| {
        let last = bytes.len() - 1;
        bytes[last - 1] ^= 1;
    });
    assert!(!other.answers().is_from_cache);
    fs::remove_dir_all(model.cell()).unwrap();
    fs::rename(other.cell(), model.cell()).unwrap();
    assert!(
        model.recovers("another checkpoint's cell").contains("model-00001-of-00002.safetensors has changed")
    );
}
