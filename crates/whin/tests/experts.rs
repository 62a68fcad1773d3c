//! Mixtures of experts: what configs may ask for, how many numbers take part in a step, and where files hold the experts.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use half::bf16;
use serde_json::{Value, json};
use whin::checkpoint::{Source, Tensors};
use whin::model::rope::Scaling;
use whin::model::spec::{Attention, Bias, Experts, FeedForward, Mixer, Shared};
use whin::model::{Destination, Load, Plan, Spec, config};
use whin::{Error, ErrorKind, Weights};
use whin_kernels::{Activation, Gating, Shares};

fn read(keys: &Value) -> Result<Spec, Error> {
    config::read(&serde_json::to_vec(keys).unwrap())
}

fn with(keys: &Value, more: Value) -> Value {
    let mut all = keys.clone();
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

/// The refusal, which must name each of `parts`.
#[track_caller]
fn refused(keys: &Value, parts: &[&str]) {
    let error = read(keys).expect_err("accepted");
    assert_eq!(error.kind(), ErrorKind::UnsupportedArchitecture, "{error}");
    parts.iter().for_each(|part| assert!(error.to_string().contains(part), "{part:?} is not in: {error}"));
}

fn experts(spec: &Spec, layer: usize) -> &Experts {
    let FeedForward::Experts(experts) = &spec.layers[layer].feed_forward else { panic!("no experts") };
    experts
}

fn sparse(spec: &Spec) -> Vec<bool> {
    spec.layers.iter().map(|layer| matches!(layer.feed_forward, FeedForward::Experts(_))).collect()
}

fn attention(spec: &Spec, layer: usize) -> &Attention {
    let Mixer::Attention(attention) = &spec.layers[layer].mixer else { panic!("no attention") };
    attention
}

#[test]
fn missing_keys_have_the_defaults_of_the_classes() {
    let spec = read(&json!({ "model_type": "qwen3_moe" })).unwrap();
    assert_eq!((spec.vocab, spec.width, spec.layers.len(), spec.tied), (151_936, 2048, 24, false));
    assert_eq!((attention(&spec, 0).kv_heads, attention(&spec, 0).head_dim), (4, 64));
    let found = experts(&spec, 0);
    assert_eq!((found.count, found.top_k, found.inner, found.shares), (128, 8, 768, Shares::OfAll));
    assert_eq!((found.gating, &found.shared), (Gating::Plain(Activation::Silu), &None));
    assert!(!found.bias && !found.router_bias && sparse(&spec).iter().all(|sparse| *sparse));

    let spec = read(&json!({ "model_type": "qwen2_moe" })).unwrap();
    assert_eq!((spec.width, spec.layers.len(), attention(&spec, 0).heads), (2048, 24, 16));
    assert_eq!(attention(&spec, 0).bias, Bias { qkv: true, out: false });
    let found = experts(&spec, 23);
    assert_eq!((found.count, found.top_k, found.inner), (60, 4, 1408));
    let Some(Shared { gated, row_gate: true }) = &found.shared else { panic!("{:?}", found.shared) };
    assert_eq!((gated.inner, gated.bias), (5632, false));

    let spec = read(&json!({ "model_type": "gpt_oss" })).unwrap();
    assert_eq!((spec.vocab, spec.width, spec.layers.len(), spec.max_positions), (201_088, 2880, 36, 131_072));
    let found = experts(&spec, 35);
    assert_eq!((found.count, found.top_k, found.inner, found.shares), (128, 4, 2880, Shares::OfChosen));
    assert_eq!((found.gating, found.bias, found.router_bias), (Gating::Clamped { limit: 7.0 }, true, true));
    let [first, second] = [0, 1].map(|layer| attention(&spec, layer));
    assert_eq!((first.window, second.window, first.sinks), (Some(128), None, true));
    assert_eq!((first.bias, first.kv_heads, first.head_dim), (Bias { qkv: true, out: true }, 8, 64));
    let Scaling::Yarn { factor: 32.0, original: 4096, truncate: false, .. } = spec.ropes[0].scaling else {
        panic!("{:?}", spec.ropes);
    };
    assert_eq!((spec.ropes.len(), spec.ropes[0].theta), (1, 150_000.0));
}

#[test]
fn layers_without_experts_are_told_by_step_and_by_list() {
    for model_type in ["qwen2_moe", "qwen3_moe"] {
        let keys = json!({ "model_type": model_type, "num_hidden_layers": 5 });
        let of = |more| sparse(&read(&with(&keys, more)).unwrap());
        assert_eq!(of(json!({ "decoder_sparse_step": 2 })), [false, true, false, true, false]);
        assert_eq!(of(json!({ "mlp_only_layers": [0, 3, 99] })), [false, true, true, false, true]);
        assert_eq!(of(json!({ "decoder_sparse_step": 2, "mlp_only_layers": [3] }))[3..], [false, false]);
        assert_eq!(of(json!({ "num_experts": 0 })), [false; 5]);
        refused(&with(&keys, json!({ "decoder_sparse_step": 0 })), &["decoder_sparse_step is 0"]);
        refused(&with(&keys, json!({ "mlp_only_layers": [-1] })), &["mlp_only_layers is [-1]", "indices"]);
    }
}

#[test]
fn options_change_what_they_say() {
    let spec = read(&json!({ "model_type": "qwen3_moe", "norm_topk_prob": true, "hidden_act": "gelu",
        "use_sliding_window": true, "sliding_window": 7, "num_experts": 16 }))
    .unwrap();
    let found = experts(&spec, 0);
    assert_eq!(
        (found.shares, found.gating, found.count),
        (Shares::OfChosen, Gating::Plain(Activation::Gelu), 16)
    );
    assert!((0..24).all(|layer| attention(&spec, layer).window == Some(7)));
    let spec = read(&json!({ "model_type": "qwen2_moe", "use_sliding_window": true, "sliding_window": 7,
        "max_window_layers": 3, "qkv_bias": false }))
    .unwrap();
    let windows: Vec<usize> = (0..24).filter(|layer| attention(&spec, *layer).window.is_some()).collect();
    assert_eq!((windows, attention(&spec, 0).bias), (vec![0, 2], Bias::default()));
    let spec = read(
        &json!({ "model_type": "gpt_oss", "swiglu_limit": 5.5, "num_experts": 32, "attention_bias": false,
        "rope_theta": 10_000 }),
    )
    .unwrap();
    assert_eq!((experts(&spec, 0).gating, experts(&spec, 0).count), (Gating::Clamped { limit: 5.5 }, 32));
    assert_eq!((attention(&spec, 0).bias, spec.ropes[0].theta), (Bias::default(), 10_000.0));
}

#[test]
fn what_contradicts_itself_is_refused() {
    let qwen = json!({ "model_type": "qwen3_moe" });
    refused(&with(&qwen, json!({ "num_experts": 4 })), &["num_experts_per_tok is missing", "experts (4)"]);
    refused(
        &with(&qwen, json!({ "num_experts": 16, "num_local_experts": 8 })),
        &["num_local_experts is 8; accepted: the same as num_experts (16)"],
    );
    refused(&with(&qwen, json!({ "num_experts_per_tok": 0 })), &["num_experts_per_tok is 0"]);
    refused(&with(&qwen, json!({ "num_experts": 4096 })), &["at most 65536 experts in all 24 layers"]);
    refused(
        &with(&qwen, json!({ "num_hidden_layers": 1, "num_experts": 4096, "moe_intermediate_size": 8192 })),
        &["moe_intermediate_size is 8192; accepted: at most 16777216 numbers in all 4096 experts"],
    );
    for count in [json!(1_u64 << 60), json!(-1), json!("8"), json!(null)] {
        refused(&with(&qwen, json!({ "num_local_experts": count })), &["num_local_experts is"]);
    }
    refused(
        &with(
            &qwen,
            json!({ "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"] }),
        ),
        &["layer_types", "full_attention for all layers"],
    );
    let oss = json!({ "model_type": "gpt_oss" });
    refused(&with(&oss, json!({ "hidden_act": "gelu" })), &["hidden_act is \"gelu\"; accepted: silu"]);
    refused(&with(&oss, json!({ "experts_per_token": 2 })), &["the same as num_experts_per_tok (4)"]);
    refused(&with(&oss, json!({ "swiglu_limit": -7.0 })), &["swiglu_limit is -7.0"]);
    let quantised =
        |more| with(&oss, json!({ "quantization_config": with(&json!({ "quant_method": "mxfp4" }), more) }));
    assert!(read(&quantised(json!({ "modules_to_not_convert": ["lm_head"], "dequantize": true }))).is_ok());
    refused(&quantised(json!({ "group_size": 16 })), &["quantization_config.group_size is 16"]);
}

