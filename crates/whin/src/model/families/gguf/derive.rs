//! What the metadata of an architecture leaves to be known: constants of its family, kinds of layers, and numbers that
//! follow from others.

use serde_json::{Map, Value, json};

use super::Reading;
use crate::Result;

const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

/// The base of layers with a window, where those have one of their own and no key names it.
const LOCAL_THETA: f64 = 10_000.0;

pub(super) fn nothing(_: &mut Reading<'_>) -> Result<()> {
    Ok(())
}

/// Llama, Mistral and Mixtral have one name; only the last has experts.
pub(super) fn llama(reading: &mut Reading<'_>) -> Result<()> {
    if reading.config("num_local_experts") > 0 {
        reading.put("model_type", json!("mixtral"));
    } else {
        reading.map.shift_remove("num_local_experts");
        reading.map.shift_remove("num_experts_per_tok");
    }
    Ok(())
}

/// What is not said, or zero, is one, and the scale of scores the usual one.
pub(super) fn granite(reading: &mut Reading<'_>) -> Result<()> {
    for key in ["embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier"] {
        without_zero(reading, key);
    }
    if !reading.map.contains_key("attention_multiplier") {
        let scale = (reading.config("head_dim").max(1) as f64).powf(-0.5);
        reading.put("attention_multiplier", json!(scale));
    }
    Ok(())
}

pub(super) fn mistral3(reading: &mut Reading<'_>) -> Result<()> {
    // No key tells of a window.
    reading.put("sliding_window", Value::Null);
    if let Some(beta) = reading.number("attention.temperature_scale")? {
        reading.put("model_type", json!("ministral3"));
        set_in_rope(reading, "llama_4_scaling_beta", json!(beta));
    }
    if reading.has("rope.scaling.yarn_log_multiplier") {
        set_in_rope(reading, "mscale", json!(1.0));
    }
    Ok(())
}

/// llama.cpp knows no other interval.
pub(super) fn smollm3(reading: &mut Reading<'_>) -> Result<()> {
    reading.put("no_rope_layer_interval", json!(4));
    Ok(())
}

pub(super) fn qwen2moe(reading: &mut Reading<'_>) -> Result<()> {
    reading.put("norm_topk_prob", json!(false));
    // Old files have the inner size of all experts of a token together.
    if !reading.has("expert_feed_forward_length") {
        let used = reading.config("num_experts_per_tok").max(1);
        let inner = reading.config("intermediate_size") / used;
        reading.put("moe_intermediate_size", json!(inner));
    }
    Ok(())
}

pub(super) fn qwen3moe(reading: &mut Reading<'_>) -> Result<()> {
    reading.put("norm_topk_prob", json!(true));
    Ok(())
}

pub(super) fn gemma2(reading: &mut Reading<'_>) -> Result<()> {
    if !reading.has("attention.sliding_window") {
        reading.put("sliding_window", json!(4096));
    }
    windows(reading, 2)?;
    one_base(reading)?;
    gemma(reading, 46);
    Ok(())
}

pub(super) fn gemma3(reading: &mut Reading<'_>) -> Result<()> {
    windows(reading, 6)?;
    let base = reading.number("rope.freq_base_swa")?.unwrap_or(LOCAL_THETA);
    of_kinds(reading, json!({ "rope_type": "default", "rope_theta": base }));
    gemma(reading, 62);
    Ok(())
}

/// The scale of the queries, which no key tells: that of the model with so many layers goes by the width.
fn gemma(reading: &mut Reading<'_>, largest: u64) {
    let scale = match reading.config("num_hidden_layers") == largest {
        true => reading.config("hidden_size") / reading.config("num_attention_heads").max(1),
        false => reading.config("head_dim"),
    };
    reading.put("query_pre_attn_scalar", json!(scale));
    reading.put("hidden_activation", json!("gelu_pytorch_tanh"));
}

pub(super) fn phi3(reading: &mut Reading<'_>) -> Result<()> {
    // Of all layers, and zero for none.
    let window = reading.integer("attention.sliding_window")?.filter(|window| *window > 0);
    reading.put("sliding_window", json!(window));
    one_base(reading)?;
    if let Some(original) = reading.integer("rope.scaling.original_context_length")? {
        reading.put("original_max_position_embeddings", json!(original));
    }
    reading.map.shift_remove("head_dim");
    Ok(())
}

pub(super) fn olmo2(reading: &mut Reading<'_>) -> Result<()> {
    if windows(reading, 4)? {
        reading.put("model_type", json!("olmo3"));
        // Only layers without a window stretch their texts.
        let local = reading.number("rope.freq_base_swa")?;
        let base =
            local.map_or_else(|| reading.map["rope_parameters"]["rope_theta"].clone(), |local| json!(local));
        of_kinds(reading, json!({ "rope_type": "default", "rope_theta": base }));
    } else {
        // The class without windows has no such key.
        reading.map.shift_remove("layer_types");
    }
    Ok(())
}

pub(super) fn cohere2(reading: &mut Reading<'_>) -> Result<()> {
    without_zero(reading, "logit_scale");
    if !reading.map.contains_key("logit_scale") {
        reading.put("logit_scale", json!(1.0));
    }
    has_window(reading)?;
    windows(reading, 4)?;
    one_base(reading)
}

pub(super) fn gpt_oss(reading: &mut Reading<'_>) -> Result<()> {
    has_window(reading)?;
    windows(reading, 2)?;
    one_base(reading)?;
    // Its frequencies are mixed between the very ends of the range; no key tells.
    if reading.map["rope_parameters"]["rope_type"] == "yarn" {
        set_in_rope(reading, "truncate", json!(false));
    }
    Ok(())
}

