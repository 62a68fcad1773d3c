//! x86-64 with AVX2 and FMA: 2013 and later.

use std::arch::x86_64::*;

use half::bf16;

use super::{Isa, Lanes, stamp};

/// Proof that AVX2 and FMA exist.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Isa for Avx2 {
    const NAME: &'static str = "avx2";
    const FMA: bool = true;
    const TILE_ROWS: usize = 2;

    fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }

    stamp!(Avx2, "avx2,fma");
}

impl Lanes for Avx2 {
    type Float = [__m256; 2];
    type Short = __m256i;
    type Int = __m256i;
    const SHORTS: usize = 16;
    const FLUSH: usize = 256; // 256 · 2 · 127 · 32,512 < 2³¹

    #[inline(always)]
    unsafe fn zero() -> [__m256; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [_mm256_setzero_ps(); 2] }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instructions and 16 readable numbers.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instructions and 16 readable numbers.
        unsafe {
            let wide = |half| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half)));
            [wide(_mm_loadu_si128(from.cast())), wide(_mm_loadu_si128(from.add(8).cast()))]
        }
    }

    #[inline(always)]
    unsafe fn mul_add(a: [__m256; 2], b: [__m256; 2], sum: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], sum[0]), _mm256_fmadd_ps(a[1], b[1], sum[1])] }
    }

    #[inline(always)]
    unsafe fn sum(a: [__m256; 2]) -> f32 {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let a = _mm256_add_ps(a[0], a[1]);
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_shuffle_ps::<1>(a, a)))
        }
    }

    #[inline(always)]
    unsafe fn int_zero() -> __m256i {
        // SAFETY: the caller vouches for the instructions.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn short_load(from: *const i16) -> __m256i {
        // SAFETY: the caller vouches for the instructions and 16 readable numbers.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn short_widen(from: *const i8) -> __m256i {
        // SAFETY: the caller vouches for the instructions and 16 readable numbers.
        unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn int_mul_add(x: __m256i, w: __m256i, sum: __m256i) -> __m256i {
        // SAFETY: the caller vouches for the instructions.
        unsafe { _mm256_add_epi32(sum, _mm256_madd_epi16(x, w)) }
    }

    #[inline(always)]
    unsafe fn int_sum(a: __m256i) -> i64 {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(a));
            let high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256::<1>(a));
            let a = _mm256_add_epi64(low, high);
            let a = _mm_add_epi64(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            _mm_cvtsi128_si64(_mm_add_epi64(a, _mm_unpackhi_epi64(a, a)))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: prefetching an address never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