/// The sums that the model cards give.
#[test]
fn published_models_are_counted() {
    let qwen = read(&json!({ "model_type": "qwen3_moe", "num_hidden_layers": 48, "head_dim": 128 })).unwrap();
    assert_eq!(qwen.parameters(), 30_532_122_624);
    assert_eq!(qwen.active_parameters(), 3_353_032_704);
    let oss = json!({ "model_type": "gpt_oss", "num_hidden_layers": 24, "num_local_experts": 32 });
    assert_eq!(read(&oss).unwrap().parameters(), 20_914_757_184);
    assert_eq!(read(&json!({ "model_type": "gpt_oss" })).unwrap().parameters(), 116_829_156_672);

    // A step reads 8 of 128 experts; routers stay in 32 bits.
    let experts = |count: u64| 48 * count * 3 * 768 * 2048 * 2;
    assert_eq!(
        qwen.weight_bytes(Weights::Bf16) - experts(128),
        qwen.step_bytes(Weights::Bf16) + qwen.head_bytes(Weights::Bf16) - experts(8)
    );
    let routers = 48 * 128 * 2048;
    let vectors = 48 * (2 * 2048 + 2 * 128) + 2048;
    assert_eq!(qwen.weight_bytes(Weights::Bf16), 2 * qwen.parameters() + 2 * (routers + vectors));
    assert!(qwen.token_flops(0) > 2 * (qwen.active_parameters() - 2 * 151_936 * 2048 - vectors));
    assert!(qwen.token_flops(0) < 2 * qwen.active_parameters());
}

