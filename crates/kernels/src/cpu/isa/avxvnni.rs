//! x86-64 with AVX2 and the 256-bit dot product of bytes (AVX-VNNI): Alder Lake, Zen 5 and later.

use std::arch::x86_64::*;

use half::bf16;

use super::avx2::Avx2;
use super::groups::{Grouped, Int4, Int8Groups, Nibbles, stamp_groups};
use super::{Isa, Lanes, Quantized, Signed, floats_of, int8_groups, stamp};

/// Proof that AVX-VNNI and what [`Avx2`] proves exist.
#[derive(Clone, Copy, Debug)]
pub struct AvxVnni(());

impl Isa for AvxVnni {
    const NAME: &'static str = "avxvnni";
    const FMA: bool = true;
    const PANELS: [(usize, usize); 2] = [(1, 1), (2, 1)];
    const INT4: [(usize, usize); 2] = [(1, 1), (2, 1)];
    const INT8_GROUPS: [(usize, usize); 2] = [(1, 1), (2, 1)];
    const PLANES: bool = true;

    fn detect() -> Option<Self> {
        (Avx2::detect().is_some() && is_x86_feature_detected!("avxvnni")).then_some(Self(()))
    }

    stamp!(AvxVnni, "avx2,fma,avxvnni", planes: true);
    stamp_groups!(AvxVnni, "avx2,fma,f16c,avxvnni");
}

impl Lanes for AvxVnni {
    floats_of!(Avx2);

    type Weights = [__m256i; 2]; // eight outputs each
    type Inputs = [__m256i; 2]; // high and low
    type Sums = [[__m256i; 2]; 2]; // high and low, eight outputs each
    const FLUSH: usize = 16_384; // 16,384 · 4 · 255 · 127 < 2³¹

    #[inline(always)]
    unsafe fn no_sums() -> [[__m256i; 2]; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [[_mm256_setzero_si256(); 2]; 2] }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [__m256i; 2] {
        // SAFETY: the caller vouches for the instructions and 64 readable numbers.
        unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())] }
    }

    #[inline(always)]
    unsafe fn inputs(x: &Quantized<'_>, k: usize) -> [__m256i; 2] {
        // SAFETY: the caller vouches for the instructions and GROUP readable bytes in each plane.
        unsafe {
            [
                _mm256_set1_epi32(x.high.as_ptr().add(k).cast::<i32>().read_unaligned()),
                _mm256_set1_epi32(x.low.as_ptr().add(k).cast::<i32>().read_unaligned()),
            ]
        }
    }

    #[inline(always)]
    unsafe fn add_products(x: [__m256i; 2], w: [__m256i; 2], sums: [[__m256i; 2]; 2]) -> [[__m256i; 2]; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            [
                [
                    _mm256_dpbusd_avx_epi32(sums[0][0], x[0], w[0]),
                    _mm256_dpbusd_avx_epi32(sums[0][1], x[0], w[1]),
                ],
                [
                    _mm256_dpbusd_avx_epi32(sums[1][0], x[1], w[0]),
                    _mm256_dpbusd_avx_epi32(sums[1][1], x[1], w[1]),
                ],
            ]
        }
    }

    #[inline(always)]
    unsafe fn add_sums(sums: [[__m256i; 2]; 2], totals: &mut [f64; 16]) {
        let mut planes = [[0_i32; 16]; 2];
        for (plane, sums) in planes.iter_mut().zip(sums) {
            // SAFETY: the caller vouches for the instructions; sixteen numbers can be written.
            unsafe {
                _mm256_storeu_si256(plane.as_mut_ptr().cast(), sums[0]);
                _mm256_storeu_si256(plane.as_mut_ptr().add(8).cast(), sums[1]);
            }
        }
        for ((total, high), low) in totals.iter_mut().zip(planes[0]).zip(planes[1]) {
            *total += 256.0 * f64::from(high) + f64::from(low);
        }
    }
}

/// Weights and activations enter as AVX2's.
impl<const AFFINE: bool> Grouped<Nibbles<AFFINE>> for AvxVnni {
    type Base = Avx2;
    const INPUTS: usize = <Avx2 as Grouped<Nibbles<AFFINE>>>::INPUTS;
    type Weights = <Avx2 as Grouped<Nibbles<AFFINE>>>::Weights;
    type Inputs = <Avx2 as Grouped<Nibbles<AFFINE>>>::Inputs;
    type Sums = [[__m256i; 2]; 2]; // high and low, eight outputs each

    #[inline(always)]
    unsafe fn no_sums() -> [[__m256i; 2]; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { <Self as Lanes>::no_sums() }
    }

    #[inline(always)]
    unsafe fn weights(from: *const u8) -> Self::Weights {
        // SAFETY: the caller vouches for the same.
        unsafe { <Avx2 as Grouped<Nibbles<AFFINE>>>::weights(from) }
    }

    #[inline(always)]
    unsafe fn inputs(x: &Signed<'_>, k: usize) -> Self::Inputs {
        // SAFETY: the caller vouches for the same.
        unsafe { <Avx2 as Grouped<Nibbles<AFFINE>>>::inputs(x, k) }
    }

    #[inline(always)]
    unsafe fn add_products(x: Self::Inputs, w: Self::Weights, mut sums: Self::Sums) -> Self::Sums {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            for plane in 0..2 {
                for half in 0..2 {
                    let first = _mm256_dpbusd_avx_epi32(sums[plane][half], w[0][half], x[plane]);
                    sums[plane][half] = _mm256_dpbusd_avx_epi32(first, w[1][half], x[2 + plane]);
                }
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn put_together(sums: [[__m256i; 2]; 2]) -> [__m256i; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let mut ints = [_mm256_setzero_si256(); 2];
            for half in 0..2 {
                ints[half] = _mm256_add_epi32(_mm256_slli_epi32::<8>(sums[0][half]), sums[1][half]);
            }
            ints
        }
    }
}

impl Grouped<Int8Groups> for AvxVnni {
    type Base = Avx2;
    const INPUTS: usize = int8_groups::LINE_INPUTS;
    type Weights = [__m256i; 2]; // eight outputs each
    type Inputs = [__m256i; 2]; // high and low
    type Sums = [[__m256i; 2]; 2]; // high and low, eight outputs each

    #[inline(always)]
    unsafe fn no_sums() -> [[__m256i; 2]; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { <Self as Lanes>::no_sums() }
    }

    #[inline(always)]
    unsafe fn weights(from: *const u8) -> [__m256i; 2] {
        // SAFETY: the caller vouches for the instructions and 64 readable bytes.
        unsafe { <Self as Lanes>::weights(from.cast()) }
    }

    #[inline(always)]
    unsafe fn inputs(x: &Signed<'_>, k: usize) -> [__m256i; 2] {
        // SAFETY: the caller vouches for the instructions and four readable bytes in each plane.
        unsafe {
            [
                _mm256_set1_epi32(x.high.as_ptr().add(k).cast::<i32>().read_unaligned()),
                _mm256_set1_epi32(x.low.as_ptr().add(k).cast::<i32>().read_unaligned()),
            ]
        }
    }

    #[inline(always)]
    unsafe fn add_products(x: [__m256i; 2], w: [__m256i; 2], mut sums: Self::Sums) -> Self::Sums {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            for plane in 0..2 {
                for half in 0..2 {
                    sums[plane][half] = _mm256_dpbusd_avx_epi32(sums[plane][half], w[half], x[plane]);
                }
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn put_together(sums: [[__m256i; 2]; 2]) -> [__m256i; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { <Self as Grouped<Int4>>::put_together(sums) }
    }
}
