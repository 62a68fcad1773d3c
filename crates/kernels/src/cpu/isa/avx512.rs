//! x86-64 with AVX-512 and its 16-bit dot product (VNNI): Ice Lake, Zen 4 and later.

use std::arch::x86_64::*;

use half::bf16;

use super::avx2::Avx2;
use super::{Isa, Lanes, Quantized, stamp};

/// Proof that AVX-512 F, BW, DQ, VL and VNNI exist.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Isa for Avx512 {
    const NAME: &'static str = "avx512";
    const FMA: bool = true;
    const PANELS: [(usize, usize); 2] = [(1, 4), (4, 2)];
    const PLANES: bool = true;

    fn detect() -> Option<Self> {
        (Avx2::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni"))
        .then_some(Self(()))
    }

    stamp!(Avx512, "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", planes: true);
}

impl Lanes for Avx512 {
    type Float = __m512;
    type Weights = __m512i;
    type Inputs = [__m512i; 2]; // high and low
    type Sums = [__m512i; 2];
    const FLOATS: usize = 16;
    const FLUSH: usize = 16_384; // 16,384 · 4 · 255 · 127 < 2³¹

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
    unsafe fn load_first(from: *const bf16) -> __m512 {
        // SAFETY: the caller vouches for the instructions and 16 readable pairs.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_loadu_si512(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_second(from: *const bf16) -> __m512 {
        // SAFETY: the caller vouches for the instructions and 16 readable pairs.
        unsafe {
            let upper = _mm512_set1_epi32(-0x1_0000);
            _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(from.cast()), upper))
        }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, a: __m512) {
        // SAFETY: the caller vouches for the instructions and 16 writable numbers.
        unsafe { _mm512_storeu_ps(to, a) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        // SAFETY: the caller vouches for the instructions.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the caller vouches for the instructions.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul_add(a: __m512, b: __m512, sum: __m512) -> __m512 {
        // SAFETY: the caller vouches for the instructions.
        unsafe { _mm512_fmadd_ps(a, b, sum) }
    }

    #[inline(always)]
    unsafe fn no_sums() -> [__m512i; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [_mm512_setzero_si512(); 2] }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> __m512i {
        // SAFETY: the caller vouches for the instructions and 64 readable numbers.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn inputs(x: &Quantized<'_>, k: usize) -> [__m512i; 2] {
        // SAFETY: the caller vouches for the instructions and GROUP readable bytes in each plane.
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
        unsafe { [_mm512_dpbusd_epi32(sums[0], x[0], w), _mm512_dpbusd_epi32(sums[1], x[1], w)] }
    }

    #[inline(always)]
    unsafe fn add_sums(sums: [__m512i; 2], totals: &mut [f64; 16]) {
        let (mut high, mut low) = ([0_i32; 16], [0_i32; 16]);
        // SAFETY: the caller vouches for the instructions; sixteen numbers can be written.
        unsafe {
            _mm512_storeu_si512(high.as_mut_ptr().cast(), sums[0]);
            _mm512_storeu_si512(low.as_mut_ptr().cast(), sums[1]);
        }
        for ((total, high), low) in totals.iter_mut().zip(high).zip(low) {
            *total += 256.0 * f64::from(high) + f64::from(low);
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: prefetching an address never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
