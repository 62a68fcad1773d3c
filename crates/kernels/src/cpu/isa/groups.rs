//! The inner loop of products with weights that share a scale in groups, written once and compiled for each format of
//! them and each instruction set.
//!
//! A panel of 16 outputs is a stream of blocks of [`BLOCK`] inputs. A block is the integers of its inputs, as the format
//! says (`int4.rs`, `int8_groups.rs`), then the f16 scales of its two groups, (2, 16 outputs), and, where the format has
//! them, as many offsets.
//!
//! The integers are unsigned: [`Format::ZERO`] stands for zero. Activations enter as they are. A group's sum is then
//! `Σ x · u − ZERO · Σ x`, whose last term is computed once a row; with offsets, `Σ x` itself is.

use super::{Ahead, CACHE_LINE, Lanes, PANEL};
use crate::int4::GROUP;

/// Inputs of a block.
pub const BLOCK: usize = 2 * GROUP;

/// How the integers of a panel lie.
pub trait Format {
    /// Bits of a weight.
    const BITS: usize;
    /// The integer of a weight that is zero, or that is the offset of its group.
    const ZERO: i32;
    /// Whether groups have offsets.
    const AFFINE: bool;
    /// Where the scales of a block lie.
    const SCALES: usize = BLOCK * PANEL * Self::BITS / 8;
    /// Where its offsets lie, if there are any.
    const LEASTS: usize = Self::SCALES + BLOCK / GROUP * PANEL * 2;
    /// Bytes of a block.
    const BLOCK_BYTES: usize = Self::LEASTS + if Self::AFFINE { BLOCK / GROUP * PANEL * 2 } else { 0 };
    /// What the sum of a group's activations is multiplied with, once a row.
    const FACTOR: i32 = if Self::AFFINE { 1 } else { -Self::ZERO };
}

/// 4-bit integers, as `int4.rs` says, with or without offsets.
#[derive(Debug)]
pub struct Nibbles<const AFFINE: bool>;

/// Those of [`crate::int4`].
pub type Int4 = Nibbles<false>;

/// Those of [`crate::int4_affine`].
pub type Int4Affine = Nibbles<true>;

impl<const AFFINE: bool> Format for Nibbles<AFFINE> {
    const BITS: usize = 4;
    const ZERO: i32 = if AFFINE { 0 } else { crate::int4::ZERO as i32 };
    const AFFINE: bool = AFFINE;
}

/// 8-bit integers, as `int8_groups.rs` says.
#[derive(Debug)]
pub struct Int8Groups;

impl Format for Int8Groups {
    const BITS: usize = 8;
    const ZERO: i32 = 128;
    const AFFINE: bool = false;
}

/// One row of quantised activations, as two planes or as 16-bit integers: each (inputs,), or empty where the
/// instruction set takes the other.
#[derive(Clone, Copy)]
pub struct Signed<'a> {
    /// The nearest multiples of 256, divided by it.
    pub high: &'a [i8],
    /// What they leave.
    pub low: &'a [i8],
    /// The whole numbers.
    pub shorts: &'a [i16],
    /// [`Format::FACTOR`] times the sum of each group. (inputs / GROUP,)
    pub offsets: &'a [i32],
    /// What one unit stands for.
    pub scale: f32,
}

/// How one instruction set adds a group to those before.
///
/// # Safety
/// As for [`Lanes`].
#[expect(clippy::missing_safety_doc, reason = "the section above holds for every function")]
pub trait Scaled: Lanes {
    /// Sixteen 32-bit integers.
    type Ints: Copy;
    /// `totals + (sums + offset) · scales`, rounded when the integers become f32, after the multiplication and after the
    /// addition, from sixteen readable scales, all finite.
    unsafe fn add_scaled(
        sums: Self::Ints,
        offset: i32,
        scales: *const u16,
        totals: Self::Float,
    ) -> Self::Float;
    /// `totals + inputs · leasts`, rounded after the multiplication and after the addition, from sixteen readable offsets,
    /// all finite.
    unsafe fn add_offsets(inputs: i32, leasts: *const u16, totals: Self::Float) -> Self::Float;
}

/// How one instruction set multiplies a format.
///
/// # Safety
/// As for [`Lanes`].
#[expect(clippy::missing_safety_doc, reason = "the section above holds for every function")]
pub trait Grouped<F: Format> {
    /// Whose instructions add the groups.
    type Base: Scaled;
    /// Inputs that are multiplied in one step: a divisor of a group.
    const INPUTS: usize;
    /// Whether activations come as 16-bit integers.
    const SHORTS: bool = false;
    /// Whether weights are multiplied as they lie, so that sums lack what [`Format::ZERO`] takes off.
    const UNSIGNED: bool = true;
    /// The weights of one step.
    type Weights: Copy;
    /// The activations of one step.
    type Inputs: Copy;
    /// Partial sums of a group of sixteen outputs.
    type Sums: Copy;

