//! 64-bit Arm: NEON, which every such processor has.

use std::arch::aarch64::*;

use half::bf16;

use super::groups::stamp_groups;
use super::{Isa, Lanes, Quantized, Signed, stamp};

/// Proof that NEON exists.
#[derive(Clone, Copy, Debug)]
pub struct Neon(());

impl Isa for Neon {
    const NAME: &'static str = "neon";
    const FMA: bool = true;
    const PANELS: [(usize, usize); 2] = [(1, 1), (1, 1)];
    const INT4: [(usize, usize); 2] = [(1, 1), (1, 1)];
    const INT8_GROUPS: [(usize, usize); 2] = [(1, 1), (1, 1)];
    const PLANES: bool = false;

    fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }

    stamp!(Neon, "neon", planes: false);
    stamp_groups!(Neon, "neon");
}

/// The high and the low plane of four activations from `k` on, each four times.
///
/// # Safety
/// The processor must have NEON; the activations must exist.
#[inline(always)]
pub(super) unsafe fn four_inputs(x: &Signed<'_>, k: usize) -> [int8x16_t; 2] {
    // SAFETY: the caller vouches for the instructions and four readable bytes in each plane.
    unsafe {
        let (high, low) = (x.high.as_ptr().add(k).cast::<i32>(), x.low.as_ptr().add(k).cast::<i32>());
        [
            vreinterpretq_s8_s32(vdupq_n_s32(high.read_unaligned())),
            vreinterpretq_s8_s32(vdupq_n_s32(low.read_unaligned())),
        ]
    }
}

/// `256 · high + low`
///
/// # Safety
/// The processor must have NEON.
#[inline(always)]
pub(super) unsafe fn joined(high: int32x4_t, low: int32x4_t) -> int32x4_t {
    // SAFETY: the caller vouches for the instructions.
    unsafe { vaddq_s32(vshlq_n_s32::<8>(high), low) }
}

impl Lanes for Neon {
    type Float = [float32x4_t; 4];
    type Weights = [int8x16_t; 4]; // four outputs each
    type Inputs = int16x8_t; // twice the same four
    type Sums = [int32x4_t; 16]; // a vector an output
    const FLOATS: usize = 4;
    const FLUSH: usize = 512; // 512 · 127 · 32,512 < 2³¹

    #[inline(always)]
    unsafe fn zero() -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [vdupq_n_f32(0.0); 4] }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for the instructions and 16 readable numbers.
        unsafe { [vld1q_f32(from), vld1q_f32(from.add(4)), vld1q_f32(from.add(8)), vld1q_f32(from.add(12))] }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const bf16) -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for the instructions and 16 readable pairs.
        unsafe {
            let mut numbers = [vdupq_n_f32(0.0); 4];
            for i in 0..4 {
                let pairs = vld1q_u32(from.cast::<u32>().add(4 * i));
                numbers[i] = vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs));
            }
            numbers
        }
    }

    #[inline(always)]
    unsafe fn load_second(from: *const bf16) -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for the instructions and 16 readable pairs.
        unsafe {
            let mut numbers = [vdupq_n_f32(0.0); 4];
            for i in 0..4 {
                let pairs = vld1q_u32(from.cast::<u32>().add(4 * i));
                numbers[i] = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff_0000)));
            }
            numbers
        }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, a: [float32x4_t; 4]) {
        // SAFETY: the caller vouches for the instructions and 16 writable numbers.
        unsafe {
            for i in 0..4 {
                vst1q_f32(to.add(4 * i), a[i]);
            }
        }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [vdupq_n_f32(x); 4] }
    }

    #[inline(always)]
    unsafe fn add(a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1]), vaddq_f32(a[2], b[2]), vaddq_f32(a[3], b[3])]
        }
    }

    #[inline(always)]
    unsafe fn mul_add(a: [float32x4_t; 4], b: [float32x4_t; 4], sum: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            [
                vfmaq_f32(sum[0], a[0], b[0]),
                vfmaq_f32(sum[1], a[1], b[1]),
                vfmaq_f32(sum[2], a[2], b[2]),
                vfmaq_f32(sum[3], a[3], b[3]),
            ]
        }
    }

    #[inline(always)]
    unsafe fn no_sums() -> [int32x4_t; 16] {
        // SAFETY: the caller vouches for the instructions.
        unsafe { [vdupq_n_s32(0); 16] }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [int8x16_t; 4] {
        // SAFETY: the caller vouches for the instructions and 64 readable numbers.
        unsafe { [vld1q_s8(from), vld1q_s8(from.add(16)), vld1q_s8(from.add(32)), vld1q_s8(from.add(48))] }
    }

    #[inline(always)]
    unsafe fn inputs(x: &Quantized<'_>, k: usize) -> int16x8_t {
        // SAFETY: the caller vouches for the instructions and GROUP readable numbers.
        unsafe {
            let four = vld1_s16(x.shorts.as_ptr().add(k));
            vcombine_s16(four, four)
        }
    }

    #[inline(always)]
    unsafe fn add_products(x: int16x8_t, w: [int8x16_t; 4], mut sums: [int32x4_t; 16]) -> [int32x4_t; 16] {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            for i in 0..4 {
                let (low, high) = (vmovl_s8(vget_low_s8(w[i])), vmovl_high_s8(w[i]));
                sums[4 * i] = vmlal_s16(sums[4 * i], vget_low_s16(low), vget_low_s16(x));
                sums[4 * i + 1] = vmlal_high_s16(sums[4 * i + 1], low, x);
                sums[4 * i + 2] = vmlal_s16(sums[4 * i + 2], vget_low_s16(high), vget_low_s16(x));
                sums[4 * i + 3] = vmlal_high_s16(sums[4 * i + 3], high, x);
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn add_sums(sums: [int32x4_t; 16], totals: &mut [f64; 16]) {
        for (total, sum) in totals.iter_mut().zip(sums) {
            // SAFETY: the caller vouches for the instructions.
            *total += unsafe { vaddlvq_s32(sum) } as f64;
        }
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {
        // The stable intrinsics have none, and Arm's own prefetchers follow plain streams.
    }
}
