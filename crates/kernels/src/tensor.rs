//! Weights as a file holds them, and the forms that a backend can keep them in.

mod groups;

use half::{bf16, f16};

use crate::blocks::{self, LARGE, SMALL};
use crate::{fp8, int4, int4_affine, int8_groups, mxfp4};

/// How a file stores numbers: one by one, or in blocks that share scales, as GGUF names them.
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
    /// 8-bit floating point with 3 bits of mantissa and no infinities.
    F8E4m3,
    /// 8-bit floating point with 2 bits of mantissa.
    F8E5m2,
    /// 8-bit integer.
    I8,
    /// 8-bit integers with one f16 scale for 32.
    Q8_0,
    /// 4-bit integers with one f16 scale for 32.
    Q4_0,
    /// 4-bit integers with one f16 scale and one f16 offset for 32.
    Q4_1,
    /// 5-bit integers with one f16 scale for 32.
    Q5_0,
    /// 5-bit integers with one f16 scale and one f16 offset for 32.
    Q5_1,
    /// 2-bit integers with a scale and an offset of 4 bits for 16, in blocks of 256.
    Q2K,
    /// 3-bit integers with a scale of 6 bits for 16, in blocks of 256.
    Q3K,
    /// 4-bit integers with a scale and an offset of 6 bits for 32, in blocks of 256.
    Q4K,
    /// 5-bit integers with a scale and an offset of 6 bits for 32, in blocks of 256.
    Q5K,
    /// 6-bit integers with a scale of 8 bits for 16, in blocks of 256.
    Q6K,
    /// 4-bit codes, denser around zero, with one f16 scale for 32.
    Iq4Nl,
    /// 4-bit floating point with a power of two as scale for 32.
    Mxfp4,
    /// 4-bit floating point, two numbers a byte: MXFP4 with its powers of two [apart](Tensor::mxfp4).
    F4E2m1,
}

impl Dtype {
    /// The numbers that stand together, and the bytes that these take; a row is a whole number of blocks.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F64 => (1, 8),
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::F8E4m3 | Self::F8E5m2 | Self::I8 => (1, 1),
            Self::F4E2m1 => (2, 1),
            Self::Q8_0 => (SMALL, 34),
            Self::Q4_0 | Self::Iq4Nl => (SMALL, 18),
            Self::Q4_1 => (SMALL, 20),
            Self::Q5_0 => (SMALL, 22),
            Self::Q5_1 => (SMALL, 24),
            Self::Mxfp4 => (SMALL, 17),
            Self::Q2K => (LARGE, 84),
            Self::Q3K => (LARGE, 110),
            Self::Q4K => (LARGE, 144),
            Self::Q5K => (LARGE, 176),
            Self::Q6K => (LARGE, 210),
        }
    }

    /// Bytes of a row of `cols` numbers; none where these are no whole blocks, or too many to count.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        let (numbers, bytes) = self.block();
        if cols.is_multiple_of(numbers) { (cols / numbers).checked_mul(bytes) } else { None }
    }

    /// Whether numbers of this type have too little range to be weights without a scale.
    pub fn needs_scale(self) -> bool {
        self.block().1 == 1
    }

    /// Whether each number stands for itself.
    pub fn is_single(self) -> bool {
        self.block().0 == 1
    }
}

/// A matrix as it lies in a file: row after row, little-endian, at any alignment. Its numbers may have scales, which
/// every reading applies.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    dtype: Dtype,
    rows: usize,
    cols: usize,
    bytes: &'a [u8], // (rows, cols) of dtype
    scales: Option<Scales<'a>>,
    exponents: &'a [u8],      // (rows, cols / 32) where the numbers are of 4 bits
    turned: Option<usize>,    // how many numbers a row of the file has, where that is a column
    order: Option<&'a [u32]>, // (rows,), each a row of the file
    columns: Option<Columns<'a>>,
}

/// Columns in another order, as many side by side as move together.
#[derive(Clone, Copy, Debug)]
struct Columns<'a> {
    order: &'a [u32], // (cols / together,), each so many columns of the file
    together: usize,  // above zero
}

/// Factors of a matrix, one for each block.
#[derive(Clone, Copy, Debug)]
struct Scales<'a> {
    dtype: Dtype,
    block: (usize, usize), // (rows, cols), neither zero
    across: usize,         // blocks side by side
    bytes: &'a [u8],       // (rows.div_ceil(block.0), across) of dtype
}

impl<'a> Tensor<'a> {
    /// A view of `bytes` as (`rows`, `cols`) numbers; none where the length does not fit, or rows are no whole blocks.
    pub fn new(dtype: Dtype, rows: usize, cols: usize, bytes: &'a [u8]) -> Option<Self> {
        let (together, size) = dtype.block();
        if !cols.is_multiple_of(together) {
            return None;
        }
        // Without rows, columns may be as many as they like.
        let len = rows.checked_mul(cols / together)?.checked_mul(size)?;
        let is_whole = bytes.len() == len && dtype != Dtype::F4E2m1;
        let (scales, exponents, turned, order, columns) = Default::default();
        is_whole.then_some(Self { dtype, rows, cols, bytes, scales, exponents, turned, order, columns })
    }