    /// No sums yet.
    unsafe fn no_sums() -> Self::Sums;
    /// From as many readable bytes as the format has for `INPUTS` inputs of a panel.
    unsafe fn weights(from: *const u8) -> Self::Weights;
    /// From the activations from `k` on.
    unsafe fn inputs(x: &Signed<'_>, k: usize) -> Self::Inputs;
    /// `x · w + sums`
    unsafe fn add_products(x: Self::Inputs, w: Self::Weights, sums: Self::Sums) -> Self::Sums;
    /// The sums of the sixteen outputs.
    unsafe fn put_together(sums: Self::Sums) -> <Self::Base as Scaled>::Ints;
}

/// How many blocks the panels have, and so the rows.
#[inline(always)]
fn blocks_of<F: Format, L: Grouped<F>>(x: &[Signed<'_>], w: &[&[u8]]) -> usize {
    let blocks = w[0].len() / F::BLOCK_BYTES;
    assert!(w.iter().all(|w| w.len() == blocks * F::BLOCK_BYTES), "length of the panels");
    let len = blocks * BLOCK;
    let fits = |x: &Signed<'_>| {
        let numbers =
            if L::SHORTS { x.shorts.len() == len } else { x.high.len() == len && x.low.len() == len };
        numbers && x.offsets.len() == len / GROUP
    };
    assert!(x.iter().all(fits), "length of the activations");
    blocks
}

/// The products of rows with panels, as [`crate::int4`], [`crate::int4_affine`] and [`crate::int8_groups`] say, to the bit.
///
/// # Safety
/// As for [`Lanes`].
#[expect(clippy::needless_range_loop, reason = "iterators over tuples of arrays are not always inlined")]
#[inline(always)]
pub unsafe fn products<F: Format, L: Grouped<F>, const R: usize, const T: usize>(
    x: [Signed<'_>; R],
    w: [&[u8]; T],
    ahead: Ahead,
) -> [[[f32; PANEL]; T]; R] {
    let blocks = blocks_of::<F, L>(&x, &w);
    let steps = const { GROUP / L::INPUTS };
    let bytes = const { L::INPUTS * PANEL * F::BITS / 8 };
    // SAFETY: the caller vouches for the instructions; panels have `blocks` blocks and activations as many inputs and
    // groups, as just checked. Prefetching may go anywhere.
    unsafe {
        let mut totals = [[L::Base::zero(); T]; R];
        let mut fetch = ahead.start;
        for block in 0..blocks {
            let scales = block * F::BLOCK_BYTES + F::SCALES;
            for line in 0..const { (F::BLOCK_BYTES - F::SCALES) / CACHE_LINE } {
                for t in 0..T {
                    let at = scales + line * CACHE_LINE;
                    L::Base::prefetch(Ahead::fetched::<R>(w[t].as_ptr(), at, fetch));
                }
                fetch += ahead.step;
            }
            for half in 0..BLOCK / GROUP {
                let group = block * (BLOCK / GROUP) + half;
                let mut sums = [[L::no_sums(); T]; R];
                for step in 0..steps {
                    let at = block * F::BLOCK_BYTES + (half * steps + step) * bytes;
                    let mut weights = [L::weights(w[0].as_ptr().add(at)); T];
                    for t in 0..T {
                        for line in 0..bytes / CACHE_LINE {
                            let (at, fetch) = (at + line * CACHE_LINE, fetch + line as isize * ahead.step);
                            L::Base::prefetch(Ahead::fetched::<R>(w[t].as_ptr(), at, fetch));
                        }
                        weights[t] = L::weights(w[t].as_ptr().add(at));
                    }
                    fetch += (bytes / CACHE_LINE) as isize * ahead.step;
                    let k = group * GROUP + step * L::INPUTS;
                    for r in 0..R {
                        let inputs = L::inputs(&x[r], k);
                        for t in 0..T {
                            sums[r][t] = L::add_products(inputs, weights[t], sums[r][t]);
                        }
                    }
                }
                let shared = w.map(|w| w.as_ptr().add(scales + half * PANEL * 2));
                for r in 0..R {
                    let inputs = *x[r].offsets.as_ptr().add(group);
                    for t in 0..T {
                        totals[r][t] = add_group::<F, L>(sums[r][t], inputs, shared[t], totals[r][t]);
                    }
                }
            }
        }
        finished::<L::Base, R, T>(totals, x)
    }
}

/// Adds a group of sixteen outputs, whose scales are at `scales`; `inputs` is [`Format::FACTOR`] times the sum of its
/// activations.
///
/// # Safety
/// As for [`Lanes`]; the scales, and the offsets of a format that has them, can be read where the block has them.
#[inline(always)]
unsafe fn add_group<F: Format, L: Grouped<F>>(
    sums: L::Sums,
    inputs: i32,
    scales: *const u8,
    totals: <L::Base as Lanes>::Float,
) -> <L::Base as Lanes>::Float {
    let offset = if L::UNSIGNED && !F::AFFINE { inputs } else { 0 };
    // SAFETY: the caller vouches for the instructions and the readable numbers.
    unsafe {
        let totals = L::Base::add_scaled(L::put_together(sums), offset, scales.cast(), totals);
        if !F::AFFINE {
            return totals;
        }
        L::Base::add_offsets(inputs, scales.add(const { F::LEASTS - F::SCALES }).cast(), totals)
    }
}

/// The totals times the scales of the activations.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn finished<L: Lanes, const R: usize, const T: usize>(
    totals: [[L::Float; T]; R],
    x: [Signed<'_>; R],
) -> [[[f32; PANEL]; T]; R] {
    let mut products = [[[0.0; PANEL]; T]; R];
    for r in 0..R {
        for t in 0..T {
            // SAFETY: the caller vouches for the instructions; sixteen numbers can be written.
            unsafe { L::store(products[r][t].as_mut_ptr(), totals[r][t]) };
            for product in &mut products[r][t] {
                *product *= x[r].scale;
            }
        }
    }
    products
}

/// Writes the methods of [`Isa`](super::Isa) that multiply with groups, compiled with `$features`.
macro_rules! stamp_groups {
    ($lanes:ty, $features:literal) => {
        crate::cpu::isa::groups::stamp_groups!(int4, Nibbles<AFFINE>, (AFFINE: bool), $lanes, $features);
        crate::cpu::isa::groups::stamp_groups!(int8_groups, Int8Groups, (), $lanes, $features);
    };
    ($name:ident, $format:ident $(<$of:ident>)?, ($($param:ident: $of_type:ty)?), $lanes:ty, $features:literal) => {
        fn $name<$(const $param: $of_type,)? const R: usize, const T: usize>(
            self,
            x: [crate::cpu::isa::groups::Signed<'_>; R],
            w: [&[u8]; T],
            ahead: crate::cpu::isa::Ahead,
        ) -> [[[f32; 16]; T]; R] {
            #[target_feature(enable = $features)]
            fn stamped<$(const $param: $of_type,)? const R: usize, const T: usize>(
                x: [crate::cpu::isa::groups::Signed<'_>; R],
                w: [&[u8]; T],
                ahead: crate::cpu::isa::Ahead,
            ) -> [[[f32; 16]; T]; R] {
                use crate::cpu::isa::groups;
                // SAFETY: this function is compiled for these instructions.
                unsafe { groups::products::<groups::$format $(<$of>)?, $lanes, R, T>(x, w, ahead) }
            }
            // SAFETY: the token proves that the processor has the instructions.
            unsafe { stamped::<$($param,)? R, T>(x, w, ahead) }
        }
    };
}
pub(crate) use stamp_groups;

mod scalar {
    use half::f16;

    use super::super::scalar::Scalar;
    use super::{PANEL, Scaled};

    impl Scaled for Scalar {
        type Ints = [i32; PANEL];

        #[inline(always)]
        unsafe fn add_scaled(
            sums: [i32; PANEL],
            offset: i32,
            scales: *const u16,
            mut totals: [f32; PANEL],
        ) -> [f32; PANEL] {
            // SAFETY: the caller vouches for as many readable scales.
            let scales = unsafe { scales.cast::<[u16; PANEL]>().read_unaligned() };
            for j in 0..PANEL {
                let part = (sums[j] + offset) as f32 * f16::from_bits(scales[j]).to_f32_const();
                totals[j] += part;
            }
            totals
        }

        #[inline(always)]
        unsafe fn add_offsets(inputs: i32, leasts: *const u16, mut totals: [f32; PANEL]) -> [f32; PANEL] {
            // SAFETY: the caller vouches for as many readable offsets.
            let leasts = unsafe { leasts.cast::<[u16; PANEL]>().read_unaligned() };
            for j in 0..PANEL {
                let part = inputs as f32 * f16::from_bits(leasts[j]).to_f32_const();
                totals[j] += part;
            }
            totals
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::super::avx2::Avx2;
    use super::super::avx512::Avx512;
    use super::Scaled;

    impl Scaled for Avx512 {
        type Ints = __m512i;

        #[inline(always)]
        unsafe fn add_scaled(sums: __m512i, offset: i32, scales: *const u16, totals: __m512) -> __m512 {
            // SAFETY: the caller vouches for the instructions and sixteen readable scales.
            unsafe {
                let sums = _mm512_cvtepi32_ps(_mm512_add_epi32(sums, _mm512_set1_epi32(offset)));
                let scales = _mm512_cvtph_ps(_mm256_loadu_si256(scales.cast()));
                _mm512_add_ps(totals, _mm512_mul_ps(sums, scales))
            }
        }

        #[inline(always)]
        unsafe fn add_offsets(inputs: i32, leasts: *const u16, totals: __m512) -> __m512 {
            // SAFETY: the caller vouches for the instructions and sixteen readable offsets.
            unsafe {
                let leasts = _mm512_cvtph_ps(_mm256_loadu_si256(leasts.cast()));
                _mm512_add_ps(totals, _mm512_mul_ps(_mm512_set1_ps(inputs as f32), leasts))
            }
        }
    }

    impl Scaled for Avx2 {
        type Ints = [__m256i; 2];

        #[inline(always)]
        unsafe fn add_scaled(
            sums: [__m256i; 2],
            offset: i32,
            scales: *const u16,
            mut totals: [__m256; 2],
        ) -> [__m256; 2] {
            // SAFETY: the caller vouches for the instructions and sixteen readable scales.
            unsafe {
                let offset = _mm256_set1_epi32(offset);
                for half in 0..2 {
                    let sums = _mm256_cvtepi32_ps(_mm256_add_epi32(sums[half], offset));
                    let scales = _mm256_cvtph_ps(_mm_loadu_si128(scales.add(8 * half).cast()));
                    totals[half] = _mm256_add_ps(totals[half], _mm256_mul_ps(sums, scales));
                }
            }
            totals
        }

        #[inline(always)]
        unsafe fn add_offsets(inputs: i32, leasts: *const u16, mut totals: [__m256; 2]) -> [__m256; 2] {
            // SAFETY: the caller vouches for the instructions and sixteen readable offsets.
            unsafe {
                let inputs = _mm256_set1_ps(inputs as f32);
                for (half, totals) in totals.iter_mut().enumerate() {
                    let leasts = _mm256_cvtph_ps(_mm_loadu_si128(leasts.add(8 * half).cast()));
                    *totals = _mm256_add_ps(*totals, _mm256_mul_ps(inputs, leasts));
                }
            }
            totals
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::super::neon::Neon;
    use super::Scaled;

    /// Four f16 as f32, right for all that are finite: exponent and fraction move to their places, and 2¹¹² makes up for
    /// the other bias, subnormals included.
    ///
    /// # Safety
    /// Needs NEON and four readable numbers.
    #[inline(always)]
    unsafe fn widened(halves: *const u16) -> float32x4_t {
        // SAFETY: the caller vouches for the instructions and four readable numbers.
        unsafe {
            let bits = vmovl_u16(vld1_u16(halves));
            let size = vshlq_n_u32::<13>(vandq_u32(bits, vdupq_n_u32(0x7fff)));
            let bias = vdupq_n_f32(f32::from_bits((112 + 127) << 23));
            let size = vmulq_f32(vreinterpretq_f32_u32(size), bias);
            let sign = vshlq_n_u32::<16>(vandq_u32(bits, vdupq_n_u32(0x8000)));
            vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(size), sign))
        }
    }

    impl Scaled for Neon {
        type Ints = [int32x4_t; 4];

        #[inline(always)]
        unsafe fn add_scaled(
            sums: [int32x4_t; 4],
            offset: i32,
            scales: *const u16,
            mut totals: [float32x4_t; 4],
        ) -> [float32x4_t; 4] {
            // SAFETY: the caller vouches for the instructions and sixteen readable scales.
            unsafe {
                for part in 0..4 {
                    let sums = vcvtq_f32_s32(vaddq_s32(sums[part], vdupq_n_s32(offset)));
                    let scales = widened(scales.add(4 * part));
                    totals[part] = vaddq_f32(totals[part], vmulq_f32(sums, scales));
                }
            }
            totals
        }

        #[inline(always)]
        unsafe fn add_offsets(
            inputs: i32,
            leasts: *const u16,
            mut totals: [float32x4_t; 4],
        ) -> [float32x4_t; 4] {
            // SAFETY: the caller vouches for the instructions and sixteen readable offsets.
            unsafe {
                let inputs = vdupq_n_f32(inputs as f32);
                for (part, totals) in totals.iter_mut().enumerate() {
                    let leasts = widened(leasts.add(4 * part));
                    *totals = vaddq_f32(*totals, vmulq_f32(inputs, leasts));
                }
            }
            totals
        }
    }
}
