//! The families of models that can be run. A new one is a reader of its config and a row in the table.

mod cohere2;
mod dense;
mod experts;
mod gemma;
mod gguf;
mod glm4;
mod gpt_oss;
mod granite;
mod lfm2;
mod llama;
#[cfg(test)]
mod made_up;
mod mistral;
mod multimodal;
mod olmo2;
mod phi3;
mod quantization;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_5;
mod qwen3_moe;
mod qwen3_next;
mod qwen_vl;
mod smollm3;

use serde_json::Value;

use super::config::Fields;
use super::names::{self, Names};
use super::spec::Spec;
use crate::checkpoint::Storage;
pub(super) use gguf::{config_of_gguf, names_in_gguf};

/// Reads a config, noting problems in it.
type Read = fn(&mut Fields<'_>) -> Spec;

/// How a family is recognised, read and found in files.
struct Family {
    model_type: &'static str,
    architectures: &'static [&'static str],
    reader: Reader,
}

/// Who reads a config, and where files have the tensors.
enum Reader {
    Text(Read, &'static Names),
    /// Of models that have a text part, which decides about both.
    Whole(&'static multimodal::Whole),
}

use Reader::{Text, Whole};

const FAMILIES: &[Family] = &[
    Family {
        model_type: "cohere2",
        architectures: &["Cohere2ForCausalLM", "Cohere2Model"],
        reader: Text(cohere2::read, &cohere2::NAMES),
    },
    Family {
        model_type: "gemma2",
        architectures: &["Gemma2ForCausalLM", "Gemma2Model"],
        reader: Text(gemma::read2, &gemma::NAMES),
    },
    Family {
        model_type: "gemma3_text",
        architectures: &["Gemma3ForCausalLM", "Gemma3TextModel"],
        reader: Text(gemma::read3, &gemma::NAMES),
    },
    Family {
        model_type: "glm4",
        architectures: &["Glm4ForCausalLM", "Glm4Model"],
        reader: Text(glm4::read, &glm4::NAMES),
    },
    Family {
        model_type: "granite",
        architectures: &["GraniteForCausalLM", "GraniteModel"],
        reader: Text(granite::read, &names::COMMON),
    },
    Family {
        model_type: "lfm2",
        architectures: &["Lfm2ForCausalLM", "Lfm2Model"],
        reader: Text(lfm2::read, &lfm2::NAMES),
    },
    Family {
        model_type: "llama",
        architectures: &["LlamaForCausalLM", "LlamaModel"],
        reader: Text(llama::read, &names::COMMON),
    },
    Family {
        model_type: "mistral",
        architectures: &["MistralForCausalLM", "MistralModel"],
        reader: Text(mistral::read, &names::COMMON),
    },
    Family {
        model_type: "olmo2",
        architectures: &["Olmo2ForCausalLM", "Olmo2Model"],
        reader: Text(olmo2::read, &names::COMMON),
    },
    Family {
        model_type: "phi3",
        architectures: &["Phi3ForCausalLM", "Phi3Model"],
        reader: Text(phi3::read, &phi3::NAMES),
    },
    Family {
        model_type: "qwen2",
        architectures: &["Qwen2ForCausalLM", "Qwen2Model"],
        reader: Text(qwen2::read, &names::COMMON),
    },
    Family {
        model_type: "qwen3",
        architectures: &["Qwen3ForCausalLM", "Qwen3Model"],
        reader: Text(qwen3::read, &names::COMMON),
    },
    Family {
        model_type: "qwen2_moe",
        architectures: &["Qwen2MoeForCausalLM", "Qwen2MoeModel"],
        reader: Text(qwen2_moe::read, &names::COMMON),
    },
    Family {
        model_type: "qwen3_moe",
        architectures: &["Qwen3MoeForCausalLM", "Qwen3MoeModel"],
        reader: Text(qwen3_moe::read, &names::COMMON),
    },
    Family {
        model_type: "gpt_oss",
        architectures: &["GptOssForCausalLM", "GptOssModel"],
        reader: Text(gpt_oss::read, &gpt_oss::NAMES),
    },
    Family {
        model_type: "qwen3_5_moe_text",
        architectures: &["Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextModel"],
        reader: Text(qwen3_5::read_moe, &qwen3_5::NAMES),
    },
    Family {
        model_type: "qwen3_5_text",
        architectures: &["Qwen3_5ForCausalLM", "Qwen3_5TextModel"],
        reader: Text(qwen3_5::read, &qwen3_5::NAMES),
    },
    Family {
        model_type: "qwen3_next",
        architectures: &["Qwen3NextForCausalLM", "Qwen3NextModel"],
        reader: Text(qwen3_next::read, &qwen3_next::NAMES),
    },
    Family {
        model_type: "smollm3",
        architectures: &["SmolLM3ForCausalLM", "SmolLM3Model"],
        reader: Text(smollm3::read, &names::COMMON),
    },
    Family {
        model_type: "aya_vision",
        architectures: &["AyaVisionForConditionalGeneration", "AyaVisionModel"],
        reader: Whole(&multimodal::COHERE2),
    },
    Family {
        model_type: "cohere2_vision",
        architectures: &["Cohere2VisionForConditionalGeneration", "Cohere2VisionModel"],
        reader: Whole(&multimodal::COHERE2),
    },
    Family {
        model_type: "gemma3",
        architectures: &["Gemma3ForConditionalGeneration", "Gemma3Model"],
        reader: Whole(&multimodal::GEMMA3),
    },
    Family {
        model_type: "idefics3",
        architectures: &["Idefics3ForConditionalGeneration", "Idefics3Model"],
        reader: Whole(&multimodal::IDEFICS3),
    },
    Family {
        model_type: "internvl",
        architectures: &["InternVLForConditionalGeneration", "InternVLModel"],
        reader: Whole(&multimodal::INTERNVL),
    },
    Family {
        model_type: "llava",
        architectures: &["LlavaForConditionalGeneration", "LlavaModel"],
        reader: Whole(&multimodal::LLAVA),
    },
    Family {
        model_type: "llava_next",
        architectures: &["LlavaNextForConditionalGeneration", "LlavaNextModel"],
        reader: Whole(&multimodal::LLAVA_NEXT),
    },
    Family {
        model_type: "llava_onevision",
        architectures: &["LlavaOnevisionForConditionalGeneration", "LlavaOnevisionModel"],
        reader: Whole(&multimodal::LLAVA),
    },
    Family {
        model_type: "mistral3",
        architectures: &["Mistral3ForConditionalGeneration", "Mistral3Model"],
        reader: Whole(&multimodal::MISTRAL3),
    },
    Family {
        model_type: "qwen2_5_vl",
        architectures: &["Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLModel"],
        reader: Whole(&multimodal::QWEN2_5_VL),
    },
    Family {
        model_type: "qwen2_vl",
        architectures: &["Qwen2VLForConditionalGeneration", "Qwen2VLModel"],
        reader: Whole(&multimodal::QWEN2_VL),
    },
    Family {
        model_type: "qwen3_5",
        architectures: &["Qwen3_5ForConditionalGeneration", "Qwen3_5Model"],
        reader: Whole(&multimodal::QWEN3_5),
    },
    Family {
        model_type: "qwen3_5_moe",
        architectures: &["Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeModel"],
        reader: Whole(&multimodal::QWEN3_5_MOE),
    },
    Family {
        model_type: "qwen3_vl",
        architectures: &["Qwen3VLForConditionalGeneration", "Qwen3VLModel"],
        reader: Whole(&multimodal::QWEN3_VL),
    },
    Family {
        model_type: "qwen3_vl_moe",
        architectures: &["Qwen3VLMoeForConditionalGeneration", "Qwen3VLMoeModel"],
        reader: Whole(&multimodal::QWEN3_VL_MOE),
    },
    Family {
        model_type: "smolvlm",
        architectures: &["SmolVLMForConditionalGeneration", "SmolVLMModel"],
        reader: Whole(&multimodal::IDEFICS3),
    },
    #[cfg(test)]
    Family { model_type: "made-up", architectures: &[], reader: Text(made_up::read, &names::COMMON) },
];

/// Reads the config with the reader of its family; none, with a problem noted, where no family fits.
pub(super) fn read(config: &mut Fields<'_>) -> Option<Spec> {
    let family = family(config)?;
    let spec = match family.reader {
        Text(read, names) => Spec { names: *names, ..read(config) },
        Whole(whole) => multimodal::read(config, whole),
    };
    config.refuse_unknown(harmless);
    Some(Spec { family: family.model_type, ..spec })
}

/// The family that `model_type` names, or where that is missing `architectures`; the two may not contradict.
fn family(config: &mut Fields<'_>) -> Option<&'static Family> {
    let model_type = config.get("model_type");
    let architectures = match config.get("architectures") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(names)) => names.iter().map(|name| name.as_str().unwrap_or("")).collect(),
        Some(_) => {
            config.refuse("architectures", "a list of names");
            Vec::new()
        }
    };
    let knows = |family: &&Family| architectures.iter().any(|name| family.architectures.contains(name));
    let types = || FAMILIES.iter().map(|family| family.model_type).collect::<Vec<_>>().join(", ");
    let family = match model_type {
        Some(Value::String(name)) => FAMILIES.iter().find(|family| family.model_type == name),
        None => FAMILIES.iter().find(knows),
        Some(_) => None,
    };
    let Some(family) = family else {
        config.refuse("model_type", &format!("one of {}", types()));
        if model_type.is_none() && !architectures.is_empty() {
            let known: Vec<_> = FAMILIES.iter().flat_map(|family| family.architectures).copied().collect();
            config.refuse("architectures", &format!("one of {}", known.join(", ")));
        }
        return None;
    };
    if architectures.iter().any(|name| !family.architectures.contains(name)) {
        let known = family.architectures.join(" or ");
        config.refuse("architectures", &format!("{known}, to go with model_type {}", family.model_type));
    }
    Some(family)
}

/// Keys of any family that do not change what the model computes when it runs.
fn harmless(key: &str) -> bool {
    // A leading underscore marks what transformers writes for itself.
    const PREFIXES: &[&str] = &["_", "output_", "unsloth_"];
    PREFIXES.iter().any(|prefix| key.starts_with(prefix))
        || [BOOK_KEEPING, TRAINING, TASKS_AND_TOKENS, GENERATION].iter().any(|keys| keys.contains(&key))
}

/// What the program that wrote the config notes for itself.
const BOOK_KEEPING: &[&str] = &[
    "attn_implementation",
    "chunk_size_feed_forward",
    "gradient_checkpointing",
    "name_or_path",
    "prefix",
    "pretraining_tp",
    "return_dict",
    "return_dict_in_generate",
    "tokenizer_class",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "use_bfloat16",
    "use_cache",
];

/// Settings of training.
const TRAINING: &[&str] = &[
    "attention_dropout",
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "embd_pdrop",
    "hidden_dropout",
    "hidden_dropout_prob",
    "initializer_range",
    "resid_pdrop",
    "router_aux_loss_coef",
];

/// Labels of tasks, and tokens that only other programs treat apart.
const TASKS_AND_TOKENS: &[&str] = &[
    "cls_token_id",
    "decoder_start_token_id",
    "finetuning_task",
    "id2label",
    "label2id",
    "mask_token_id",
    "num_labels",
    "pad_token_id",
    "problem_type",
    "sep_token_id",
    "task_specific_params",
    "unk_token_id",
];

/// Defaults for choosing tokens, which older files keep here.
const GENERATION: &[&str] = &[
    "bad_words_ids",
    "begin_suppress_tokens",
    "cache_implementation",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "epsilon_cutoff",
    "eta_cutoff",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "remove_invalid_values",
    "repetition_penalty",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
];

/// Checks the keys that mean the same in every family: those of storage, of remote code and of quantised weights.
fn read_common(config: &mut Fields<'_>) -> Storage {
    for key in ["dtype", "torch_dtype"] {
        // The tensors say themselves how they are stored, so only what is no name of a type is refused.
        if !matches!(config.get(key), None | Some(Value::Null | Value::String(_))) {
            config.refuse(key, "the name of a type, such as \"bfloat16\"");
        }
    }
    if !is_own_code(config) {
        let accepted =
            "none, or the modules of its model_type, since code that comes with a checkpoint is not run";
        config.refuse("auto_map", accepted);
    }
    quantization::read(config)
}

/// Whether `auto_map` names no code but what transformers has had since as the classes of the same `model_type`, which
/// it prefers unless it is told to trust the checkpoint.
fn is_own_code(config: &mut Fields<'_>) -> bool {
    let name = config.get("model_type").and_then(Value::as_str).unwrap_or("");
    let own = [format!("configuration_{name}"), format!("modeling_{name}")];
    let is_own = |(class, value): (&String, &Value)| {
        // What makes tokens and images is read from other files.
        let is_model = class == "AutoConfig" || class.starts_with("AutoModel");
        let path = value.as_str().unwrap_or("");
        let (module, _) =
            path.rsplit_once("--").map_or(path, |(_, path)| path).split_once('.').unwrap_or(("", ""));
        !is_model || own.iter().any(|own| own == module)
    };
    match config.get("auto_map") {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.iter().all(is_own),
        Some(_) => false,
    }
}
