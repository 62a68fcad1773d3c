//! Weights as a file holds them, and the forms that a backend can keep them in.

use half::{bf16, f16};

use crate::int4;

/// How a file stores one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE 754 double precision.
    F64,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of a single-precision number.
    Bf16,
}

impl Dtype {
    /// Bytes a number.
    pub fn size(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// A matrix as it lies in a file: row after row, little-endian, at any alignment.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    dtype: Dtype,
    rows: usize,
    cols: usize,
    bytes: &'a [u8], // (rows, cols) of dtype
}

impl<'a> Tensor<'a> {
    /// A view of `bytes` as (`rows`, `cols`) numbers; none where the length does not fit.
    pub fn new(dtype: Dtype, rows: usize, cols: usize, bytes: &'a [u8]) -> Option<Self> {
        let len = rows.checked_mul(cols)?.checked_mul(dtype.size())?;
        (bytes.len() == len).then_some(Self { dtype, rows, cols, bytes })
    }

    /// Rows of the matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Writes row `index` into `out` (cols,), rounded to the nearest f32 where the file holds more.
    ///
    /// # Panics
    /// When the row does not exist or `out` has another length than a row.
    pub fn row(&self, index: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.cols, "length of the output row");
        let size = self.dtype.size();
        let bytes = &self.bytes[index * self.cols * size..(index + 1) * self.cols * size];
        match self.dtype {
            Dtype::F64 => convert::<8>(bytes, out, |b| f64::from_le_bytes(b) as f32),
            Dtype::F32 => convert::<4>(bytes, out, f32::from_le_bytes),
            Dtype::F16 => convert::<2>(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
            Dtype::Bf16 => {
                convert::<2>(bytes, out, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16))
            }
        }
    }

    /// Row `index` as bf16, exactly as the file holds it; none where the file holds another type.
    pub fn bf16_row(&self, index: usize, out: &mut [bf16]) -> Option<()> {
        if self.dtype != Dtype::Bf16 {
            return None;
        }
        assert_eq!(out.len(), self.cols, "length of the output row");
        let bytes = &self.bytes[index * self.cols * 2..(index + 1) * self.cols * 2];
        for (out, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *out = bf16::from_le_bytes(*b);
        }
        Some(())
    }

    /// All numbers in order, as f32.
    pub fn to_vec(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.rows * self.cols];
        if self.cols > 0 {
            for (index, row) in values.chunks_exact_mut(self.cols).enumerate() {
                self.row(index, row);
            }
        }
        values
    }
}

fn convert<const N: usize>(bytes: &[u8], out: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    for (out, b) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *out = number(*b);
    }
}

/// The form in which a backend keeps keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvKind {
    /// As f32.
    F32,
    /// As bf16, rounded to nearest, ties to even.
    Bf16,
    /// As 8-bit integers with one f32 scale for each key and each value of a head; scores are products of integers.
    Int8,
}

impl KvKind {
    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }

    /// Bytes of the key and the value of one head of `head_dim` numbers at one position.
    pub fn bytes(self, head_dim: usize) -> usize {
        match self {
            Self::F32 => 2 * head_dim * size_of::<f32>(),
            Self::Bf16 => 2 * head_dim * size_of::<bf16>(),
            // Two scales, and the sum of the key's integers.
            Self::Int8 => 2 * head_dim + 12,
        }
    }
}

/// The form in which a backend keeps a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightKind {
    /// As f32, multiplied with f32 activations.
    F32,
    /// As bf16, multiplied with f32 activations.
    Bf16,
    /// As 8-bit integers with one f32 scale for each output row, multiplied with 16-bit integer activations.
    Int8,
    /// As 4-bit integers with one f16 scale for each 32 inputs of an output, multiplied with 16-bit integer activations.
    Int4,
}

impl WeightKind {
    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }

    /// Bytes that a matrix of (`outputs`, `inputs`) takes.
    pub fn bytes(self, outputs: usize, inputs: usize) -> usize {
        match self {
            Self::F32 => outputs * inputs * 4,
            Self::Bf16 => outputs * inputs * 2,
            Self::Int8 => outputs * (inputs + 4),
            Self::Int4 => outputs * inputs.div_ceil(int4::GROUP) * (int4::GROUP / 2 + 2),
        }
    }
}
