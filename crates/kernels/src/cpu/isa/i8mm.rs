//! 64-bit Arm with products of small byte matrices (I8MM): Neoverse V1 and N2, Apple M2, and later.
//!
//! One instruction multiplies two rows of eight bytes with two others. The rows on one side are eight inputs of two
//! outputs; on the other they are the high and the low plane of the same eight activations.

use std::arch::aarch64::*;
use std::arch::asm;

use half::bf16;

use super::groups::{Grouped, Int4, Int8Groups, Nibbles, stamp_groups};
use super::neon::{self, Neon};
use super::{Isa, Lanes, Quantized, Signed, floats_of, int8_groups, stamp};

/// Proof that NEON and its matrix products exist.
#[derive(Clone, Copy, Debug)]
pub struct I8mm(());

impl Isa for I8mm {
    const NAME: &'static str = "i8mm";
    const FMA: bool = true;
    const PANELS: [(usize, usize); 2] = [(1, 1), (2, 1)];
    const INT4: [(usize, usize); 2] = [(1, 1), (2, 1)];
    const INT8_GROUPS: [(usize, usize); 2] = [(1, 1), (2, 1)];
    const PLANES: bool = true;
    const SIGNED_PLANES: bool = true;

    fn detect() -> Option<Self> {
        (Neon::detect().is_some() && std::arch::is_aarch64_feature_detected!("i8mm")).then_some(Self(()))
    }

    stamp!(I8mm, "neon,i8mm", planes: true);
    stamp_groups!(I8mm, "neon,i8mm");
}

/// Adds to `sums` (2, 2) the products of the rows of `a` (2, 8) with those of `b` (2, 8).
///
/// # Safety
/// The processor must have the instruction.
#[inline(always)]
unsafe fn smmla(mut sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the caller vouches for the instruction, which touches nothing but its operands. (Its intrinsic is not
    // yet stable.)
    unsafe {
        asm!(
            "smmla {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// Eight inputs of two outputs each, from four inputs of four outputs and the next four of the same.
///
/// # Safety
/// The processor must have NEON.
#[inline(always)]
unsafe fn pairs(first: int8x16_t, second: int8x16_t) -> [int8x16_t; 2] {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let (first, second) = (vreinterpretq_s32_s8(first), vreinterpretq_s32_s8(second));
        [vreinterpretq_s8_s32(vzip1q_s32(first, second)), vreinterpretq_s8_s32(vzip2q_s32(first, second))]
    }
}

/// The same of sixteen outputs.
///
/// # Safety
/// The processor must have NEON.
#[inline(always)]
unsafe fn eight_inputs(first: [int8x16_t; 4], second: [int8x16_t; 4]) -> [int8x16_t; 8] {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let mut weights = [vdupq_n_s8(0); 8];
        for part in 0..4 {
            [weights[2 * part], weights[2 * part + 1]] = pairs(first[part], second[part]);
        }
        weights
    }
}

/// The high and the low sums of four outputs, from those of two and two.
///
/// # Safety
/// The processor must have NEON.
#[inline(always)]
unsafe fn high_and_low(first: int32x4_t, second: int32x4_t) -> (int32x4_t, int32x4_t) {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let (first, second) = (vreinterpretq_s64_s32(first), vreinterpretq_s64_s32(second));
        (vreinterpretq_s32_s64(vzip1q_s64(first, second)), vreinterpretq_s32_s64(vzip2q_s64(first, second)))
    }
}

impl Lanes for I8mm {
    floats_of!(Neon);

    type Weights = [int8x16_t; 8]; // two outputs each
    type Inputs = int8x16_t; // high and low of eight
    type Sums = [int32x4_t; 8]; // high and low of two outputs each
    const FLUSH: usize = 16_384; // 16,384 · 4 · 128 · 127 < 2³¹
    const STEP: usize = 2;
    const OFFSET: f64 = 0.0;

    #[inline(always)]
    unsafe fn no_sums() -> [int32x4_t; 8] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [vdupq_n_s32(0); 8] }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [int8x16_t; 8] {
        // SAFETY: the caller vouches for the instructions and 128 readable numbers.
        unsafe { eight_inputs(<Neon as Lanes>::weights(from), <Neon as Lanes>::weights(from.add(64))) }
    }

    /// Without the 128 that the planes have more.
    #[inline(always)]
    unsafe fn inputs(x: &Quantized<'_>, k: usize) -> int8x16_t {
        // SAFETY: the caller vouches for the instructions and eight readable bytes in each plane.
        unsafe {
            let both = vcombine_u8(vld1_u8(x.high.as_ptr().add(k)), vld1_u8(x.low.as_ptr().add(k)));
            vreinterpretq_s8_u8(veorq_u8(both, vdupq_n_u8(0x80)))
        }
    }

    #[inline(always)]
    unsafe fn add_products(x: int8x16_t, w: [int8x16_t; 8], mut sums: [int32x4_t; 8]) -> [int32x4_t; 8] {
        for part in 0..8 {
            // SAFETY: the caller vouches for the instructions.
            sums[part] = unsafe { smmla(sums[part], x, w[part]) };
        }
        sums
    }

    #[inline(always)]
    unsafe fn add_sums(sums: [int32x4_t; 8], totals: &mut [f64; 16]) {
        for (totals, sums) in totals.as_chunks_mut::<2>().0.iter_mut().zip(sums) {
            let mut lanes = [0_i32; 4];
            // SAFETY: the caller vouches for the instructions; four numbers can be written.
            unsafe { vst1q_s32(lanes.as_mut_ptr(), sums) };
            totals[0] += 256.0 * f64::from(lanes[0]) + f64::from(lanes[2]);
            totals[1] += 256.0 * f64::from(lanes[1]) + f64::from(lanes[3]);
        }
    }
}

