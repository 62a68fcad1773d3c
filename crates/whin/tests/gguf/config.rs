//! The metadata that llama.cpp's converter makes of a config is read as that config again
//! (`tools/goldens/gguf_configs.py`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use whin::ErrorKind;
use whin::checkpoint::Source;
use whin::checkpoint::gguf::Gguf;
use whin::model::config::{gguf_config, read_gguf};
use whin::model::rope::Scaling;
use whin::model::spec::{Layer, Mixer, Spec};

use super::build::{self, File, flag, float, list, tensor, text, texts, uint};

/// Keys of configs that the metadata does not have: those of training and book-keeping, and switches that are off.
const LEFT_OUT: &[&str] = &[
    "_sliding_window_pattern",
    "architectures",
    "attention_dropout",
    "block_ffn_dim_multiplier",
    "block_multiple_of",
    "cache_implementation",
    "decoder_sparse_step",
    "dtype",
    "embd_pdrop",
    "embedding_dropout",
    "initial_context_length",
    "initializer_range",
    "layer_norm_bias",
    "max_window_layers",
    "no_rope_layers",
    "num_local_experts",
    "output_router_logits",
    "pretraining_tp",
    "qkv_bias",
    "resid_pdrop",
    "rotary_pct",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "swiglu_limit",
    "transformers_version",
    "use_cache",
    "use_qk_norm",
];

/// The cases of the fixture.
fn cases() -> Map<String, Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf-configs.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The value of a key as it lies in a file.
fn value(kinds: &[Value], value: &Value) -> build::Value {
    let bytes = |kind: &str, value: &Value| match kind {
        "uint32" => (build::U32, (value.as_u64().unwrap() as u32).to_le_bytes().to_vec()),
        "int32" => (build::I32, (value.as_i64().unwrap() as i32).to_le_bytes().to_vec()),
        "float32" => (build::F32, (value.as_f64().unwrap() as f32).to_le_bytes().to_vec()),
        "bool" => (build::FLAG, vec![u8::from(value.as_bool().unwrap())]),
        _ => panic!("{kind}"),
    };
    match kinds.iter().map(|kind| kind.as_str().unwrap()).collect::<Vec<_>>()[..] {
        ["string"] => text(value.as_str().unwrap()),
        ["array", kind] => {
            let items: Vec<_> = value.as_array().unwrap().iter().map(|item| bytes(kind, item)).collect();
            let all: Vec<u8> = items.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            list(items[0].0, items.len() as u64, &all)
        }
        [kind] => {
            let (code, bytes) = bytes(kind, value);
            build::Value(code, bytes)
        }
        _ => panic!("{kinds:?}"),
    }
}

/// The file of a case, whose weights are zero.
fn file(case: &Value) -> File {
    let names: Vec<String> = (0..96).map(|index| format!("t{index}")).collect();
    let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let mut file = File::new(
        &[
            ("general.architecture", text(case["architecture"].as_str().unwrap())),
            ("tokenizer.ggml.tokens", texts(&names)),
            ("tokenizer.ggml.eos_token_id", uint(2)),
            ("tokenizer.ggml.bos_token_id", uint(1)),
        ],
        &[],
        &[],
    );
    for entry in case["metadata"].as_array().unwrap() {
        let key = entry[0].as_str().unwrap().as_bytes().to_vec();
        file.keys.push((key, value(entry[1].as_array().unwrap(), &entry[2])));
    }
    for (name, what) in case["tensors"].as_object().unwrap() {
        let numbers: Vec<f64> = what.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let offset = file.data.len() as u64;
        if name.starts_with("rope_") {
            file.tensors.push(tensor(name, &[numbers.len() as u64], 0, offset));
            file.data.extend(numbers.iter().flat_map(|number| (*number as f32).to_le_bytes()));
        } else {
            let dims: Vec<u64> = numbers.iter().rev().map(|dim| *dim as u64).collect();
            file.tensors.push(tensor(name, &dims, 0, offset));
            file.data.resize(file.data.len() + 4 * dims.iter().product::<u64>() as usize, 0);
        }
        file.data.resize(file.data.len().next_multiple_of(32), 0);
    }
    file
}

fn open(file: &File) -> Gguf {
    let files = BTreeMap::from([("m.gguf".to_owned(), file.bytes())]);
    Gguf::open(Source::Memory(Arc::new(files)), "m.gguf").unwrap()
}

