//! In which form each matrix of a model is kept.

use whin_kernels::WeightKind;

use super::inventory::Destination;

/// The forms of a model's matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weights {
    /// 32-bit floats: exact for every checkpoint.
    F32,
    /// 16-bit floats: exact for checkpoints in bf16.
    Bf16,
    /// 8-bit integers with one scale a row.
    Int8,
    /// 4-bit integers with one scale for each 32 inputs; the embedding and the head, which lose most by it, as 8-bit
    /// integers.
    Int4,
    /// 4-bit integers throughout.
    Int4All,
}

impl Weights {
    /// All, the largest first.
    pub const ALL: [Self; 5] = [Self::F32, Self::Bf16, Self::Int8, Self::Int4, Self::Int4All];

    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Int4All => "int4-all",
        }
    }

    /// The form of the matrices of all layers.
    pub fn layers(self) -> WeightKind {
        match self {
            Self::F32 => WeightKind::F32,
            Self::Bf16 => WeightKind::Bf16,
            Self::Int8 => WeightKind::Int8,
            Self::Int4 | Self::Int4All => WeightKind::Int4,
        }
    }

    /// The form of the embedding and the head.
    pub fn ends(self) -> WeightKind {
        if self == Self::Int4 { WeightKind::Int8 } else { self.layers() }
    }

    /// The form of one matrix.
    pub fn of(self, matrix: Destination) -> WeightKind {
        match matrix {
            Destination::Embedding | Destination::Head => self.ends(),
            // An error of a score can change which experts work on a row.
            Destination::Router(_) => WeightKind::F32,
            _ => self.layers(),
        }
    }
}
