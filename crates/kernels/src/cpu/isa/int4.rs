//! How each instruction set multiplies 4-bit weights.
//!
//! A line of 64 bytes holds eight inputs of all outputs, (16 outputs, 4): byte `i` of an output has the input `i` in its
//! low half and the input `4 + i` in its high half. So both halves, masked, are what a dot-product instruction multiplies
//! with four activations. These enter as two planes of signed bytes.

use super::PANEL;
use super::groups::{Grouped, Nibbles, Signed};

/// Bytes of a line.
pub const LINE: usize = 64;

/// Inputs of a line.
pub const LINE_INPUTS: usize = 8;

mod scalar {
    use super::super::scalar::Scalar;
    use super::{Grouped, LINE, LINE_INPUTS, Nibbles, PANEL, Signed};

    impl<const AFFINE: bool> Grouped<Nibbles<AFFINE>> for Scalar {
        type Base = Self;
        const INPUTS: usize = LINE_INPUTS;
        type Weights = [u8; LINE];
        type Inputs = [i32; LINE_INPUTS];
        type Sums = [i32; PANEL];

        #[inline(always)]
        unsafe fn no_sums() -> [i32; PANEL] {
            [0; PANEL]
        }

        #[inline(always)]
        unsafe fn weights(from: *const u8) -> [u8; LINE] {
            // SAFETY: the caller vouches for as many readable bytes.
            unsafe { from.cast::<[u8; LINE]>().read() }
        }

        #[inline(always)]
        unsafe fn inputs(x: &Signed<'_>, k: usize) -> [i32; LINE_INPUTS] {
            let (high, low) = (x.high.as_ptr(), x.low.as_ptr());
            let mut inputs = [0; LINE_INPUTS];
            for (i, input) in inputs.iter_mut().enumerate() {
                // SAFETY: the caller vouches for as many activations.
                *input = unsafe { 256 * i32::from(*high.add(k + i)) + i32::from(*low.add(k + i)) };
            }
            inputs
        }

        #[inline(always)]
        unsafe fn add_products(x: [i32; LINE_INPUTS], w: [u8; LINE], mut sums: [i32; PANEL]) -> [i32; PANEL] {
            for j in 0..PANEL {
                for i in 0..4 {
                    let byte = i32::from(w[4 * j + i]);
                    sums[j] += (byte & 15) * x[i] + (byte >> 4) * x[4 + i];
                }
            }
            sums
        }

        #[inline(always)]
        unsafe fn put_together(sums: [i32; PANEL]) -> [i32; PANEL] {
            sums
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::super::avx512::Avx512;
    use super::{Grouped, LINE_INPUTS, Nibbles, Signed};

    impl<const AFFINE: bool> Grouped<Nibbles<AFFINE>> for Avx512 {
        type Base = Self;
        const INPUTS: usize = LINE_INPUTS;
        type Weights = [__m512i; 2]; // low and high halves
        type Inputs = [__m512i; 4]; // high and low of the first four, then of the others
        type Sums = [__m512i; 2]; // high and low

        #[inline(always)]
        unsafe fn no_sums() -> [__m512i; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { [_mm512_setzero_si512(); 2] }
        }

        #[inline(always)]
        unsafe fn weights(from: *const u8) -> [__m512i; 2] {
            // SAFETY: the caller vouches for the instructions and 64 readable bytes.
            unsafe {
                let (bytes, mask) = (_mm512_loadu_si512(from.cast()), _mm512_set1_epi8(15));
                [_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), mask)]
            }
        }

        #[inline(always)]
        unsafe fn inputs(x: &Signed<'_>, k: usize) -> [__m512i; 4] {
            // SAFETY: the caller vouches for the instructions and eight readable bytes in each plane.
            unsafe {
                let (high, low) = (x.high.as_ptr().add(k).cast::<i32>(), x.low.as_ptr().add(k).cast::<i32>());
                [
                    _mm512_set1_epi32(high.read_unaligned()),
                    _mm512_set1_epi32(low.read_unaligned()),
                    _mm512_set1_epi32(high.add(1).read_unaligned()),
                    _mm512_set1_epi32(low.add(1).read_unaligned()),
                ]
            }
        }

