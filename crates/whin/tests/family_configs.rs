//! The config of each family: what its class assumes, in which spellings, and what is refused.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use serde_json::{Value, json};
use whin::model::rope::Scaling;
use whin::model::spec::{Attention, FeedForward, Mixer};
use whin::model::{Spec, config};
use whin::{Error, ErrorKind};
use whin_kernels::Activation;

fn read(keys: &Value) -> Result<Spec, Error> {
    config::read(&serde_json::to_vec(keys).unwrap())
}

/// `more` over the keys of `keys`.
fn with(keys: &Value, more: &Value) -> Value {
    let mut all = keys.as_object().unwrap().clone();
    all.extend(more.as_object().unwrap().clone());
    Value::Object(all)
}

#[track_caller]
fn accepted(keys: &Value) -> Spec {
    read(keys).unwrap_or_else(|error| panic!("{keys}: {error}"))
}

/// The refusal, which must name each of `parts`.
#[track_caller]
fn refused(keys: &Value, parts: &[&str]) {
    let error = match read(keys) {
        Ok(_) => panic!("accepted: {keys}"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::UnsupportedArchitecture, "{error}");
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

fn attention(spec: &Spec, layer: usize) -> &Attention {
    match &spec.layers[layer].mixer {
        Mixer::Attention(attention) => attention,
        other => panic!("layer {layer} is {other:?}"),
    }
}

fn windows(spec: &Spec) -> Vec<Option<usize>> {
    (0..spec.layers.len()).map(|layer| attention(spec, layer).window).collect()
}

/// The base of each layer that turns.
fn thetas(spec: &Spec) -> Vec<Option<f64>> {
    let theta = |layer| attention(spec, layer).rope.map(|rope| spec.ropes[rope].theta);
    (0..spec.layers.len()).map(theta).collect()
}

/// What transformers' classes hold by default.
fn classes() -> Vec<Value> {
    serde_json::from_slice(include_bytes!("fixtures/class-defaults.json")).unwrap()
}

const WHOLES: [&str; 14] = [
    "aya_vision",
    "cohere2_vision",
    "gemma3",
    "idefics3",
    "internvl",
    "llava",
    "llava_next",
    "llava_onevision",
    "mistral3",
    "qwen2_5_vl",
    "qwen2_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
    "smolvlm",
];

#[test]
fn missing_keys_have_the_defaults_of_the_class() {
    for class in classes() {
        let name = class["model_type"].as_str().unwrap();
        let spec = accepted(&json!({ "model_type": name }));
        let whole = |key: &str| class[key].as_u64().unwrap() as usize;
        let real = |key: &str| class[key].as_f64().unwrap() as f32;
        let list = |key: &str| class[key].as_array().unwrap().clone();
        assert_eq!(
            (spec.vocab, spec.width, spec.max_positions),
            (whole("vocab"), whole("width"), whole("max_positions")),
            "{name}"
        );
        assert_eq!((spec.norm_eps, spec.tied), (real("norm_eps"), class["tied"] == true), "{name}");
        assert_eq!(spec.bos.map(u64::from), class["bos"].as_u64(), "{name}");
        assert_eq!(
            spec.eos,
            list("eos").iter().map(|id| id.as_u64().unwrap() as u32).collect::<Vec<_>>(),
            "{name}"
        );
        let scales = [spec.embedding_scale, spec.residual_scale, spec.logit_scale];
        assert_eq!(scales, ["embedding_scale", "residual_scale", "logit_scale"].map(real), "{name}");
        let cap = |key: &str| class[key].as_f64().map(|cap| cap as f32);
        assert_eq!(spec.logit_softcap, cap("logit_softcap"), "{name}");
        let first = attention(&spec, 0);
        assert_eq!(
            (first.heads, first.kv_heads, first.head_dim),
            (whole("heads"), whole("kv_heads"), whole("head_dim")),
            "{name}"
        );
        assert_eq!((first.scale, first.softcap), (real("scale"), cap("softcap")), "{name}");
        assert!(spec.ropes.iter().all(|rope| rope.pairs == whole("pairs")), "{name}");
        let FeedForward::Gated(gated) = &spec.layers[0].feed_forward else { panic!("not gated") };
        assert_eq!(gated.inner, whole("inner"), "{name}");
        let activation = match class["activation"].as_str().unwrap() {
            "silu" => Activation::Silu,
            other => {
                assert_eq!(other, "gelu_pytorch_tanh");
                Activation::GeluTanh
            }
        };
        assert_eq!(gated.activation, activation, "{name}");
        let expected: Vec<_> =
            list("windows").iter().map(|window| window.as_u64().map(|n| n as usize)).collect();
        assert_eq!(windows(&spec), expected, "{name}");
        assert_eq!(thetas(&spec), list("thetas").iter().map(Value::as_f64).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn unknown_keys_are_refused_in_every_family() {
    let names =
        classes().iter().map(|class| class["model_type"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    for name in &names {
        refused(&json!({ "model_type": name, "novelty": 1 }), &["novelty is 1; accepted: no such key"]);
        refused(&json!({ "model_type": name, "architectures": ["Novel"] }), &["architectures is", name]);
    }
    for name in WHOLES {
        let keys = json!({ "model_type": name, "text_config": { "novelty": 1 }, "oddity": true });
        refused(
            &keys,
            &["text_config.novelty is 1; accepted: no such key", "oddity is true; accepted: no such key"],
        );
        refused(
            &json!({ "model_type": name, "text_config": { "model_type": "gpt2" } }),
            &["text_config.model_type is \"gpt2\""],
        );
        refused(&json!({ "model_type": name, "text_config": 3 }), &["text_config is 3"]);
    }
}

#[test]
fn a_text_part_is_what_it_is_alone() {
    for (whole, text) in [
        ("gemma3", "gemma3_text"),
        ("mistral3", "mistral"),
        ("llava", "mistral"),
        ("smolvlm", "llama"),
        ("internvl", "qwen3"),
        ("aya_vision", "cohere2"),
        ("llava_next", "granite"),
        ("llava_onevision", "qwen3"),
        ("llava", "phi3"),
        ("internvl", "qwen3_moe"),
        ("internvl", "gpt_oss"),
    ] {
        let part = json!({ "model_type": text, "num_hidden_layers": 8, "vocab_size": 300_000 });
        let alone = accepted(&part);
        let mut keys = json!({ "model_type": whole, "text_config": part, "vision_config": { "depth": 3 } });
        let same = |spec: Spec| Spec { family: alone.family, names: alone.names, ..spec };
        assert_eq!(accepted(&keys).family, whole);
        assert_eq!(same(accepted(&keys)), alone);
        // What the whole says comes first.
        keys = with(
            &keys,
            &json!({ "eos_token_id": [7, 8], "tie_word_embeddings": true, "vocab_size": 300_000 }),
        );
        assert_eq!(same(accepted(&keys)), Spec { eos: vec![7, 8], tied: true, ..alone.clone() });
        refused(&with(&keys, &json!({ "vocab_size": 5 })), &["vocab_size is 5"]);
        let fp8 = json!({ "quantization_config": { "quant_method": "fp8" } });
        assert_ne!(accepted(&with(&keys, &fp8)).storage, alone.storage);
        refused(&with(&keys, &json!({ "auto_map": { "AutoModel": "x.Y" } })), &["auto_map"]);
    }
    let tied = |whole: &str, text: &str| {
        let part = json!({ "model_type": text, "tie_word_embeddings": true });
        accepted(&json!({ "model_type": whole, "text_config": part, "tie_word_embeddings": false })).tied
    };
    // Classes with a text part of their own take no other, and none takes another whole.
    for (whole, text) in
        [("gemma3", "llama"), ("qwen3_vl", "qwen3"), ("llava", "gemma3"), ("internvl", "mamba")]
    {
        let keys = json!({ "model_type": whole, "text_config": { "model_type": text } });
        refused(&keys, &["text_config.model_type is", "accepted: one of"]);
    }
    assert!(tied("llava", "llama") && tied("qwen2_vl", "qwen2_vl_text"));
    assert!(!tied("gemma3", "gemma3_text") && !tied("qwen3_vl", "qwen3_vl_text"));
}

#[test]
fn keys_of_a_text_part_may_stand_beside_those_for_images() {
    let text = json!({ "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
        "max_position_embeddings": 512, "rope_theta": 5e5,
        "rope_scaling": { "type": "mrope", "mrope_section": [2, 3, 3] } });
    for name in ["qwen2_vl", "qwen2_5_vl"] {
        let whole = json!({ "model_type": name, "vision_config": {}, "image_token_id": 151_655 });
        let flat = accepted(&with(&whole, &text));
        assert_eq!((flat.width, flat.ropes[0].theta, &flat.ropes[0].scaling), (64, 5e5, &Scaling::Default));
        assert_eq!(accepted(&with(&whole, &json!({ "text_config": text }))), flat);
        // Newer files have both.
        assert_eq!(accepted(&with(&with(&whole, &text), &json!({ "text_config": text }))), flat);
        let other = with(&with(&whole, &text), &json!({ "text_config": text, "hidden_size": 128 }));
        refused(&other, &["hidden_size is 128"]);
        // A window that is not used is null in one place and a number in the other.
        let text = with(&text, &json!({ "sliding_window": null, "use_sliding_window": false }));
        let outer = json!({ "text_config": text, "sliding_window": 32_768, "max_window_layers": 70 });
        assert_eq!(accepted(&with(&with(&whole, &text), &outer)), flat);
        let used = json!({ "use_sliding_window": true });
        refused(&with(&with(&with(&whole, &text), &outer), &used), &["sliding_window is 32768"]);
    }
    refused(&with(&text, &json!({ "model_type": "qwen3_vl" })), &["text_config is missing"]);
}

#[test]
fn layers_without_rope_are_listed_or_counted() {
    let read = |more: Value| {
        let spec = accepted(&with(&json!({ "model_type": "smollm3", "num_hidden_layers": 4 }), &more));
        (thetas(&spec).iter().map(Option::is_some).collect::<Vec<_>>(), windows(&spec))
    };
    assert_eq!(read(json!({ "no_rope_layer_interval": 2 })), (vec![true, false, true, false], vec![None; 4]));
    let list = json!({ "no_rope_layers": [0, 1, 1, 0, 1], "use_sliding_window": true, "sliding_window": 9 });
    let slides = vec![Some(9), None, None, Some(9)];
    assert_eq!(read(list.clone()), (vec![false, true, true, false], slides));
    let full = with(&list, &json!({ "layer_types": vec!["full_attention"; 4] }));
    assert_eq!(read(full), (vec![false, true, true, false], vec![None; 4]));
    let unused = with(&list, &json!({ "use_sliding_window": false, "max_window_layers": 28 }));
    assert_eq!(read(unused), (vec![false, true, true, false], vec![None; 4]));
    for list in [json!([1, 0]), json!([1, 0, 2, 1]), json!([true, false, true, true]), json!(4), json!([])] {
        let keys = json!({ "model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layers": list });
        refused(&keys, &["no_rope_layers is", "ones and zeros"]);
    }
    refused(
        &json!({ "model_type": "smollm3", "no_rope_layer_interval": 0 }),
        &["no_rope_layer_interval is 0"],
    );
}

#[test]
fn local_and_global_rope_are_found_in_both_spellings() {
    let base = json!({ "model_type": "gemma3_text", "num_hidden_layers": 2, "sliding_window_pattern": 2 });
    let old = with(
        &base,
        &json!({ "rope_theta": 2e6, "rope_local_base_freq": 3e3,
        "rope_scaling": { "rope_type": "linear", "factor": 8.0 } }),
    );
    let new = with(
        &base,
        &json!({ "rope_parameters": {
        "full_attention": { "rope_type": "linear", "factor": 8.0, "rope_theta": 2e6 },
        "sliding_attention": { "rope_type": "default", "rope_theta": 3e3 } } }),
    );
    let spec = accepted(&old);
    assert_eq!(spec, accepted(&new));
    assert_eq!(thetas(&spec), [Some(3e3), Some(2e6)]);
    let scaling = |layer| &spec.ropes[attention(&spec, layer).rope.unwrap()].scaling;
    assert_eq!((scaling(0), scaling(1)), (&Scaling::Default, &Scaling::Linear { factor: 8.0 }));
    let half =
        with(&base, &json!({ "rope_parameters": { "full_attention": null }, "rope_local_base_freq": 5e3 }));
    assert_eq!(thetas(&accepted(&half)), [Some(5e3), Some(1e6)]);
    for (more, part) in [
        (json!({ "rope_parameters": { "rope_theta": 5.0 } }), "rope_parameters.rope_theta is 5.0"),
        (json!({ "rope_parameters": { "full_attention": 3 } }), "rope_parameters.full_attention is 3"),
        (
            json!({ "rope_parameters": { "sliding_attention": { "rope_type": "x" } } }),
            "sliding_attention.rope_type is \"x\"",
        ),
        (json!({ "rope_scaling": { "full_attention": {} , "x": 1} }), "full_attention.x is 1"),
        (json!({ "rope_local_base_freq": 0 }), "rope_local_base_freq is 0"),
    ] {
        refused(&with(&base, &more), &[part]);
    }
}

/// What stands in the dictionary of a type of layers is not read there by transformers.
#[test]
fn yarn_of_a_type_of_layers_is_truncated() {
    let with_truncate = |truncate: bool| {
        let rope = json!({ "rope_type": "yarn", "factor": 4.0, "truncate": truncate });
        json!({ "model_type": "gemma3_text", "rope_parameters": { "full_attention": rope } })
    };
    accepted(&with_truncate(true));
    refused(&with_truncate(false), &["rope_parameters.full_attention.truncate is false"]);
    let whole = json!({ "rope_type": "yarn", "factor": 4.0, "truncate": false });
    accepted(&json!({ "model_type": "qwen3", "rope_scaling": whole }));
}

#[test]
fn what_no_stage_computes_is_refused() {
    for (name, more, part) in [
        ("gemma2", json!({ "use_bidirectional_attention": true }), "use_bidirectional_attention is true"),
        (
            "gemma3_text",
            json!({ "use_bidirectional_attention": true }),
            "use_bidirectional_attention is true",
        ),
        ("gemma2", json!({ "sliding_window": null }), "sliding_window is null"),
        ("gemma2", json!({ "hidden_act": "silu" }), "hidden_act is \"silu\""),
        ("gemma2", json!({ "attn_logit_softcapping": "x" }), "attn_logit_softcapping is \"x\""),
        ("gemma3_text", json!({ "sliding_window_pattern": 0 }), "sliding_window_pattern is 0"),
        (
            "phi3",
            json!({ "rope_scaling": { "type": "linear", "factor": 2.0 } }),
            "one of default, longrope, su, yarn",
        ),
        ("phi3", json!({ "partial_rotary_factor": 0.01 }), "partial_rotary_factor"),
        ("phi3", json!({ "full_attn_mod": 2 }), "full_attn_mod is 2"),
        ("granite", json!({ "logits_scaling": 0 }), "logits_scaling is 0"),
        ("granite", json!({ "residual_multiplier": null }), "residual_multiplier is null"),
        ("glm4", json!({ "head_dim": null }), "head_dim is null"),
        ("cohere2", json!({ "use_parallel_block": false }), "use_parallel_block is false"),
        ("cohere2", json!({ "layer_switch": 3 }), "layer_switch is 3; accepted: 4"),
        ("cohere2", json!({ "use_qk_norm": true }), "use_qk_norm is true"),
        ("cohere2", json!({ "layer_norm_eps": 0 }), "layer_norm_eps is 0"),
        ("cohere2", json!({ "rms_norm_eps": 1e-5 }), "rms_norm_eps is"),
        ("mistral", json!({ "sliding_window": 0 }), "sliding_window is 0"),
        ("mistral", json!({ "attention_bias": true }), "attention_bias is true"),
        ("llama", json!({ "sliding_window": 5 }), "sliding_window is 5"),
        ("olmo2", json!({ "mlp_bias": true }), "mlp_bias is true"),
        ("olmo2", json!({ "partial_rotary_factor": 0.5 }), "partial_rotary_factor is 0.5"),
    ] {
        refused(&with(&json!({ "model_type": name }), &more), &[part]);
    }
}

#[test]
fn keys_of_published_files_are_read() {
    let phi = json!({ "model_type": "phi3", "original_max_position_embeddings": 4096, "full_attn_mod": 1,
        "interpolate_factor": 1, "lm_head_bias": false, "mlp_bias": false, "embd_pdrop": 0.0, "head_dim": 96,
        "auto_map": { "AutoConfig": "microsoft/Phi--configuration_phi3.Phi3Config", "AutoTokenizer": "Xenova/gpt-4o",
            "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM" } });
    accepted(&phi);
    let code = json!({ "auto_map": { "AutoModelForCausalLM": "modeling_phi3_v.Phi3VForCausalLM" } });
    refused(&with(&phi, &code), &["auto_map is", "is not run"]);
    let factors = json!({ "type": "su", "short_factor": vec![1.0; 48], "long_factor": vec![2.0; 48] });
    let long = accepted(&with(&phi, &json!({ "rope_scaling": factors, "max_position_embeddings": 131_072 })));
    let Scaling::LongRope { original, .. } = long.ropes[0].scaling else { panic!("{:?}", long.ropes) };
    assert_eq!((original, long.max_positions), (4096, 131_072));
    let llama = json!({ "model_type": "llama", "is_llama_config": true, "rope_interleaved": false,
        "pretraining_tp": 1, "transformers.js_config": { "kv_cache_dtype": "x" } });
    assert_eq!(accepted(&llama), accepted(&json!({ "model_type": "llama" })));
    refused(&with(&llama, &json!({ "rope_interleaved": true })), &["rope_interleaved is true"]);
    let gemma = json!({ "model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid" });
    assert_eq!(accepted(&gemma), accepted(&json!({ "model_type": "gemma2" })));
    let gemma = json!({ "model_type": "gemma2", "sliding_window": 2048 });
    let named_twice = with(&gemma, &json!({ "sliding_window_size": 2048 }));
    assert_eq!(accepted(&named_twice), accepted(&gemma));
    refused(
        &with(&gemma, &json!({ "sliding_window_size": 4096 })),
        &["sliding_window_size is 4096; accepted: 2048"],
    );
    let qwen = json!({ "model_type": "qwen3_moe", "shared_expert_intermediate_size": 0, "use_qk_norm": true,
        "qkv_bias": false });
    assert_eq!(accepted(&qwen), accepted(&json!({ "model_type": "qwen3_moe" })));
    for more in [json!({ "shared_expert_intermediate_size": 8 }), json!({ "use_qk_norm": false })] {
        refused(&with(&qwen, &more), &[more.as_object().unwrap().keys().next().unwrap()]);
    }
    let pixtral =
        json!({ "model_type": "llava", "text_config": { "model_type": "mistral", "is_composition": true } });
    accepted(&pixtral);
    let llava = json!({ "model_type": "llava_onevision", "use_image_newline_parameter": true,
        "text_config": { "model_type": "qwen2" } });
    accepted(&llava);
    let cohere = json!({ "model_type": "cohere2", "layer_switch": 4, "order_of_interleaved_layers": "local_attn_first",
        "position_embedding_type": "rope_gptj", "rotary_pct": 1.0, "use_embedding_sharing": true,
        "use_gated_activation": true, "use_parallel_block": true, "use_parallel_embedding": true, "use_qk_norm": false,
        "head_dim": 128, "sliding_window_pattern": 4 });
    assert_eq!(accepted(&cohere), accepted(&json!({ "model_type": "cohere2" })));
    // Special tokens of the class that a small vocabulary does not have end nothing.
    let small = accepted(&json!({ "model_type": "glm4", "vocab_size": 64 }));
    assert_eq!((small.eos, small.bos), (vec![], None));
}

/// What is not read by transformers, but by other engines, and set by a published model.
#[test]
fn a_further_factor_of_yarn_multiplies_its_own() {
    let attention = |more: &Value| {
        let rope = with(
            &json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192 }),
            more,
        );
        let spec = accepted(&json!({ "model_type": "qwen3", "rope_scaling": rope }));
        let Scaling::Yarn { attention, .. } = spec.ropes[0].scaling else { panic!("{:?}", spec.ropes) };
        attention
    };
    let own = attention(&json!({}));
    assert!((own - 1.138_629_436).abs() < 1e-9);
    assert!((attention(&json!({ "attn_factor": 0.878_248_856_286_941_9 })) - 1.0).abs() < 1e-9);
    assert_eq!(attention(&json!({ "attn_factor": null })), own);
    assert_eq!(attention(&json!({ "attn_factor": 1.0, "attention_factor": 1.5 })), 1.5);
    let rope = json!({ "rope_type": "yarn", "factor": 4.0, "attn_factor": 0.5, "attention_factor": 1.0 });
    refused(&json!({ "model_type": "qwen3", "rope_scaling": rope }), &["attn_factor is 0.5"]);
    let rope = json!({ "rope_type": "linear", "factor": 4.0, "attn_factor": 0.5 });
    refused(&json!({ "model_type": "qwen3", "rope_scaling": rope }), &["attn_factor is 0.5"]);
}
