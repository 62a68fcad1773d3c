//! Checkpoints of which a text model is a part: their text part is read. Knows nothing of images.
//!
//! Keys and defaults are those of the config classes of transformers 5.17, with one difference: where no key says whether
//! the head is the embedding, the text part's class decides, since files were written when the outer classes did not say.

use serde_json::{Map, Value};

use super::{Read, cohere2, gemma, llama, mistral, qwen_vl, qwen2, qwen3, qwen3_5};
use crate::checkpoint::Storage;
use crate::model::config::Fields;
use crate::model::names::{self, Names};
use crate::model::spec::Spec;

/// A class of models that have a text part.
struct Whole {
    /// The values of `text_config.model_type` with their readers, the first also where it is missing.
    texts: &'static [(&'static str, Read)],
    /// Whether the keys of the text part may stand beside `vision_config`.
    flat: bool,
    /// Whether the text part can tie the head although the whole says that it is not tied.
    text_ties: bool,
}

const WHOLE: Whole = Whole { texts: &[("llama", llama::read)], flat: false, text_ties: false };

const GEMMA3: Whole = Whole { texts: &[("gemma3_text", gemma::read3)], ..WHOLE };
const MISTRAL3: Whole = Whole { texts: &[("mistral", mistral::read)], ..WHOLE };
const COHERE2: Whole = Whole { texts: &[("cohere2", cohere2::read)], ..WHOLE };
const QWEN2_VL: Whole = Whole {
    texts: &[("qwen2_vl_text", qwen_vl::read2), ("qwen2_vl", qwen_vl::read2)],
    flat: true,
    text_ties: true,
};
const QWEN2_5_VL: Whole =
    Whole { texts: &[("qwen2_5_vl_text", qwen_vl::read2), ("qwen2_5_vl", qwen_vl::read2)], ..QWEN2_VL };
const QWEN3_VL: Whole = Whole { texts: &[("qwen3_vl_text", qwen_vl::read3)], ..WHOLE };
const QWEN3_5: Whole = Whole { texts: &[("qwen3_5_text", qwen3_5::read)], ..WHOLE };
const QWEN3_5_MOE: Whole = Whole { texts: &[("qwen3_5_moe_text", qwen3_5::read_moe)], ..WHOLE };
const LLAVA: Whole = Whole {
    texts: &[("llama", llama::read), ("mistral", mistral::read), ("qwen2", qwen2::read)],
    text_ties: true,
    ..WHOLE
};
const LLAVA_NEXT: Whole = Whole { text_ties: false, ..LLAVA };
const INTERNVL: Whole =
    Whole { texts: &[("qwen2", qwen2::read), ("llama", llama::read), ("qwen3", qwen3::read)], ..WHOLE };

pub(super) fn gemma3(config: &mut Fields<'_>) -> Spec {
    read(config, &GEMMA3)
}

pub(super) fn mistral3(config: &mut Fields<'_>) -> Spec {
    read(config, &MISTRAL3)
}

pub(super) fn cohere2(config: &mut Fields<'_>) -> Spec {
    read(config, &COHERE2)
}

pub(super) fn qwen2_vl(config: &mut Fields<'_>) -> Spec {
    read(config, &QWEN2_VL)
}

pub(super) fn qwen2_5_vl(config: &mut Fields<'_>) -> Spec {
    read(config, &QWEN2_5_VL)
}

pub(super) fn qwen3_vl(config: &mut Fields<'_>) -> Spec {
    read(config, &QWEN3_VL)
}

pub(super) fn qwen3_5(config: &mut Fields<'_>) -> Spec {
    read(config, &QWEN3_5)
}

pub(super) fn qwen3_5_moe(config: &mut Fields<'_>) -> Spec {
    read(config, &QWEN3_5_MOE)
}

pub(super) fn llava(config: &mut Fields<'_>) -> Spec {
    read(config, &LLAVA)
}

pub(super) fn llava_next(config: &mut Fields<'_>) -> Spec {
    read(config, &LLAVA_NEXT)
}

pub(super) fn internvl(config: &mut Fields<'_>) -> Spec {
    read(config, &INTERNVL)
}

/// SmolVLM and Idefics 3.
pub(super) fn idefics3(config: &mut Fields<'_>) -> Spec {
    read(config, &WHOLE)
}

/// Where such checkpoints have the tensors of a text part that is named as `text` says.
pub(super) const fn within(text: Names) -> Names {
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

/// Names of text parts that are named as most are.
pub(super) const NAMES: Names = within(names::COMMON);
/// Those of Gemma 3.
pub(super) const GEMMA3_NAMES: Names = within(gemma::NAMES);
/// Those of Cohere 2.
pub(super) const COHERE2_NAMES: Names = within(cohere2::NAMES);

/// Those of Qwen3.5.
pub(super) const QWEN3_5_NAMES: Names = within(qwen3_5::NAMES);

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

/// Keys that Idefics 3 and SmolVLM left in the config of their text part, whose class does not have them.
const LEFT_OVER: &[&str] = &["neftune_noise_alpha", "perceiver_config", "pixel_shuffle_factor"];

/// Reads the text part, noting problems in it.
fn read(config: &mut Fields<'_>, whole: &Whole) -> Spec {
    IMAGES.iter().for_each(|key| _ = config.get(key));
    let map = match config.get("text_config") {
        Some(Value::Object(map)) => map,
        None | Some(Value::Null) if whole.flat => return (whole.texts[0].1)(config),
        _ => {
            config.refuse("text_config", "an object with the config of the text part");
            return (whole.texts[0].1)(&mut Fields::new(&Map::new(), ""));
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
    let reader = match text.get("model_type") {
        None => Some(whole.texts[0].1),
        Some(name) => {
            whole.texts.iter().find(|(known, _)| name.as_str() == Some(*known)).map(|(_, reader)| *reader)
        }
    };
    let Some(reader) = reader else {
        let known: Vec<_> = whole.texts.iter().map(|(name, _)| *name).collect();
        text.refuse("model_type", &format!("one of {}", known.join(", ")));
        // Its other keys would only add noise.
        return (whole.texts[0].1)(&mut Fields::new(&Map::new(), ""));
    };
    let spec = reader(text);
    let left_over = |key: &str| IMAGES.contains(&key) || LEFT_OVER.contains(&key);
    text.refuse_unknown(|key| super::harmless(key) || left_over(key));
    spec
}