const QWEN: &str = r#"{ "model_type": "qwen3_moe", "vocab_size": 10, "hidden_size": 4, "intermediate_size": 6,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "num_experts": 3,
    "num_experts_per_tok": 2, "moe_intermediate_size": 5 }"#;
const OSS: &str = r#"{ "model_type": "gpt_oss", "vocab_size": 10, "hidden_size": 64, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "num_local_experts": 3,
    "num_experts_per_tok": 2 }"#;

/// A tensor of a file: its name, type, shape and bytes.
#[derive(Clone)]
struct Stored(String, safetensors::Dtype, Vec<usize>, Vec<u8>);

impl Stored {
    /// Numbers that tell where they stand.
    fn counted(name: &str, shape: &[usize]) -> Self {
        let bytes = (0..shape.iter().product::<usize>()).flat_map(|index| (index as f32).to_le_bytes());
        Self(name.to_owned(), safetensors::Dtype::F32, shape.to_vec(), bytes.collect())
    }
}

/// All tensors that the plan of a config asks for.
fn tensors(config: &str) -> Vec<Stored> {
    let spec = config::read(config.as_bytes()).unwrap();
    Plan::new(&spec).tensors().iter().map(|(name, shape)| Stored::counted(name, shape)).collect()
}

fn claim(config: &str, tensors: &[Stored]) -> Result<Vec<Load>, Error> {
    let views = tensors.iter().map(|Stored(name, dtype, shape, bytes)| {
        (name.clone(), safetensors::tensor::TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap())
        .unwrap();
    let spec = config::read(config.as_bytes()).unwrap();
    Plan::new(&spec).claim(Tensors::open(&Source::open(Some(folder.path())).unwrap()).unwrap())
}

fn numbers(loads: &[Load], to: Destination) -> Vec<f32> {
    let load = loads.iter().find(|load| load.to == to).unwrap();
    load.parts.iter().flat_map(|part| part.view().to_vec()).collect()
}

const GATE_UP: &str = "model.layers.0.mlp.experts.gate_up_proj";
const DOWN: &str = "model.layers.0.mlp.experts.down_proj";

#[test]
fn experts_one_by_one_and_stacked_are_the_same() {
    let each = tensors(QWEN);
    assert!(each.iter().any(|tensor| tensor.0 == "model.layers.0.mlp.experts.2.up_proj.weight"));
    let loads = claim(QWEN, &each).unwrap();
    let [gate_up, down] = [Destination::ExpertsGateUp(0), Destination::ExpertsDown(0)];
    // Each tensor counts from zero.
    assert_eq!(numbers(&loads, gate_up), (0..20).map(|i| i as f32).collect::<Vec<_>>().repeat(6));
    let mut stacked: Vec<Stored> =
        each.into_iter().filter(|tensor| !tensor.0.contains(".experts.")).collect();
    for (name, shape, to) in [(GATE_UP, [3, 10, 4], gate_up), (DOWN, [3, 4, 5], down)] {
        let bytes = numbers(&loads, to).iter().flat_map(|x| x.to_le_bytes()).collect();
        stacked.push(Stored(name.to_owned(), safetensors::Dtype::F32, shape.to_vec(), bytes));
    }
    let again = claim(QWEN, &stacked).unwrap();
    for to in [gate_up, down] {
        assert_eq!(numbers(&again, to), numbers(&loads, to));
    }
    let load = again.iter().find(|load| load.to == gate_up).unwrap();
    assert_eq!((load.parts.len(), load.parts[1].name()), (3, &*format!("{GATE_UP}[1]")));
}

/// As published, with inputs before outputs, and as transformers saves it.
#[test]
fn experts_of_a_model_that_sees_stand_either_way() {
    const VL: &str = r#"{"model_type": "qwen3_vl_moe", "text_config": {"vocab_size": 8, "hidden_size": 4,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4, "num_hidden_layers": 1, "num_experts": 3,
        "num_experts_per_tok": 2, "moe_intermediate_size": 5}, "vision_config": {}}"#;
    let [gate_up, down] = [Destination::ExpertsGateUp(0), Destination::ExpertsDown(0)];
    let turned = tensors(VL);
    let named = |end: &str| turned.iter().position(|tensor| tensor.0.ends_with(end)).unwrap();
    let places = [named("experts.gate_up_proj"), named("experts.down_proj")];
    assert_eq!((&turned[places[0]].2, &turned[places[1]].2), (&vec![3, 4, 10], &vec![3, 5, 4]));
    let loads = claim(VL, &turned).unwrap();
    // All gates come first: output 7 of expert 1, input 2.
    assert_eq!(numbers(&loads, gate_up)[(10 + 7) * 4 + 2], (40 + 2 * 10 + 7) as f32);
    let mut plain = turned;
    for (place, shape, to) in [(places[0], [3, 10, 4], gate_up), (places[1], [3, 4, 5], down)] {
        let bytes = numbers(&loads, to).iter().flat_map(|x| x.to_le_bytes()).collect();
        let Stored(name, dtype, ..) = &plain[place];
        plain[place] = Stored(name.clone(), *dtype, shape.to_vec(), bytes);
    }
    let again = claim(VL, &plain).unwrap();
    for to in [gate_up, down] {
        assert_eq!(numbers(&again, to), numbers(&loads, to));
    }
}

