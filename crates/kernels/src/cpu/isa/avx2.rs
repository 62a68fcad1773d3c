//! x86-64 with AVX2, FMA and F16C: 2013 and later.

use std::arch::x86_64::*;

use half::bf16;

use super::groups::stamp_groups;
use super::{Isa, Lanes, Quantized, stamp};

/// Proof that AVX2, FMA and F16C exist.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Isa for Avx2 {
    const NAME: &'static str = "avx2";
    const FMA: bool = true;
    const PANELS: [(usize, usize); 2] = [(1, 1), (2, 1)];
    const INT4: [(usize, usize); 2] = [(1, 1), (2, 1)];
    const INT8_GROUPS: [(usize, usize); 2] = [(1, 1), (2, 1)];
    const PLANES: bool = false;

    fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        .then_some(Self(()))
    }

    stamp!(Avx2, "avx2,fma", planes: false);
    stamp_groups!(Avx2, "avx2,fma,f16c");
}

impl Lanes for Avx2 {
    type Float = [__m256; 2];
    type Weights = [__m256i; 4]; // as 16-bit integers, four outputs each
    type Inputs = __m256i;
    type Sums = [__m256i; 4]; // two lanes an output
    const FLOATS: usize = 4;
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
    unsafe fn load_first(from: *const bf16) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instructions and 16 readable pairs.
        unsafe {
            let [a, b] = [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(16).cast())];
            [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(a)), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(b))]
        }
    }

    #[inline(always)]
    unsafe fn load_second(from: *const bf16) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instructions and 16 readable pairs.
        unsafe {
            let upper = _mm256_set1_epi32(-0x1_0000);
            let [a, b] = [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(16).cast())];
            [_mm256_castsi256_ps(_mm256_and_si256(a, upper)), _mm256_castsi256_ps(_mm256_and_si256(b, upper))]
        }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, a: [__m256; 2]) {
        // SAFETY: the caller vouches for the instructions and 16 writable numbers.
        unsafe {
            _mm256_storeu_ps(to, a[0]);
            _mm256_storeu_ps(to.add(8), a[1]);
        }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    unsafe fn add(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn mul_add(a: [__m256; 2], b: [__m256; 2], sum: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], sum[0]), _mm256_fmadd_ps(a[1], b[1], sum[1])] }
    }

    #[inline(always)]
    unsafe fn no_sums() -> [__m256i; 4] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [_mm256_setzero_si256(); 4] }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [__m256i; 4] {
        // SAFETY: the caller vouches for the instructions and 64 readable numbers.
        unsafe {
            [
                _mm256_cvtepi8_epi16(_mm_loadu_si128(from.cast())),
                _mm256_cvtepi8_epi16(_mm_loadu_si128(from.add(16).cast())),
                _mm256_cvtepi8_epi16(_mm_loadu_si128(from.add(32).cast())),
                _mm256_cvtepi8_epi16(_mm_loadu_si128(from.add(48).cast())),
            ]
        }
    }

    #[inline(always)]
    unsafe fn inputs(x: &Quantized<'_>, k: usize) -> __m256i {
        // SAFETY: the caller vouches for the instructions and GROUP readable numbers: eight bytes.
        unsafe { _mm256_set1_epi64x(x.shorts.as_ptr().add(k).cast::<i64>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn add_products(x: __m256i, w: [__m256i; 4], sums: [__m256i; 4]) -> [__m256i; 4] {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            [
                _mm256_add_epi32(sums[0], _mm256_madd_epi16(x, w[0])),
                _mm256_add_epi32(sums[1], _mm256_madd_epi16(x, w[1])),
                _mm256_add_epi32(sums[2], _mm256_madd_epi16(x, w[2])),
                _mm256_add_epi32(sums[3], _mm256_madd_epi16(x, w[3])),
            ]
        }
    }

    #[inline(always)]
    unsafe fn add_sums(sums: [__m256i; 4], totals: &mut [f64; 16]) {
        for (sums, totals) in sums.iter().zip(totals.as_chunks_mut::<4>().0) {
            let mut lanes = [0_i32; 8];
            // SAFETY: the caller vouches for the instructions; eight numbers can be written.
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), *sums) };
            for (total, pair) in totals.iter_mut().zip(lanes.as_chunks::<2>().0) {
                *total += f64::from(pair[0]) + f64::from(pair[1]);
            }
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: prefetching an address never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