/// Whether two values are the same, numbers as far as f32 tells.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-6 * b.abs()
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

/// Takes what says nothing out of a rotary embedding.
fn plain(rope: &mut Value) {
    let Value::Object(map) = rope else { return };
    map.values_mut().for_each(plain);
    map.retain(|key, value| match key.as_str() {
        "partial_rotary_factor" => value.as_f64() != Some(1.0),
        "type" | "max_position_embeddings" => false,
        _ => true,
    });
}

#[test]
fn metadata_is_read_as_the_config_that_it_was_made_of() {
    let mut wrong = Vec::new();
    for (name, case) in &cases() {
        let gguf = open(&file(case));
        let found = gguf_config(&gguf).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut expected = case["config"].as_object().unwrap().clone();
        let rope = expected.get_mut("rope_parameters").unwrap();
        plain(rope);
        match name.as_str() {
            // The divisors of its frequencies are in a tensor; the long ones are those of the factor.
            "llama-3" => {
                let factors = found["rope_parameters"]["long_factor"].as_array().unwrap();
                assert_eq!((factors.len(), &factors[0], &factors[15]), (16, &json!(1.0), &json!(8.0)));
                *rope = found["rope_parameters"].clone();
                plain(rope);
            }
            // The factor of attention, which the config leaves to be computed.
            "phi3-long" => rope["attention_factor"] = json!((1.0 + 4f64.ln() / 64f64.ln()).sqrt()),
            // The tensors are the same for both, and no key tells them apart.
            "mistral" => expected["model_type"] = json!("llama"),
            // The class has another name for it than the released files.
            "qwen3moe" => drop(expected.insert("num_experts".to_owned(), json!(4))),
            _ => {}
        }
        for (key, found) in &found {
            let mut found = found.clone();
            if key == "rope_parameters" {
                plain(&mut found);
            }
            let found = &found;
            // Class defaults that no config needs to say.
            let is_default = match expected.get(key) {
                None | Some(Value::Null) => {
                    *found == json!(false) || *found == Value::Null || is_derived(name, key, found)
                }
                Some(_) => false,
            };
            let expected = expected.get(key).unwrap_or(&Value::Null);
            if !is_default && !same(found, expected) {
                wrong.push(format!("{name}: {key} is {found}, not {expected}"));
            }
        }
        let is_set = |value: &Value| {
            !matches!(value, Value::Null | Value::Bool(false)) && ![json!([]), json!(0)].contains(value)
        };
        for (key, expected) in expected.iter().filter(|(_, value)| is_set(value)) {
            let known = found.contains_key(key) || LEFT_OUT.contains(&key.as_str());
            let is_silu = key.starts_with("hidden_act") && expected == "silu";
            let is_whole = key == "partial_rotary_factor"
                && *expected == found["rope_parameters"].get(key).cloned().unwrap_or(json!(1.0));
            let is_full = key == "layer_types"
                && expected.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "full_attention"));
            if !(known || is_silu || is_whole || is_full) {
                wrong.push(format!("{name}: {key} is lost, which was {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a key that the config leaves out says what its class makes of that.
fn is_derived(name: &str, key: &str, found: &Value) -> bool {
    match key {
        "head_dim" => *found == json!(16),
        "no_rope_layer_interval" => *found == json!(4),
        "intermediate_size" => name.contains("moe") && *found == json!(96),
        "norm_topk_prob" => *found == json!(true),
        _ => false,
    }
}

/// The file of the plain case of Qwen3.
fn qwen3() -> File {
    file(&cases()["qwen3"])
}

fn refused(file: &File, kind: ErrorKind, parts: &[&str]) {
    let error = read_gguf(&open(file)).unwrap_err();
    let message = error.to_string();
    assert_eq!(error.kind(), kind, "{message}");
    parts.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
}

fn set(file: &mut File, key: &str, value: build::Value) {
    file.keys.retain(|(known, _)| known != key.as_bytes());
    file.keys.push((key.into(), value));
}

#[test]
fn a_file_of_a_family_that_runs_has_its_spec() {
    let spec = read_gguf(&open(&qwen3())).unwrap();
    assert_eq!((spec.family, spec.layers.len(), spec.width, spec.vocab), ("qwen3", 4, 64, 96));
    assert_eq!((spec.eos.as_slice(), spec.bos, spec.tied), (&[2][..], Some(1), false));
}

#[test]
fn keys_that_nothing_takes_are_all_named() {
    let mut file = qwen3();
    set(&mut file, "qwen3.attention.odd_scale", float(0.5));
    set(&mut file, "qwen3.attention.causal", flag(0));
    set(&mut file, "qwen3.attention.value_length", uint(8));
    set(&mut file, "qwen3.rope.scaling.type", text("dynamic"));
    // What is not the architecture's own does not count.
    set(&mut file, "general.odd", float(0.5));
    set(&mut file, "quantize.imatrix.file", text("x"));
    let parts = [
        "m.gguf",
        "qwen3.attention.odd_scale is 0.5 (float32)",
        "qwen3.attention.causal is 0 (bool)",
        "qwen3.attention.value_length is 8 (uint32)",
        "qwen3.rope.scaling.type is the text \"dynamic\"",
    ];
    refused(&file, ErrorKind::UnsupportedArchitecture, &parts);
}

#[test]
fn architectures_that_are_unknown_and_files_that_are_no_models() {
    let mut file = qwen3();
    set(&mut file, "general.architecture", text("mamba"));
    refused(&file, ErrorKind::UnsupportedArchitecture, &["\"mamba\"", "qwen3", "gpt-oss"]);
    for kind in ["adapter", "mmproj"] {
        let mut file = qwen3();
        set(&mut file, "general.type", text(kind));
        refused(&file, ErrorKind::UnsupportedArchitecture, &["no language model", kind]);
    }
    let mut file = qwen3();
    file.keys.retain(|(key, _)| key != b"general.architecture");
    refused(&file, ErrorKind::InvalidCheckpoint, &["general.architecture", "nothing"]);
}

#[test]
fn sizes_that_no_model_has() {
    for (key, value, kind, part) in [
        ("qwen3.block_count", uint(0), ErrorKind::UnsupportedArchitecture, "qwen3.block_count"),
        ("qwen3.block_count", uint(u32::MAX), ErrorKind::UnsupportedArchitecture, "qwen3.block_count"),
        ("qwen3.block_count", text("4"), ErrorKind::InvalidCheckpoint, "qwen3.block_count"),
        ("qwen3.attention.head_count", uint(0), ErrorKind::UnsupportedArchitecture, "head_count"),
        ("qwen3.attention.head_count", uint(3), ErrorKind::UnsupportedArchitecture, "num_key_value_heads"),
        ("qwen3.attention.head_count_kv", uint(0), ErrorKind::UnsupportedArchitecture, "num_key_value_heads"),
        ("qwen3.embedding_length", uint(u32::MAX), ErrorKind::UnsupportedArchitecture, "hidden_size"),
        ("qwen3.rope.freq_base", float(f32::NAN), ErrorKind::UnsupportedArchitecture, "rope_theta"),
        ("qwen3.rope.dimension_count", uint(99), ErrorKind::UnsupportedArchitecture, "dimension_count"),
        (
            "qwen3.feed_forward_length",
            list(build::U32, 2, &[1, 0, 0, 0, 2, 0, 0, 0]),
            ErrorKind::UnsupportedArchitecture,
            "one for each of 4 layers",
        ),
        (
            "qwen3.feed_forward_length",
            list(build::U32, 4, &[1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]),
            ErrorKind::UnsupportedArchitecture,
            "the same number in all layers",
        ),
        ("tokenizer.ggml.tokens", uint(1), ErrorKind::InvalidCheckpoint, "tokenizer.ggml.tokens"),
    ] {
        let mut file = qwen3();
        set(&mut file, key, value);
        refused(&file, kind, &[part]);
    }
    // No class default stands in for what has to be said.
    for (case, key) in [
        ("qwen3", "block_count"),
        ("qwen3", "context_length"),
        ("qwen3", "attention.layer_norm_rms_epsilon"),
        ("granite", "logit_scale"),
        ("cohere2", "logit_scale"),
        ("cohere2", "attention.layer_norm_epsilon"),
        ("cohere2", "attention.sliding_window"),
        ("gpt-oss", "attention.sliding_window"),
        ("gpt-oss", "expert_used_count"),
        ("qwen3moe", "expert_used_count"),
        ("lfm2", "shortconv.l_cache"),
        ("qwen3next", "ssm.conv_kernel"),
        ("qwen3next", "expert_used_count"),
    ] {
        let case = &cases()[case];
        let key = format!("{}.{key}", case["architecture"].as_str().unwrap());
        let mut file = file(case);
        file.keys.retain(|(known, _)| known != key.as_bytes());
        refused(&file, ErrorKind::InvalidCheckpoint, &[&key, "nothing"]);
    }
    // Ends that are past the vocabulary are ignored.
    let mut file = qwen3();
    set(&mut file, "tokenizer.ggml.eos_token_id", uint(96));
    assert!(read_gguf(&open(&file)).unwrap().eos.is_empty());
}

/// What llama.cpp computes with, and no stage does here: each key is refused unless it says what is done anyway.
#[test]
fn keys_of_rotary_embeddings_that_would_be_without_effect_are_refused() {
    let refusals: [(&str, &str, f32, &str); 10] = [
        ("qwen2", "rope.scaling.attn_factor", 1.3, "accepted: 1"),
        ("llama-linear", "rope.scaling.attn_factor", 1.3, "accepted: 1"),
        ("qwen2", "rope.scaling.yarn_ext_factor", 1.0, "accepted: 0 where"),
        ("qwen2", "rope.scaling.yarn_attn_factor", 1.3, "accepted: 1"),
        ("gpt-oss", "rope.scaling.attn_factor", 1.3, "accepted: 1"),
        ("gemma2", "rope.freq_base_swa", 500.0, "the same as rope.freq_base"),
        ("gpt-oss", "rope.freq_base_swa", 500.0, "the same as rope.freq_base"),
        ("cohere2", "rope.freq_base_swa", 500.0, "the same as rope.freq_base"),
        ("phi3", "rope.freq_base_swa", 500.0, "the same as rope.freq_base"),
        ("phi3-long", "rope.scaling.yarn_ext_factor", 0.5, "accepted: 0 where"),
    ];
    for (case, key, number, part) in refusals {
        let case = &cases()[case];
        let mut file = file(case);
        let key = format!("{}.{key}", case["architecture"].as_str().unwrap());
        set(&mut file, &key, float(number));
        refused(&file, ErrorKind::UnsupportedArchitecture, &[&key, part]);
    }
    for (case, key, number) in [
        ("qwen2", "rope.scaling.attn_factor", 1.0),
        ("qwen2", "rope.scaling.yarn_ext_factor", -1.0),
        ("gemma2", "rope.freq_base_swa", 10_000.0),
    ] {
        let case = &cases()[case];
        let (mut file, plain) = (file(case), file(case));
        set(&mut file, &format!("{}.{key}", case["architecture"].as_str().unwrap()), float(number));
        assert_eq!(read_gguf(&open(&file)).unwrap(), read_gguf(&open(&plain)).unwrap());
    }
    // A base of their own for layers with a window, and a factor beside baked frequencies, are what they say.
    let mut olmo = file(&cases()["olmo3"]);
    set(&mut olmo, "olmo2.rope.freq_base_swa", float(500.0));
    let rope = &gguf_config(&open(&olmo)).unwrap()["rope_parameters"];
    assert_eq!(rope["sliding_attention"]["rope_theta"], 500.0);
    assert_eq!(rope["full_attention"]["rope_theta"], 500_000.0);
    let mut llama = file(&cases()["llama-3"]);
    set(&mut llama, "llama.rope.scaling.attn_factor", float(1.25));
    let rope = &read_gguf(&open(&llama)).unwrap().ropes[0];
    let Scaling::LongRope { attention, .. } = rope.scaling else { panic!("{rope:?}") };
    assert_eq!(attention, 1.25);
}

/// They are no weights, so that nobody else would say that they are not read.
#[test]
fn divisors_of_frequencies_that_cannot_be_read_are_refused() {
    for (case, tensor) in [
        ("llama-3", "rope_freqs.weight"),
        ("phi3-long", "rope_factors_long.weight"),
        ("phi3-long", "rope_factors_short.weight"),
    ] {
        let sound = file(&cases()[case]);
        let at = sound.tensors.iter().position(|known| known.name == tensor.as_bytes()).unwrap();
        let mut half = sound.clone();
        half.tensors[at].kind = 1;
        refused(&half, ErrorKind::UnsupportedArchitecture, &[tensor, "F32"]);
        let mut flat = sound.clone();
        flat.tensors[at].dims.push(1);
        refused(&flat, ErrorKind::UnsupportedArchitecture, &[tensor, "F32"]);
        if case == "phi3-long" {
            let mut alone = sound.clone();
            alone.tensors.remove(at);
            refused(&alone, ErrorKind::UnsupportedArchitecture, &["one is missing"]);
        }
    }
}

/// The spec of a case without the keys that end so; `-` for none.
fn without(case: &str, key: &str) -> Spec {
    let mut file = file(&cases()[case]);
    let before = file.keys.len();
    file.keys.retain(|(known, _)| !known.ends_with(key.as_bytes()));
    assert!(key == "-" || file.keys.len() < before, "{case} has no {key}");
    read_gguf(&open(&file)).unwrap()
}

/// What a file does not say is off, or as llama.cpp has it, whatever the classes of transformers assume.
#[test]
fn what_is_not_said_is_not_that_of_the_class() {
    let windows = |spec: &Spec| {
        let window = |layer: &Layer| match &layer.mixer {
            Mixer::Attention(attention) => attention.window,
            _ => None,
        };
        spec.layers.iter().filter_map(window).collect::<Vec<_>>()
    };
    // Mistral's class has a window of 4096, Gemma 3's one in most layers.
    let mistral = gguf_config(&open(&file(&cases()["ministral3"]))).unwrap();
    assert_eq!(mistral["sliding_window"], Value::Null);
    let gemma = without("gemma3", ".attention.sliding_window");
    assert!(windows(&gemma).is_empty(), "{gemma:?}");
    let thetas: Vec<f64> = gemma.ropes.iter().map(|rope| rope.theta).collect();
    assert!(thetas.iter().all(|theta| *theta == thetas[0]), "{thetas:?}");
    assert!(!windows(&without("gemma3", "-")).is_empty());
    // Classes of which a share of each head turns.
    for case in ["glm4", "qwen3next", "qwen35", "qwen35moe"] {
        let pairs = without(case, "-").ropes[0].pairs;
        let whole = without(case, ".rope.dimension_count").ropes[0].pairs;
        assert!(whole > pairs, "{case}: {whole} pairs of a whole head, {pairs} as said");
        let mut said = file(&cases()[case]);
        let key = format!("{}.rope.dimension_count", cases()[case]["architecture"].as_str().unwrap());
        set(&mut said, &key, uint(2 * whole as u32));
        assert_eq!(read_gguf(&open(&said)).unwrap().ropes[0].pairs, whole, "{case}");
    }
    // The end and the begin of texts.
    for case in ["llama", "qwen3", "gemma2", "granite", "glm4"] {
        let mut file = file(&cases()[case]);
        file.keys.retain(|(known, _)| !known.ends_with(b"_token_id"));
        let spec = read_gguf(&open(&file)).unwrap();
        assert_eq!((spec.eos, spec.bos), (vec![], None), "{case}");
    }
}

#[test]
fn scales_that_are_not_said_are_not_those_of_the_class() {
    // The scale of scores.
    let granite = without("granite", ".attention.scale");
    let Mixer::Attention(attention) = &granite.layers[0].mixer else { panic!("{granite:?}") };
    assert!((attention.scale - (attention.head_dim as f32).powf(-0.5)).abs() < 1e-6);
    // What scores are multiplied with.
    let long = without("phi3-long", ".rope.scaling.attn_factor");
    let Scaling::LongRope { attention, .. } = long.ropes[0].scaling else { panic!("{:?}", long.ropes) };
    assert_eq!(attention, 1.0);
    for (said, meant) in [(1.25, 1.25), (0.5, 0.5 * (0.1 * 4f64.ln() + 1.0))] {
        let mut yarn = file(&cases()["qwen3"]);
        set(&mut yarn, "qwen3.rope.scaling.yarn_attn_factor", float(said));
        let Scaling::Yarn { attention, .. } = read_gguf(&open(&yarn)).unwrap().ropes[0].scaling else {
            panic!("another scaling")
        };
        assert!((attention - meant).abs() < 1e-6, "{attention} for {said}");
    }
    let mut zero = file(&cases()["granite"]);
    set(&mut zero, "granite.embedding_scale", float(0.0));
    assert_eq!(read_gguf(&open(&zero)).unwrap().embedding_scale, 1.0);
    // Divisors of frequencies beside another scaling.
    for (key, value) in [("factor", float(2.0)), ("type", text("linear")), ("type", text("yarn"))] {
        let mut long = file(&cases()["phi3-long"]);
        set(&mut long, &format!("phi3.rope.scaling.{key}"), value);
        refused(&long, ErrorKind::UnsupportedArchitecture, &[&format!("rope.scaling.{key}"), "none beside"]);
    }
}
