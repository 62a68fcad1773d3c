//! The inner loops, written once and compiled for each instruction set.
//!
//! An instruction set is a token whose only constructor asks the processor, so that holding one proves that its
//! instructions may run. [`Lanes`] names the few vector operations that the loops are made of.
//!
//! Every float sum runs in sixteen lanes, `k` going to lane `k % 16`, and ends in the same tree of additions. So a
//! product has the same bits whatever else is computed beside it, and the same on every instruction set with fused
//! multiply-add.

use half::bf16;

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[cfg(target_arch = "aarch64")]
pub mod neon;
pub mod scalar;

/// Rows of weights and of what they are multiplied with are padded with zeros to a multiple of this: whole vectors in
/// every form, and whole cache lines in the smallest.
pub const PAD: usize = 64;

/// Proof that an instruction set exists, and the loops compiled for it.
pub trait Isa: Copy + Send + Sync + 'static {
    /// The name in reports and options.
    const NAME: &'static str;
    /// Whether `f32::mul_add` is one instruction.
    const FMA: bool;
    /// Rows of a tile that keeps all sums in registers: 2 or 4, by 4 outputs.
    const TILE_ROWS: usize;

    /// The token, if this processor has the instructions.
    fn detect() -> Option<Self>;

    /// `Σ x[r][k] · w[n][k]`; all slices have the same length, a multiple of 16.
    fn dots_f32<const R: usize, const N: usize>(self, x: [&[f32]; R], w: [&[f32]; N]) -> [[f32; N]; R];
    /// The same for weights in bf16.
    fn dots_bf16<const R: usize, const N: usize>(self, x: [&[f32]; R], w: [&[bf16]; N]) -> [[f32; N]; R];
    /// The same in exact integers, the length a multiple of 32; `x` within ±32,512 and `w` within ±127.
    fn dots_int8<const R: usize, const N: usize>(self, x: [&[i16]; R], w: [&[i8]; N]) -> [[i64; N]; R];
    /// Calls `loops` compiled with these instructions: what the compiler vectorises by itself needs no more.
    fn run<T>(self, loops: impl FnOnce() -> T) -> T;
}

/// The vector operations of one instruction set.
///
/// # Safety
/// All functions may run only where the instruction set exists, inside a function compiled for it.
#[expect(clippy::missing_safety_doc, reason = "the section above holds for every function")]
pub trait Lanes {
    /// Sixteen f32.
    type Float: Copy;
    /// [`Self::SHORTS`] 16-bit integers.
    type Short: Copy;
    /// 32-bit partial sums of products.
    type Int: Copy;
    /// Numbers in a `Short`.
    const SHORTS: usize;
    /// How many times an `Int` takes products before a lane could overflow.
    const FLUSH: usize;

    /// Sixteen zeros.
    unsafe fn zero() -> Self::Float;
    /// From 16 readable numbers.
    unsafe fn load(from: *const f32) -> Self::Float;
    /// From 16 readable numbers.
    unsafe fn load_bf16(from: *const bf16) -> Self::Float;
    /// `a · b + sum`, fused where the instruction set can.
    unsafe fn mul_add(a: Self::Float, b: Self::Float, sum: Self::Float) -> Self::Float;
    /// The sum of all lanes: lane j with j + 8, then 4, 2, 1.
    unsafe fn sum(a: Self::Float) -> f32;

    /// No sums yet.
    unsafe fn int_zero() -> Self::Int;
    /// From `SHORTS` readable numbers.
    unsafe fn short_load(from: *const i16) -> Self::Short;
    /// From `SHORTS` readable numbers.
    unsafe fn short_widen(from: *const i8) -> Self::Short;
    /// `x · w + sum`, neighbouring products perhaps in one lane.
    unsafe fn int_mul_add(x: Self::Short, w: Self::Short, sum: Self::Int) -> Self::Int;
    /// The sum of all lanes, which may leave 32 bits.
    unsafe fn int_sum(a: Self::Int) -> i64;

    /// Asks for the cache line at an address, which need not be readable.
    unsafe fn prefetch(at: *const u8);
}

/// How far ahead of a single row's product its weights are fetched, in matrix rows: the tile after this one.
const AHEAD: usize = 4;

/// The common length of all slices, a multiple of `step`.
#[inline(always)]
fn common_len<X, W, const R: usize, const N: usize>(x: &[&[X]; R], w: &[&[W]; N], step: usize) -> usize {
    let len = w[0].len();
    assert!(len.is_multiple_of(step) && x.iter().all(|x| x.len() == len) && w.iter().all(|w| w.len() == len));
    len
}

/// A float form of weights.
trait Stored: Copy {
    /// Sixteen weights as f32.
    ///
    /// # Safety
    /// As for [`Lanes::load`].
    unsafe fn load<L: Lanes>(from: *const Self) -> L::Float;
}

impl Stored for f32 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const Self) -> L::Float {
        // SAFETY: as the caller vouches.
        unsafe { L::load(from) }
    }
}

impl Stored for bf16 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const Self) -> L::Float {
        // SAFETY: as the caller vouches.
        unsafe { L::load_bf16(from) }
    }
}

