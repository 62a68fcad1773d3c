//! What the load cache holds of the demo model, and of a file with blocks of all types, to the last bit.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::path::Path;

use serde_json::Value;
use whin::{CacheMode, Checkpoint, Device, Engine, Options, Weights, instruction_sets};

/// The versions of the numbers and of their layout. Caches of earlier versions must not pass for those of one that packs
/// other numbers: whoever changes the digests raises `QUANTISER` in `cache/mod.rs`, or the layout's version in
/// `kernels/cpu/mod.rs`, with them.
const VERSIONS: (u64, u64) = (2, 1);

const PINNED: [(&str, Weights, &str); 8] = [
    (SEEDLING, Weights::F32, "4ff064404602cb49"),
    (SEEDLING, Weights::Bf16, "107579752d926bf1"),
    (SEEDLING, Weights::Int8, "534be015d06838df"),
    (SEEDLING, Weights::Int4, "c23271c77a15c3e4"),
    (SEEDLING, Weights::Int4All, "775f5c96c692d922"),
    (SEEDLING, Weights::Int8Groups, "8dfd8144caa146a0"),
    (BLOCKS, Weights::Auto, "7bb2e88d0a4ba2f0"),
    (BLOCKS, Weights::Int8Groups, "c971b4a2660fbc2b"),
];

const SEEDLING: &str = "../../models/seedling";
const BLOCKS: &str = "tests/fixtures/gguf/types.gguf";

/// Packs a checkpoint, and gives the cell's manifest.
fn packed(path: &str, device: Device, weights: Weights) -> Value {
    let checkpoint = Checkpoint::open(Some(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheMode::Folder(folder.path().to_owned());
    let options = Options { device, weights, cache, ..Options::default() };
    let cell = Engine::prepare(&checkpoint, &options, &mut |_, _| ()).unwrap().folder;
    serde_json::from_slice(&std::fs::read(cell.join("manifest.json")).unwrap()).unwrap()
}

#[test]
fn packed_numbers_change_with_their_version_only() {
    for (path, weights, pinned) in PINNED {
        for set in instruction_sets() {
            let manifest = packed(path, Device::Cpu(Some(set)), weights);
            assert_eq!(manifest["subject"]["quantiser"], VERSIONS.0);
            assert_eq!(manifest["subject"]["layout_version"], VERSIONS.1);
            let lines = manifest["weights"].as_array().unwrap().iter();
            let lines: Vec<String> =
                lines.map(|weight| format!("{} {}", weight["name"], weight["xxh3"])).collect();
            let digest = blake3::hash(lines.join("\n").as_bytes()).to_hex();
            assert_eq!(&digest[..16], pinned, "{path} in {weights:?} with {set}");
        }
    }
}
