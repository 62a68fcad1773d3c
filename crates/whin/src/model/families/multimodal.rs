//! Checkpoints of which a text model is a part: their text part is read. Knows nothing of images.
//!
//! Keys and defaults are those of the config classes of transformers 5.17, with one difference: where no key says whether
//! the head is the embedding, the text part's class decides, since files were written when the outer classes did not say.

use serde_json::{Map, Value};

use super::{FAMILIES, Family, Text, qwen_vl};
use crate::checkpoint::Storage;
use crate::model::config::Fields;
use crate::model::names::{self, Names};
use crate::model::spec::Spec;

/// A class of models that have a text part.
pub(super) struct Whole {
    /// The values that `text_config.model_type` may have; where it is missing, it is the first.
    texts: &'static [&'static str],
    /// Whether every other family may be the text part as well.
    any: bool,
    /// Whether the keys of the text part may stand beside `vision_config`.
    flat: bool,
    /// Whether the text part can tie the head although the whole says that it is not tied.
    text_ties: bool,
}

/// Text parts that are no models by themselves.
const TEXTS: &[Family] = &[
    Family { model_type: "qwen2_vl_text", architectures: &[], reader: Text(qwen_vl::read2, &names::COMMON) },
    Family { model_type: "qwen2_vl", architectures: &[], reader: Text(qwen_vl::read2, &names::COMMON) },
    Family {
        model_type: "qwen2_5_vl_text",
        architectures: &[],
        reader: Text(qwen_vl::read2, &names::COMMON),
    },
    Family { model_type: "qwen2_5_vl", architectures: &[], reader: Text(qwen_vl::read2, &names::COMMON) },
    Family { model_type: "qwen3_vl_text", architectures: &[], reader: Text(qwen_vl::read3, &names::COMMON) },
    Family {
        model_type: "qwen3_vl_moe_text",
        architectures: &[],
        reader: Text(qwen_vl::read3_moe, &qwen_vl::MOE_NAMES),
    },
];

const ANY: Whole = Whole { texts: &["llama"], any: true, flat: false, text_ties: false };
const ONE: Whole = Whole { any: false, ..ANY };

pub(super) const GEMMA3: Whole = Whole { texts: &["gemma3_text"], ..ONE };
pub(super) const MISTRAL3: Whole = Whole { texts: &["mistral"], ..ANY };
/// Cohere 2 Vision and Aya Vision.
pub(super) const COHERE2: Whole = Whole { texts: &["cohere2"], ..ANY };
pub(super) const QWEN2_VL: Whole =
    Whole { texts: &["qwen2_vl_text", "qwen2_vl"], flat: true, text_ties: true, ..ONE };
pub(super) const QWEN2_5_VL: Whole = Whole { texts: &["qwen2_5_vl_text", "qwen2_5_vl"], ..QWEN2_VL };
pub(super) const QWEN3_VL: Whole = Whole { texts: &["qwen3_vl_text"], ..ONE };
pub(super) const QWEN3_VL_MOE: Whole = Whole { texts: &["qwen3_vl_moe_text"], ..ONE };
pub(super) const QWEN3_5: Whole = Whole { texts: &["qwen3_5_text"], ..ONE };
pub(super) const QWEN3_5_MOE: Whole = Whole { texts: &["qwen3_5_moe_text"], ..ONE };
/// LLaVA and LLaVA-OneVision.
pub(super) const LLAVA: Whole = Whole { text_ties: true, ..ANY };
pub(super) const LLAVA_NEXT: Whole = ANY;
pub(super) const INTERNVL: Whole = Whole { texts: &["qwen2"], ..ANY };
/// SmolVLM and Idefics 3.
pub(super) const IDEFICS3: Whole = ANY;

impl Whole {
    /// Whether a text part of this type may be part of it.
    fn takes(&self, model_type: &str) -> bool {
        let is_family = |known: &Family| matches!(known.reader, Text(..)) && known.model_type == model_type;
        self.texts.contains(&model_type) || (self.any && FAMILIES.iter().any(is_family))
    }

    /// All types of text parts that it takes.
    fn known(&self) -> Vec<&'static str> {
        let all = FAMILIES.iter().chain(TEXTS).map(|family| family.model_type);
        all.filter(|model_type| self.takes(model_type)).collect()
    }
}

/// Where such checkpoints have the tensors of a text part that is named as `text` says.
fn within(text: Names) -> Names {
    Names {
        prefixes: &[
            "model.language_model.",
            "language_model.model.",
            "model.text_model.",
            "language_model.",
            "text_model.",
            "model.",
            "",
        ],
        heads: &["lm_head", "language_model.lm_head"],
        ignored: IGNORED,
        ..text
    }
}

