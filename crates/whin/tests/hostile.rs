//! Folders and files that are damaged, or made to do damage: each ends in an error that names what is wrong, quickly.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::{any, prop_assert_eq, proptest};
use serde_json::{Value, json};
use tempfile::TempDir;
use whin::checkpoint::{Source, Tensors};
use whin::model::{Plan, config};
use whin::{Error, ErrorKind};

/// A safetensors file.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// The header of tensors with these names, types, shapes and places.
fn header(tensors: &[(&str, &str, &[u64], [u64; 2])]) -> String {
    let entries = tensors.iter().map(|(name, dtype, shape, place)| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":{place:?}}}"#)
    });
    format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
}

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("config.json"), "{}").unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn open(folder: &Path) -> Result<Tensors, Error> {
    let start = Instant::now();
    let tensors = Source::open(Some(folder)).and_then(|source| Tensors::open(&source));
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
    tensors
}

#[track_caller]
fn refused(result: Result<Tensors, Error>, kind: ErrorKind, parts: &[&str]) {
    let error = match result {
        Ok(tensors) => panic!("accepted: {tensors:?}"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is not in: {error}");
    }
}

/// The single file with these bytes must be refused, naming the file and `part`.
#[track_caller]
fn bad(bytes: &[u8], part: &str) {
    let folder = folder(&[("model.safetensors", bytes)]);
    refused(open(folder.path()), ErrorKind::InvalidCheckpoint, &["model.safetensors", part]);
}

#[track_caller]
fn good(bytes: &[u8]) -> Tensors {
    let folder = folder(&[("model.safetensors", bytes)]);
    open(folder.path()).unwrap()
}

#[test]
fn lengths_that_the_file_does_not_have() {
    bad(b"", "cut off");
    bad(&[0; 7], "cut off");
    bad(&[0; 8], "does not start with {");
    bad(&[0; 4096], "does not start with {");
    bad(&u64::MAX.to_le_bytes(), "18446744073709551615 bytes");
    bad(&[&u64::MAX.to_le_bytes()[..], b"{}"].concat(), "18446744073709551615 bytes");
    bad(&[&100u64.to_le_bytes()[..], b"{}"].concat(), "cut off");
    bad(&[&100_000_001u64.to_le_bytes()[..], b"{}"].concat(), "the format allows");
    bad(&[&0u64.to_le_bytes()[..], b"{}"].concat(), "does not start with {");
    bad(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull");
}

#[test]
fn headers_that_are_no_headers() {
    bad(&file(" {}", b""), "does not start with {");
    bad(&file("[]", b""), "does not start with {");
    bad(&file("{", b""), "broken header");
    bad(&file("{} x", b""), "broken header");
    bad(&file("{}{}", b""), "broken header");
    bad(&file("{}\0\0", b""), "broken header");
    bad(&[&6u64.to_le_bytes()[..], b"{\"\xff\":1}"].concat(), "broken header");
    for entry in [
        "3",
        "null",
        "[]",
        "{}",
        r#"{"dtype":"F32"}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}"#,
        r#"{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":"1","data_offsets":[0,4]}"#,
        r#"{"dtype":32,"shape":[1],"data_offsets":[0,4]}"#,
    ] {
        bad(&file(&format!(r#"{{"w":{entry}}}"#), &[0; 4]), "broken header");
    }
    bad(&file(&header(&[("w", "F31", &[1], [0, 4])]), &[0; 4]), "unknown type \"F31\"");
    bad(&file(&header(&[("w", "f32", &[1], [0, 4])]), &[0; 4]), "unknown type \"f32\"");
    bad(&file(r#"{"__metadata__":{"a":1}}"#, b""), "broken header");
    bad(&file(r#"{"__metadata__":{},"__metadata__":{}}"#, b""), "twice");
}

#[test]
fn places_that_do_not_fit() {
    let pair = |a: [u64; 2], b: [u64; 2]| header(&[("a", "F32", &[1], a), ("b", "F32", &[1], b)]);
    bad(&file(&pair([0, 4], [0, 4]), &[0; 4]), "overlaps");
    bad(&file(&pair([0, 4], [2, 6]), &[0; 6]), "overlaps");
    bad(&file(&pair([0, 4], [5, 9]), &[0; 9]), "hole");
    bad(&file(&pair([1, 5], [5, 9]), &[0; 9]), "hole");
    bad(&file(&pair([0, 4], [4, 8]), &[0; 9]), "end at 8");
    bad(&file(&pair([0, 4], [4, 8]), &[0; 7]), "bytes 4 to 8 of 7");
    bad(&file(&pair([0, 4], [8, 4]), &[0; 8]), "bytes 8 to 4");
    bad(&file(&header(&[("w", "F32", &[1], [0, u64::MAX])]), &[0; 4]), "of 4");
    bad(&file(&header(&[("w", "F32", &[2], [0, 4])]), &[0; 4]), "takes 8");
    bad(&file(&header(&[("w", "BF16", &[3], [0, 4])]), &[0; 4]), "takes 6");
    bad(&file(&header(&[("w", "F4", &[3], [0, 2])]), &[0; 2]), "no whole number");
    bad(&file(&header(&[("w", "F32", &[1 << 32, 1 << 32], [0, 0])]), b""), "overflows");
    bad(&file(&header(&[("w", "F32", &[1 << 32, 1 << 32, 1 << 32], [0, 4])]), &[0; 4]), "overflows");
    bad(&file(&header(&[("w", "F32", &[u64::MAX, 2], [0, 4])]), &[0; 4]), "overflows");
    bad(&file("{}", &[0; 4]), "end at 0");
    bad(&file(&pair([0, 4], [4, 8]).replace("\"b\"", "\"a\""), &[0; 8]), "\"a\" twice");
}

#[test]
fn headers_that_are_long_or_deep_cost_no_more_than_their_bytes() {
    const LONG: usize = 100_000_000;
    let fill = |start: &str, middle: &str, end: &str| {
        let count = (LONG - start.len() - end.len()) / middle.len();
        format!("{start}{}{end}", middle.repeat(count))
    };
    bad(&file(&fill("{\"", "a", "\":0}"), b""), "broken header");
    bad(&file(&fill("{\"w\":", "[", ""), b""), "broken header");
    bad(&file(&fill("{\"w\":{\"dtype\":\"F32\",\"shape\":[", "1,", "1]}}"), b""), "more than 16 numbers");
    let entry = r#""":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"#;
    bad(&file(&fill("{", entry, r#""b":0}"#), b""), "more than 200000 tensors");
    bad(&file(&fill("{\"__metadata__\":{", "\"\":\"\",", "\"\":\"\"}}"), b""), "entries of metadata");
    bad(&file(&fill("{\"__metadata__\":", "{\"a\":", ""), b""), "broken header");
    assert_eq!(good(&file(&fill("{}", " ", ""), b"")).names().count(), 0);
    // The error of the parser quotes what it met: not all 100 MB of it.
    let folder = folder(&[("model.safetensors", &file(&fill("{\"w\":\"", "a", "\"}"), b""))]);
    assert!(open(folder.path()).unwrap_err().to_string().len() < 1000);
}

proptest! {
    /// Whatever stands in a file: an error, or tensors whose every byte can be looked at.
    #[test]
    fn damaged_files_never_panic(edits in vec((0usize..500, any::<u8>()), 1..6), length in 0usize..400) {
        let names: &[(&str, &str, &[u64], [u64; 2])] = &[
            ("a", "F32", &[2, 2], [0, 16]),
            ("b", "BF16", &[3], [16, 22]),
            ("c", "F64", &[0], [22, 22]),
            ("d", "I8", &[2, 3], [22, 28]),
            ("d_scale", "F16", &[2, 1], [28, 32]),
        ];
        let mut bytes = file(&header(names), &[1; 32]);
        for (place, byte) in edits {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        if length < 100 {
            bytes.truncate(bytes.len() - length);
        }
        let folder = folder(&[("model.safetensors", &bytes)]);
        if let Ok(mut tensors) = open(folder.path()) {
            let names: Vec<String> = tensors.names().map(str::to_owned).collect();
            for name in names {
                if let Some(tensor) = tensors.take(&name) {
                    prop_assert_eq!(tensor.view().to_vec().len(), tensor.shape().0 * tensor.shape().1);
                }
            }
        }
    }
}

#[test]
fn odd_but_legal_files_load() {
    assert_eq!(good(&file("{}", b"")).names().count(), 0);
    assert_eq!(good(&file("{}      ", b"")).names().count(), 0);
    assert_eq!(good(&file(r#"{"__metadata__":{"format":"pt"}}"#, b"")).names().count(), 0);
    let odd = header(&[
        ("later", "F32", &[1], [8, 12]),
        ("empty", "F32", &[0, 5], [8, 8]),
        ("scalar", "F64", &[], [0, 8]),
        ("nibbles", "F4", &[2, 1], [12, 13]),
        ("empty at the end", "BF16", &[0], [13, 13]),
    ]);
    let mut tensors = good(&file(&odd, &[0; 13]));
    assert_eq!(tensors.names().count(), 5);
    assert_eq!(tensors.claim("later", &[1]).unwrap().view().to_vec(), [0.0]);
    assert_eq!(tensors.claim("empty", &[0, 5]).unwrap().view().to_vec(), [0.0; 0]);
    assert!(tensors.finish(|_| true).is_ok());
    let escaped = file(r#"{"\u0061\n":{"shape":[1],"data_offsets":[0,2],"dtype":"F16"}}"#, &[0, 0x3c]);
    assert_eq!(good(&escaped).claim("a\n", &[1]).unwrap().view().to_vec(), [1.0]);
}

#[test]
fn what_the_safetensors_crate_writes_loads() {
    let data: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![3, 2], &data).unwrap();
    let bytes = safetensors::serialize([("w", view)], None).unwrap();
    let mut tensors = good(&bytes);
    let tensor = tensors.claim("w", &[3, 2]).unwrap();
    assert_eq!(tensor.view().to_vec(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    tensor.release();
    assert_eq!((tensor.view().rows(), tensor.view().to_vec()[5]), (3, 6.0));
}

fn one(name: &str, value: f32) -> Vec<u8> {
    file(&header(&[(name, "F32", &[1], [0, 4])]), &value.to_le_bytes())
}

fn index(map: &Value) -> Vec<u8> {
    serde_json::to_vec(&json!({ "metadata": { "total_size": 8 }, "weight_map": map })).unwrap()
}

const INDEX: &str = "model.safetensors.index.json";

#[test]
fn names_in_the_index_do_not_lead_out_of_the_folder() {
    let outside = folder(&[("secret.safetensors", &one("a", 1.0))]);
    let outside = outside.path().join("secret.safetensors");
    let absolute = outside.to_str().unwrap();
    for name in [
        "../secret.safetensors",
        "..",
        ".",
        "",
        "/etc/passwd",
        "a/../../b",
        "sub/x",
        "..\\x",
        "C:x",
        "a\0b",
        absolute,
    ] {
        let folder = folder(&[(INDEX, &index(&json!({ "a": name })))]);
        refused(open(folder.path()), ErrorKind::InvalidCheckpoint, &["no name of a file"]);
    }
}

#[test]
fn an_index_that_is_broken_is_named() {
    let deep = format!("{{\"metadata\":{}", "[".repeat(1_000_000));
    let long = format!(r#"{{"weight_map": {{"{}": "x"}}}}"#, "a".repeat(10_000));
    for json in [
        "",
        "{",
        "[]",
        "{}",
        long.as_str(),
        r#"{"weight_map": {}}"#,
        r#"{"weight_map": {"a": 3}}"#,
        deep.as_str(),
    ] {
        let folder = folder(&[(INDEX, json.as_bytes())]);
        refused(open(folder.path()), ErrorKind::InvalidCheckpoint, &[INDEX]);
    }
}

#[test]
fn an_index_of_absurdly_many_files_or_tensors_is_refused_before_any_is_looked_at() {
    let file = |tensors: usize, files: usize| {
        let entries = (0..tensors).map(|i| format!(r#""t{i}":"f{}""#, i % files));
        format!(r#"{{"weight_map":{{{}}}}}"#, entries.collect::<Vec<_>>().join(","))
    };
    for (tensors, files, part) in [
        (10_001, 10_001, "names 10001 files; at most 10000"),
        (200_001, 1, "more than 200000 tensors"),
        (1_000_000, 1_000_000, "more than 200000 tensors"),
    ] {
        let folder = folder(&[(INDEX, file(tensors, files).as_bytes())]);
        let start = Instant::now();
        refused(open(folder.path()), ErrorKind::InvalidCheckpoint, &[INDEX, part]);
        assert!(start.elapsed() < Duration::from_secs(2), "took {:?}", start.elapsed());
    }
}

#[test]
fn missing_shards_are_all_named_with_a_tensor() {
    let map = json!({ "a": "1.safetensors", "b": "2.safetensors", "c": "3.safetensors" });
    let folder = folder(&[(INDEX, &index(&map)), ("2.safetensors", &one("b", 1.0))]);
    let parts =
        ["1.safetensors is missing; it should hold \"a\"", "3.safetensors is missing; it should hold \"c\""];
    refused(open(folder.path()), ErrorKind::InvalidCheckpoint, &parts);
}

#[test]
fn a_shard_must_hold_what_the_index_says() {
    let map = json!({ "a": "1.safetensors", "b": "1.safetensors" });
    let folder = folder(&[(INDEX, &index(&map)), ("1.safetensors", &one("a", 1.0))]);
    refused(open(folder.path()), ErrorKind::InvalidCheckpoint, &["\"b\" in 1.safetensors, which lacks it"]);
}

#[test]
fn a_shard_that_is_cut_off_is_named() {
    let whole = one("a", 1.0);
    for length in 0..whole.len() {
        bad(&whole[..length], "");
    }
    let map = index(&json!({ "a": "1.safetensors" }));
    let folder = folder(&[(INDEX, &map), ("1.safetensors", &whole[..whole.len() - 1])]);
    refused(open(folder.path()), ErrorKind::InvalidCheckpoint, &["1.safetensors"]);
}

#[test]
fn the_index_decides_between_files() {
    let both = |a: f32, b: f32| {
        let pair = header(&[("a", "F32", &[1], [0, 4]), ("x", "F32", &[1], [4, 8])]);
        file(&pair, &[a.to_le_bytes(), b.to_le_bytes()].concat())
    };
    // Both files hold `a`: the one that the index names counts. `x` is in neither list entry, so it must be the same.
    let pair = header(&[("b", "F32", &[1], [0, 4]), ("a", "F32", &[1], [4, 8]), ("x", "F32", &[1], [8, 12])]);
    let second = file(&pair, &[1.0f32, 2.0, 3.0].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
    let map = index(&json!({ "a": "1.safetensors", "b": "2.safetensors" }));
    let files = |first: &[u8]| {
        folder(&[
            (INDEX, &map),
            ("1.safetensors", first),
            ("2.safetensors", &second),
            ("model.safetensors", b"not looked at"),
        ])
    };
    let same = files(&both(9.0, 3.0));
    let mut tensors = open(same.path()).unwrap();
    assert_eq!(tensors.claim("a", &[1]).unwrap().view().to_vec(), [9.0]);
    assert_eq!(tensors.claim("x", &[1]).unwrap().view().to_vec(), [3.0]);
    let other = files(&both(9.0, 4.0));
    refused(
        open(other.path()),
        ErrorKind::InvalidCheckpoint,
        &["\"x\"", "1.safetensors and in 2.safetensors"],
    );
}

#[test]
fn folders_without_the_files_say_what_is_missing() {
    let empty = TempDir::new().unwrap();
    let absent = empty.path().join("absent");
    refused(open(&absent), ErrorKind::CheckpointNotFound, &["absent"]);
    refused(open(empty.path()), ErrorKind::CheckpointNotFound, &["no config.json"]);
    refused(open(Path::new("Qwen/..")), ErrorKind::CheckpointNotFound, &["nothing at Qwen/..", "owner/name"]);
    refused(open(folder(&[]).path()), ErrorKind::InvalidCheckpoint, &["model.safetensors", INDEX]);
    let pickled = folder(&[("pytorch_model.bin", b"")]);
    refused(open(pickled.path()), ErrorKind::InvalidCheckpoint, &["safe_serialization"]);
    let renamed = folder(&[("other.safetensors", b"")]);
    refused(open(renamed.path()), ErrorKind::InvalidCheckpoint, &["other names"]);
    fs::remove_file(renamed.path().join("config.json")).unwrap();
    refused(open(renamed.path()), ErrorKind::InvalidCheckpoint, &["no config.json"]);
    let files = folder(&[("m.gguf", b"GGUF"), ("m.safetensors", b"")]);
    refused(open(&files.path().join("m.gguf")), ErrorKind::InvalidCheckpoint, &["m.gguf", "cut off"]);
    let parent = files.path().to_str().unwrap();
    refused(open(&files.path().join("m.safetensors")), ErrorKind::CheckpointNotFound, &["is a file", parent]);
}

#[test]
fn folders_in_place_of_files_are_named() {
    for name in ["model.safetensors", INDEX] {
        let folder = folder(&[]);
        fs::create_dir(folder.path().join(name)).unwrap();
        refused(open(folder.path()), ErrorKind::InvalidCheckpoint, &[name, "is a folder"]);
    }
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("config.json")).unwrap();
    refused(open(folder.path()), ErrorKind::InvalidCheckpoint, &["config.json is a folder"]);
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_dangling_ones_named() {
    use std::os::unix::fs::symlink;
    let blobs = folder(&[("blob", &one("a", 1.0))]);
    let snapshot = folder(&[]);
    symlink(blobs.path().join("blob"), snapshot.path().join("model.safetensors")).unwrap();
    assert!(open(snapshot.path()).unwrap().contains("a"));
    let source = Source::open(Some(snapshot.path())).unwrap();
    assert_eq!(source.list().unwrap(), ["config.json", "model.safetensors"]);
    fs::remove_file(blobs.path().join("blob")).unwrap();
    refused(open(snapshot.path()), ErrorKind::InvalidCheckpoint, &["model.safetensors", "does not exist"]);
    fs::remove_file(snapshot.path().join("model.safetensors")).unwrap();
    symlink("/dev/zero", snapshot.path().join("model.safetensors")).unwrap();
    refused(open(snapshot.path()), ErrorKind::InvalidCheckpoint, &["not a regular file"]);
    symlink("loop", snapshot.path().join("loop")).unwrap();
    refused(open(&snapshot.path().join("loop")), ErrorKind::Io, &["loop"]);
}

/// A tiny model: its config, and its tensors with the given changes.
fn model(
    keys: Value,
    change: impl Fn(&str, &[usize]) -> Option<(String, &'static str, Vec<usize>)>,
) -> Result<usize, Error> {
    let mut json = json!({
        "model_type": "qwen3", "vocab_size": 10, "hidden_size": 4, "intermediate_size": 6, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2,
    });
    json.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    let spec = config::read(&serde_json::to_vec(&json).unwrap()).unwrap();
    let plan = Plan::new(&spec);
    let head = [("lm_head.weight".to_owned(), vec![10, 4])];
    let parts: std::collections::BTreeMap<_, _> = plan.tensors().into_iter().chain(head).collect();
    let (mut entries, mut end) = (Vec::new(), 0);
    for (name, shape) in parts {
        let Some((name, dtype, shape)) = change(&name, &shape) else { continue };
        let size = shape.iter().product::<usize>() * if dtype == "F32" { 4 } else { 1 };
        entries.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{end},{}]}}"#,
            end + size
        ));
        end += size;
    }
    let folder =
        folder(&[("model.safetensors", &file(&format!("{{{}}}", entries.join(",")), &vec![0; end]))]);
    plan.claim(open(folder.path())?).map(|loads| loads.len())
}

fn unchanged(name: &str, shape: &[usize]) -> Option<(String, &'static str, Vec<usize>)> {
    Some((name.to_owned(), "F32", shape.to_vec()))
}

#[test]
fn a_whole_model_is_claimed_in_all_its_forms() {
    assert_eq!(model(json!({}), unchanged).unwrap(), 11);
    assert_eq!(model(json!({ "attention_bias": true }), unchanged).unwrap(), 13);
    assert_eq!(model(json!({ "tie_word_embeddings": true }), unchanged).unwrap(), 10);
    let headless = |name: &str, shape: &[usize]| unchanged(name, shape).filter(|_| name != "lm_head.weight");
    assert_eq!(model(json!({ "tie_word_embeddings": true }), headless).unwrap(), 10);
    let bare = |name: &str, shape: &[usize]| headless(name.trim_start_matches("model."), shape);
    assert_eq!(model(json!({ "tie_word_embeddings": true }), bare).unwrap(), 10);
    let error = model(json!({}), headless).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidCheckpoint);
    assert!(
        error.to_string().contains("lm_head.weight") && error.to_string().contains("tie_word_embeddings")
    );
}

#[test]
fn tensors_that_do_not_fit_the_config_are_all_named() {
    let error = model(json!({}), |name, shape| match name {
        "model.norm.weight" => None,
        "model.layers.0.self_attn.q_proj.weight" => Some((name.to_owned(), "F32", vec![4, 5])),
        "model.layers.0.mlp.up_proj.weight" => {
            Some(("model.layers.0.mlp.odd.weight".to_owned(), "F32", vec![6, 4]))
        }
        _ => unchanged(name, shape),
    })
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidCheckpoint);
    for part in [
        "tensor \"model.norm.weight\" is missing from model.safetensors",
        "tensor \"model.layers.0.self_attn.q_proj.weight\" in model.safetensors: expected [4, 4], found [4, 5]",
        "tensor \"model.layers.0.mlp.up_proj.weight\" is missing",
        "tensor \"model.layers.0.mlp.odd.weight\" in model.safetensors is no part",
    ] {
        assert!(error.to_string().contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn types_that_cannot_be_read_are_named() {
    for dtype in ["F8_E4M3FNUZ", "F8_E8M0", "U8"] {
        let error = model(json!({}), |name, shape| match name.ends_with("down_proj.weight") {
            true => Some((name.to_owned(), dtype, shape.to_vec())),
            false => unchanged(name, shape),
        })
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedArchitecture, "{error}");
        assert!(error.to_string().contains(&format!("stored as {dtype}")), "{error}");
    }
}
