//! x86-64 with AVX-512 and its 16-bit dot product (VNNI): Ice Lake, Zen 4 and later.

use std::arch::x86_64::*;

use half::bf16;

use super::avx2::Avx2;
use super::{Isa, Lanes, stamp};

/// Proof that AVX-512 F, BW, DQ, VL and VNNI exist.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Isa for Avx512 {
    const NAME: &'static str = "avx512";
    const FMA: bool = true;
    const TILE_ROWS: usize = 4;

    fn detect() -> Option<Self> {
        (Avx2::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni"))
        .then_some(Self(()))
    }

    stamp!(Avx512, "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni");
}

impl Lanes for Avx512 {
    type Float = __m512;
    type Short = __m512i;
    type Int = __m512i;
    const SHORTS: usize = 32;
    const FLUSH: usize = 256; // 256 · 2 · 127 · 32,512 < 2³¹

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: the caller vouches for the instructions.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        // SAFETY: the caller vouches for the instructions and 16 readable numbers.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> __m512 {
        // SAFETY: the caller vouches for the instructions and 16 readable numbers.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn mul_add(a: __m512, b: __m512, sum: __m512) -> __m512 {
        // SAFETY: the caller vouches for the instructions.
        unsafe { _mm512_fmadd_ps(a, b, sum) }
    }

    #[inline(always)]
    unsafe fn sum(a: __m512) -> f32 {
        // SAFETY: the caller vouches for the instructions, AVX2's included.
        unsafe { Avx2::sum([_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a)]) }
    }

    #[inline(always)]
    unsafe fn int_zero() -> __m512i {
        // SAFETY: the caller vouches for the instructions.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn short_load(from: *const i16) -> __m512i {
        // SAFETY: the caller vouches for the instructions and 32 readable numbers.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn short_widen(from: *const i8) -> __m512i {
        // SAFETY: the caller vouches for the instructions and 32 readable numbers.
        unsafe { _mm512_cvtepi8_epi16(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn int_mul_add(x: __m512i, w: __m512i, sum: __m512i) -> __m512i {
        // SAFETY: the caller vouches for the instructions.
        unsafe { _mm512_dpwssd_epi32(sum, x, w) }
    }

    #[inline(always)]
    unsafe fn int_sum(a: __m512i) -> i64 {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let low = _mm512_cvtepi32_epi64(_mm512_castsi512_si256(a));
            let high = _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64::<1>(a));
            _mm512_reduce_add_epi64(_mm512_add_epi64(low, high))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: prefetching an address never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
