//! What `config.json` may ask for, and how everything else is refused.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use serde_json::{Value, json};
use whin::checkpoint::Storage;
use whin::checkpoint::storage::Fp8;
use whin::model::rope::Scaling;
use whin::model::spec::{Attention, Bias, FeedForward, Mixer};
use whin::model::{Spec, config};
use whin::{Error, ErrorKind};
use whin_kernels::{Activation, Dtype, Span};

fn read(keys: Value) -> Result<Spec, Error> {
    let mut map = json!({ "model_type": "qwen3", "num_hidden_layers": 4 });
    for (key, value) in keys.as_object().unwrap() {
        map[key] = value.clone();
    }
    config::read(&serde_json::to_vec(&map).unwrap())
}

fn accepted(keys: Value) -> Spec {
    read(keys.clone()).unwrap_or_else(|error| panic!("{keys}: {error}"))
}

/// The refusal, which must name each of `parts`.
#[track_caller]
fn refused(keys: Value, parts: &[&str]) -> String {
    let error = match read(keys.clone()) {
        Ok(_) => panic!("accepted: {keys}"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::UnsupportedArchitecture, "{error}");
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
    message
}

fn attention(spec: &Spec, layer: usize) -> &Attention {
    let Mixer::Attention(attention) = &spec.layers[layer].mixer else { panic!("layer {layer} attends") };
    attention
}

fn windows(spec: &Spec) -> Vec<Option<usize>> {
    (0..spec.layers.len()).map(|layer| attention(spec, layer).window).collect()
}

#[test]
fn missing_keys_have_the_defaults_of_the_class() {
    let spec = config::read(br#"{"model_type": "qwen3"}"#).unwrap();
    assert_eq!((spec.vocab, spec.width, spec.layers.len(), spec.max_positions), (151_936, 4096, 32, 32_768));
    assert_eq!((spec.norm_eps, spec.tied, spec.bos), (1e-6, false, None));
    assert!(spec.eos.is_empty());
    let attention = attention(&spec, 0);
    assert_eq!((attention.heads, attention.kv_heads, attention.head_dim), (32, 32, 128));
    assert_eq!((attention.bias, attention.window), (Bias::default(), None));
    assert_eq!(attention.qk_norm, Some(Span::Head));
    assert_eq!(attention.scale, 128f32.sqrt().recip());
    let FeedForward::Gated(gated) = &spec.layers[0].feed_forward else { panic!("not gated") };
    assert_eq!((gated.inner, gated.activation), (22_016, Activation::Silu));
    assert_eq!((spec.ropes[0].theta, &spec.ropes[0].scaling), (10_000.0, &Scaling::Default));
}

#[test]
fn head_dim_is_not_derived_from_the_width() {
    let spec = accepted(json!({ "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8 }));
    assert_eq!(attention(&spec, 0).head_dim, 128);
}

#[test]
fn null_key_value_heads_are_as_many_as_heads_and_missing_ones_are_32() {
    let spec = accepted(json!({ "num_attention_heads": 12, "num_key_value_heads": null }));
    assert_eq!(attention(&spec, 0).kv_heads, 12);
    refused(
        json!({ "num_attention_heads": 12 }),
        &["num_key_value_heads", "a divisor of num_attention_heads (12)"],
    );
}

#[test]
fn every_fault_is_in_one_message() {
    let message = refused(
        json!({
            "hidden_size": "1024",
            "hidden_act": "xielu",
            "rope_scaling": { "rope_type": "mrope", "factor": 2.0 },
            "embedding_multiplier": 12.0,
        }),
        &[
            "hidden_size is \"1024\"; accepted: a whole number from 1 to 1048576",
            "hidden_act is \"xielu\"; accepted: one of silu, swish, gelu",
            "rope_scaling.rope_type is \"mrope\"; accepted: one of default, linear, dynamic",
            "embedding_multiplier is 12.0; accepted: no such key",
        ],
    );
    assert_eq!(message.lines().filter(|line| line.starts_with("  - ")).count(), 4, "{message}");
}

#[test]
fn broken_json_is_an_invalid_checkpoint() {
    let deep = "[".repeat(100_000);
    for json in ["", "{", "[]", "3", "null", "{\"a\": NaN}", "\u{feff}{}", deep.as_str()] {
        let error = config::read(json.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCheckpoint, "{json:.20}");
        assert!(error.to_string().contains("config.json"), "{error}");
    }
    assert!(config::read(b"\xff\xfe{}").is_err());
}

#[test]
fn messages_quote_no_more_than_the_beginning_of_what_they_found() {
    let long = "x".repeat(200_000);
    let (one, two) = (json!({ long.as_str(): 1 }), json!({ long.as_str(): 2 }));
    let message =
        refused(json!({ long.as_str(): 1, "hidden_act": long, "model_type": "qwen3" }), &["xxx… is 1"]);
    assert!(message.len() < 2000, "{} bytes", message.len());
    let message =
        refused(json!({ "rope_parameters": one, "rope_scaling": two }), &["the same xxx", "xxx… is"]);
    assert!(message.len() < 2000, "{} bytes", message.len());
}

#[test]
fn sizes_must_be_whole_positive_and_sane() {
    let keys = [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
    ];
    for key in keys {
        let bad = [
            "0",
            "-1",
            "1.5",
            "64.0",
            "\"8\"",
            "true",
            "[8]",
            "{}",
            "18446744073709551616",
            "9000000000000000000",
            "1e+300",
        ];
        for value in bad {
            let json = format!(r#"{{"model_type": "qwen3", "{key}": {value}}}"#);
            let error = config::read(json.as_bytes()).expect_err(&json);
            assert!(error.to_string().contains(&format!("{key} is {value}")), "{json}: {error}");
        }
    }
    refused(json!({ "head_dim": null }), &["head_dim is null"]);
    refused(json!({ "head_dim": 63 }), &["head_dim is 63; accepted: an even number"]);
    let large = 1 << 20;
    refused(
        json!({ "num_attention_heads": large, "num_key_value_heads": large, "head_dim": large }),
        &["num_attention_heads"],
    );
}

#[test]
fn the_largest_accepted_sizes_can_be_summed() {
    let spec = accepted(json!({
        "vocab_size": 1 << 24, "hidden_size": 1 << 20, "intermediate_size": 1 << 20, "num_hidden_layers": 4096,
        "num_attention_heads": 1 << 12, "num_key_value_heads": 1 << 12, "head_dim": 256, "attention_bias": true,
    }));
    assert!(spec.parameters() > 1 << 54);
    assert!(spec.weight_bytes(whin::Weights::F32) > spec.parameters());
}

#[test]
fn other_values_have_their_types_checked() {
    for (key, value) in [
        ("rms_norm_eps", json!("1e-6")),
        ("rms_norm_eps", json!(-1.0)),
        ("rms_norm_eps", json!(null)),
        ("attention_bias", json!(1)),
        ("tie_word_embeddings", json!("true")),
        ("tie_word_embeddings", json!(null)),
        ("use_sliding_window", json!("yes")),
        ("hidden_act", json!(null)),
        ("hidden_act", json!(["silu"])),
        ("dtype", json!(16)),
        ("torch_dtype", json!({})),
        ("rope_theta", json!(null)),
        ("rope_theta", json!("10000")),
        ("rope_theta", json!(0)),
        ("rope_theta", json!(-5.0)),
        ("rope_scaling", json!("linear")),
        ("rope_parameters", json!([1])),
        ("layer_types", json!("full_attention")),
        ("max_window_layers", json!(-1)),
        ("eos_token_id", json!(151_936)),
        ("eos_token_id", json!([1, "2"])),
        ("bos_token_id", json!(-1)),
        ("architectures", json!("Qwen3ForCausalLM")),
    ] {
        refused(json!({ key: value }), &[&format!("{key} is {value}")]);
    }
}

#[test]
fn the_family_must_be_known_and_agree_with_itself() {
    let family = |json: Value| config::read(&serde_json::to_vec(&json).unwrap());
    assert!(family(json!({ "architectures": ["Qwen3ForCausalLM"] })).is_ok());
    assert!(family(json!({ "model_type": "qwen3", "architectures": null })).is_ok());
    assert!(family(json!({ "model_type": "qwen3", "architectures": ["Qwen3Model"] })).is_ok());
    for json in [
        json!({}),
        json!({ "model_type": "gpt2" }),
        json!({ "model_type": 3 }),
        json!({ "model_type": null }),
        json!({ "architectures": ["GPT2LMHeadModel"] }),
    ] {
        let message = family(json.clone()).unwrap_err().to_string();
        assert!(message.contains("model_type is") && message.contains("qwen3, "), "{json}: {message}");
    }
    let keys = json!({ "architectures": ["Qwen3ForSequenceClassification"] });
    refused(keys, &["architectures is", "Qwen3ForCausalLM or Qwen3Model"]);
}

#[test]
fn activations_that_cannot_be_computed_are_refused_by_name() {
    for name in ["prelu", "xielu", "SiLU", ""] {
        refused(json!({ "hidden_act": name }), &["hidden_act", "silu, swish"]);
    }
}

#[test]
fn windows_follow_the_layer_types_or_else_the_first_layer() {
    assert_eq!(windows(&accepted(json!({ "sliding_window": 16, "max_window_layers": 0 }))), [None; 4]);
    let sliding = |more: Value| {
        let mut keys = json!({ "use_sliding_window": true, "sliding_window": 16 });
        keys.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        windows(&accepted(keys))
    };
    assert_eq!(sliding(json!({})), [None; 4]);
    assert_eq!(sliding(json!({ "max_window_layers": 0 })), [Some(16); 4]);
    assert_eq!(sliding(json!({ "max_window_layers": 3 })), [None, None, None, Some(16)]);
    assert_eq!(sliding(json!({ "sliding_window": null, "max_window_layers": 0 })), [None; 4]);
    let types = json!(["sliding_attention", "full_attention", "sliding_attention", "full_attention"]);
    assert_eq!(
        sliding(json!({ "layer_types": types, "max_window_layers": 3 })),
        [Some(16), None, Some(16), None]
    );
    let keys = json!({ "use_sliding_window": true, "max_window_layers": 0 });
    assert_eq!(windows(&accepted(keys)), [Some(4096); 4]);

    refused(
        json!({ "layer_types": types }),
        &["sliding_window is missing", "a window, with use_sliding_window true"],
    );
    refused(json!({ "layer_types": ["full_attention"] }), &["layer_types", "num_hidden_layers (4)"]);
    refused(json!({ "layer_types": vec!["linear_attention"; 4] }), &["layer_types", "full_attention"]);
    refused(json!({ "use_sliding_window": true, "sliding_window": 0 }), &["sliding_window is 0"]);
}

#[test]
fn unknown_keys_are_refused_unless_they_are_off() {
    for (key, value) in [
        ("mlp_bias", json!(true)),
        ("attn_logit_softcapping", json!(50.0)),
        ("logit_scale", json!(0.5)),
        ("mup_style", json!("x")),
        ("per_layer_config", json!({ "0": { "head_dim": 64 } })),
        ("is_encoder_decoder", json!(true)),
        ("num_experts", json!(8)),
    ] {
        refused(json!({ key: value }), &[&format!("{key} is {value}")]);
    }
    accepted(json!({
        "mlp_bias": false, "attn_logit_softcapping": null, "pruned_heads": {}, "mlp_only_layers": [],
        "is_encoder_decoder": false, "transformers_version": "5.17.0", "torch_dtype": "torch.bfloat16",
        "dtype": "auto", "use_cache": true, "initializer_range": 0.02, "attention_dropout": 0.1,
        "_name_or_path": "x", "pad_token_id": 7, "id2label": { "0": "A" }, "temperature": 0.7, "top_k": 20,
        "output_attentions": true, "unsloth_fixed": true, "_attn_implementation_autoset": true,
    }));
}

#[test]
fn fp8_is_read_with_the_keys_of_its_class() {
    let storage = |config: Value| accepted(json!({ "quantization_config": config })).storage;
    let usual = Fp8 { block: Some((128, 128)), ..Fp8::default() };
    assert_eq!(storage(json!(null)), Storage::Unsaid);
    assert_eq!(storage(json!({ "quant_method": "fp8" })), Storage::Fp8(usual));
    // As DeepSeek-V3 and Qwen3 have it.
    let released = json!({
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head", "model.layers.0.input_layernorm"],
    });
    assert_eq!(storage(released), Storage::Fp8(Fp8 { dtype: Some(Dtype::F8E4m3), ..usual }));
    // As `FineGrainedFP8Config` writes all of its keys.
    let saved = json!({
        "quant_method": "fp8", "modules_to_not_convert": null, "modules_to_convert": null,
        "activation_scheme": "Static", "weight_block_size": null, "dequantize": false, "scale_fmt": "float",
    });
    assert_eq!(storage(saved), Storage::Fp8(Fp8 { block: None, static_activations: true, ..Fp8::default() }));
    let odd = json!({
        "quant_method": "fp8", "weight_block_size": [1, 16_777_216], "fmt": "float8_e5m2", "scale_fmt": "ue8m0",
        "dequantize": true, "ignored_layers": [], "kv_cache_scheme": null,
    });
    let block = Some((1, 1 << 24));
    assert_eq!(storage(odd), Storage::Fp8(Fp8 { block, dtype: Some(Dtype::F8E5m2), ..usual }));
}

#[test]
fn every_key_of_fp8_is_checked() {
    for (key, value) in [
        ("weight_block_size", json!([0, 128])),
        ("weight_block_size", json!([128, -1])),
        ("weight_block_size", json!([128, 16_777_217])),
        ("weight_block_size", json!([128, 1e300])),
        ("weight_block_size", json!([128, 128.0])),
        ("weight_block_size", json!([u64::MAX, u64::MAX])),
        ("weight_block_size", json!([])),
        ("weight_block_size", json!([128])),
        ("weight_block_size", json!([128, 128, 128])),
        ("weight_block_size", json!(["128", "128"])),
        ("weight_block_size", json!(128)),
        ("weight_block_size", json!("128x128")),
        ("weight_block_size", json!({})),
        ("fmt", json!("e3m4")),
        ("fmt", json!(8)),
        ("activation_scheme", json!("none")),
        ("activation_scheme", json!(null)),
        ("activation_scheme", json!(true)),
        ("scale_fmt", json!("e8m0")),
        ("scale_fmt", json!(1)),
        ("dequantize", json!("no")),
        ("modules_to_not_convert", json!("lm_head")),
        ("modules_to_not_convert", json!([1])),
        ("ignored_layers", json!({})),
        ("modules_to_convert", json!(["a", null])),
        ("kv_cache_scheme", json!({ "num_bits": 8 })),
        ("smoothing", json!(0.5)),
    ] {
        let mut config = json!({ "quant_method": "fp8" });
        config[key] = value.clone();
        let found = format!("quantization_config.{key} is {value}; accepted:");
        refused(json!({ "quantization_config": config }), &[&found]);
    }
    let both = json!({ "quant_method": "fp8", "weight_block_size": 1, "fmt": "x" });
    let parts = ["hidden_act", "quantization_config.weight_block_size", "quantization_config.fmt"];
    refused(json!({ "hidden_act": "xielu", "quantization_config": both }), &parts);
    for value in [json!("fp8"), json!(8), json!([]), json!(true)] {
        refused(json!({ "quantization_config": value }), &["quantization_config is", "an object or null"]);
    }
}

#[test]
fn other_methods_are_refused_by_name_with_the_remedy() {
    for (quant_method, name) in [
        ("gptq", "GPTQ"),
        ("awq", "AWQ"),
        ("compressed-tensors", "compressed-tensors"),
        ("bitsandbytes", "bitsandbytes (8 bit)"),
        ("aqlm", "AQLM"),
        ("vptq", "VPTQ"),
        ("quanto", "quanto"),
        ("eetq", "EETQ"),
        ("higgs", "HIGGS"),
        ("hqq", "HQQ"),
        ("fbgemm_fp8", "FBGEMM FP8"),
        ("torchao", "torchao"),
        ("gguf", "GGUF"),
        ("bitnet", "BitNet"),
        ("spqr", "SpQR"),
        ("quark", "Quark"),
        ("fp_quant", "FP-Quant"),
        ("auto-round", "AutoRound"),
        ("mxfp8", "MXFP8"),
        ("nvfp4", "NVFP4"),
        ("modelopt", "ModelOpt"),
        ("metal", "Metal"),
        ("fouroversix", "Four Over Six"),
        ("sinq", "SINQ"),
        ("gemma", "Gemma's own method"),
        ("never heard of", "an unknown method"),
        ("FP8", "an unknown method"),
        ("", "an unknown method"),
    ] {
        let config = json!({ "quant_method": quant_method, "bits": 4, "weight_block_size": [128, 128] });
        let found = format!("quantization_config.quant_method is {quant_method:?}; accepted: fp8");
        let parts = [
            &found,
            &format!("quantised by {name}, which is not read"),
            "original checkpoint",
            "--weights int8 or int4",
        ];
        refused(json!({ "quantization_config": config }), &parts.map(|part| part as &str));
    }
}

#[test]
fn methods_without_a_plain_name_are_refused_too() {
    for (config, name) in [
        (json!({ "quant_method": "bitsandbytes", "load_in_4bit": true }), "bitsandbytes (4 bit)"),
        (json!({ "load_in_8bit": true }), "bitsandbytes (8 bit)"),
        (json!({ "load_in_4bit": true }), "bitsandbytes (4 bit)"),
        (json!({ "group_size": 64, "bits": 4 }), "MLX"),
        (json!({ "weight_block_size": [128, 128] }), "an unknown method"),
        (json!({ "quant_method": null }), "an unknown method"),
        (json!({ "quant_method": 8 }), "an unknown method"),
        (json!({}), "an unknown method"),
    ] {
        let parts =
            ["quantization_config.quant_method is", &format!("quantised by {name}"), "original checkpoint"];
        refused(json!({ "quantization_config": config }), &parts);
    }
    let mlx = json!({ "group_size": 64, "bits": 4 });
    refused(
        json!({ "quantization": mlx }),
        &["quantization is {", "quantised by MLX", "original checkpoint"],
    );
    refused(
        json!({ "compression_config": { "quant_method": "compressed-tensors" } }),
        &["compression_config is {", "compressed-tensors"],
    );
    accepted(json!({ "quantization": null, "compression_config": {} }));
    refused(json!({ "auto_map": { "AutoModelForCausalLM": "x.Y" } }), &["auto_map", "is not run"]);
}

#[test]
fn end_tokens_are_numbers_or_lists() {
    assert_eq!(accepted(json!({ "eos_token_id": 3 })).eos, [3]);
    assert_eq!(accepted(json!({ "eos_token_id": [3, 4] })).eos, [3, 4]);
    assert!(accepted(json!({ "eos_token_id": null })).eos.is_empty());
    assert_eq!(accepted(json!({ "bos_token_id": 3 })).bos, Some(3));
}

fn rope(keys: Value) -> (f64, Scaling) {
    let spec = accepted(keys);
    assert_eq!(spec.ropes.len(), 1);
    (spec.ropes[0].theta, spec.ropes[0].scaling.clone())
}

#[test]
fn theta_is_found_in_every_spelling() {
    for keys in [
        json!({ "rope_theta": 5e5 }),
        json!({ "rope_theta": 500000, "rope_scaling": null }),
        json!({ "rope_parameters": { "rope_theta": 500000 } }),
        json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 5e5 } }),
        json!({ "rope_parameters": { "rope_type": "default" }, "rope_theta": 5e5 }),
        json!({ "rope_parameters": { "rope_theta": 5e5 }, "rope_theta": 10000 }),
        json!({ "rope_scaling": { "type": "default", "rope_theta": 5e5 } }),
        json!({ "rope_scaling": {}, "rope_theta": 5e5, "partial_rotary_factor": 1.0 }),
        json!({ "rope_parameters": { "rope_theta": 5e5 }, "rope_scaling": { "rope_theta": 500000 } }),
    ] {
        assert_eq!(rope(keys.clone()), (5e5, Scaling::Default), "{keys}");
    }
}

#[test]
fn the_kind_of_rope_is_found_in_every_spelling() {
    let linear = (5e5, Scaling::Linear { factor: 2.0 });
    for keys in [
        json!({ "rope_theta": 5e5, "rope_scaling": { "type": "linear", "factor": 2 } }),
        json!({ "rope_theta": 5e5, "rope_scaling": { "type": "linear", "rope_type": "linear", "factor": 2.0 } }),
        json!({ "rope_parameters": { "rope_type": "linear", "factor": 2.0, "rope_theta": 5e5 } }),
        json!({ "rope_parameters": { "rope_theta": 5e5 }, "rope_scaling": { "type": "linear", "factor": 2.0 } }),
    ] {
        assert_eq!(rope(keys.clone()), linear, "{keys}");
    }
}

#[test]
fn yarn_has_its_factor_of_attention() {
    let attention = |more: Value| {
        let mut dict =
            json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768 });
        dict.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        match rope(json!({ "rope_scaling": dict })).1 {
            Scaling::Yarn { attention, .. } => attention,
            other => panic!("{other:?}"),
        }
    };
    let usual = 0.1 * 4f64.ln() + 1.0;
    assert_eq!(attention(json!({})), usual);
    assert_eq!(attention(json!({ "attention_factor": 1.5 })), 1.5);
    assert_eq!(attention(json!({ "attention_factor": 1.5, "mscale": 1.0, "mscale_all_dim": 2.0 })), 1.5);
    assert_eq!(attention(json!({ "mscale": 1.0, "mscale_all_dim": 1.0 })), 1.0);
    assert_eq!(attention(json!({ "mscale": 1.0, "mscale_all_dim": 0 })), usual);
    assert_eq!(attention(json!({ "mscale": 1.0 })), usual);
}

#[test]
fn the_limit_of_positions_is_that_after_scaling() {
    let limit = |keys: Value| accepted(keys).max_positions;
    let yarn = json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768 });
    assert_eq!(limit(json!({ "max_position_embeddings": 40960 })), 40960);
    assert_eq!(limit(json!({ "max_position_embeddings": 40960, "rope_scaling": yarn })), 131_072);
    assert_eq!(limit(json!({ "max_position_embeddings": 262_144, "rope_scaling": yarn })), 262_144);
    let dynamic = json!({ "rope_type": "dynamic", "factor": 2.5 });
    assert_eq!(limit(json!({ "max_position_embeddings": 1000, "rope_scaling": dynamic })), 2500);
}