        #[inline(always)]
        unsafe fn add_products(x: [__m512i; 4], w: [__m512i; 2], sums: [__m512i; 2]) -> [__m512i; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe {
                [
                    _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sums[0], w[0], x[0]), w[1], x[2]),
                    _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sums[1], w[0], x[1]), w[1], x[3]),
                ]
            }
        }

        #[inline(always)]
        unsafe fn put_together(sums: [__m512i; 2]) -> __m512i {
            // SAFETY: the caller vouches for the instructions.
            unsafe { _mm512_add_epi32(_mm512_slli_epi32::<8>(sums[0]), sums[1]) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::super::avx2::Avx2;
    use super::{Grouped, LINE_INPUTS, Nibbles, Signed};

    /// Pairs of products are added in 16 bits: a group's eight pairs reach 8 · 2 · 15 · 128 = 30,720 < 2¹⁵.
    impl<const AFFINE: bool> Grouped<Nibbles<AFFINE>> for Avx2 {
        type Base = Self;
        const INPUTS: usize = LINE_INPUTS;
        type Weights = [[__m256i; 2]; 2]; // low and high halves, eight outputs each
        type Inputs = [__m256i; 4]; // high and low of the first four, then of the others
        type Sums = [[__m256i; 2]; 2]; // high and low, eight outputs each, two 16-bit lanes an output

        #[inline(always)]
        unsafe fn no_sums() -> [[__m256i; 2]; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { [[_mm256_setzero_si256(); 2]; 2] }
        }

        #[inline(always)]
        unsafe fn weights(from: *const u8) -> [[__m256i; 2]; 2] {
            // SAFETY: the caller vouches for the instructions and 64 readable bytes.
            unsafe {
                let mask = _mm256_set1_epi8(15);
                let (a, b) = (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast()));
                [
                    [_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)],
                    [
                        _mm256_and_si256(_mm256_srli_epi16::<4>(a), mask),
                        _mm256_and_si256(_mm256_srli_epi16::<4>(b), mask),
                    ],
                ]
            }
        }

        #[inline(always)]
        unsafe fn inputs(x: &Signed<'_>, k: usize) -> [__m256i; 4] {
            // SAFETY: the caller vouches for the instructions and eight readable bytes in each plane.
            unsafe {
                let (high, low) = (x.high.as_ptr().add(k).cast::<i32>(), x.low.as_ptr().add(k).cast::<i32>());
                [
                    _mm256_set1_epi32(high.read_unaligned()),
                    _mm256_set1_epi32(low.read_unaligned()),
                    _mm256_set1_epi32(high.add(1).read_unaligned()),
                    _mm256_set1_epi32(low.add(1).read_unaligned()),
                ]
            }
        }

        #[inline(always)]
        unsafe fn add_products(
            x: [__m256i; 4],
            w: [[__m256i; 2]; 2],
            mut sums: [[__m256i; 2]; 2],
        ) -> [[__m256i; 2]; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe {
                for plane in 0..2 {
                    for half in 0..2 {
                        let first = _mm256_maddubs_epi16(w[0][half], x[plane]);
                        let second = _mm256_maddubs_epi16(w[1][half], x[2 + plane]);
                        sums[plane][half] =
                            _mm256_add_epi16(sums[plane][half], _mm256_add_epi16(first, second));
                    }
                }
            }
            sums
        }

        #[inline(always)]
        unsafe fn put_together(sums: [[__m256i; 2]; 2]) -> [__m256i; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe {
                let ones = _mm256_set1_epi16(1);
                let mut ints = [_mm256_setzero_si256(); 2];
                for half in 0..2 {
                    let high = _mm256_slli_epi32::<8>(_mm256_madd_epi16(sums[0][half], ones));
                    ints[half] = _mm256_add_epi32(high, _mm256_madd_epi16(sums[1][half], ones));
                }
                ints
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    use super::super::neon::{self, Neon};
    use super::{Grouped, LINE_INPUTS, Nibbles, Signed};

    /// Products are added in 16 bits: a group's eight in a lane reach 8 · 15 · 128 = 15,360 < 2¹⁵.
    impl<const AFFINE: bool> Grouped<Nibbles<AFFINE>> for Neon {
        type Base = Self;
        const INPUTS: usize = LINE_INPUTS;
        type Weights = [[int8x16_t; 4]; 2]; // low and high halves, four outputs each
        type Inputs = [int8x16_t; 4]; // high and low of the first four, then of the others, four times the same
        type Sums = [[int16x8_t; 8]; 2]; // high and low, two outputs each

        #[inline(always)]
        unsafe fn no_sums() -> [[int16x8_t; 8]; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { [[vdupq_n_s16(0); 8]; 2] }
        }

        #[inline(always)]
        unsafe fn weights(from: *const u8) -> [[int8x16_t; 4]; 2] {
            // SAFETY: the caller vouches for the instructions and 64 readable bytes.
            unsafe {
                let mut line = [[vdupq_n_s8(0); 4]; 2];
                for part in 0..4 {
                    let bytes = vld1q_u8(from.add(16 * part));
                    line[0][part] = vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15)));
                    line[1][part] = vreinterpretq_s8_u8(vshrq_n_u8::<4>(bytes));
                }
                line
            }
        }

        #[inline(always)]
        unsafe fn inputs(x: &Signed<'_>, k: usize) -> [int8x16_t; 4] {
            // SAFETY: the caller vouches for the instructions and eight readable bytes in each plane.
            unsafe {
                let ([first_high, first_low], [high, low]) =
                    (neon::four_inputs(x, k), neon::four_inputs(x, k + 4));
                [first_high, first_low, high, low]
            }
        }

        #[inline(always)]
        unsafe fn add_products(
            x: [int8x16_t; 4],
            w: [[int8x16_t; 4]; 2],
            mut sums: [[int16x8_t; 8]; 2],
        ) -> [[int16x8_t; 8]; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe {
                for plane in 0..2 {
                    for half in 0..2 {
                        let x = x[2 * half + plane];
                        for part in 0..4 {
                            let (w, sums) = (w[half][part], &mut sums[plane]);
                            sums[2 * part] = vmlal_s8(sums[2 * part], vget_low_s8(w), vget_low_s8(x));
                            sums[2 * part + 1] = vmlal_high_s8(sums[2 * part + 1], w, x);
                        }
                    }
                }
            }
            sums
        }

        #[inline(always)]
        unsafe fn put_together(sums: [[int16x8_t; 8]; 2]) -> [int32x4_t; 4] {
            // SAFETY: the caller vouches for the instructions.
            unsafe {
                let mut ints = [vdupq_n_s32(0); 4];
                for part in 0..4 {
                    let high = vpaddq_s32(vpaddlq_s16(sums[0][2 * part]), vpaddlq_s16(sums[0][2 * part + 1]));
                    let low = vpaddq_s32(vpaddlq_s16(sums[1][2 * part]), vpaddlq_s16(sums[1][2 * part + 1]));
                    ints[part] = neon::joined(high, low);
                }
                ints
            }
        }
    }
}
