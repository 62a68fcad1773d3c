//! The inner loop of 4-bit products, written once and compiled for each instruction set.
//!
//! A panel of 16 outputs is a stream of blocks of [`BLOCK`] inputs, (inputs / [`BLOCK`], [`BLOCK_BYTES`]). A block is
//! eight lines of 64 bytes and then the f16 scales of its two groups, (2, 16 outputs). A line holds eight inputs of all
//! outputs, (16 outputs, 4): byte `i` of an output has the input `i` in its low half and the input `4 + i` in its high
//! half. So both halves, masked, are what a dot-product instruction multiplies with four activations.
//!
//! Activations `x = 256 · high + low` enter as two planes of signed bytes, and the `q` as unsigned ones. A group's sum
//! is then `256 · Σ high · q + Σ low · q − 8 · Σ x`, whose last term is computed once a row.

use super::{Ahead, PANEL};
use crate::int4::GROUP;

/// Inputs of a block.
pub const BLOCK: usize = 2 * GROUP;

/// Bytes of a line: eight inputs of 16 outputs.
pub const LINE: usize = 64;

/// Inputs of a line.
pub const LINE_INPUTS: usize = 8;

/// Where the scales of a block lie.
pub const SCALES: usize = BLOCK / LINE_INPUTS * LINE;

/// Bytes of a block of a panel.
pub const BLOCK_BYTES: usize = SCALES + BLOCK / GROUP * PANEL * 2;

/// One row of quantised activations as two planes.
#[derive(Clone, Copy)]
pub struct Signed<'a> {
    /// (inputs,)
    pub high: &'a [i8],
    /// (inputs,)
    pub low: &'a [i8],
    /// −8 times the sum of each group. (inputs / GROUP,)
    pub offsets: &'a [i32],
    /// What one unit stands for.
    pub scale: f32,
}

/// The vector operations of one instruction set.
///
/// # Safety
/// All functions may run only where the instruction set exists, inside a function compiled for it.
#[expect(clippy::missing_safety_doc, reason = "the section above holds for every function")]
pub trait Nibbles {
    /// A line: its low halves and its high halves.
    type Line: Copy;
    /// The eight activations that a line is multiplied with.
    type Inputs: Copy;
    /// Partial sums of a group of sixteen outputs, without the offset.
    type Sums: Copy;
    /// Sixteen f32.
    type Totals: Copy;

    /// Sixteen zeros.
    unsafe fn no_totals() -> Self::Totals;
    /// No sums yet.
    unsafe fn no_group() -> Self::Sums;
    /// From [`LINE`] readable bytes.
    unsafe fn line(from: *const u8) -> Self::Line;
    /// From eight readable bytes each.
    unsafe fn eight_inputs(high: *const i8, low: *const i8) -> Self::Inputs;
    /// `x · w + sums`
    unsafe fn add_line(x: Self::Inputs, w: Self::Line, sums: Self::Sums) -> Self::Sums;
    /// `totals + (sums + offset) · scales`, rounded after the multiplication and after the addition, from sixteen
    /// readable scales.
    unsafe fn add_group(
        sums: Self::Sums,
        offset: i32,
        scales: *const u16,
        totals: Self::Totals,
    ) -> Self::Totals;
    /// Into sixteen writable numbers.
    unsafe fn store(totals: Self::Totals, to: *mut f32);
}

/// How many blocks the panels have, and so the rows.
#[inline(always)]
fn blocks_of(x: &[Signed<'_>], w: &[&[u8]]) -> usize {
    let blocks = w[0].len() / BLOCK_BYTES;
    assert!(w.iter().all(|w| w.len() == blocks * BLOCK_BYTES), "length of the panels");
    let fits = |x: &Signed<'_>| {
        x.high.len() == blocks * BLOCK
            && x.low.len() == blocks * BLOCK
            && x.offsets.len() == blocks * (BLOCK / GROUP)
    };
    assert!(x.iter().all(fits), "length of the activations");
    blocks
}

