//! The text parts of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: Qwen2 and Qwen3 with positions of three axes, which are equal for
//! text and turn heads as one axis does.
//!
//! Keys, defaults and arithmetic are those of `Qwen2VLTextConfig`, `Qwen2_5_VLTextConfig`, `Qwen3VLTextConfig` and their
//! models in transformers 5.17.

use whin_kernels::Span;

use super::dense::{DEFAULTS, Defaults, Dense};
use super::qwen3;
use crate::model::config::Fields;
use crate::model::rope_parameters::{self, Dialect};
use crate::model::spec::{Bias, Spec};

const QWEN2_VL: Defaults = Defaults {
    vocab: 152_064,
    width: 8192,
    inner: 29_568,
    layers: 80,
    heads: 64,
    kv_heads: Some(8),
    max_positions: 32_768,
    norm_eps: 1e-5,
    theta: 1_000_000.0,
    dialect: &AXES,
    bos: Some(151_643),
    eos: Some(151_645),
    ..DEFAULTS
};

const QWEN3_VL: Defaults = Defaults {
    vocab: 151_936,
    inner: 22_016,
    kv_heads: Some(32),
    head_dim: Some(128),
    max_positions: 128_000,
    theta: 500_000.0,
    dialect: &AXES,
    ..DEFAULTS
};

const AXES: Dialect = Dialect {
    kinds: &[
        ("default", "default"),
        ("mrope", "default"),
        ("linear", "linear"),
        ("dynamic", "dynamic"),
        ("llama3", "llama3"),
        ("yarn", "yarn"),
        ("longrope", "longrope"),
    ],
    harmless: &["mrope_section", "mrope_interleaved"],
    ..rope_parameters::COMMON
};

/// Reads the config of the text part of a Qwen2-VL or Qwen2.5-VL, noting problems in it.
pub(super) fn read2(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &QWEN2_VL);
    dense.attention.bias = Bias { qkv: true, out: false };
    let kinds = qwen3::windows_from(config, &dense, 80);
    dense.spec(config, &kinds)
}

/// Reads the config of the text part of a Qwen3-VL, noting problems in it.
pub(super) fn read3(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &QWEN3_VL);
    let bias = config.flag("attention_bias", false);
    dense.attention.bias = Bias { qkv: bias, out: bias };
    dense.attention.qk_norm = Some(Span::Head);
    let kinds = dense.all_full();
    dense.spec(config, &kinds)
}
