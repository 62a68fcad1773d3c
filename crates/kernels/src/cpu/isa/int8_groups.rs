//! How each instruction set multiplies 8-bit weights that share scales in groups.
//!
//! A line of 64 bytes holds four inputs of all outputs, (16 outputs, 4), each plus 128: an operand of a dot-product
//! instruction of unsigned with signed bytes. Activations enter it as two planes of signed bytes; where there is no such
//! instruction, as 16-bit integers. Where there is one of signed bytes alone, 128 is taken off the weights first.

use super::PANEL;
use super::groups::{Grouped, Int8Groups, Signed};

/// Bytes of a line.
pub const LINE: usize = 64;

/// Inputs of a line.
pub const LINE_INPUTS: usize = 4;

mod scalar {
    use super::super::scalar::Scalar;
    use super::{Grouped, Int8Groups, LINE, LINE_INPUTS, PANEL, Signed};

    /// A group's sum reaches 32 · 255 · 32,512 < 2³¹ before the offset.
    impl Grouped<Int8Groups> for Scalar {
        type Base = Self;
        const INPUTS: usize = LINE_INPUTS;
        const SHORTS: bool = true;
        type Weights = [u8; LINE];
        type Inputs = [i16; LINE_INPUTS];
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
        unsafe fn inputs(x: &Signed<'_>, k: usize) -> [i16; LINE_INPUTS] {
            // SAFETY: the caller vouches for as many activations.
            unsafe { x.shorts.as_ptr().add(k).cast::<[i16; LINE_INPUTS]>().read() }
        }

