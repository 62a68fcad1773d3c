//! What the load cache holds of the demo model, to the last bit.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::path::Path;

use serde_json::Value;
use whin::{CacheMode, Checkpoint, Device, Engine, Options, Weights, instruction_sets};

/// Caches of earlier versions must not pass for those of one that packs other numbers: whoever changes these digests
/// raises `QUANTISER` in `cache/mod.rs`, or the layout's version in `kernels/cpu/mod.rs`, with them.
const PINNED: (u64, u64, [(Weights, &str); 6]) = (
    1,
    1,
    [
        (Weights::F32, "4ff064404602cb49"),
        (Weights::Bf16, "107579752d926bf1"),
        (Weights::Int8, "534be015d06838df"),
        (Weights::Int4, "c23271c77a15c3e4"),
        (Weights::Int4All, "775f5c96c692d922"),
        (Weights::Int8Groups, "8dfd8144caa146a0"),
    ],
);

/// Packs the demo model, and gives the cell's manifest.
fn packed(device: Device, weights: Weights) -> Value {
    let seedling = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/seedling");
    let checkpoint = Checkpoint::open(Some(&seedling)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheMode::Folder(folder.path().to_owned());
    let options = Options { device, weights, cache, ..Options::default() };
    let cell = Engine::prepare(&checkpoint, &options, &mut |_, _| ()).unwrap().folder;
    serde_json::from_slice(&std::fs::read(cell.join("manifest.json")).unwrap()).unwrap()
}

#[test]
fn packed_numbers_change_with_their_version_only() {
    let (quantiser, layout, digests) = PINNED;
    for (weights, pinned) in digests {
        for set in instruction_sets() {
            let manifest = packed(Device::Cpu(Some(set)), weights);
            assert_eq!(manifest["subject"]["quantiser"], quantiser);
            assert_eq!(manifest["subject"]["layout_version"], layout);
            let lines = manifest["weights"].as_array().unwrap().iter();
            let lines: Vec<String> =
                lines.map(|weight| format!("{} {}", weight["name"], weight["xxh3"])).collect();
            let digest = blake3::hash(lines.join("\n").as_bytes()).to_hex();
            assert_eq!(&digest[..16], pinned, "{weights:?} with {set}");
        }
    }
}