impl<const AFFINE: bool> Grouped<Nibbles<AFFINE>> for I8mm {
    type Base = Neon;
    const INPUTS: usize = <Neon as Grouped<Nibbles<AFFINE>>>::INPUTS;
    type Weights = [int8x16_t; 8]; // two outputs each
    type Inputs = int8x16_t; // high and low of eight
    type Sums = [int32x4_t; 8]; // high and low of two outputs each

    #[inline(always)]
    unsafe fn no_sums() -> [int32x4_t; 8] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { <Self as Lanes>::no_sums() }
    }

    #[inline(always)]
    unsafe fn weights(from: *const u8) -> [int8x16_t; 8] {
        // SAFETY: the caller vouches for the instructions and 64 readable bytes.
        unsafe {
            let [first, second] = <Neon as Grouped<Nibbles<AFFINE>>>::weights(from);
            eight_inputs(first, second)
        }
    }

    #[inline(always)]
    unsafe fn inputs(x: &Signed<'_>, k: usize) -> int8x16_t {
        // SAFETY: the caller vouches for the instructions and eight readable bytes in each plane.
        unsafe { vcombine_s8(vld1_s8(x.high.as_ptr().add(k)), vld1_s8(x.low.as_ptr().add(k))) }
    }

    #[inline(always)]
    unsafe fn add_products(x: int8x16_t, w: [int8x16_t; 8], sums: [int32x4_t; 8]) -> [int32x4_t; 8] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { <Self as Lanes>::add_products(x, w, sums) }
    }

    #[inline(always)]
    unsafe fn put_together(sums: [int32x4_t; 8]) -> [int32x4_t; 4] {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let mut ints = [vdupq_n_s32(0); 4];
            for part in 0..4 {
                let (high, low) = high_and_low(sums[2 * part], sums[2 * part + 1]);
                ints[part] = neon::joined(high, low);
            }
            ints
        }
    }
}

/// All but the weights is the same as for 4 bits.
impl Grouped<Int8Groups> for I8mm {
    type Base = Neon;
    const INPUTS: usize = 2 * int8_groups::LINE_INPUTS;
    const UNSIGNED: bool = false;
    type Weights = [int8x16_t; 8]; // two outputs each
    type Inputs = int8x16_t; // high and low of eight
    type Sums = [int32x4_t; 8]; // high and low of two outputs each

    #[inline(always)]
    unsafe fn no_sums() -> [int32x4_t; 8] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { <Self as Lanes>::no_sums() }
    }

    #[inline(always)]
    unsafe fn weights(from: *const u8) -> [int8x16_t; 8] {
        // SAFETY: the caller vouches for the instructions and 128 readable bytes.
        unsafe {
            let first = <Neon as Grouped<Int8Groups>>::weights(from);
            eight_inputs(first, <Neon as Grouped<Int8Groups>>::weights(from.add(int8_groups::LINE)))
        }
    }

    #[inline(always)]
    unsafe fn inputs(x: &Signed<'_>, k: usize) -> int8x16_t {
        // SAFETY: the caller vouches for the same.
        unsafe { <Self as Grouped<Int4>>::inputs(x, k) }
    }

    #[inline(always)]
    unsafe fn add_products(x: int8x16_t, w: [int8x16_t; 8], sums: [int32x4_t; 8]) -> [int32x4_t; 8] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { <Self as Lanes>::add_products(x, w, sums) }
    }

    #[inline(always)]
    unsafe fn put_together(sums: [int32x4_t; 8]) -> [int32x4_t; 4] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { <Self as Grouped<Int4>>::put_together(sums) }
    }
}