#[test]
fn ropes_that_are_wrong_are_refused() {
    let llama3 =
        json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0 });
    for (dict, part) in [
        (json!({ "rope_type": "su" }), "rope_scaling.rope_type is \"su\""),
        (json!({ "rope_type": null, "factor": 1.0 }), "rope_scaling.rope_type is null"),
        (json!({ "type": 3 }), "rope_scaling.type is 3"),
        (json!({ "rope_type": "linear", "type": "yarn", "factor": 2.0 }), "rope_scaling.type is \"yarn\""),
        (json!({ "rope_type": "linear" }), "rope_scaling.factor is missing"),
        (json!({ "rope_type": "linear", "factor": "2" }), "rope_scaling.factor is \"2\""),
        (json!({ "rope_type": "linear", "factor": 0.5 }), "rope_scaling.factor is 0.5"),
        (json!({ "rope_type": "linear", "factor": 2.0, "beta_fast": 1 }), "rope_scaling.beta_fast is 1"),
        (json!({ "rope_type": "dynamic" }), "rope_scaling.factor is missing"),
        (json!({ "rope_type": "yarn" }), "rope_scaling.factor is missing"),
        (json!({ "rope_type": "yarn", "factor": 2.0, "truncate": 1 }), "rope_scaling.truncate is 1"),
        (json!({ "rope_type": "yarn", "factor": 2.0, "mscale": -1 }), "rope_scaling.mscale is -1"),
        (json!({ "rope_type": "llama3", "factor": 2.0 }), "rope_scaling.low_freq_factor is missing"),
        (llama3, "rope_scaling.high_freq_factor is 4.0"),
        (json!({ "rope_type": "longrope" }), "rope_scaling.short_factor is missing"),
        (
            json!({ "rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0] }),
            "a list of 64 positive",
        ),
        (
            json!({ "rope_type": "default", "partial_rotary_factor": 0.5 }),
            "rope_scaling.partial_rotary_factor is 0.5",
        ),
        (json!({ "rope_type": "default", "mrope_section": [1, 2] }), "rope_scaling.mrope_section is [1,2]"),
        (json!({ "rope_theta": null }), "rope_scaling.rope_theta is null"),
    ] {
        refused(json!({ "rope_scaling": dict }), &[part]);
    }
    refused(json!({ "partial_rotary_factor": 0.5 }), &["partial_rotary_factor is 0.5"]);
    let keys = json!({ "rope_parameters": { "rope_theta": 1e4 }, "rope_scaling": { "rope_theta": 1e6 } });
    refused(keys, &["the same rope_theta as in rope_parameters"]);
    refused(json!({ "head_dim": 2, "rope_scaling": { "type": "dynamic", "factor": 2.0 } }), &["at least 4"]);
}

#[test]
fn layer_types_may_have_ropes_of_their_own() {
    let types = json!(["sliding_attention", "full_attention", "sliding_attention", "full_attention"]);
    let keys = |ropes: Value| json!({ "layer_types": types, "use_sliding_window": true, "sliding_window": 8, "rope_parameters": ropes });
    let spec = accepted(keys(json!({
        "full_attention": { "rope_type": "linear", "factor": 8.0, "rope_theta": 1e6 },
        "sliding_attention": { "rope_theta": 1e4 },
    })));
    assert_eq!(spec.ropes.len(), 2);
    for layer in 0..4 {
        let rope = &spec.ropes[attention(&spec, layer).rope.unwrap()];
        assert_eq!(rope.theta, if layer % 2 == 0 { 1e4 } else { 1e6 });
    }
    refused(keys(json!({ "full_attention": {} })), &["rope_parameters.sliding_attention is missing"]);
    let nothing = json!({ "full_attention": {}, "sliding_attention": null });
    refused(keys(nothing), &["rope_parameters.sliding_attention is null"]);
    let odd = json!({ "full_attention": { "rope_type": "odd" }, "sliding_attention": {} });
    refused(keys(odd), &["rope_parameters.full_attention.rope_type is \"odd\""]);
}
