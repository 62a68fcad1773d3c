//! The text parts of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: Qwen2 and Qwen3 with positions of three axes, which are equal for
//! text and turn heads as one axis does.
//!
//! Keys, defaults and arithmetic are those of `Qwen2VLTextConfig`, `Qwen2_5_VLTextConfig`, `Qwen3VLTextConfig`, `Qwen3VLMoeTextConfig` and their
//! models in transformers 5.17.

use serde_json::json;
use whin_kernels::Span;

use super::dense::{self, DEFAULTS, Defaults, Dense};
use super::{experts, qwen3};
use crate::model::config::Fields;
use crate::model::names::{self, ExpertNames, Names, Turned};
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

/// Positions of three axes.
pub(super) const AXES: Dialect = Dialect {
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

const QWEN3_VL_MOE: Defaults = Defaults {
    width: 2048,
    inner: 5632,
    layers: 24,
    heads: 16,
    kv_heads: Some(16),
    head_dim: None,
    tied: true,
    ..QWEN3_VL
};

const EXPERTS: experts::Defaults =
    experts::Defaults { count: 60, top_k: 4, inner: 1408, shared: None, renormalised: true };

/// Where the one with experts has its tensors.
pub(super) const MOE_NAMES: Names =
    // As published they are transposed, as transformers saves them now they are not.
    Names { experts: ExpertNames { turned: Turned::Unless, ..names::EXPERTS }, ..names::COMMON };

/// Reads the config of the text part of a Qwen3-VL, noting problems in it.
pub(super) fn read3(config: &mut Fields<'_>) -> Spec {
    let dense = read_dense(config, &QWEN3_VL);
    let kinds = dense.all_full();
    dense.spec(config, &kinds)
}

/// Reads the config of the text part of one with a mixture of experts, noting problems in it.
pub(super) fn read3_moe(config: &mut Fields<'_>) -> Spec {
    let dense = read_dense(config, &QWEN3_VL_MOE);
    // The class does not have the key: shares always come to one.
    dense::fixed(config, "norm_topk_prob", &json!(true));
    let experts = experts::read(config, &dense, &EXPERTS);
    let kinds = dense.all_full();
    let mut spec = dense.spec(config, &kinds);
    experts::place(config, experts.as_ref(), &mut spec);
    spec
}

fn read_dense(config: &mut Fields<'_>, defaults: &'static Defaults) -> Dense {
    let mut dense = Dense::read(config, defaults);
    let bias = config.flag("attention_bias", false);
    dense.attention.bias = Bias { qkv: bias, out: bias };
    dense.attention.qk_norm = Some(Span::Head);
    dense
}