    /// A view of `bytes` as (`rows`, `cols`) numbers of 4 bits, the first of two in the low bits, of which 32 in a row
    /// are multiplied by 2 ^ (e − 127) for one `e` of `exponents`, NaN for an `e` of 255. None where a length does not fit.
    pub fn mxfp4(rows: usize, cols: usize, bytes: &'a [u8], exponents: &'a [u8]) -> Option<Self> {
        let groups = rows.checked_mul(cols / mxfp4::GROUP)?;
        let is_whole = cols.is_multiple_of(mxfp4::GROUP)
            && exponents.len() == groups
            && bytes.len() == groups.checked_mul(mxfp4::GROUP / 2)?;
        let plain = Self::new(Dtype::I8, 0, 0, &[])?;
        is_whole.then_some(Self { dtype: Dtype::F4E2m1, rows, cols, bytes, exponents, ..plain })
    }

    /// The matrix of which this is the transposed one. None where numbers have scales, or rows or columns are
    /// [in another order](Self::in_order).
    pub fn transposed(self) -> Option<Self> {
        let is_plain =
            self.scales.is_none() && self.dtype.is_single() && self.order.is_none() && self.columns.is_none();
        let turned = Some(self.cols).filter(|_| self.turned.is_none());
        is_plain.then_some(Self { rows: self.cols, cols: self.rows, turned, ..self })
    }

    /// The same matrix, each number of which is multiplied in f32 by the one of `scales` that its block of
    /// `block` = (rows, cols) numbers has. The last blocks may be partial. None where `scales` is not of
    /// (rows / block rows, cols / block cols), both rounded up, is of a type that needs a scale itself, or has one, and
    /// where the rows or columns of either are [in another order](Self::in_order) already.
    pub fn scaled(self, scales: &Self, block: (usize, usize)) -> Option<Self> {
        let is_plain = scales.dtype.is_single() && !scales.dtype.needs_scale() && scales.scales.is_none();
        if block.0 == 0 || block.1 == 0 || !is_plain {
            return None;
        }
        if self.order.is_some()
            || scales.order.is_some()
            || self.columns.is_some()
            || scales.columns.is_some()
            || self.turned.is_some()
            || self.dtype == Dtype::F4E2m1
        {
            return None;
        }
        let shape = (self.rows.div_ceil(block.0), self.cols.div_ceil(block.1));
        if (scales.rows, scales.cols) != shape {
            return None;
        }
        let scales = Scales { dtype: scales.dtype, block, across: shape.1, bytes: scales.bytes };
        Some(Self { scales: Some(scales), ..self })
    }

    /// The same rows in another order, or some of them: row `i` is row `order[i]` of the file. None where `order` names
    /// a row that is not there, or the rows are in order already.
    pub fn in_order(self, order: &'a [u32]) -> Option<Self> {
        let all = self.order.is_none() && order.iter().all(|row| (*row as usize) < self.rows);
        all.then_some(Self { rows: order.len(), order: Some(order), ..self })
    }

    /// The same columns in another order, `together` at once: those from `i · together` on are those of the file from
    /// `order[i] · together` on. None where `order` is not as long as the columns, names one that is not there, or the
    /// columns are in order already.
    pub fn with_columns(self, order: &'a [u32], together: usize) -> Option<Self> {
        let is_whole = together > 0 && order.len().checked_mul(together) == Some(self.cols);
        let all = self.columns.is_none() && order.iter().all(|place| (*place as usize) < order.len());
        (is_whole && all).then_some(Self { columns: Some(Columns { order, together }), ..self })
    }

    /// Which row of the file is row `index`.
    fn place(&self, index: usize) -> usize {
        self.order.map_or(index, |order| order[index] as usize)
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
        assert!(index < self.rows, "row {index} of {}", self.rows);
        let index = self.place(index);
        self.row_of_file(index, out);
        if let Some(columns) = self.columns {
            columns.move_runs(out, columns.together);
        }
    }

    /// Writes row `index` of the file, its columns as they stand there, into `out`.
    fn row_of_file(&self, index: usize, out: &mut [f32]) {
        if let Some(width) = self.turned {
            return self.column(index, width, out);
        }
        if self.dtype == Dtype::F4E2m1 {
            let (codes, groups) = (self.cols / 2, self.cols / mxfp4::GROUP);
            let exponents = &self.exponents[index * groups..(index + 1) * groups];
            return mxfp4::row(&self.bytes[index * codes..(index + 1) * codes], exponents, out);
        }
        let size = self.dtype.row_bytes(self.cols).expect("rows are whole blocks, as checked before");
        numbers(self.dtype, &self.bytes[index * size..(index + 1) * size], out);
        if let Some(scales) = &self.scales {
            scales.multiply(index, out);
        }
    }