/// Layers without heads of keys are convolutions.
pub(super) fn lfm2(reading: &mut Reading<'_>) -> Result<()> {
    let key = reading.key("attention.head_count_kv");
    let heads: Vec<i64> = match reading.metadata().is_list(&key) {
        true => reading.metadata().integers(&key)?.into_iter().flatten().collect(),
        false => vec![reading.required("attention.head_count_kv")? as i64; layers(reading)],
    };
    let most = heads.iter().copied().max().unwrap_or(0);
    if heads.len() != layers(reading) || most <= 0 || heads.iter().any(|count| *count != 0 && *count != most)
    {
        reading.refuse("attention.head_count_kv", "zero or the same number for each layer");
        return Ok(());
    }
    let kinds: Vec<&str> = heads.iter().map(|count| if *count == 0 { "conv" } else { FULL }).collect();
    reading.put("num_key_value_heads", json!(most));
    reading.put("layer_types", json!(kinds));
    // The inner size in the metadata is the one that is meant.
    reading.put("block_auto_adjust_ff_dim", json!(false));
    reading.map.shift_remove("head_dim");
    Ok(())
}

/// Models most of whose layers have a linear attention.
pub(super) fn linear(reading: &mut Reading<'_>) -> Result<()> {
    let (heads, inner) = (reading.config("linear_num_value_heads"), reading.required("ssm.inner_size")?);
    if heads == 0 || !inner.is_multiple_of(heads) {
        reading.refuse("ssm.inner_size", &format!("a multiple of ssm.time_step_rank ({heads})"));
        return Ok(());
    }
    reading.put("linear_value_head_dim", json!(inner / heads));
    let (count, key) = (layers(reading), reading.key("attention.recurrent_layers"));
    let linear: Vec<bool> = match reading.metadata().is_list(&key) {
        true => reading.metadata().flags(&key)?.into_iter().flatten().take(count).collect(),
        false => {
            let interval = reading.integer("full_attention_interval")?.unwrap_or(4).max(1);
            (1..=count as u64).map(|layer| !layer.is_multiple_of(interval)).collect()
        }
    };
    if linear.len() != count {
        reading.refuse("attention.recurrent_layers", "a list with a switch for each layer");
    }
    let kinds: Vec<&str> =
        linear.iter().map(|linear| if *linear { "linear_attention" } else { FULL }).collect();
    reading.put("layer_types", json!(kinds));
    if reading.config("num_experts") > 0 {
        reading.required("expert_used_count")?;
        reading.put("norm_topk_prob", json!(true));
    }
    Ok(())
}

fn layers(reading: &Reading<'_>) -> usize {
    reading.config("num_hidden_layers") as usize
}

/// Notes a base of layers with a window that is not that of all others, in architectures where these have one for all.
fn one_base(reading: &mut Reading<'_>) -> Result<()> {
    let base = reading.map["rope_parameters"]["rope_theta"].as_f64();
    if reading.number("rope.freq_base_swa")?.is_some_and(|local| Some(local) != base) {
        reading.refuse("rope.freq_base_swa", "the same as rope.freq_base");
    }
    Ok(())
}

/// Leaves a number out that is zero, which stands for none.
fn without_zero(reading: &mut Reading<'_>, key: &str) {
    if reading.map.get(key).and_then(Value::as_f64) == Some(0.0) {
        reading.map.shift_remove(key);
    }
}

/// Notes that a window is missing, where there must be one.
fn has_window(reading: &mut Reading<'_>) -> Result<()> {
    if reading.required("attention.sliding_window")? == 0 {
        reading.refuse("attention.sliding_window", "a number above zero");
    }
    Ok(())
}

/// The window and which layers have it: as a list says, or all but each so many-th, which is `usual` where no key tells.
/// False where there is no window.
fn windows(reading: &mut Reading<'_>, usual: u64) -> Result<bool> {
    let window = reading.integer("attention.sliding_window")?;
    if let Some(window) = window.filter(|window| *window > 0) {
        reading.put("sliding_window", json!(window));
    }
    let (count, name) = (layers(reading), "attention.sliding_window_pattern");
    if reading.config("sliding_window") == 0 {
        // Whatever the class has where nothing is said.
        reading.put("layer_types", json!(vec![FULL; count]));
        return Ok(false);
    }
    let key = reading.key(name);
    let slides: Vec<bool> = match reading.metadata().is_list(&key) {
        true => reading.metadata().flags(&key)?.into_iter().flatten().collect(),
        false => {
            let every = reading.integer(name)?.unwrap_or(usual);
            (1..=count as u64).map(|layer| every == 0 || !layer.is_multiple_of(every)).collect()
        }
    };
    if slides.len() != count {
        reading.refuse(name, "a list with a switch for each layer, or a number");
    }
    let kinds: Vec<&str> = slides.iter().map(|slides| if *slides { SLIDING } else { FULL }).collect();
    reading.put("layer_types", json!(kinds));
    Ok(true)
}

/// Gives the embedding that was read to layers without a window, and `local` to those with one.
fn of_kinds(reading: &mut Reading<'_>, local: Value) {
    let whole = reading.map.shift_remove("rope_parameters").unwrap_or_default();
    let kinds = Map::from_iter([(FULL.to_owned(), whole), (SLIDING.to_owned(), local)]);
    reading.put("rope_parameters", Value::Object(kinds));
}

fn set_in_rope(reading: &mut Reading<'_>, key: &str, value: Value) {
    if let Some(Value::Object(rope)) = reading.map.get_mut("rope_parameters") {
        rope.insert(key.to_owned(), value);
    }
}