/// What begins the names of tensors for images, and for heads that predict further tokens.
const IGNORED: &[&str] = &[
    "image_newline",
    "model.connector.",
    "model.image_newline",
    "model.multi_modal_projector.",
    "model.vision_model.",
    "model.vision_tower.",
    "model.visual.",
    "mtp.",
    "multi_modal_projector.",
    "vision_model.",
    "vision_tower.",
    "visual.",
];

/// Keys that concern images alone, or what only other programs treat apart.
const IMAGES: &[&str] = &[
    "adapter_layer_norm_eps",
    "alignment_intermediate_size",
    "boi_token_index",
    "downsample_factor",
    "downsample_ratio",
    "eoi_token_index",
    "ignore_index",
    "image_grid_pinpoints",
    "image_seq_length",
    "image_token_id",
    "image_token_index",
    "mm_tokens_per_image",
    "multimodal_projector_bias",
    "projector_hidden_act",
    "projector_layernorm_eps",
    "scale_factor",
    "spatial_merge_size",
    "use_image_newline_parameter",
    "video_token_id",
    "video_token_index",
    "vision_aspect_ratio",
    "vision_config",
    "vision_end_token_id",
    "vision_feature_layer",
    "vision_feature_layers",
    "vision_feature_select_strategy",
    "vision_start_token_id",
    "vision_token_id",
];

/// Keys that Idefics 3, SmolVLM and Pixtral left in the config of their text part, whose class does not have them.
const LEFT_OVER: &[&str] =
    &["is_composition", "neftune_noise_alpha", "perceiver_config", "pixel_shuffle_factor"];

/// Reads the text part, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>, whole: &Whole) -> Spec {
    IMAGES.iter().for_each(|key| _ = config.get(key));
    let map = match config.get("text_config") {
        Some(Value::Object(map)) => map,
        None | Some(Value::Null) if whole.flat => return read_as(whole.texts[0], config),
        _ => {
            config.refuse("text_config", "an object with the config of the text part");
            return read_as(whole.texts[0], &mut Fields::new(&Map::new(), ""));
        }
    };
    let mut text = Fields::new(map, "text_config.");
    let spec = read_text(&mut text, whole);
    config.absorb(text);
    config.pass_repeated(map);
    if whole.flat {
        // What older files had here, and what is not asked for there.
        if matches!(config.get("use_sliding_window"), None | Some(Value::Bool(false))) {
            ["sliding_window", "max_window_layers"].iter().for_each(|key| _ = config.get(key));
        }
    }
    let storage = match super::read_common(config) {
        Storage::Unsaid => spec.storage,
        storage => storage,
    };
    let text_ties = map.get("tie_word_embeddings") == Some(&Value::Bool(true));
    let tied = match config.get("tie_word_embeddings") {
        None => spec.tied,
        Some(_) => config.flag("tie_word_embeddings", false) || (whole.text_ties && text_ties),
    };
    let own = |config: &mut Fields<'_>, key| config.tokens(key, spec.vocab);
    let (eos, bos) = (own(config, "eos_token_id"), own(config, "bos_token_id"));
    Spec {
        storage,
        tied,
        eos: if eos.is_empty() { spec.eos } else { eos },
        bos: bos.first().copied().or(spec.bos),
        ..spec
    }
}

/// Reads what stands under `text_config`.
fn read_text(text: &mut Fields<'_>, whole: &Whole) -> Spec {
    // The class of the text part by itself says nothing that its type does not say.
    text.get("architectures");
    let model_type = match text.get("model_type") {
        None => Some(whole.texts[0]),
        Some(name) => name.as_str().filter(|name| whole.takes(name)),
    };
    let Some(model_type) = model_type else {
        text.refuse("model_type", &format!("one of {}", whole.known().join(", ")));
        // Its other keys would only add noise.
        return read_as(whole.texts[0], &mut Fields::new(&Map::new(), ""));
    };
    let spec = read_as(model_type, text);
    let left_over = |key: &str| IMAGES.contains(&key) || LEFT_OVER.contains(&key);
    text.refuse_unknown(|key| super::harmless(key) || left_over(key));
    spec
}

/// Reads a config with the reader of this type of text.
fn read_as(model_type: &str, config: &mut Fields<'_>) -> Spec {
    let found = FAMILIES.iter().chain(TEXTS).find_map(|family| match family.reader {
        Text(read, names) if family.model_type == model_type => Some((read, names)),
        _ => None,
    });
    let (read, names) = found.expect("each type that is taken has a reader");
    Spec { names: within(*names), ..read(config) }
}