        #[inline(always)]
        unsafe fn add_products(x: [i16; LINE_INPUTS], w: [u8; LINE], mut sums: [i32; PANEL]) -> [i32; PANEL] {
            for j in 0..PANEL {
                for i in 0..LINE_INPUTS {
                    sums[j] += i32::from(w[LINE_INPUTS * j + i]) * i32::from(x[i]);
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
    use super::super::groups::Int4;
    use super::{Grouped, Int8Groups, LINE_INPUTS, Signed};

    impl Grouped<Int8Groups> for Avx512 {
        type Base = Self;
        const INPUTS: usize = LINE_INPUTS;
        type Weights = __m512i;
        type Inputs = [__m512i; 2]; // high and low
        type Sums = [__m512i; 2]; // high and low

        #[inline(always)]
        unsafe fn no_sums() -> [__m512i; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { <Self as Grouped<Int4>>::no_sums() }
        }

        #[inline(always)]
        unsafe fn weights(from: *const u8) -> __m512i {
            // SAFETY: the caller vouches for the instructions and 64 readable bytes.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }

        #[inline(always)]
        unsafe fn inputs(x: &Signed<'_>, k: usize) -> [__m512i; 2] {
            // SAFETY: the caller vouches for the instructions and four readable bytes in each plane.
            unsafe {
                [
                    _mm512_set1_epi32(x.high.as_ptr().add(k).cast::<i32>().read_unaligned()),
                    _mm512_set1_epi32(x.low.as_ptr().add(k).cast::<i32>().read_unaligned()),
                ]
            }
        }

        #[inline(always)]
        unsafe fn add_products(x: [__m512i; 2], w: __m512i, sums: [__m512i; 2]) -> [__m512i; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { [_mm512_dpbusd_epi32(sums[0], w, x[0]), _mm512_dpbusd_epi32(sums[1], w, x[1])] }
        }

        #[inline(always)]
        unsafe fn put_together(sums: [__m512i; 2]) -> __m512i {
            // SAFETY: the caller vouches for the instructions.
            unsafe { <Self as Grouped<Int4>>::put_together(sums) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::super::avx2::Avx2;
    use super::{Grouped, Int8Groups, LINE_INPUTS, Signed};

    impl Grouped<Int8Groups> for Avx2 {
        type Base = Self;
        const INPUTS: usize = LINE_INPUTS;
        const SHORTS: bool = true;
        type Weights = [__m256i; 4]; // as 16-bit integers, four outputs each
        type Inputs = __m256i;
        type Sums = [__m256i; 4]; // four outputs each, two lanes an output

        #[inline(always)]
        unsafe fn no_sums() -> [__m256i; 4] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { [_mm256_setzero_si256(); 4] }
        }

        #[inline(always)]
        unsafe fn weights(from: *const u8) -> [__m256i; 4] {
            // SAFETY: the caller vouches for the instructions and 64 readable bytes.
            unsafe {
                [
                    _mm256_cvtepu8_epi16(_mm_loadu_si128(from.cast())),
                    _mm256_cvtepu8_epi16(_mm_loadu_si128(from.add(16).cast())),
                    _mm256_cvtepu8_epi16(_mm_loadu_si128(from.add(32).cast())),
                    _mm256_cvtepu8_epi16(_mm_loadu_si128(from.add(48).cast())),
                ]
            }
        }

        #[inline(always)]
        unsafe fn inputs(x: &Signed<'_>, k: usize) -> __m256i {
            // SAFETY: the caller vouches for the instructions and four readable numbers: eight bytes.
            unsafe { _mm256_set1_epi64x(x.shorts.as_ptr().add(k).cast::<i64>().read_unaligned()) }
        }

        #[inline(always)]
        unsafe fn add_products(x: __m256i, w: [__m256i; 4], mut sums: [__m256i; 4]) -> [__m256i; 4] {
            // SAFETY: the caller vouches for the instructions.
            unsafe {
                for part in 0..4 {
                    sums[part] = _mm256_add_epi32(sums[part], _mm256_madd_epi16(x, w[part]));
                }
            }
            sums
        }

        #[inline(always)]
        unsafe fn put_together(sums: [__m256i; 4]) -> [__m256i; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe {
                // Pairs are added half by half, which leaves the outputs in the order 0, 1, 4, 5, 2, 3, 6, 7.
                let (first, second) =
                    (_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
                const ORDER: i32 = 0b11_01_10_00;
                [_mm256_permute4x64_epi64::<ORDER>(first), _mm256_permute4x64_epi64::<ORDER>(second)]
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    use super::super::Lanes;
    use super::super::neon::Neon;
    use super::{Grouped, Int8Groups, LINE_INPUTS, Signed};

    impl Grouped<Int8Groups> for Neon {
        type Base = Self;
        const INPUTS: usize = LINE_INPUTS;
        const SHORTS: bool = true;
        const UNSIGNED: bool = false;
        type Weights = [int8x16_t; 4]; // four outputs each
        type Inputs = int16x8_t; // twice the same four
        type Sums = [int32x4_t; 16]; // a vector an output

        #[inline(always)]
        unsafe fn no_sums() -> [int32x4_t; 16] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { <Self as Lanes>::no_sums() }
        }

        #[inline(always)]
        unsafe fn weights(from: *const u8) -> [int8x16_t; 4] {
            // SAFETY: the caller vouches for the instructions and 64 readable bytes.
            unsafe {
                let mut weights = [vdupq_n_s8(0); 4];
                for part in 0..4 {
                    let bytes = veorq_u8(vld1q_u8(from.add(16 * part)), vdupq_n_u8(0x80));
                    weights[part] = vreinterpretq_s8_u8(bytes);
                }
                weights
            }
        }

        #[inline(always)]
        unsafe fn inputs(x: &Signed<'_>, k: usize) -> int16x8_t {
            // SAFETY: the caller vouches for the instructions and four readable numbers.
            unsafe {
                let four = vld1_s16(x.shorts.as_ptr().add(k));
                vcombine_s16(four, four)
            }
        }

        #[inline(always)]
        unsafe fn add_products(x: int16x8_t, w: [int8x16_t; 4], sums: [int32x4_t; 16]) -> [int32x4_t; 16] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { <Self as Lanes>::add_products(x, w, sums) }
        }

        #[inline(always)]
        unsafe fn put_together(sums: [int32x4_t; 16]) -> [int32x4_t; 4] {
            // SAFETY: the caller vouches for the instructions.
            unsafe {
                let mut ints = [vdupq_n_s32(0); 4];
                for part in 0..4 {
                    let first = vpaddq_s32(sums[4 * part], sums[4 * part + 1]);
                    ints[part] = vpaddq_s32(first, vpaddq_s32(sums[4 * part + 2], sums[4 * part + 3]));
                }
                ints
            }
        }
    }
}
