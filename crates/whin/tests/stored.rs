//! Weights of 8 bits with scales: what is read, and how what does not fit is refused.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use half::{bf16, f16};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;
use whin::checkpoint::Tensors as Stored;
use whin::{Checkpoint, Engine, Error, ErrorKind, Options, Request, Weights};

const BLOCKS: &str = "stored-fp8-blocks";
const TENSOR: &str = "stored-fp8-tensor";
const ROWS: &str = "stored-int8-rows";
/// (136, 132): two by two blocks, three of them partial.
const UP: &str = "model.layers.0.mlp.up_proj.weight";
const UP_SCALES: &str = "model.layers.0.mlp.up_proj.weight_scale_inv";

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// A fixture, with its config and its tensors changed.
fn changed(fixture: &str, change: impl FnOnce(&mut Value, &mut Tensors)) -> TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture);
    let mut config: Value = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
    let bytes = fs::read(from.join("model.safetensors")).unwrap();
    let owned = |(name, view): (String, TensorView<'_>)| {
        (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
    };
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Tensors = file.tensors().into_iter().map(owned).collect();
    change(&mut config, &mut tensors);
    let folder = TempDir::new().unwrap();
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    folder
}

fn check(folder: &TempDir) -> Result<BTreeSet<String>, Error> {
    Checkpoint::open(Some(folder.path()))?.check()
}