/// The products of rows with panels, as [`crate::int4`] says, to the bit.
///
/// # Safety
/// As for [`Nibbles`].
#[inline(always)]
pub unsafe fn products<L: Nibbles + super::Lanes, const R: usize, const T: usize>(
    x: [Signed<'_>; R],
    w: [&[u8]; T],
    ahead: Ahead,
) -> [[[f32; PANEL]; T]; R] {
    let blocks = blocks_of(&x, &w);
    let mut products = [[[0.0; PANEL]; T]; R];
    // SAFETY: the caller vouches for the instructions; panels have `blocks` blocks and activations as many inputs and
    // groups, as just checked. Prefetching may go anywhere.
    unsafe {
        let mut totals = [[L::no_totals(); T]; R];
        let mut fetch = ahead.start;
        for block in 0..blocks {
            for w in &w {
                L::prefetch(Ahead::fetched::<R>(w.as_ptr(), block * BLOCK_BYTES + SCALES, fetch));
            }
            fetch += ahead.step;
            for half in 0..BLOCK / GROUP {
                let group = block * (BLOCK / GROUP) + half;
                let mut sums = [[L::no_group(); T]; R];
                for line in 0..GROUP / LINE_INPUTS {
                    let at = block * BLOCK_BYTES + (half * (GROUP / LINE_INPUTS) + line) * LINE;
                    let mut lines = [L::line(w[0].as_ptr().add(at)); T];
                    for t in 0..T {
                        L::prefetch(Ahead::fetched::<R>(w[t].as_ptr(), at, fetch));
                        lines[t] = L::line(w[t].as_ptr().add(at));
                    }
                    fetch += ahead.step;
                    let k = group * GROUP + line * LINE_INPUTS;
                    for r in 0..R {
                        let inputs = L::eight_inputs(x[r].high.as_ptr().add(k), x[r].low.as_ptr().add(k));
                        for t in 0..T {
                            sums[r][t] = L::add_line(inputs, lines[t], sums[r][t]);
                        }
                    }
                }
                for r in 0..R {
                    let offset = *x[r].offsets.as_ptr().add(group);
                    for t in 0..T {
                        let scales =
                            w[t].as_ptr().add(block * BLOCK_BYTES + SCALES + half * PANEL * 2).cast();
                        totals[r][t] = L::add_group(sums[r][t], offset, scales, totals[r][t]);
                    }
                }
            }
        }
        for r in 0..R {
            for t in 0..T {
                <L as Nibbles>::store(totals[r][t], products[r][t].as_mut_ptr());
                for product in &mut products[r][t] {
                    *product *= x[r].scale;
                }
            }
        }
    }
    products
}

/// Writes the method of [`Isa`](super::Isa) that multiplies with 4-bit weights, compiled with `$features`.
macro_rules! stamp_int4 {
    ($lanes:ty, $features:literal) => {
        fn int4<const R: usize, const T: usize>(
            self,
            x: [crate::cpu::isa::int4::Signed<'_>; R],
            w: [&[u8]; T],
            ahead: crate::cpu::isa::Ahead,
        ) -> [[[f32; 16]; T]; R] {
            #[target_feature(enable = $features)]
            fn stamped<const R: usize, const T: usize>(
                x: [crate::cpu::isa::int4::Signed<'_>; R],
                w: [&[u8]; T],
                ahead: crate::cpu::isa::Ahead,
            ) -> [[[f32; 16]; T]; R] {
                // SAFETY: this function is compiled for these instructions.
                unsafe { crate::cpu::isa::int4::products::<$lanes, R, T>(x, w, ahead) }
            }
            // SAFETY: the token proves that the processor has the instructions.
            unsafe { stamped(x, w, ahead) }
        }
    };
}
pub(crate) use stamp_int4;

mod scalar {
    use half::f16;

    use super::super::scalar::Scalar;
    use super::{LINE, LINE_INPUTS, Nibbles, PANEL};

    impl Nibbles for Scalar {
        type Line = [u8; LINE];
        type Inputs = [i32; LINE_INPUTS];
        type Sums = [i32; PANEL];
        type Totals = [f32; PANEL];

        #[inline(always)]
        unsafe fn no_totals() -> [f32; PANEL] {
            [0.0; PANEL]
        }

        #[inline(always)]
        unsafe fn no_group() -> [i32; PANEL] {
            [0; PANEL]
        }

        #[inline(always)]
        unsafe fn line(from: *const u8) -> [u8; LINE] {
            // SAFETY: the caller vouches for as many readable bytes.
            unsafe { from.cast::<[u8; LINE]>().read() }
        }

        #[inline(always)]
        unsafe fn eight_inputs(high: *const i8, low: *const i8) -> [i32; LINE_INPUTS] {
            let mut x = [0; LINE_INPUTS];
            for (i, x) in x.iter_mut().enumerate() {
                // SAFETY: the caller vouches for as many readable bytes.
                *x = unsafe { 256 * i32::from(*high.add(i)) + i32::from(*low.add(i)) };
            }
            x
        }

        #[inline(always)]
        unsafe fn add_line(x: [i32; LINE_INPUTS], w: [u8; LINE], mut sums: [i32; PANEL]) -> [i32; PANEL] {
            for j in 0..PANEL {
                for i in 0..4 {
                    let byte = i32::from(w[4 * j + i]);
                    sums[j] += (byte & 15) * x[i] + (byte >> 4) * x[4 + i];
                }
            }
            sums
        }

        #[inline(always)]
        unsafe fn add_group(
            sums: [i32; PANEL],
            offset: i32,
            scales: *const u16,
            mut totals: [f32; PANEL],
        ) -> [f32; PANEL] {
            // SAFETY: the caller vouches for as many readable scales.
            let scales = unsafe { scales.cast::<[u16; PANEL]>().read() };
            for j in 0..PANEL {
                let part = (sums[j] + offset) as f32 * f16::from_bits(scales[j]).to_f32_const();
                totals[j] += part;
            }
            totals
        }

        #[inline(always)]
        unsafe fn store(totals: [f32; PANEL], to: *mut f32) {
            // SAFETY: the caller vouches for as many writable numbers.
            unsafe { to.cast::<[f32; PANEL]>().write(totals) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::super::avx512::Avx512;
    use super::Nibbles;

    impl Nibbles for Avx512 {
        type Line = [__m512i; 2];
        type Inputs = [__m512i; 4]; // high and low of the first four, then of the others
        type Sums = [__m512i; 2]; // high and low
        type Totals = __m512;

        #[inline(always)]
        unsafe fn no_totals() -> __m512 {
            // SAFETY: the caller vouches for the instructions.
            unsafe { _mm512_setzero_ps() }
        }

        #[inline(always)]
        unsafe fn no_group() -> [__m512i; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { [_mm512_setzero_si512(); 2] }
        }

        #[inline(always)]
        unsafe fn line(from: *const u8) -> [__m512i; 2] {
            // SAFETY: the caller vouches for the instructions and 64 readable bytes.
            unsafe {
                let (bytes, mask) = (_mm512_loadu_si512(from.cast()), _mm512_set1_epi8(15));
                [_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), mask)]
            }
        }

        #[inline(always)]
        unsafe fn eight_inputs(high: *const i8, low: *const i8) -> [__m512i; 4] {
            // SAFETY: the caller vouches for the instructions and eight readable bytes each.
            unsafe {
                [
                    _mm512_set1_epi32(high.cast::<i32>().read_unaligned()),
                    _mm512_set1_epi32(low.cast::<i32>().read_unaligned()),
                    _mm512_set1_epi32(high.cast::<i32>().add(1).read_unaligned()),
                    _mm512_set1_epi32(low.cast::<i32>().add(1).read_unaligned()),
                ]
            }
        }

        #[inline(always)]
        unsafe fn add_line(x: [__m512i; 4], w: [__m512i; 2], sums: [__m512i; 2]) -> [__m512i; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe {
                [
                    _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sums[0], w[0], x[0]), w[1], x[2]),
                    _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sums[1], w[0], x[1]), w[1], x[3]),
                ]
            }
        }

        #[inline(always)]
        unsafe fn add_group(sums: [__m512i; 2], offset: i32, scales: *const u16, totals: __m512) -> __m512 {
            // SAFETY: the caller vouches for the instructions and sixteen readable scales.
            unsafe {
                let low = _mm512_add_epi32(sums[1], _mm512_set1_epi32(offset));
                let sum = _mm512_add_epi32(_mm512_slli_epi32::<8>(sums[0]), low);
                let scales = _mm512_cvtph_ps(_mm256_loadu_si256(scales.cast()));
                _mm512_add_ps(totals, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scales))
            }
        }

        #[inline(always)]
        unsafe fn store(totals: __m512, to: *mut f32) {
            // SAFETY: the caller vouches for the instructions and sixteen writable numbers.
            unsafe { _mm512_storeu_ps(to, totals) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::super::avx2::Avx2;
    use super::Nibbles;

    /// Pairs of products are added in 16 bits: a group's eight pairs reach 8 · 2 · 15 · 128 = 30,720 < 2¹⁵.
    impl Nibbles for Avx2 {
        type Line = [[__m256i; 2]; 2]; // low and high halves, eight outputs each
        type Inputs = [__m256i; 4]; // high and low of the first four, then of the others
        type Sums = [[__m256i; 2]; 2]; // high and low, eight outputs each, two 16-bit lanes an output
        type Totals = [__m256; 2];

        #[inline(always)]
        unsafe fn no_totals() -> [__m256; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { [_mm256_setzero_ps(); 2] }
        }

        #[inline(always)]
        unsafe fn no_group() -> [[__m256i; 2]; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { [[_mm256_setzero_si256(); 2]; 2] }
        }

        #[inline(always)]
        unsafe fn line(from: *const u8) -> [[__m256i; 2]; 2] {
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
        unsafe fn eight_inputs(high: *const i8, low: *const i8) -> [__m256i; 4] {
            // SAFETY: the caller vouches for the instructions and eight readable bytes each.
            unsafe {
                [
                    _mm256_set1_epi32(high.cast::<i32>().read_unaligned()),
                    _mm256_set1_epi32(low.cast::<i32>().read_unaligned()),
                    _mm256_set1_epi32(high.cast::<i32>().add(1).read_unaligned()),
                    _mm256_set1_epi32(low.cast::<i32>().add(1).read_unaligned()),
                ]
            }
        }

        #[inline(always)]
        unsafe fn add_line(
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
        unsafe fn add_group(
            sums: [[__m256i; 2]; 2],
            offset: i32,
            scales: *const u16,
            mut totals: [__m256; 2],
        ) -> [__m256; 2] {
            // SAFETY: the caller vouches for the instructions and sixteen readable scales.
            unsafe {
                let (ones, offset) = (_mm256_set1_epi16(1), _mm256_set1_epi32(offset));
                for half in 0..2 {
                    let high = _mm256_slli_epi32::<8>(_mm256_madd_epi16(sums[0][half], ones));
                    let low = _mm256_add_epi32(_mm256_madd_epi16(sums[1][half], ones), offset);
                    let sum = _mm256_cvtepi32_ps(_mm256_add_epi32(high, low));
                    let scales = _mm256_cvtph_ps(_mm_loadu_si128(scales.add(8 * half).cast()));
                    totals[half] = _mm256_add_ps(totals[half], _mm256_mul_ps(sum, scales));
                }
            }
            totals
        }

        #[inline(always)]
        unsafe fn store(totals: [__m256; 2], to: *mut f32) {
            // SAFETY: the caller vouches for the instructions and sixteen writable numbers.
            unsafe {
                _mm256_storeu_ps(to, totals[0]);
                _mm256_storeu_ps(to.add(8), totals[1]);
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    use super::super::neon::Neon;
    use super::Nibbles;

    /// Products are added in 16 bits: a group's eight in a lane reach 8 · 15 · 128 = 15,360 < 2¹⁵.
    impl Nibbles for Neon {
        type Line = [[int8x16_t; 4]; 2]; // low and high halves, four outputs each
        type Inputs = [int8x16_t; 4]; // high and low of the first four, then of the others, four times the same
        type Sums = [[int16x8_t; 8]; 2]; // high and low, two outputs each
        type Totals = [float32x4_t; 4];

        #[inline(always)]
        unsafe fn no_totals() -> [float32x4_t; 4] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { [vdupq_n_f32(0.0); 4] }
        }

        #[inline(always)]
        unsafe fn no_group() -> [[int16x8_t; 8]; 2] {
            // SAFETY: the caller vouches for the instructions.
            unsafe { [[vdupq_n_s16(0); 8]; 2] }
        }

        #[inline(always)]
        unsafe fn line(from: *const u8) -> [[int8x16_t; 4]; 2] {
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
        unsafe fn eight_inputs(high: *const i8, low: *const i8) -> [int8x16_t; 4] {
            // SAFETY: the caller vouches for the instructions and eight readable bytes each.
            unsafe {
                let (high, low) = (high.cast::<i32>(), low.cast::<i32>());
                [
                    vreinterpretq_s8_s32(vdupq_n_s32(high.read_unaligned())),
                    vreinterpretq_s8_s32(vdupq_n_s32(low.read_unaligned())),
                    vreinterpretq_s8_s32(vdupq_n_s32(high.add(1).read_unaligned())),
                    vreinterpretq_s8_s32(vdupq_n_s32(low.add(1).read_unaligned())),
                ]
            }
        }

        #[inline(always)]
        unsafe fn add_line(
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
        unsafe fn add_group(
            sums: [[int16x8_t; 8]; 2],
            offset: i32,
            scales: *const u16,
            mut totals: [float32x4_t; 4],
        ) -> [float32x4_t; 4] {
            // SAFETY: the caller vouches for the instructions and sixteen readable scales.
            unsafe {
                for part in 0..4 {
                    let high = vpaddq_s32(vpaddlq_s16(sums[0][2 * part]), vpaddlq_s16(sums[0][2 * part + 1]));
                    let low = vpaddq_s32(vpaddlq_s16(sums[1][2 * part]), vpaddlq_s16(sums[1][2 * part + 1]));
                    let low = vaddq_s32(low, vdupq_n_s32(offset));
                    totals[part] = super::neon_add_group(high, low, scales.add(4 * part), totals[part]);
                }
            }
            totals
        }

        #[inline(always)]
        unsafe fn store(totals: [float32x4_t; 4], to: *mut f32) {
            // SAFETY: the caller vouches for the instructions and sixteen writable numbers.
            unsafe {
                for part in 0..4 {
                    vst1q_f32(to.add(4 * part), totals[part]);
                }
            }
        }
    }
}

/// `totals + (256 · high + low) · scales` of four outputs.
///
/// # Safety
/// As for [`Nibbles`], with four readable scales.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub unsafe fn neon_add_group(
    high: std::arch::aarch64::int32x4_t,
    low: std::arch::aarch64::int32x4_t,
    scales: *const u16,
    totals: std::arch::aarch64::float32x4_t,
) -> std::arch::aarch64::float32x4_t {
    use std::arch::aarch64::*;
    // SAFETY: the caller vouches for the instructions and the scales.
    unsafe {
        let sum = vcvtq_f32_s32(vaddq_s32(vshlq_n_s32::<8>(high), low));
        // f16 to f32 for all that is finite: exponent and fraction move to their places, and 2¹¹² makes up for the
        // other bias, subnormals included.
        let bits = vmovl_u16(vld1_u16(scales));
        let size = vshlq_n_u32::<13>(vandq_u32(bits, vdupq_n_u32(0x7fff)));
        let size = vmulq_f32(vreinterpretq_f32_u32(size), vdupq_n_f32(f32::from_bits((112 + 127) << 23)));
        let sign = vshlq_n_u32::<16>(vandq_u32(bits, vdupq_n_u32(0x8000)));
        let scales = vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(size), sign));
        vaddq_f32(totals, vmulq_f32(sum, scales))
    }
}
