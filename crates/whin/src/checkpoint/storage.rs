//! How the weights of a checkpoint are quantised, as far as names of tensors and files beside them say. Knows no model.

use whin_kernels::Dtype;

use super::source::Source;
use crate::{Error, ErrorKind, Result};

/// What to do about weights that were quantised in a form that is not read.
pub(crate) const REMEDY: &str = "use the original checkpoint with bf16, f16 or f32 weights: whin quantises it at load \
                                 (--weights int8 or int4)";

/// How a checkpoint says that its matrices are stored. Tensors say themselves of what type they are; this is what they
/// leave open, and what they may not contradict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// Nothing is said. Matrices of a byte a number may have one scale, or one a row.
    #[default]
    Unsaid,
    /// As 8-bit floating-point numbers.
    Fp8(Fp8),
    /// Those of experts as 4-bit floating-point numbers with powers of two.
    Mxfp4,
}

/// Of 8-bit floating-point numbers, with one scale each for a block, a row or a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fp8 {
    /// (rows, cols) of a block, neither zero; none where there are no blocks.
    pub block: Option<(usize, usize)>,
    /// The type of the numbers; unset, either.
    pub dtype: Option<Dtype>,
    /// Whether there may be scales for activations, too.
    pub static_activations: bool,
}

impl Storage {
    /// (rows, cols) of a block, neither zero; none where blocks are not spoken of.
    pub fn block(&self) -> Option<(usize, usize)> {
        match self {
            Self::Unsaid | Self::Mxfp4 => None,
            Self::Fp8(fp8) => fp8.block,
        }
    }

    /// Whether there may be scales for activations.
    pub(super) fn has_static_activations(&self) -> bool {
        matches!(self, Self::Fp8(Fp8 { static_activations: true, .. }))
    }

    /// What a tensor of `dtype`, that needs a scale, contradicts.
    pub(super) fn contradiction(&self, dtype: Dtype) -> Option<&'static str> {
        match self {
            Self::Unsaid => None,
            Self::Mxfp4 => Some("quant_method mxfp4"),
            Self::Fp8(_) if dtype == Dtype::I8 => Some("quant_method fp8"),
            Self::Fp8(fp8) if fp8.dtype.is_some_and(|said| said != dtype) => Some("the fmt"),
            Self::Fp8(_) => None,
        }
    }
}

/// Ends of names that only the tensors of one way of quantising have.
const SIGNS: &[(&str, &str)] = &[
    (".g_idx", "GPTQ"),
    (".qweight", "GPTQ or AWQ"),
    (".qzeros", "GPTQ or AWQ"),
    (".quant_state.bitsandbytes__nf4", "bitsandbytes (4 bit)"),
    (".quant_state.bitsandbytes__fp4", "bitsandbytes (4 bit)"),
    (".absmax", "bitsandbytes (4 bit)"),
    (".quant_map", "bitsandbytes (4 bit)"),
    (".SCB", "bitsandbytes (8 bit)"),
    (".weight_packed", "compressed-tensors"),
    (".codebooks", "AQLM"),
    (".W_q", "HQQ"),
    (".weight._data", "quanto"),
    (".centroids.weight", "VPTQ"),
    (".scales", "MLX, GPTQ or AWQ"),
];

/// Refuses tensors that show by their names in which form they are quantised.
///
/// # Errors
/// `unsupported_architecture` with the name of the form and one of the tensors.
pub(super) fn refuse_foreign<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Result<()> {
    let found = SIGNS.iter().find_map(|(end, method)| {
        let name = names.clone().find(|name| name.ends_with(end))?;
        Some((method, name))
    });
    let Some((method, name)) = found else { return Ok(()) };
    let message = format!(
        "the weights are quantised by {method}, as tensor {name:?} shows, which is not read: {REMEDY}"
    );
    Err(Error::new(ErrorKind::UnsupportedArchitecture, message))
}

/// Files in which older tools say how they quantised the weights, with what writes them.
const BESIDE: &[(&str, &str)] =
    &[("quantize_config.json", "GPTQ"), ("quant_config.json", "AWQ"), ("hf_quant_config.json", "ModelOpt")];

/// Refuses a checkpoint beside whose `config.json` a file says that its weights are quantised.
///
/// # Errors
/// `unsupported_architecture` with the name of the form and the file; `io` where the folder denies access.
pub(crate) fn refuse_beside(source: &Source) -> Result<()> {
    for (name, method) in BESIDE {
        if source.read(name)?.is_some() {
            let message = format!(
                "{} says that the weights are quantised by {method}, which is not read: {REMEDY}; or remove that file \
                 if it does not belong to these weights",
                source.describe(name)
            );
            return Err(Error::new(ErrorKind::UnsupportedArchitecture, message));
        }
    }
    Ok(())
}