#[track_caller]
fn refused(folder: &TempDir, kind: ErrorKind, parts: &[&str]) -> String {
    let error = match check(folder) {
        Ok(stored) => panic!("accepted: {stored:?}"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is not in: {error}");
    }
    error.to_string()
}

/// The only problem of the changed fixture must be one that names `parts`.
#[track_caller]
fn invalid(fixture: &str, change: impl FnOnce(&mut Value, &mut Tensors), parts: &[&str]) {
    let message = refused(&changed(fixture, change), ErrorKind::InvalidCheckpoint, parts);
    assert_eq!(message.lines().count(), 2, "{message}");
}

fn greedy(folder: &TempDir, weights: Weights) -> Result<Vec<u32>, Error> {
    let engine = Engine::load(Some(folder.path()), &Options { weights, ..Options::default() })?;
    let request =
        Request { max_new_tokens: Some(8), ignore_eos: true, ..Request::ids(vec![3, 1, 4, 1, 5, 9, 2, 6]) };
    Ok(engine.generate(&request)?.finish()?.token_ids)
}

fn logprobs(folder: &TempDir) -> Vec<Option<f64>> {
    let options = Options { weights: Weights::F32, ..Options::default() };
    let engine = Engine::load(Some(folder.path()), &options).unwrap();
    engine.score(&whin::Prompt::Ids((1..40).collect())).unwrap().logprobs
}

#[test]
fn the_ways_of_storing_are_told() {
    let stored = |fixture| check(&changed(fixture, |_, _| ())).unwrap().into_iter().collect::<Vec<_>>();
    assert_eq!(stored(BLOCKS), ["BF16", "F8_E4M3 with one scale for 128x128"]);
    assert_eq!(stored(TENSOR), ["BF16", "F8_E5M2 with one scale each"]);
    assert_eq!(stored(ROWS), ["BF16", "I8 with one scale a row"]);
    assert_eq!(stored("base"), ["BF16"]);
}

#[test]
fn every_form_of_memory_takes_every_form_of_storage() {
    for fixture in [BLOCKS, TENSOR, ROWS] {
        let folder = changed(fixture, |_, _| ());
        for weights in Weights::ALL {
            assert_eq!(greedy(&folder, weights).unwrap().len(), 16, "{fixture} as {}", weights.name());
        }
    }
}

#[test]
fn a_weight_is_what_is_stored_times_its_scale() {
    let folder = changed(BLOCKS, |_, tensors| {
        let (dtype, shape, scales) = tensors.get_mut(UP_SCALES).unwrap();
        assert_eq!((*dtype, shape.as_slice()), (Dtype::BF16, &[2, 2][..]));
        *scales = [2.0, 4.0, 8.0, 16.0].iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect();
        // One in E4M3.
        tensors.get_mut(UP).unwrap().2.fill(0x38);
    });
    let checkpoint = Checkpoint::open(Some(folder.path())).unwrap();
    let mut tensors: Stored = checkpoint.tensors().unwrap();
    tensors.stored_as(checkpoint.spec().storage).unwrap();
    let weight = tensors.claim(UP, &[136, 132]).unwrap();
    let numbers = weight.view().to_vec();
    for (index, number) in numbers.iter().enumerate() {
        let (row, col) = (index / 132, index % 132);
        let right = [[2.0, 4.0], [8.0, 16.0]][usize::from(row >= 128)][usize::from(col >= 128)];
        assert_eq!(*number, right, "row {row}, column {col}");
    }
    weight.release();
    assert_eq!(weight.view().to_vec(), numbers);
}

/// The same scales in all that can hold them: a type, a name, a shape.
#[test]
fn scales_may_be_stored_and_named_in_several_ways() {
    let right = logprobs(&changed(ROWS, |_, _| ()));
    type Convert = fn(f32) -> Vec<u8>;
    let types: [(Dtype, Convert); 3] = [
        (Dtype::F16, |x| f16::from_f32(x).to_le_bytes().to_vec()),
        (Dtype::F32, |x| x.to_le_bytes().to_vec()),
        (Dtype::F64, |x| f64::from(x).to_le_bytes().to_vec()),
    ];
    for (dtype, convert) in types {
        for (end, rank) in [("_scale", 2), ("_scale", 1), ("_scale_inv", 2), ("_scale_inv", 1)] {
            let folder = changed(ROWS, |_, tensors| {
                for (name, (_, shape, bytes)) in std::mem::take(tensors) {
                    let Some(stem) = name.strip_suffix("_scale") else {
                        let stored = if name.ends_with("proj.weight") { Dtype::I8 } else { Dtype::BF16 };
                        tensors.insert(name, (stored, shape, bytes));
                        continue;
                    };
                    let halves = bytes.as_chunks::<2>().0;
                    let bytes = halves.iter().flat_map(|b| convert(f16::from_le_bytes(*b).to_f32()));
                    tensors.insert(format!("{stem}{end}"), (dtype, shape[..rank].to_vec(), bytes.collect()));
                }
            });
            assert_eq!(logprobs(&folder), right, "{dtype:?} {end} of rank {rank}");
        }
    }
    let right = logprobs(&changed(TENSOR, |_, _| ()));
    for shape in [vec![1], vec![1, 1]] {
        let folder = changed(TENSOR, |_, tensors| {
            let scales = tensors.iter_mut().filter(|(name, _)| name.ends_with("_scale"));
            scales.for_each(|(_, scale)| scale.1.clone_from(&shape));
        });
        assert_eq!(logprobs(&folder), right, "{shape:?}");
    }
}

#[test]
fn missing_doubled_and_stray_scales_are_named() {
    invalid(
        BLOCKS,
        |_, tensors| drop(tensors.remove(UP_SCALES)),
        &[UP, "stored as F8_E4M3 without a scale", UP_SCALES, "original checkpoint"],
    );
    let scale = UP.to_owned() + "_scale";
    invalid(
        ROWS,
        |_, tensors| drop(tensors.remove(&scale)),
        &[UP, "stored as I8 without a scale", "original checkpoint"],
    );
    invalid(
        BLOCKS,
        |_, tensors| {
            tensors.insert(scale.clone(), tensors[UP_SCALES].clone());
        },
        &[UP, "has scales twice"],
    );
    // Of a weight that is stored as a plain float.
    invalid(
        "base",
        |_, tensors| {
            tensors.insert(scale.clone(), (Dtype::F32, vec![1], vec![0; 4]));
        },
        &[&scale, "scales", UP, "is stored as BF16 and needs no scale"],
    );
    // Of no weight at all.
    invalid(
        BLOCKS,
        |_, tensors| {
            tensors.insert("model.odd.weight_scale_inv".to_owned(), (Dtype::F32, vec![1], vec![0; 4]));
        },
        &["\"model.odd.weight_scale_inv\"", "is no part of the model"],
    );
    // A matrix of another shape is one problem, not two.
    invalid(
        BLOCKS,
        |_, tensors| {
            let (_, shape, _) = tensors.get_mut(UP).unwrap();
            *shape = vec![132, 136];
        },
        &[UP, "expected [136, 132], found [132, 136]"],
    );
}

#[test]
fn scales_of_the_wrong_shape_are_refused() {
    for shape in [
        vec![2, 1],
        vec![1, 2],
        vec![3, 2],
        vec![4],
        vec![2],
        vec![132],
        vec![1, 136],
        vec![136, 2],
        vec![2, 2, 1],
        vec![0],
        vec![0, 0],
        vec![0, 1 << 40],
        vec![1 << 40, 0],
        vec![1, 1, 1],
    ] {
        invalid(
            BLOCKS,
            |_, tensors| {
                let numbers = shape.iter().product::<usize>();
                tensors.insert(UP_SCALES.to_owned(), (Dtype::F32, shape.clone(), vec![0; 4 * numbers]));
            },
            &[
                UP_SCALES,
                "expected [2, 2] for one for each 128x128 numbers, [136, 1] or [136] for one a row, or [1]",
                &format!("found {shape:?}"),
            ],
        );
    }
    // Without blocks there is nothing that a grid could mean.
    for config in [json!(null), json!({ "quant_method": "fp8", "weight_block_size": null })] {
        let folder = changed(BLOCKS, |keys, _| keys["quantization_config"] = config);
        let parts = [UP_SCALES, "found [2, 2]", "weight_block_size"];
        refused(&folder, ErrorKind::InvalidCheckpoint, &parts);
    }
    // Blocks that are larger than every matrix, or of a single number.
    for (block, shown) in [(json!([1 << 24, 1 << 24]), "[1, 1]"), (json!([1, 1]), "[136, 132]")] {
        let folder = changed(BLOCKS, |keys, _| keys["quantization_config"]["weight_block_size"] = block);
        refused(&folder, ErrorKind::InvalidCheckpoint, &[UP_SCALES, &format!("expected {shown}")]);
    }
}

#[test]
fn one_scale_a_number_is_a_block_of_one() {
    let folder = changed(TENSOR, |keys, tensors| {
        keys["quantization_config"]["weight_block_size"] = json!([1, 1]);
        for name in tensors.keys().cloned().collect::<Vec<_>>() {
            if let Some(weight) = name.strip_suffix("_scale") {
                let shape = tensors[weight].1.clone();
                let scale = tensors[&name].2.repeat(shape.iter().product());
                tensors.insert(name, (Dtype::F32, shape, scale));
            }
        }
    });
    assert_eq!(logprobs(&folder), logprobs(&changed(TENSOR, |_, _| ())));
}

#[test]
fn scales_of_the_wrong_type_are_refused() {
    for (dtype, size) in
        [(Dtype::F8_E4M3, 1), (Dtype::F8_E8M0, 1), (Dtype::U8, 1), (Dtype::I8, 1), (Dtype::I32, 4)]
    {
        invalid(
            BLOCKS,
            |_, tensors| {
                tensors.insert(UP_SCALES.to_owned(), (dtype, vec![2, 2], vec![0; 4 * size]));
            },
            &[UP_SCALES, "scales stored as", "accepted: BF16, F16, F32, F64"],
        );
    }
}

#[test]
fn scales_that_are_no_numbers_are_refused_and_odd_ones_computed_with() {
    let with = |scale: f64| {
        changed(BLOCKS, move |_, tensors| {
            let bytes = [1.0, 1.0, scale, 1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
            tensors.insert(UP_SCALES.to_owned(), (Dtype::F64, vec![2, 2], bytes));
        })
    };
    // The last one has no number as f32, in which products are made.
    for (scale, shown) in
        [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf"), (1e39, "inf")]
    {
        let part = format!("scale 2 is {shown},");
        refused(&with(scale), ErrorKind::InvalidCheckpoint, &[UP_SCALES, &part, "get it again"]);
    }
    for scale in [0.0, -0.0, -1.0, 1e-300] {
        greedy(&with(scale), Weights::Int8).unwrap();
    }
}

#[test]
fn codes_without_a_number_are_refused_by_integer_forms() {
    // 0x7f is NaN in E4M3, 0x7c infinite in E5M2.
    let e5m2 = ("model.layers.0.mlp.up_proj.weight", 24);
    for (fixture, (name, cols), code) in [(BLOCKS, (UP, 132), 0x7f), (TENSOR, e5m2, 0x7c)] {
        let folder = changed(fixture, |_, tensors| tensors.get_mut(name).unwrap().2[cols * 3] = code);
        for weights in [Weights::Int8, Weights::Int8Groups, Weights::Int4] {
            let error = greedy(&folder, weights).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidCheckpoint);
            assert!(error.to_string().contains(&format!("{name:?}: row 3 holds a weight")), "{error}");
        }
    }
}

#[test]
fn the_config_and_the_tensors_may_not_contradict() {
    let fmt = |fmt: &'static str| {
        move |keys: &mut Value, _: &mut Tensors| keys["quantization_config"]["fmt"] = json!(fmt)
    };
    let parts = [UP, "stored as F8_E4M3, which contradicts the fmt"];
    refused(&changed(BLOCKS, fmt("e5m2")), ErrorKind::InvalidCheckpoint, &parts);
    let fp8 = json!({ "quant_method": "fp8" });
    let folder = changed(ROWS, |keys, _| keys["quantization_config"] = fp8.clone());
    let message =
        refused(&folder, ErrorKind::InvalidCheckpoint, &["stored as I8, which contradicts quant_method fp8"]);
    assert!(!message.contains("is no part of"), "{message}");
    // Matrices of more than a byte a number are what they are, in transformers too: some of them, or all.
    let plain = changed("base", |keys, _| keys["quantization_config"] = fp8);
    assert_eq!(logprobs(&plain), logprobs(&changed("base", |_, _| ())));
    // The tensors say enough where there are no blocks.
    let unsaid = changed(TENSOR, |keys, _| keys["quantization_config"] = Value::Null);
    assert_eq!(logprobs(&unsaid), logprobs(&changed(TENSOR, |_, _| ())));
}

#[test]
fn scales_of_activations_are_left_alone_where_they_are_announced() {
    let with = |fixture: &str, end: &str| {
        let name = UP.replace(".weight", end);
        changed(fixture, move |_, tensors| {
            tensors.insert(name, (Dtype::F32, vec![1], 2f32.to_le_bytes().to_vec()));
        })
    };
    let right = logprobs(&changed(TENSOR, |_, _| ()));
    for end in [".input_scale", ".activation_scale"] {
        assert_eq!(logprobs(&with(TENSOR, end)), right);
        // These activations are rounded while they run, and those are no weights of 8 bits.
        refused(&with(BLOCKS, end), ErrorKind::InvalidCheckpoint, &[end, "is no part of the model"]);
        refused(&with("base", end), ErrorKind::InvalidCheckpoint, &[end, "is no part of the model"]);
    }
    let odd = changed(TENSOR, |_, tensors| {
        tensors.insert("model.odd.input_scale".to_owned(), (Dtype::F32, vec![], vec![0; 4]));
    });
    refused(&odd, ErrorKind::InvalidCheckpoint, &["model.odd.input_scale"]);
}

#[test]
fn a_spare_head_brings_its_scales() {
    let with = |cols: usize, scale: Option<Vec<usize>>| {
        changed(TENSOR, move |keys, tensors| {
            assert_eq!(keys["tie_word_embeddings"], true);
            let head = (Dtype::F8_E4M3, vec![96, cols], vec![0; 96 * cols]);
            tensors.insert("lm_head.weight".to_owned(), head);
            if let Some(shape) = scale {
                let numbers = shape.iter().product::<usize>();
                tensors.insert("lm_head.weight_scale".to_owned(), (Dtype::F32, shape, vec![0; 4 * numbers]));
            }
        })
    };
    // It is not used, so nothing about it is a problem.
    for (cols, scale) in [(24, None), (24, Some(vec![1])), (24, Some(vec![96, 1])), (0, Some(vec![1]))] {
        check(&with(cols, scale)).unwrap();
    }
}

/// Tensors of the other methods beside a config that does not speak of them.
#[test]
fn other_methods_are_known_by_their_tensors() {
    for (ends, method) in [
        (&["qweight", "qzeros", "scales", "g_idx"][..], "quantised by GPTQ,"),
        (&["qweight", "qzeros", "scales"], "quantised by GPTQ or AWQ,"),
        (&["weight", "weight.absmax", "weight.quant_map"], "quantised by bitsandbytes (4 bit),"),
        (&["weight", "weight.quant_state.bitsandbytes__nf4"], "quantised by bitsandbytes (4 bit),"),
        (&["weight", "SCB", "weight_format"], "quantised by bitsandbytes (8 bit),"),
        (&["weight_packed", "weight_scale", "weight_shape"], "quantised by compressed-tensors,"),
        (&["codes", "codebooks", "scales"], "quantised by AQLM,"),
        (&["W_q", "meta"], "quantised by HQQ,"),
        (&["weight._data", "weight._scale"], "quantised by quanto,"),
        (&["weight", "scales", "biases"], "quantised by MLX, GPTQ or AWQ,"),
    ] {
        let folder = changed("base", |_, tensors| {
            for name in tensors.keys().cloned().collect::<Vec<_>>() {
                if let Some(stem) = name.strip_suffix("proj.weight") {
                    tensors.remove(&name);
                    for end in ends {
                        tensors.insert(format!("{stem}proj.{end}"), (Dtype::U8, vec![4], vec![0; 4]));
                    }
                }
            }
        });
        let parts = [method, "as tensor \"model.layers.0.", "original checkpoint", "--weights int8"];
        let message = refused(&folder, ErrorKind::UnsupportedArchitecture, &parts);
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn files_of_older_tools_beside_the_config_are_not_ignored() {
    for (name, method) in
        [("quantize_config.json", "GPTQ"), ("quant_config.json", "AWQ"), ("hf_quant_config.json", "ModelOpt")]
    {
        for contents in ["", "{}", r#"{"bits": 4}"#, "\0"] {
            let folder = changed("base", |_, _| ());
            fs::write(folder.path().join(name), contents).unwrap();
            let parts = [name, &format!("quantised by {method}"), "original checkpoint", "remove that file"];
            refused(&folder, ErrorKind::UnsupportedArchitecture, &parts);
        }
    }
}