    /// Writes column `index` of the file, whose rows have `width` numbers, into `out`.
    fn column(&self, index: usize, width: usize, out: &mut [f32]) {
        const AT_ONCE: usize = 64;
        let (_, size) = self.dtype.block();
        let mut rows = self.bytes.chunks_exact(width * size);
        for out in out.chunks_mut(AT_ONCE) {
            let mut gathered = [0; AT_ONCE * size_of::<f64>()];
            let gathered = &mut gathered[..out.len() * size];
            for (number, row) in gathered.chunks_exact_mut(size).zip(&mut rows) {
                number.copy_from_slice(&row[index * size..(index + 1) * size]);
            }
            numbers(self.dtype, gathered, out);
        }
    }

    /// Row `index` as bf16, exactly as the file holds it; none where the file holds another type, scales beside it, the
    /// row as a column, or columns in another order.
    pub fn bf16_row(&self, index: usize, out: &mut [bf16]) -> Option<()> {
        let is_plain = self.scales.is_none() && self.turned.is_none() && self.columns.is_none();
        if self.dtype != Dtype::Bf16 || !is_plain {
            return None;
        }
        assert_eq!(out.len(), self.cols, "length of the output row");
        let index = self.place(index);
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

impl Scales<'_> {
    /// Multiplies row `index` of the matrix.
    fn multiply(&self, index: usize, row: &mut [f32]) {
        let (size, first) = (self.dtype.block().1, index / self.block.0 * self.across);
        for (place, part) in (first..).zip(row.chunks_mut(self.block.1)) {
            let mut scale = [0.0];
            numbers(self.dtype, &self.bytes[place * size..(place + 1) * size], &mut scale);
            for x in part {
                *x *= scale[0];
            }
        }
    }
}

/// The numbers of `dtype` that `bytes` holds, each rounded to the nearest f32, those in blocks as [`blocks`] says.
fn numbers(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        Dtype::F64 => convert::<8>(bytes, out, |b| f64::from_le_bytes(b) as f32),
        Dtype::F32 => convert::<4>(bytes, out, f32::from_le_bytes),
        Dtype::F16 => convert::<2>(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
        Dtype::Bf16 => {
            convert::<2>(bytes, out, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16));
        }
        Dtype::F8E4m3 => convert::<1>(bytes, out, |[code]| fp8::E4M3[usize::from(code)]),
        Dtype::F8E5m2 => convert::<1>(bytes, out, |[code]| fp8::E5M2[usize::from(code)]),
        Dtype::I8 => convert::<1>(bytes, out, |b| f32::from(i8::from_le_bytes(b))),
        Dtype::Q8_0 => blocks::convert(bytes, out, blocks::q8_0),
        Dtype::Q4_0 => blocks::convert(bytes, out, blocks::q4_0),
        Dtype::Q4_1 => blocks::convert(bytes, out, blocks::q4_1),
        Dtype::Q5_0 => blocks::convert(bytes, out, blocks::q5_0),
        Dtype::Q5_1 => blocks::convert(bytes, out, blocks::q5_1),
        Dtype::Q2K => blocks::convert(bytes, out, blocks::q2_k),
        Dtype::Q3K => blocks::convert(bytes, out, blocks::q3_k),
        Dtype::Q4K => blocks::convert(bytes, out, blocks::q4_k),
        Dtype::Q5K => blocks::convert(bytes, out, blocks::q5_k),
        Dtype::Q6K => blocks::convert(bytes, out, blocks::q6_k),
        Dtype::Iq4Nl => blocks::convert(bytes, out, blocks::iq4_nl),
        Dtype::Mxfp4 => blocks::convert(bytes, out, blocks::mxfp4),
        Dtype::F4E2m1 => unreachable!("numbers of 4 bits need their powers of two"),
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
    /// As 8-bit integers with one f16 scale for each 32 inputs of an output, multiplied with 16-bit integer activations.
    Int8Groups,
    /// As 4-bit integers with one f16 scale for each 32 inputs of an output, multiplied with 16-bit integer activations.
    Int4,
    /// The same with an f16 offset beside each scale.
    Int4Affine,
}

impl WeightKind {
    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int8Groups => "int8-groups",
            Self::Int4 => "int4",
            Self::Int4Affine => "int4-affine",
        }
    }

    /// Bytes that a matrix of (`outputs`, `inputs`) takes.
    pub fn bytes(self, outputs: usize, inputs: usize) -> usize {
        match self {
            Self::F32 => outputs * inputs * 4,
            Self::Bf16 => outputs * inputs * 2,
            Self::Int8 => outputs * (inputs + 4),
            Self::Int8Groups => outputs * inputs.div_ceil(int8_groups::GROUP) * (int8_groups::GROUP + 2),
            Self::Int4 => outputs * inputs.div_ceil(int4::GROUP) * (int4::GROUP / 2 + 2),
            Self::Int4Affine => outputs * inputs.div_ceil(int4_affine::GROUP) * (int4_affine::GROUP / 2 + 4),
        }
    }
}

#[cfg(test)]
mod tests;
