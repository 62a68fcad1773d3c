//! Any processor: what the compiler makes of plain loops.

use std::array;

use half::bf16;

use super::{Isa, Lanes};

/// No special instructions.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

impl Isa for Scalar {
    const NAME: &'static str = "scalar";
    const FMA: bool = false;
    const TILE_ROWS: usize = 2;

    fn detect() -> Option<Self> {
        Some(Self)
    }

    fn dots_f32<const R: usize, const N: usize>(self, x: [&[f32]; R], w: [&[f32]; N]) -> [[f32; N]; R] {
        // SAFETY: needs no special instructions.
        unsafe { super::dots_float::<Self, f32, R, N>(x, w) }
    }

    fn dots_bf16<const R: usize, const N: usize>(self, x: [&[f32]; R], w: [&[bf16]; N]) -> [[f32; N]; R] {
        // SAFETY: needs no special instructions.
        unsafe { super::dots_float::<Self, bf16, R, N>(x, w) }
    }

    fn dots_int8<const R: usize, const N: usize>(self, x: [&[i16]; R], w: [&[i8]; N]) -> [[i64; N]; R] {
        // SAFETY: needs no special instructions.
        unsafe { super::dots_int8::<Self, R, N>(x, w) }
    }

    fn run<T>(self, loops: impl FnOnce() -> T) -> T {
        loops()
    }
}

impl Lanes for Scalar {
    type Float = [f32; 16];
    type Short = [i16; 16];
    type Int = [i32; 16];
    const SHORTS: usize = 16;
    const FLUSH: usize = 512; // 512 · 127 · 32,512 < 2³¹

    #[inline(always)]
    unsafe fn zero() -> [f32; 16] {
        [0.0; 16]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 16] {
        // SAFETY: the caller vouches for 16 readable numbers.
        unsafe { from.cast::<[f32; 16]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> [f32; 16] {
        // SAFETY: the caller vouches for 16 readable numbers.
        let bits = unsafe { from.cast::<[u16; 16]>().read_unaligned() };
        bits.map(|b| f32::from_bits(u32::from(b) << 16))
    }

    #[inline(always)]
    unsafe fn mul_add(a: [f32; 16], b: [f32; 16], sum: [f32; 16]) -> [f32; 16] {
        array::from_fn(|i| a[i] * b[i] + sum[i])
    }

    #[inline(always)]
    unsafe fn sum(a: [f32; 16]) -> f32 {
        let a: [f32; 8] = array::from_fn(|i| a[i] + a[i + 8]);
        let a: [f32; 4] = array::from_fn(|i| a[i] + a[i + 4]);
        (a[0] + a[2]) + (a[1] + a[3])
    }

    #[inline(always)]
    unsafe fn int_zero() -> [i32; 16] {
        [0; 16]
    }

    #[inline(always)]
    unsafe fn short_load(from: *const i16) -> [i16; 16] {
        // SAFETY: the caller vouches for 16 readable numbers.
        unsafe { from.cast::<[i16; 16]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn short_widen(from: *const i8) -> [i16; 16] {
        // SAFETY: the caller vouches for 16 readable numbers.
        unsafe { from.cast::<[i8; 16]>().read_unaligned() }.map(i16::from)
    }

    #[inline(always)]
    unsafe fn int_mul_add(x: [i16; 16], w: [i16; 16], sum: [i32; 16]) -> [i32; 16] {
        array::from_fn(|i| i32::from(x[i]) * i32::from(w[i]) + sum[i])
    }

    #[inline(always)]
    unsafe fn int_sum(a: [i32; 16]) -> i64 {
        a.iter().map(|&a| i64::from(a)).sum()
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
}
