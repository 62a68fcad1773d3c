//! x86-64 with AVX-512 and its 16-bit dot product (VNNI): Ice Lake, Zen 4 and later.

use std::arch::x86_64::*;

use half::bf16;

use super::avx2::Avx2;
use super::groups::stamp_groups;
use super::{Isa, Lanes, Panel, Quantized, stamp};

/// Proof that AVX-512 F, BW, DQ, VL and VNNI exist.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Isa for Avx512 {
    const NAME: &'static str = "avx512";
    const FMA: bool = true;
    const PANELS: [(usize, usize); 2] = [(1, 1), (4, 2)];
    const INT4: [(usize, usize); 2] = [(1, 1), (6, 1)];
    const INT8_GROUPS: [(usize, usize); 2] = [(1, 1), (4, 2)];
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
    stamp_groups!(Avx512, "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni");
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
        // SAFETY: the caller vouches for the instructions; sixteen numbers can be read and written.
        unsafe {
            let ([high, more_high], [low, more_low]) = (halves(sums[0]), halves(sums[1]));
            let to = totals.as_mut_ptr();
            let unit = _mm512_set1_pd(256.0);
            let first = _mm512_add_pd(_mm512_loadu_pd(to), _mm512_fmadd_pd(high, unit, low));
            let second =
                _mm512_add_pd(_mm512_loadu_pd(to.add(8)), _mm512_fmadd_pd(more_high, unit, more_low));
            _mm512_storeu_pd(to, first);
            _mm512_storeu_pd(to.add(8), second);
        }
    }

    // By hand: of the loop the compiler makes gathers across the rows and panels of a tile.
    #[inline(always)]
    unsafe fn scale(totals: &[f64; 16], offset: f64, scale: f32, w: &Panel<'_>) -> [f32; 16] {
        let mut products = [0.0; 16];
        // SAFETY: the caller vouches for the instructions; sixteen numbers can be read and written.
        unsafe {
            let [first, second] = halves(_mm512_loadu_si512(w.sums.as_ptr().cast()));
            let (from, offset) = (totals.as_ptr(), _mm512_set1_pd(-offset));
            let first = _mm512_fmadd_pd(first, offset, _mm512_loadu_pd(from));
            let second = _mm512_fmadd_pd(second, offset, _mm512_loadu_pd(from.add(8)));
            let sum = joined(first, second);
            let scale = _mm512_mul_ps(_mm512_set1_ps(scale), _mm512_loadu_ps(w.scales.as_ptr()));
            _mm512_storeu_ps(products.as_mut_ptr(), _mm512_mul_ps(sum, scale));
        }
        products
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: prefetching an address never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}

/// Sixteen integers as f64.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn halves(x: __m512i) -> [__m512d; 2] {
    [_mm512_cvtepi32_pd(_mm512_castsi512_si256(x)), _mm512_cvtepi32_pd(_mm512_extracti32x8_epi32::<1>(x))]
}

/// Sixteen numbers rounded to f32.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn joined(first: __m512d, second: __m512d) -> __m512 {
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(_mm512_cvtpd_ps(first)), _mm512_cvtpd_ps(second))
}