// Plain loops over indices and no closures below: what the compiler does not inline, it compiles without the
// instruction set, and every vector then goes through memory.

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn dots_float<L: Lanes, W: Stored, const R: usize, const N: usize>(
    x: [&[f32]; R],
    w: [&[W]; N],
) -> [[f32; N]; R] {
    let len = common_len(&x, &w, 16);
    let mut products = [[0.0; N]; R];
    // SAFETY: the caller vouches for the instructions; all slices have `len` numbers, a multiple of 16. Prefetching
    // may go anywhere.
    unsafe {
        let mut sums = [[L::zero(); N]; R];
        let mut k = 0;
        while k < len {
            let mut rows = [L::zero(); R];
            for r in 0..R {
                rows[r] = L::load(x[r].as_ptr().add(k));
            }
            for n in 0..N {
                let at = w[n].as_ptr().add(k);
                if R == 1 && k.is_multiple_of(64 / size_of::<W>()) {
                    L::prefetch(at.wrapping_add(AHEAD * len).cast());
                }
                let weights = W::load::<L>(at);
                for r in 0..R {
                    sums[r][n] = L::mul_add(rows[r], weights, sums[r][n]);
                }
            }
            k += 16;
        }
        for r in 0..R {
            for n in 0..N {
                products[r][n] = L::sum(sums[r][n]);
            }
        }
    }
    products
}

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn dots_int8<L: Lanes, const R: usize, const N: usize>(
    x: [&[i16]; R],
    w: [&[i8]; N],
) -> [[i64; N]; R] {
    let len = common_len(&x, &w, L::SHORTS);
    let mut totals = [[0; N]; R];
    let mut k = 0;
    // SAFETY: the caller vouches for the instructions; all slices have `len` numbers, a multiple of `SHORTS`.
    // Prefetching may go anywhere.
    unsafe {
        while k < len {
            let end = len.min(k + L::FLUSH * L::SHORTS);
            let mut sums = [[L::int_zero(); N]; R];
            while k < end {
                let mut rows = [L::short_load(x[0].as_ptr().add(k)); R];
                for r in 1..R {
                    rows[r] = L::short_load(x[r].as_ptr().add(k));
                }
                for n in 0..N {
                    let at = w[n].as_ptr().add(k);
                    if R == 1 && k.is_multiple_of(64) {
                        L::prefetch(at.wrapping_add(AHEAD * len).cast());
                    }
                    let weights = L::short_widen(at);
                    for r in 0..R {
                        sums[r][n] = L::int_mul_add(rows[r], weights, sums[r][n]);
                    }
                }
                k += L::SHORTS;
            }
            for r in 0..R {
                for n in 0..N {
                    totals[r][n] += L::int_sum(sums[r][n]);
                }
            }
        }
    }
    totals
}

/// Writes the methods of [`Isa`] that run loops, compiled with `$features`.
macro_rules! stamp {
    ($lanes:ty, $features:literal) => {
        fn dots_f32<const R: usize, const N: usize>(self, x: [&[f32]; R], w: [&[f32]; N]) -> [[f32; N]; R] {
            #[target_feature(enable = $features)]
            fn stamped<const R: usize, const N: usize>(x: [&[f32]; R], w: [&[f32]; N]) -> [[f32; N]; R] {
                // SAFETY: this function is compiled for these instructions.
                unsafe { crate::cpu::isa::dots_float::<$lanes, f32, R, N>(x, w) }
            }
            // SAFETY: the token proves that the processor has the instructions.
            unsafe { stamped(x, w) }
        }

        fn dots_bf16<const R: usize, const N: usize>(self, x: [&[f32]; R], w: [&[bf16]; N]) -> [[f32; N]; R] {
            #[target_feature(enable = $features)]
            fn stamped<const R: usize, const N: usize>(x: [&[f32]; R], w: [&[bf16]; N]) -> [[f32; N]; R] {
                // SAFETY: this function is compiled for these instructions.
                unsafe { crate::cpu::isa::dots_float::<$lanes, bf16, R, N>(x, w) }
            }
            // SAFETY: the token proves that the processor has the instructions.
            unsafe { stamped(x, w) }
        }

        fn dots_int8<const R: usize, const N: usize>(self, x: [&[i16]; R], w: [&[i8]; N]) -> [[i64; N]; R] {
            #[target_feature(enable = $features)]
            fn stamped<const R: usize, const N: usize>(x: [&[i16]; R], w: [&[i8]; N]) -> [[i64; N]; R] {
                // SAFETY: this function is compiled for these instructions.
                unsafe { crate::cpu::isa::dots_int8::<$lanes, R, N>(x, w) }
            }
            // SAFETY: the token proves that the processor has the instructions.
            unsafe { stamped(x, w) }
        }

        fn run<T>(self, loops: impl FnOnce() -> T) -> T {
            #[target_feature(enable = $features)]
            fn stamped<T>(loops: impl FnOnce() -> T) -> T {
                loops()
            }
            // SAFETY: the token proves that the processor has the instructions.
            unsafe { stamped(loops) }
        }
    };
}
pub(crate) use stamp;
