//! In which form each matrix of a model is kept.

use whin_kernels::{Dtype, WeightKind};

use super::inventory::{self, Destination, Shape};
use super::spec::Spec;

/// The forms of a model's matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weights {
    /// What comes closest to the file's own form: where matrices are stored in blocks, as [`Spec::native`] says, else as
    /// [`Self::Int8`].
    Auto,
    /// 32-bit floats: exact for every checkpoint.
    F32,
    /// 16-bit floats: exact for checkpoints in bf16.
    Bf16,
    /// 8-bit integers with one scale a row.
    Int8,
    /// 8-bit integers with one scale for each 32 inputs.
    Int8Groups,
    /// 4-bit integers with one scale for each 32 inputs; the embedding and the head, which lose most by it, as 8-bit
    /// integers.
    Int4,
    /// 4-bit integers throughout.
    Int4All,
}

impl Weights {
    /// All, the largest first, that of the file before them.
    pub const ALL: [Self; 7] =
        [Self::Auto, Self::F32, Self::Bf16, Self::Int8Groups, Self::Int8, Self::Int4, Self::Int4All];

    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int8Groups => "int8-groups",
            Self::Int4 => "int4",
            Self::Int4All => "int4-all",
        }
    }

    /// [`Self::Auto`] by the form that it has for `spec`, where that is one for all matrices.
    pub fn settled(self, spec: &Spec) -> Self {
        if self == Self::Auto && spec.native.is_empty() { Self::Int8 } else { self }
    }

    /// The form of the first matrix of the layers of `spec`, which most others share.
    pub fn of_layers(self, spec: &Spec) -> WeightKind {
        let is_matrix = |(to, shape): &(Destination, Shape)| {
            shape.inputs.is_some() && !matches!(to, Destination::Embedding)
        };
        let first = inventory::weights(spec).into_iter().find(is_matrix);
        self.of(spec, first.map_or(Destination::Head, |(to, _)| to))
    }

    /// The form of one matrix of `spec`.
    pub fn of(self, spec: &Spec, matrix: Destination) -> WeightKind {
        match self {
            // An error of a score can change which experts work on a row.
            _ if matches!(matrix, Destination::Router(_)) => WeightKind::F32,
            Self::Auto => spec.native.get(&matrix).copied().unwrap_or(WeightKind::Int8),
            Self::F32 => WeightKind::F32,
            Self::Bf16 => WeightKind::Bf16,
            Self::Int8 => WeightKind::Int8,
            Self::Int8Groups => WeightKind::Int8Groups,
            Self::Int4 if matches!(matrix, Destination::Embedding | Destination::Head) => WeightKind::Int8,
            Self::Int4 | Self::Int4All => WeightKind::Int4,
        }
    }
}

/// The form that comes closest to what parts of a matrix are stored as: their own where there is such.
pub(super) fn nearest(stored: &[Dtype]) -> WeightKind {
    let all_are = |of: &[Dtype]| !stored.is_empty() && stored.iter().all(|dtype| of.contains(dtype));
    if all_are(&[Dtype::Q4_0]) {
        WeightKind::Int4
    } else if all_are(&[Dtype::Q4_0, Dtype::Q4_1, Dtype::Q4K]) {
        WeightKind::Int4Affine
    } else {
        // Q8_0, Q5_0, IQ4_NL and MXFP4 themselves, and what is finer for all others than one scale for a whole row.
        WeightKind::Int8Groups
    }
}
