//! 64-bit Arm with the dot product of bytes: most processors since 2018, all of Apple's M line.

use std::arch::aarch64::*;
use std::arch::asm;

use half::bf16;

use super::groups::{Grouped, Int4, Int8Groups, Nibbles, stamp_groups};
use super::neon::{self, Neon};
use super::{Isa, Lanes, Quantized, Signed, floats_of, stamp};

/// Proof that NEON and its dot product exist.
#[derive(Clone, Copy, Debug)]
pub struct DotProd(());

impl Isa for DotProd {
    const NAME: &'static str = "dotprod";
    const FMA: bool = true;
    const PANELS: [(usize, usize); 2] = [(1, 1), (2, 1)];
    const INT4: [(usize, usize); 2] = [(1, 1), (2, 1)];
    const INT8_GROUPS: [(usize, usize); 2] = [(1, 1), (2, 1)];
    const PLANES: bool = true;
    const SIGNED_PLANES: bool = true;

    fn detect() -> Option<Self> {
        (Neon::detect().is_some() && std::arch::is_aarch64_feature_detected!("dotprod")).then_some(Self(()))
    }

    stamp!(DotProd, "neon,dotprod", planes: true);
    stamp_groups!(DotProd, "neon,dotprod");
}

/// Adds to each of four sums the products of four bytes of `a` and `b`.
///
/// # Safety
/// The processor must have the instruction.
#[inline(always)]
unsafe fn sdot(mut sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the caller vouches for the instruction, which touches nothing but its operands. (Its intrinsic is not
    // yet stable.)
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

impl Lanes for DotProd {
    floats_of!(Neon);

    type Weights = [int8x16_t; 4]; // four outputs each
    type Inputs = [int8x16_t; 2]; // high and low, four times the same four
    type Sums = [[int32x4_t; 4]; 2]; // high and low, four outputs each
    const FLUSH: usize = 16_384; // 16,384 · 4 · 128 · 127 < 2³¹
    const OFFSET: f64 = 0.0;

    #[inline(always)]
    unsafe fn no_sums() -> [[int32x4_t; 4]; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [[vdupq_n_s32(0); 4]; 2] }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [int8x16_t; 4] {
        // SAFETY: the caller vouches for the instructions and 64 readable numbers.
        unsafe { [vld1q_s8(from), vld1q_s8(from.add(16)), vld1q_s8(from.add(32)), vld1q_s8(from.add(48))] }
    }

    /// Without the 128 that the planes have more.
    #[inline(always)]
    unsafe fn inputs(x: &Quantized<'_>, k: usize) -> [int8x16_t; 2] {
        // SAFETY: the caller vouches for the instructions and four readable bytes in each plane.
        unsafe {
            let (high, low) = (x.high.as_ptr().add(k).cast::<u32>(), x.low.as_ptr().add(k).cast::<u32>());
            let sign = vdupq_n_u32(0x8080_8080);
            [
                vreinterpretq_s8_u32(veorq_u32(vdupq_n_u32(high.read_unaligned()), sign)),
                vreinterpretq_s8_u32(veorq_u32(vdupq_n_u32(low.read_unaligned()), sign)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn add_products(
        x: [int8x16_t; 2],
        w: [int8x16_t; 4],
        mut sums: [[int32x4_t; 4]; 2],
    ) -> [[int32x4_t; 4]; 2] {
        for plane in 0..2 {
            for part in 0..4 {
                // SAFETY: the caller vouches for the instructions.
                sums[plane][part] = unsafe { sdot(sums[plane][part], w[part], x[plane]) };
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn add_sums(sums: [[int32x4_t; 4]; 2], totals: &mut [f64; 16]) {
        let mut planes = [[0_i32; 16]; 2];
        for (plane, sums) in planes.iter_mut().zip(sums) {
            for (part, sums) in plane.as_chunks_mut::<4>().0.iter_mut().zip(sums) {
                // SAFETY: the caller vouches for the instructions; four numbers can be written.
                unsafe { vst1q_s32(part.as_mut_ptr(), sums) };
            }
        }
        for ((total, high), low) in totals.iter_mut().zip(planes[0]).zip(planes[1]) {
            *total += 256.0 * f64::from(high) + f64::from(low);
        }
    }
}

/// Weights and activations enter as NEON's.
impl<const AFFINE: bool> Grouped<Nibbles<AFFINE>> for DotProd {
    type Base = Neon;
    const INPUTS: usize = <Neon as Grouped<Nibbles<AFFINE>>>::INPUTS;
    type Weights = <Neon as Grouped<Nibbles<AFFINE>>>::Weights;
    type Inputs = <Neon as Grouped<Nibbles<AFFINE>>>::Inputs;
    type Sums = [[int32x4_t; 4]; 2]; // high and low, four outputs each

    #[inline(always)]
    unsafe fn no_sums() -> [[int32x4_t; 4]; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { <Self as Lanes>::no_sums() }
    }

    #[inline(always)]
    unsafe fn weights(from: *const u8) -> Self::Weights {
        // SAFETY: the caller vouches for the same.
        unsafe { <Neon as Grouped<Nibbles<AFFINE>>>::weights(from) }
    }

    #[inline(always)]
    unsafe fn inputs(x: &Signed<'_>, k: usize) -> Self::Inputs {
        // SAFETY: the caller vouches for the same.
        unsafe { <Neon as Grouped<Nibbles<AFFINE>>>::inputs(x, k) }
    }

    #[inline(always)]
    unsafe fn add_products(x: Self::Inputs, w: Self::Weights, mut sums: Self::Sums) -> Self::Sums {
        for plane in 0..2 {
            for part in 0..4 {
                // SAFETY: the caller vouches for the instructions.
                sums[plane][part] = unsafe {
                    let first = sdot(sums[plane][part], w[0][part], x[plane]);
                    sdot(first, w[1][part], x[2 + plane])
                };
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn put_together(sums: [[int32x4_t; 4]; 2]) -> [int32x4_t; 4] {
        let mut ints = sums[0];
        for part in 0..4 {
            // SAFETY: the caller vouches for the instructions.
            ints[part] = unsafe { neon::joined(sums[0][part], sums[1][part]) };
        }
        ints
    }
}

/// Weights enter as NEON's.
impl Grouped<Int8Groups> for DotProd {
    type Base = Neon;
    const INPUTS: usize = <Neon as Grouped<Int8Groups>>::INPUTS;
    const UNSIGNED: bool = false;
    type Weights = <Neon as Grouped<Int8Groups>>::Weights;
    type Inputs = [int8x16_t; 2]; // high and low, four times the same four
    type Sums = [[int32x4_t; 4]; 2]; // high and low, four outputs each

    #[inline(always)]
    unsafe fn no_sums() -> [[int32x4_t; 4]; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { <Self as Lanes>::no_sums() }
    }

    #[inline(always)]
    unsafe fn weights(from: *const u8) -> Self::Weights {
        // SAFETY: the caller vouches for the same.
        unsafe { <Neon as Grouped<Int8Groups>>::weights(from) }
    }

    #[inline(always)]
    unsafe fn inputs(x: &Signed<'_>, k: usize) -> [int8x16_t; 2] {
        // SAFETY: the caller vouches for the same.
        unsafe { neon::four_inputs(x, k) }
    }

    #[inline(always)]
    unsafe fn add_products(x: [int8x16_t; 2], w: Self::Weights, sums: Self::Sums) -> Self::Sums {
        // SAFETY: the caller vouches for the instructions.
        unsafe { <Self as Lanes>::add_products(x, w, sums) }
    }

    #[inline(always)]
    unsafe fn put_together(sums: [[int32x4_t; 4]; 2]) -> [int32x4_t; 4] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { <Self as Grouped<Int4>>::put_together(sums) }
    }
}