#[test]
fn turned_experts_with_gates_in_turn_are_put_in_order() {
    let all = tensors(OSS);
    let loads = claim(OSS, &all).unwrap();
    let found = numbers(&loads, Destination::ExpertsGateUp(0));
    // Of expert 1 the gate and what it multiplies: output 7, input 9 of (experts, inputs, outputs).
    let at = |output: usize| found[(64 + output) * 64 + 9];
    assert_eq!((at(7), at(32 + 7)), ((64 * 64 + 9 * 64 + 14) as f32, (64 * 64 + 9 * 64 + 15) as f32));
    let bias = numbers(&loads, Destination::ExpertsGateUpBias(0));
    assert_eq!((bias[64 + 7], bias[64 + 32 + 7]), ((64 + 14) as f32, (64 + 15) as f32));
    let down = numbers(&loads, Destination::ExpertsDown(0));
    assert_eq!(down[(2 * 64 + 5) * 32 + 3], (2 * 64 * 32 + 3 * 64 + 5) as f32);
    assert_eq!(numbers(&loads, Destination::ExpertsDownBias(0))[64], 64.0);
}

/// The tensors with the experts in MXFP4, of which the codes and the powers of two follow from where they stand.
fn in_mxfp4() -> Vec<Stored> {
    let mut all: Vec<Stored> =
        tensors(OSS).into_iter().filter(|tensor| tensor.0 != GATE_UP && tensor.0 != DOWN).collect();
    for (name, rows, groups) in [(GATE_UP, 64, 2), (DOWN, 64, 1)] {
        let codes: Vec<u8> = (0..3 * rows * groups * 16).map(|byte| (byte * 7 % 251) as u8).collect();
        let powers: Vec<u8> = (0..3 * rows * groups).map(|group| 120 + (group % 11) as u8).collect();
        let (blocks, scales) = (vec![3, rows, groups, 16], vec![3, rows, groups]);
        all.push(Stored(format!("{name}_blocks"), safetensors::Dtype::U8, blocks, codes));
        all.push(Stored(format!("{name}_scales"), safetensors::Dtype::U8, scales, powers));
    }
    all
}

