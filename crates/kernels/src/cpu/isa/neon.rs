//! 64-bit Arm: NEON, which every such processor has.

use std::arch::aarch64::*;

use half::bf16;

use super::{Isa, Lanes, stamp};

/// Proof that NEON exists.
#[derive(Clone, Copy, Debug)]
pub struct Neon(());

impl Isa for Neon {
    const NAME: &'static str = "neon";
    const FMA: bool = true;
    const TILE_ROWS: usize = 2;

    fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }

    stamp!(Neon, "neon");
}

impl Lanes for Neon {
    type Float = [float32x4_t; 4];
    type Short = [int16x8_t; 2];
    type Int = int32x4_t;
    const SHORTS: usize = 16;
    const FLUSH: usize = 128; // 128 · 4 · 127 · 32,512 < 2³¹

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
    unsafe fn load_bf16(from: *const bf16) -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for the instructions and 16 readable numbers.
        unsafe {
            let wide = |i| {
                let half = vld1_u16(from.cast::<u16>().add(i));
                vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(half)))
            };
            [wide(0), wide(4), wide(8), wide(12)]
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
    unsafe fn sum(a: [float32x4_t; 4]) -> f32 {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let a = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
            let a = vadd_f32(vget_low_f32(a), vget_high_f32(a));
            vget_lane_f32::<0>(a) + vget_lane_f32::<1>(a)
        }
    }

    #[inline(always)]
    unsafe fn int_zero() -> int32x4_t {
        // SAFETY: the caller vouches for the instructions.
        unsafe { vdupq_n_s32(0) }
    }

    #[inline(always)]
    unsafe fn short_load(from: *const i16) -> [int16x8_t; 2] {
        // SAFETY: the caller vouches for the instructions and 16 readable numbers.
        unsafe { [vld1q_s16(from), vld1q_s16(from.add(8))] }
    }

    #[inline(always)]
    unsafe fn short_widen(from: *const i8) -> [int16x8_t; 2] {
        // SAFETY: the caller vouches for the instructions and 16 readable numbers.
        unsafe {
            let bytes = vld1q_s8(from);
            [vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)]
        }
    }

    #[inline(always)]
    unsafe fn int_mul_add(x: [int16x8_t; 2], w: [int16x8_t; 2], sum: int32x4_t) -> int32x4_t {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let sum = vmlal_s16(sum, vget_low_s16(x[0]), vget_low_s16(w[0]));
            let sum = vmlal_high_s16(sum, x[0], w[0]);
            let sum = vmlal_s16(sum, vget_low_s16(x[1]), vget_low_s16(w[1]));
            vmlal_high_s16(sum, x[1], w[1])
        }
    }

    #[inline(always)]
    unsafe fn int_sum(a: int32x4_t) -> i64 {
        // SAFETY: the caller vouches for the instructions.
        unsafe { vaddlvq_s32(a) }
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {
        // The stable intrinsics have none, and Arm's own prefetchers follow plain streams.
    }
}
