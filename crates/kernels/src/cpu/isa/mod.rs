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
#[cfg(target_arch = "x86_64")]
pub mod avxvnni;
#[cfg(target_arch = "aarch64")]
pub mod dotprod;
#[cfg(target_arch = "aarch64")]
pub mod i8mm;
pub mod int4;
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
    /// Rows of a float tile that keeps all sums in registers: 2 or 4, by 4 outputs.
    const TILE_ROWS: usize;
    /// Rows, and panels for them, that keep all integer sums in registers: for one row, and for many.
    const PANELS: [(usize, usize); 2];
    /// The same for 4-bit products.
    const INT4: [(usize, usize); 2];
    /// Whether 8-bit products take activations as two planes of bytes rather than as 16-bit integers.
    const PLANES: bool;

    /// The token, if this processor has the instructions.
    fn detect() -> Option<Self>;

    /// `Σ x[r][k] · w[n][k]`; all slices have the same length, a multiple of 16.
    fn dots_f32<const R: usize, const N: usize>(self, x: [&[f32]; R], w: [&[f32]; N]) -> [[f32; N]; R];
    /// The same for weights in bf16.
    fn dots_bf16<const R: usize, const N: usize>(self, x: [&[f32]; R], w: [&[bf16]; N]) -> [[f32; N]; R];
    /// The products of quantised rows with panels, as [`crate::int8`] says, exactly.
    fn panels<const R: usize, const T: usize>(
        self,
        x: [Quantized<'_>; R],
        w: [Panel<'_>; T],
    ) -> [[[f32; 16]; T]; R];
    /// The products of quantised rows with 4-bit panels, each a stream of blocks as [`int4`] says.
    fn int4<const R: usize, const T: usize>(
        self,
        x: [int4::Signed<'_>; R],
        w: [&[u8]; T],
    ) -> [[[f32; 16]; T]; R];
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
    /// Sixteen outputs by [`STEP`](Self::STEP) groups of a panel.
    type Weights: Copy;
    /// As many groups of activations, ready to be multiplied with `Weights`.
    type Inputs: Copy;
    /// 32-bit partial sums of sixteen outputs.
    type Sums: Copy;
    /// How many groups a `Sums` takes before a lane could overflow.
    const FLUSH: usize;
    /// How many groups `Weights` and `Inputs` hold.
    const STEP: usize = 1;
    /// By how much activations grow when they enter from the planes, for each unit of the weights' own sum.
    const OFFSET: f64 = PLANE_OFFSET;

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
    unsafe fn no_sums() -> Self::Sums;
    /// From readable numbers: (STEP, 16 outputs, GROUP).
    unsafe fn weights(from: *const i8) -> Self::Weights;
    /// From the activations from `k` on.
    unsafe fn inputs(x: &Quantized<'_>, k: usize) -> Self::Inputs;
    /// `x · w + sums`
    unsafe fn add_products(x: Self::Inputs, w: Self::Weights, sums: Self::Sums) -> Self::Sums;
    /// Adds the sums of the sixteen outputs to `totals`. Where [`Isa::PLANES`] holds they exceed the true ones by
    /// [`OFFSET`](Self::OFFSET) for each unit of the weights' own sum.
    unsafe fn add_sums(sums: Self::Sums, totals: &mut [f64; 16]);

    /// Asks for the cache line at an address, which need not be readable.
    unsafe fn prefetch(at: *const u8);
}

/// How far ahead of a product its float weights are fetched, in matrix rows: the tile after this one.
const AHEAD: usize = 4;

/// How far ahead of a product its panels are fetched, in bytes: far enough for the memory to answer, near enough to
/// stay in the first-level cache.
const PANEL_AHEAD: usize = 4096;

/// Outputs of a panel.
pub const PANEL: usize = 16;

/// Inputs that stand together for each output of a panel.
pub const GROUP: usize = 4;

/// Activations enter the planes as `(high + 128, low + 128)` with `x = 256 · high + low`: this is by how much `x` grows.
pub const PLANE_OFFSET: f64 = 257.0 * 128.0;

/// Sixteen outputs of a quantised matrix.
#[derive(Clone, Copy)]
pub struct Panel<'a> {
    /// (inputs / GROUP, 16 outputs, GROUP): each group is one cache line, and one operand of a dot-product instruction.
    pub values: &'a [i8],
    /// (16,)
    pub scales: &'a [f32; PANEL],
    /// The sum of each output's values. (16,)
    pub sums: &'a [i32; PANEL],
}

/// One row of quantised activations, each form (inputs,) or empty where the instruction set takes the other.
#[derive(Clone, Copy)]
pub struct Quantized<'a> {
    /// As 16-bit integers.
    pub shorts: &'a [i16],
    /// The upper bytes, plus 128.
    pub high: &'a [u8],
    /// The lower bytes, plus 128.
    pub low: &'a [u8],
    /// What one unit stands for.
    pub scale: f32,
}

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
                if k.is_multiple_of(64 / size_of::<W>()) {
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
unsafe fn panels<L: Lanes, const PLANES: bool, const R: usize, const T: usize>(
    x: [Quantized<'_>; R],
    w: [Panel<'_>; T],
) -> [[[f32; 16]; T]; R] {
    let len = w[0].values.len() / PANEL;
    assert!(
        len.is_multiple_of(L::STEP * GROUP) && w.iter().all(|w| w.values.len() == len * PANEL),
        "length of the panels"
    );
    for x in &x {
        let fits = if PLANES { x.high.len() == len && x.low.len() == len } else { x.shorts.len() == len };
        assert!(fits, "length of the activations");
    }
    let mut totals = [[[0.0_f64; 16]; T]; R];
    let mut k = 0;
    // SAFETY: the caller vouches for the instructions; activations have `len` numbers and panels sixteen times as many,
    // both whole steps. Prefetching may go anywhere.
    unsafe {
        while k < len {
            let end = len.min(k + L::FLUSH * GROUP);
            let mut sums = [[L::no_sums(); T]; R];
            while k < end {
                let mut weights = [L::weights(w[0].values.as_ptr().add(k * PANEL)); T];
                for t in 0..T {
                    let at = w[t].values.as_ptr().add(k * PANEL);
                    for group in 0..L::STEP {
                        L::prefetch(at.wrapping_add(group * PANEL * GROUP + PANEL_AHEAD).cast());
                    }
                    weights[t] = L::weights(at);
                }
                for r in 0..R {
                    let inputs = L::inputs(&x[r], k);
                    for t in 0..T {
                        sums[r][t] = L::add_products(inputs, weights[t], sums[r][t]);
                    }
                }
                k += L::STEP * GROUP;
            }
            for r in 0..R {
                for t in 0..T {
                    L::add_sums(sums[r][t], &mut totals[r][t]);
                }
            }
        }
    }
    let mut products = [[[0.0; 16]; T]; R];
    for r in 0..R {
        for t in 0..T {
            for j in 0..16 {
                let offset = if PLANES { L::OFFSET * f64::from(w[t].sums[j]) } else { 0.0 };
                // Sums are integers below 2^53, so the difference is exact and rounds once.
                products[r][t][j] = (totals[r][t][j] - offset) as f32 * (x[r].scale * w[t].scales[j]);
            }
        }
    }
    products
}

/// Writes the methods of [`Isa`] that run loops, compiled with `$features`.
macro_rules! stamp {
    ($lanes:ty, $features:literal, planes: $planes:literal) => {
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

        fn panels<const R: usize, const T: usize>(
            self,
            x: [crate::cpu::isa::Quantized<'_>; R],
            w: [crate::cpu::isa::Panel<'_>; T],
        ) -> [[[f32; 16]; T]; R] {
            #[target_feature(enable = $features)]
            fn stamped<const R: usize, const T: usize>(
                x: [crate::cpu::isa::Quantized<'_>; R],
                w: [crate::cpu::isa::Panel<'_>; T],
            ) -> [[[f32; 16]; T]; R] {
                // SAFETY: this function is compiled for these instructions.
                unsafe { crate::cpu::isa::panels::<$lanes, { $planes }, R, T>(x, w) }
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

/// Takes floats and prefetching over from `$lanes`, whose instructions the instruction set includes.
macro_rules! floats_of {
    ($lanes:ty) => {
        type Float = <$lanes as Lanes>::Float;

        #[inline(always)]
        unsafe fn zero() -> Self::Float {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::zero() }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self::Float {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::load(from) }
        }

        #[inline(always)]
        unsafe fn load_bf16(from: *const bf16) -> Self::Float {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::load_bf16(from) }
        }

        #[inline(always)]
        unsafe fn mul_add(a: Self::Float, b: Self::Float, sum: Self::Float) -> Self::Float {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::mul_add(a, b, sum) }
        }

        #[inline(always)]
        unsafe fn sum(a: Self::Float) -> f32 {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::sum(a) }
        }

        #[inline(always)]
        unsafe fn prefetch(at: *const u8) {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::prefetch(at) }
        }
    };
}
pub(crate) use floats_of;