#[test]
fn mxfp4_is_put_in_order_too() {
    const NUMBERS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let loads = claim(OSS, &in_mxfp4()).unwrap();
    let found = numbers(&loads, Destination::ExpertsGateUp(0));
    for (expert, output, input) in [(0, 0, 0), (1, 7, 9), (2, 39, 40), (2, 63, 63), (1, 32, 31)] {
        let row = expert * 64 + output % 32 * 2 + output / 32;
        let byte = (row * 32 + input / 2) * 7 % 251;
        let code = if input % 2 == 0 { byte & 15 } else { byte >> 4 };
        let power = 2.0_f32.powi(120 + ((row * 2 + input / 32) % 11) as i32 - 127);
        let right = NUMBERS[code & 7] * power * if code < 8 { 1.0 } else { -1.0 };
        assert_eq!(found[(expert * 64 + output) * 64 + input], right, "{expert}, {output}, {input}");
        assert_eq!(bf16::from_f32(right).to_f32(), right);
    }
    assert!(loads.iter().any(|load| load.parts[0].storage() == "MXFP4 with one scale for 32"));
}

#[test]
fn experts_that_do_not_fit_are_named() {
    let failure =
        |config: &str, tensors: &[Stored]| claim(config, tensors).map(|_| ()).unwrap_err().to_string();
    let change =
        |tensors: Vec<Stored>, name: &str, change: &dyn Fn(Stored) -> Option<Stored>| -> Vec<Stored> {
            let one = |tensor: Stored| if tensor.0 == name { change(tensor) } else { Some(tensor) };
            tensors.into_iter().filter_map(one).collect()
        };
    let other = |shape: &'static [usize]| move |tensor: Stored| Some(Stored::counted(&tensor.0, shape));
    let expert = "model.layers.0.mlp.experts.1.down_proj.weight";
    let message = failure(QWEN, &change(tensors(QWEN), expert, &|_| None));
    assert!(message.contains(&format!("tensor \"{expert}\" is missing")), "{message}");
    let message = failure(OSS, &change(tensors(OSS), GATE_UP, &other(&[3, 64, 32])));
    assert!(
        message.contains("gate_up_proj\" in model.safetensors: expected [3, 64, 64], found [3, 64, 32]"),
        "{message}"
    );
    let message = failure(OSS, &change(tensors(OSS), GATE_UP, &|_| None));
    assert!(message.contains("gate_up_proj\" is missing"), "{message}");
    let bytes = |tensor: Stored| {
        let Stored(name, _, shape, _) = tensor;
        let bytes = vec![0; shape.iter().product()];
        Some(Stored(name, safetensors::Dtype::F8_E4M3, shape, bytes))
    };
    let message = failure(OSS, &change(tensors(OSS), GATE_UP, &bytes));
    assert!(
        message.contains("stored as F8_E4M3, which cannot be read yet for matrices of several"),
        "{message}"
    );

    let (blocks, scales) = (format!("{GATE_UP}_blocks"), format!("{GATE_UP}_scales"));
    let message = failure(OSS, &change(in_mxfp4(), &scales, &|_| None));
    assert!(message.contains("gate_up_proj_scales\" is missing"), "{message}");
    let message = failure(OSS, &change(in_mxfp4(), &scales, &bytes));
    assert!(message.contains("stored as F8_E4M3; accepted for MXFP4: U8"), "{message}");
    let message = failure(OSS, &change(in_mxfp4(), &blocks, &other(&[3, 64, 2, 8])));
    assert!(message.contains("expected [3, 64, 2, 16], found [3, 64, 2, 8]"), "{message}");
    let narrow = OSS.replace("\"hidden_size\": 64", "\"hidden_size\": 48");
    let message = failure(&narrow, &in_mxfp4());
    assert!(message.contains("groups of 32 inputs, and config.json asks for 48"), "{message}");
}
