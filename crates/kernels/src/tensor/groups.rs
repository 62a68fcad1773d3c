//! Rows whose blocks are groups of a backend's own forms: they are taken as they are, without a detour by floats.

use half::f16;

use super::{Columns, Dtype, Tensor};
use crate::blocks::{self, LARGE, SMALL};
use crate::mxfp4;

impl<'a> Tensor<'a> {
    /// Row `index` as the integers (cols,) and the scales (cols / 32,) of [`crate::int8_groups`], exactly as the file holds
    /// them in Q8_0, Q5_0, Q4_0, IQ4_NL or MXFP4, of which numbers below 2⁻²⁰ may become zero; none where it holds another type, scales beside it, columns in an order
    /// that divides groups, or scales that f16 cannot hold.
    pub fn int8_groups_row(&self, index: usize, values: &mut [i8], scales: &mut [f16]) -> Option<()> {
        assert!(values.len() == self.cols && scales.len() == self.cols.div_ceil(SMALL), "length of the row");
        if let Some(columns) = &self.columns {
            Self { columns: None, ..*self }.int8_groups_row(index, values, scales)?;
            return columns.move_groups(values, &mut [scales]);
        }
        let groups = values.as_chunks_mut::<SMALL>().0.iter_mut().zip(scales);
        match self.dtype {
            Dtype::Q8_0 => {
                for ((values, scale), block) in groups.zip(self.blocks_of_row::<34>(Dtype::Q8_0, index)?) {
                    *scale = half(block, 0);
                    values.copy_from_slice(bytemuck::cast_slice(&block[2..]));
                }
            }
            Dtype::Q5_0 => {
                for ((values, scale), block) in groups.zip(self.blocks_of_row::<22>(Dtype::Q5_0, index)?) {
                    *scale = half(block, 0);
                    fill(values, blocks::five_bits(block, 2, 6).map(|code| code as i8 - 16));
                }
            }
            Dtype::Q4_0 => {
                for ((values, scale), block) in groups.zip(self.blocks_of_row::<18>(Dtype::Q4_0, index)?) {
                    *scale = half(block, 0);
                    fill(values, blocks::nibbles(&block[2..]).map(|code| code as i8 - 8));
                }
            }
            Dtype::Iq4Nl => {
                for ((values, scale), block) in groups.zip(self.blocks_of_row::<18>(Dtype::Iq4Nl, index)?) {
                    *scale = half(block, 0);
                    fill(values, blocks::nibbles(&block[2..]).map(|code| blocks::IQ4_NL[usize::from(code)]));
                }
            }
            Dtype::Mxfp4 => {
                for ((values, scale), block) in groups.zip(self.blocks_of_row::<17>(Dtype::Mxfp4, index)?) {
                    *scale = half_of_power(block[0])?;
                    fill(values, blocks::nibbles(&block[1..]).map(|code| blocks::E2M1[usize::from(code)]));
                }
            }
            Dtype::F4E2m1 => {
                let (index, count) = (self.place(index), self.cols / mxfp4::GROUP);
                let exponents = &self.exponents[index * count..(index + 1) * count];
                let codes = self.bytes[index * self.cols / 2..].chunks_exact(mxfp4::GROUP / 2);
                for (((values, scale), exponent), codes) in groups.zip(exponents).zip(codes) {
                    *scale = half_of_power(*exponent)?;
                    let codes = codes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
                    fill(values, codes.map(|code| blocks::E2M1[usize::from(code)]));
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Row `index` as the integers (cols,), of which 8 is zero, and the scales (cols / 32,) of [`crate::int4`], exactly as
    /// the file holds them in Q4_0; none where it holds another type, scales beside it, or columns in an order that divides
    /// groups.
    pub fn int4_row(&self, index: usize, values: &mut [u8], scales: &mut [f16]) -> Option<()> {
        if let Some(columns) = &self.columns {
            Self { columns: None, ..*self }.int4_row(index, values, scales)?;
            return columns.move_groups(values, &mut [scales]);
        }
        let blocks = self.blocks_of_row::<18>(Dtype::Q4_0, index)?;
        assert!(values.len() == self.cols && scales.len() == blocks.len(), "length of the row");
        for ((values, scale), block) in values.as_chunks_mut::<SMALL>().0.iter_mut().zip(scales).zip(blocks) {
            *scale = half(block, 0);
            fill(values, blocks::nibbles(&block[2..]));
        }
        Some(())
    }

    /// Row `index` as the integers (cols,), the scales and the offsets (cols / 32,) of [`crate::int4_affine`]: exactly as
    /// the file holds them in Q4_1 or Q4_0, and with the products of its scales rounded to f16 in Q4_K. None where it holds
    /// another type, scales beside it, columns in an order that divides groups, or what f16 cannot hold.
    pub fn int4_affine_row(
        &self,
        index: usize,
        values: &mut [u8],
        scales: &mut [f16],
        leasts: &mut [f16],
    ) -> Option<()> {
        let count = self.cols.div_ceil(SMALL);
        assert!(
            values.len() == self.cols && scales.len() == count && leasts.len() == count,
            "length of the row"
        );
        if let Some(columns) = &self.columns {
            Self { columns: None, ..*self }.int4_affine_row(index, values, scales, leasts)?;
            return columns.move_groups(values, &mut [scales, leasts]);
        }
        let shared = scales.iter_mut().zip(leasts.iter_mut());
        match self.dtype {
            Dtype::Q4_0 => {
                self.int4_row(index, values, scales)?;
                for (scale, least) in scales.iter().zip(leasts.iter_mut()) {
                    *least = f16::from_f32(-8.0 * scale.to_f32());
                }
            }
            Dtype::Q4_1 => {
                let groups = values.as_chunks_mut::<SMALL>().0.iter_mut().zip(shared);
                let blocks = self.blocks_of_row::<20>(Dtype::Q4_1, index)?;
                for ((values, (scale, least)), block) in groups.zip(blocks) {
                    (*scale, *least) = (half(block, 0), half(block, 2));
                    fill(values, blocks::nibbles(&block[4..]));
                }
            }
            Dtype::Q4K => {
                let mut shared = shared;
                let values = values.as_chunks_mut::<LARGE>().0.iter_mut();
                for (values, block) in values.zip(self.blocks_of_row::<144>(Dtype::Q4K, index)?) {
                    let (groups, codes) = blocks::q4_k_groups(block);
                    for ((d, m), (scale, least)) in groups.iter().zip(&mut shared) {
                        (*scale, *least) = (f16::from_f32(*d), f16::from_f32(-m));
                    }
                    fill(values, codes);
                }
            }
            _ => return None,
        }
        scales.iter().chain(&*leasts).all(|half| half.is_finite()).then_some(())
    }

    /// The blocks of row `index`, of `N` bytes each; none where the file holds another type, or scales beside it.
    fn blocks_of_row<const N: usize>(
        &self,
        dtype: Dtype,
        index: usize,
    ) -> Option<impl ExactSizeIterator<Item = &'a [u8; N]> + use<'a, N>> {
        if self.dtype != dtype || self.scales.is_some() {
            return None;
        }
        let (numbers, size) = dtype.block();
        assert!(index < self.rows && size == N, "row {index} of {} in blocks of {N} bytes", self.rows);
        let count = self.cols / numbers;
        let first = self.place(index) * count;
        Some(self.bytes.as_chunks::<N>().0[first..first + count].iter())
    }
}

impl Columns<'_> {
    /// Puts whole groups of a row, with what each has for all its numbers, in this order; none where it divides groups.
    fn move_groups<T: Copy>(&self, values: &mut [T], shared: &mut [&mut [f16]]) -> Option<()> {
        if !self.together.is_multiple_of(SMALL) {
            return None;
        }
        self.move_runs(values, self.together);
        shared.iter_mut().for_each(|halves| self.move_runs(halves, self.together / SMALL));
        Some(())
    }

    /// Puts runs of so many numbers in this order.
    pub(super) fn move_runs<T: Copy>(&self, numbers: &mut [T], together: usize) {
        let before = numbers.to_vec();
        for (run, place) in numbers.chunks_exact_mut(together).zip(self.order) {
            run.copy_from_slice(&before[*place as usize * together..][..together]);
        }
    }
}

/// The f16 at `at`.
fn half(block: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([block[at], block[at + 1]])
}

/// 2 ^ (exponent − 128), half of what an MXFP4 exponent stands for, as its numbers stand doubled; zero where that is less
/// than f16 holds, which is how blocks of zeros are written, and none where it is more.
fn half_of_power(exponent: u8) -> Option<f16> {
    let power = i32::from(exponent) - 128;
    (power <= 15).then(|| if power < -24 { f16::ZERO } else { f16::from_f32(2.0_f32.powi(power)) })
}

fn fill<T>(out: &mut [T], values: impl Iterator<Item = T>) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = value;
    }
}
