//! Any processor: what the compiler makes of plain loops.

use std::array;

use half::bf16;

use super::groups::{self, Int8Groups, Nibbles};
use super::{Ahead, FloatPanels, GROUP, Isa, Lanes, PANEL, Panel, Quantized, Signed, Stored};

/// No special instructions.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

impl Isa for Scalar {
    const NAME: &'static str = "scalar";
    const FMA: bool = false;
    const PANELS: [(usize, usize); 2] = [(1, 1), (1, 1)];
    const INT4: [(usize, usize); 2] = [(1, 1), (1, 1)];
    const INT8_GROUPS: [(usize, usize); 2] = [(1, 1), (1, 1)];
    const PLANES: bool = false;

    fn detect() -> Option<Self> {
        Some(Self)
    }

    fn floats<W: Stored>(self, x: &[f32], w: FloatPanels<'_, W>, add: bool, out: &mut [f32]) {
        // SAFETY: needs no special instructions.
        unsafe { super::float::floats::<Self, W>(x, w, add, out) }
    }

    fn panels<const R: usize, const T: usize>(
        self,
        x: [Quantized<'_>; R],
        w: [Panel<'_>; T],
        ahead: Ahead,
    ) -> [[[f32; 16]; T]; R] {
        // SAFETY: needs no special instructions.
        unsafe { super::panels::<Self, false, R, T>(x, w, ahead) }
    }

    fn int4<const AFFINE: bool, const R: usize, const T: usize>(
        self,
        x: [Signed<'_>; R],
        w: [&[u8]; T],
        ahead: Ahead,
    ) -> [[[f32; 16]; T]; R] {
        // SAFETY: needs no special instructions.
        unsafe { groups::products::<Nibbles<AFFINE>, Self, R, T>(x, w, ahead) }
    }

    fn int8_groups<const R: usize, const T: usize>(
        self,
        x: [Signed<'_>; R],
        w: [&[u8]; T],
        ahead: Ahead,
    ) -> [[[f32; 16]; T]; R] {
        // SAFETY: needs no special instructions.
        unsafe { groups::products::<Int8Groups, Self, R, T>(x, w, ahead) }
    }

    fn run<T>(self, loops: impl FnOnce() -> T) -> T {
        loops()
    }
}

impl Lanes for Scalar {
    type Float = [f32; 16];
    type Weights = [[i8; GROUP]; PANEL];
    type Inputs = [i16; GROUP];
    type Sums = [i32; PANEL];
    const FLOATS: usize = 2;
    const FLUSH: usize = 128; // 128 · 4 · 127 · 32,512 < 2³¹

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
    unsafe fn load_first(from: *const bf16) -> [f32; 16] {
        // SAFETY: the caller vouches for 16 readable pairs.
        let pairs = unsafe { from.cast::<[[u16; 2]; 16]>().read_unaligned() };
        pairs.map(|[first, _]| f32::from_bits(u32::from(first) << 16))
    }

    #[inline(always)]
    unsafe fn load_second(from: *const bf16) -> [f32; 16] {
        // SAFETY: the caller vouches for 16 readable pairs.
        let pairs = unsafe { from.cast::<[[u16; 2]; 16]>().read_unaligned() };
        pairs.map(|[_, second]| f32::from_bits(u32::from(second) << 16))
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, a: [f32; 16]) {
        // SAFETY: the caller vouches for 16 writable numbers.
        unsafe { to.cast::<[f32; 16]>().write_unaligned(a) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; 16] {
        [x; 16]
    }

    #[inline(always)]
    unsafe fn add(a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn mul_add(a: [f32; 16], b: [f32; 16], sum: [f32; 16]) -> [f32; 16] {
        array::from_fn(|i| a[i] * b[i] + sum[i])
    }

    #[inline(always)]
    unsafe fn no_sums() -> [i32; PANEL] {
        [0; PANEL]
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [[i8; GROUP]; PANEL] {
        // SAFETY: the caller vouches for 64 readable numbers.
        unsafe { from.cast::<[[i8; GROUP]; PANEL]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn inputs(x: &Quantized<'_>, k: usize) -> [i16; GROUP] {
        // SAFETY: the caller vouches for GROUP readable numbers.
        unsafe { x.shorts.as_ptr().add(k).cast::<[i16; GROUP]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn add_products(x: [i16; GROUP], w: [[i8; GROUP]; PANEL], sums: [i32; PANEL]) -> [i32; PANEL] {
        let product = |w: i8, x: i16| i32::from(w) * i32::from(x);
        array::from_fn(|j| {
            let [a, b, c, d] = w[j];
            sums[j] + product(a, x[0]) + product(b, x[1]) + product(c, x[2]) + product(d, x[3])
        })
    }

    #[inline(always)]
    unsafe fn add_sums(sums: [i32; PANEL], totals: &mut [f64; 16]) {
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total += f64::from(sum);
        }
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
}
