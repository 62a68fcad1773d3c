//! OLMo 2: norms behind both parts of a layer alone, and over whole projections.
//!
//! Keys, defaults and arithmetic are those of `Olmo2Config` and `modeling_olmo2.py` in transformers 5.17.

use whin_kernels::Span;

use super::dense::{DEFAULTS, Defaults, Dense};
use crate::model::config::Fields;
use crate::model::spec::{Bias, Norms, Spec};

const OLMO2: Defaults = Defaults { vocab: 50_304, norm_eps: 1e-5, eos: Some(50_279), ..DEFAULTS };

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &OLMO2);
    let bias = config.flag("attention_bias", false);
    dense.attention.bias = Bias { qkv: bias, out: bias };
    dense.attention.qk_norm = Some(Span::Projection);
    dense.norms = Norms { before: false, after: true };
    let kinds = dense.all_full();
    dense.spec(config, &kinds)
}
