//! Models with recurrent layers through the engine's public door: their states have owners one after the other.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use whin::model::spec::{Delta, FeedForward, Mixer, ShortConv};
use whin::model::{Plan, Spec, config};
use whin::{CacheMode, Checkpoint, Device, Engine, ErrorKind, Needs, Options, Prompt, Request, Weights};
use whin_kernels::Activation;

/// Of the fixtures, one for each stage with a state.
const MODELS: [&str; 4] = ["lfm2", "qwen3-next", "qwen3-next-experts", "qwen3-5-text-types"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn options() -> Options {
    Options { threads: Some(2), cache: CacheMode::Off, ..Options::default() }
}

/// A prompt of so many tokens, another for each seed.
fn prompt(seed: u32, count: u32) -> Vec<u32> {
    (0..count).map(|i| (seed * 7 + i * (i + seed)) % 48).collect()
}

fn request(seed: u32, count: u32, new: usize) -> Request {
    Request {
        max_new_tokens: Some(new),
        ignore_eos: true,
        logprobs: Some(5),
        ..Request::ids(prompt(seed, count))
    }
}

/// More texts than run in one step, of all lengths, which begin and end while others are under way.
fn requests() -> Vec<Request> {
    (0..12).map(|i| request(i, [3, 90, 1, 17, 64, 40][i as usize % 6], 5 + 9 * (i as usize % 4))).collect()
}

#[test]
fn neighbours_chunks_and_former_owners_change_nothing() {
    for name in MODELS {
        let mut right = None;
        for (device, threads, prefill_chunk) in
            [(Device::Auto, 1, 512), (Device::Auto, 2, 7), (Device::Auto, 3, 64), (Device::Auto, 2, 3)]
        {
            let options = Options { device, threads: Some(threads), prefill_chunk, ..options() };
            let engine = Engine::load(Some(&fixture(name)), &options).unwrap();
            let ask = |request: &Request| engine.generate(request).unwrap();
            let answer = |request: &Request| {
                let completion = ask(request).finish().unwrap();
                (completion.token_ids, completion.logprobs)
            };
            // Each alone, in the state that the one before has left.
            let alone: Vec<_> = requests().iter().map(answer).collect();
            assert_eq!(
                *right.get_or_insert_with(|| alone.clone()),
                alone,
                "{name}: chunks of {prefill_chunk}"
            );
            for _ in 0..2 {
                let together: Vec<_> = requests().iter().map(ask).collect();
                // One is let go in the middle of its work.
                drop(ask(&request(99, 90, 100)));
                for (generation, alone) in together.into_iter().zip(&alone) {
                    let completion = generation.finish().unwrap();
                    assert!((completion.token_ids, completion.logprobs) == *alone, "{name}: {prefill_chunk}");
                }
            }
        }
    }
}

#[test]
fn scores_are_those_of_the_reference() {
    for name in MODELS {
        let text = Prompt::Ids(prompt(5, 150));
        let score = |device| {
            let options = Options { device, weights: Weights::F32, threads: None, ..options() };
            let engine = Engine::load(Some(&fixture(name)), &options).unwrap();
            engine.score(&text).unwrap().logprobs.into_iter().flatten().collect::<Vec<f64>>()
        };
        let (cpu, reference) = (score(Device::Auto), score(Device::Reference));
        assert_eq!(cpu.len(), 149);
        for (index, (cpu, reference)) in cpu.iter().zip(&reference).enumerate() {
            assert!((cpu - reference).abs() < 0.05, "{name}: token {index}: {cpu}, {reference}");
        }
    }
}

#[test]
fn packed_weights_give_the_bits_of_the_files() {
    for name in MODELS {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(fixture(name)).unwrap().map(|entry| entry.unwrap()) {
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
        let mut answers = Vec::new();
        for cache in [CacheMode::Off, CacheMode::Auto, CacheMode::Auto] {
            let engine = Engine::load(Some(folder.path()), &Options { cache, ..options() }).unwrap();
            let completion = engine.generate(&request(1, 70, 20)).unwrap().finish().unwrap();
            engine.wait_for_cache();
            answers.push((completion.token_ids, completion.logprobs));
            assert_eq!(engine.is_from_cache(), answers.len() == 3, "{name}");
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{name}");
    }
}

#[test]
fn states_are_counted() {
    let needs = |name: &str| {
        let checkpoint = Checkpoint::open(Some(&fixture(name))).unwrap();
        Needs::new(checkpoint.spec(), &options())
    };
    // Two convolutions of three taps over 24 channels, one layer of attention with two heads of six numbers in bf16.
    let lfm2 = needs("lfm2");
    assert_eq!((lfm2.state, lfm2.position), (2 * 2 * 24 * 4, 2 * 6 * 2 * 2));
    assert_eq!(lfm2.cache(65) - lfm2.cache(1), 64 * lfm2.position);
    assert_eq!(lfm2.cache(0), lfm2.state);
    // Three layers: four taps over 2 · 16 + 48 channels, and four matrices of 8 by 12.
    assert_eq!(needs("qwen3-next").state, 3 * (3 * 80 + 4 * 8 * 12) * 4);
    assert_eq!(needs("base").state, 0);
}

fn read(json: &Value) -> whin::Result<Spec> {
    config::read(&serde_json::to_vec(json).unwrap())
}

/// The layers of the gated delta rule, of a convolution, and of attention: `d`, `c`, `a`.
fn mixers(spec: &Spec) -> String {
    let mixer = |mixer: &Mixer| match mixer {
        Mixer::Delta(_) => 'd',
        Mixer::ShortConv(_) => 'c',
        Mixer::Attention(_) => 'a',
    };
    spec.layers.iter().map(|layer| mixer(&layer.mixer)).collect()
}

#[track_caller]
fn refused(json: &Value, parts: &[&str]) {
    let error = read(json).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedArchitecture);
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn missing_keys_have_the_defaults_of_the_class() {
    let delta = Delta {
        key_heads: 16,
        value_heads: 32,
        key_dim: 128,
        value_dim: 128,
        taps: 4,
        activation: Activation::Silu,
    };
    for (name, sizes, kv_heads, experts) in [
        ("qwen3_next", (151_936, 2048, 48), 2, Some((512, 10, 512))),
        ("qwen3_5_text", (248_320, 4096, 32), 4, None),
        ("qwen3_5_moe_text", (248_320, 2048, 40), 2, Some((256, 8, 512))),
    ] {
        let spec = read(&json!({ "model_type": name })).unwrap();
        assert_eq!((spec.vocab, spec.width, spec.layers.len()), sizes, "{name}");
        assert_eq!(mixers(&spec), "ddda".repeat(sizes.2 / 4), "{name}");
        assert_eq!(spec.layers[0].mixer, Mixer::Delta(delta.clone()), "{name}");
        let Mixer::Attention(attention) = &spec.layers[3].mixer else { panic!("{name}") };
        assert_eq!((attention.heads, attention.kv_heads, attention.head_dim), (16, kv_heads, 256), "{name}");
        assert!(attention.gated && spec.ropes[0].pairs == 32, "{name}: a quarter of 256 numbers");
        let found = match &spec.layers[0].feed_forward {
            FeedForward::Gated(_) => None,
            FeedForward::Experts(experts) => {
                assert_eq!(experts.shared.as_ref().unwrap().gated.inner, 512, "{name}");
                Some((experts.count, experts.top_k, experts.inner))
            }
        };
        assert_eq!(found, experts, "{name}");
        assert!(
            (!spec.tied, spec.bos, spec.eos.len(), spec.max_positions) == (true, None, 0, 32_768),
            "{name}"
        );
    }
    let spec = read(&json!({ "model_type": "lfm2" })).unwrap();
    assert_eq!((spec.vocab, spec.width, mixers(&spec)), (65_536, 2560, "a".repeat(32)));
    assert_eq!((spec.norm_eps, spec.tied, spec.bos, &spec.eos[..]), (1e-5, true, Some(1), &[2][..]));
    assert_eq!((spec.ropes[0].theta, spec.max_positions), (1e6, 128_000));
    let FeedForward::Gated(gated) = &spec.layers[0].feed_forward else { panic!("no experts") };
    assert_eq!(gated.inner, 8192, "two thirds of 12,288");
}

/// What stands around the text part says which end it is for.
#[test]
fn text_parts_are_those_models() {
    for (whole, text) in [("qwen3_5", "qwen3_5_text"), ("qwen3_5_moe", "qwen3_5_moe_text")] {
        let config = json!({ "model_type": whole, "text_config": { "model_type": text, "num_hidden_layers": 8,
            "rope_parameters": { "rope_type": "default", "mrope_section": [11, 11, 10], "mrope_interleaved": true },
            "mtp_num_hidden_layers": 1, "mamba_ssm_dtype": "float32", "attn_output_gate": true },
            "vision_config": { "depth": 3 }, "image_token_id": 1, "eos_token_id": 7, "tie_word_embeddings": true });
        let spec = read(&config).unwrap();
        assert_eq!(
            (mixers(&spec), spec.tied, &spec.eos[..]),
            ("dddaddda".to_owned(), true, &[7][..]),
            "{whole}"
        );
        let names: Vec<_> = Plan::new(&spec).tensors().into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"model.language_model.layers.0.linear_attn.in_proj_z.weight".to_owned()));
        let mut other = config.clone();
        other["text_config"]["model_type"] = "llama".into();
        refused(&other, &["text_config.model_type is \"llama\"", text]);
    }
}

/// `more` over the keys of a small Qwen3-Next.
fn next(more: Value) -> Value {
    with(
        json!({ "model_type": "qwen3_next", "num_hidden_layers": 5, "num_experts": 4, "num_experts_per_tok": 2 }),
        &more,
    )
}

/// `more` over the keys of a small LFM2.
fn lfm2(more: Value) -> Value {
    with(json!({ "model_type": "lfm2", "num_hidden_layers": 4 }), &more)
}

fn with(mut keys: Value, more: &Value) -> Value {
    keys.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    keys
}

#[test]
fn layers_are_what_the_keys_say() {
    let layers = |keys| mixers(&read(&next(keys)).unwrap());
    assert_eq!(layers(json!({})), "dddad");
    assert_eq!(layers(json!({ "full_attention_interval": 2 })), "dadad");
    let types = ["full_attention", "linear_attention", "mamba", "attention", "linear_attention"];
    assert_eq!(layers(json!({ "layer_types": types, "full_attention_interval": 2 })), "addad");
    let sparse = |keys| {
        let spec = read(&next(keys)).unwrap();
        let is_sparse =
            |layer: &whin::model::spec::Layer| matches!(layer.feed_forward, FeedForward::Experts(_));
        spec.layers.iter().map(is_sparse).collect::<Vec<_>>()
    };
    assert_eq!(sparse(json!({ "mlp_only_layers": [1] })), [true, false, true, true, true]);
    assert_eq!(sparse(json!({ "decoder_sparse_step": 2 })), [false, true, false, true, false]);
    assert_eq!(sparse(json!({ "num_experts": 0 })), [false; 5]);
}

#[test]
fn convolutions_are_where_the_keys_say() {
    let spec =
        read(&lfm2(json!({ "full_attn_idxs": [1, 3], "conv_L_cache": 5, "conv_bias": true }))).unwrap();
    assert_eq!(mixers(&spec), "caca");
    assert_eq!(spec.layers[0].mixer, Mixer::ShortConv(ShortConv { taps: 5, bias: true }));
    let types = ["full_attention", "conv", "conv", "conv"];
    assert_eq!(mixers(&read(&lfm2(json!({ "layer_types": types, "full_attn_idxs": [2] }))).unwrap()), "accc");
    let inner = |keys| match &read(&lfm2(keys)).unwrap().layers[0].feed_forward {
        FeedForward::Gated(gated) => gated.inner,
        FeedForward::Experts(_) => panic!("no experts"),
    };
    assert_eq!(inner(json!({ "intermediate_size": 1000 })), 768, "666 in whole 256s");
    assert_eq!(inner(json!({ "intermediate_size": 1000, "block_ff_dim": 3000 })), 2048);
    assert_eq!(inner(json!({ "intermediate_size": 1000, "block_ffn_dim_multiplier": null })), 666);
    assert_eq!(
        inner(json!({ "intermediate_size": 1000, "block_ffn_dim_multiplier": 1.5, "block_multiple_of": 10 })),
        1000
    );
    assert_eq!(inner(json!({ "intermediate_size": 1000, "block_auto_adjust_ff_dim": false })), 1000);
}

#[test]
fn keys_of_recurrent_layers_that_cannot_be_are_refused() {
    refused(
        &next(json!({ "linear_num_value_heads": 24, "linear_conv_kernel_dim": 0, "layer_types": ["conv"] })),
        &[
            "a multiple of linear_num_key_heads (16)",
            "linear_conv_kernel_dim is 0",
            "num_hidden_layers (5) names",
        ],
    );
    refused(&next(json!({ "linear_key_head_dim": 1 << 20 })), &["linear_num_key_heads", "at most 1048576"]);
    refused(&next(json!({ "full_attention_interval": 0 })), &["full_attention_interval is 0"]);
    refused(&next(json!({ "attn_output_gate": false })), &["attn_output_gate is false; accepted: true"]);
    refused(
        &lfm2(
            json!({ "conv_dim": 512, "use_pos_enc": false, "hidden_act": "gelu", "full_attn_idxs": ["1"] }),
        ),
        &["conv_dim is 512", "use_pos_enc is false", "hidden_act is \"gelu\"", "full_attn_idxs is [\"1\"]"],
    );
    refused(&lfm2(json!({ "layer_types": ["conv", "conv", "conv", "linear_attention"] })), &["layer_types"]);
    refused(&lfm2(json!({ "block_ffn_dim_multiplier": 1e6 })), &["intermediate_size", "its adjustment"]);
}

/// Sums over the largest sizes that are accepted stay within bounds.
#[test]
fn the_largest_states_are_counted_without_wrapping() {
    let spec =
        read(&json!({ "model_type": "qwen3_5_text", "num_hidden_layers": 4096, "linear_num_key_heads": 1,
        "linear_num_value_heads": 1, "linear_key_head_dim": 1 << 20, "linear_value_head_dim": 1 << 20,
        "linear_conv_kernel_dim": 64, "full_attention_interval": 4096, "hidden_size": 1 << 20 }))
        .unwrap();
    let needs = Needs::new(&spec, &options());
    assert_eq!(needs.state, 4095 * ((1 << 40) + 63 * 3 * (1 << 20)) * 4);
    assert!(needs.total(1 << 30) > needs.state && Plan::new(&spec).weights.len() > 4096);
}
