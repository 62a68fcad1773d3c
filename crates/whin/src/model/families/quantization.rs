//! `quantization_config`: read where it describes weights that are read, refused by the name of the method otherwise.
//!
//! Keys, defaults and spellings are those of `FineGrainedFP8Config` and `Mxfp4Config` in transformers 5.17.

use serde_json::{Map, Value};
use whin_kernels::Dtype;

use crate::checkpoint::Storage;
use crate::checkpoint::storage::{Fp8, REMEDY};
use crate::model::config::Fields;

/// The largest block; none is larger than the largest matrix.
const BLOCK: u64 = 1 << 24;

/// Ways of quantising that are known but not read: what `quant_method` calls them, and what people do.
const METHODS: &[(&str, &str)] = &[
    ("gptq", "GPTQ"),
    ("awq", "AWQ"),
    ("compressed-tensors", "compressed-tensors"),
    ("bitsandbytes", "bitsandbytes"),
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
    ("intel/auto-round", "AutoRound"),
    ("mxfp8", "MXFP8"),
    ("nvfp4", "NVFP4"),
    ("modelopt", "ModelOpt"),
    ("modelopt_fp4", "ModelOpt"),
    ("metal", "Metal"),
    ("fouroversix", "Four Over Six"),
    ("sinq", "SINQ"),
    ("gemma", "Gemma's own method"),
    ("exl2", "ExLlamaV2"),
    ("exl3", "ExLlamaV3"),
    ("mlx", "MLX"),
];

/// How the weights are stored, as `quantization_config` says. Notes what cannot be read.
pub(super) fn read(config: &mut Fields<'_>) -> Storage {
    // Where other programs say that they quantised.
    for (key, method) in [("quantization", "MLX"), ("compression_config", "compressed-tensors")] {
        match config.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => {}
            Some(Value::Object(map)) if map.is_empty() => {}
            Some(_) => config.refuse(key, &format!("no such key; {}", other_weights(method))),
        }
    }
    let map = match config.get("quantization_config") {
        None | Some(Value::Null) => return Storage::Unsaid,
        Some(Value::Object(map)) => map,
        Some(_) => {
            config.refuse("quantization_config", "an object or null");
            return Storage::Unsaid;
        }
    };
    let mut fields = Fields::new(map, "quantization_config.");
    let storage = match map.get("quant_method") {
        Some(Value::String(method)) if method == "fp8" => Storage::Fp8(fp8(&mut fields)),
        Some(Value::String(method)) if method == "mxfp4" => mxfp4(&mut fields),
        _ => {
            let accepted = format!("fp8, mxfp4, or no quantization_config; {}", other_weights(&method(map)));
            fields.refuse("quant_method", &accepted);
            Storage::Unsaid
        }
    };
    config.absorb(fields);
    storage
}

fn other_weights(method: &str) -> String {
    format!("these weights are quantised by {method}, which is not read: {REMEDY}")
}

/// What to call the method that `quantization_config` names or shows.
fn method(map: &Map<String, Value>) -> String {
    let is_set = |key: &str| map.get(key) == Some(&Value::Bool(true));
    let named = map.get("quant_method").and_then(Value::as_str);
    // Older files name bitsandbytes by its switches alone.
    if named == Some("bitsandbytes")
        || (named.is_none() && (is_set("load_in_4bit") || is_set("load_in_8bit")))
    {
        let bits = if is_set("load_in_4bit") { "4" } else { "8" };
        return format!("bitsandbytes ({bits} bit)");
    }
    let known = named.and_then(|name| METHODS.iter().find(|(known, _)| *known == name));
    match known {
        Some((_, method)) => (*method).to_owned(),
        None if named.is_none() && map.contains_key("group_size") && map.contains_key("bits") => {
            "MLX".to_owned()
        }
        None => "an unknown method".to_owned(),
    }
}

/// The keys of fine-grained FP8 and of what came before it.
fn fp8(fields: &mut Fields<'_>) -> Fp8 {
    fields.get("quant_method");
    let block = block(fields);
    let dtype = match fields.get("fmt") {
        None | Some(Value::Null) => None,
        Some(Value::String(fmt)) if fmt == "e4m3" || fmt == "float8_e4m3fn" => Some(Dtype::F8E4m3),
        Some(Value::String(fmt)) if fmt == "e5m2" || fmt == "float8_e5m2" => Some(Dtype::F8E5m2),
        Some(_) => {
            fields.refuse("fmt", "e4m3 or e5m2");
            None
        }
    };
    // Says how activations are rounded to 8 bits where products are of such. Here they keep more.
    let scheme = match fields.get("activation_scheme") {
        None => Some("dynamic".to_owned()),
        Some(value) => value.as_str().map(str::to_lowercase),
    };
    if !matches!(scheme.as_deref(), Some("dynamic" | "static")) {
        fields.refuse("activation_scheme", "dynamic or static");
    }
    // Says that scales are powers of two, which does not change what they are.
    if !matches!(fields.get("scale_fmt"), None | Some(Value::Null))
        && !matches!(fields.get("scale_fmt").and_then(Value::as_str), Some("float" | "ue8m0"))
    {
        fields.refuse("scale_fmt", "float or ue8m0");
    }
    // Asks for the weights as floats, and to multiply with them: the same numbers.
    fields.flag("dequantize", false);
    modules(fields);
    fields.refuse_unknown(|_| false);
    Fp8 { block, dtype, static_activations: scheme.as_deref() == Some("static") }
}

/// The keys of MXFP4.
fn mxfp4(fields: &mut Fields<'_>) -> Storage {
    fields.get("quant_method");
    // Asks for the weights as floats, and to multiply with them: the same numbers.
    fields.flag("dequantize", false);
    modules(fields);
    fields.refuse_unknown(|_| false);
    Storage::Mxfp4
}

/// Which modules are stored otherwise, the tensors say themselves.
fn modules(fields: &mut Fields<'_>) {
    for key in ["modules_to_not_convert", "modules_to_convert", "ignored_layers"] {
        let is_name = |value: &Value| value.is_string();
        match fields.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::Array(names)) if names.iter().all(is_name) => {}
            Some(_) => fields.refuse(key, "a list of names of modules, or null"),
        }
    }
}

/// `weight_block_size`: two positive numbers, null for no blocks, and 128 by 128 where it is missing.
fn block(fields: &mut Fields<'_>) -> Option<(usize, usize)> {
    let size = |value: &Value| {
        let size = value.as_u64().filter(|size| (1..=BLOCK).contains(size))?;
        usize::try_from(size).ok()
    };
    let sizes = match fields.get("weight_block_size") {
        None => return Some((128, 128)),
        Some(Value::Null) => return None,
        Some(Value::Array(sizes)) => sizes.as_slice(),
        Some(_) => &[],
    };
    let block = match sizes {
        [rows, cols] => size(rows).zip(size(cols)),
        _ => None,
    };
    if block.is_none() {
        fields
            .refuse("weight_block_size", &format!("a list of two whole numbers from 1 to {BLOCK}, or null"));
    }
    block
}
