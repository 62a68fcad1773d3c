//! The inner loops, written once and compiled for each instruction set.
//!
//! An instruction set is a token whose only constructor asks the processor, so that holding one proves that its
//! instructions may run. [`Lanes`] names the few vector operations that the loops are made of.
//!
//! Every float sum takes its terms in the order of the inputs, [`SPAN`] at a time, and adds up what the spans come to.
//! So a product has the same bits whatever else is computed beside it, and the same on every instruction set with
//! fused multiply-add, but for bf16 on AMX, which sums in an order of its own.

use std::ops::Range;

use half::bf16;

#[cfg(target_arch = "x86_64")]
pub mod amx;
#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[cfg(target_arch = "x86_64")]
pub mod avxvnni;
#[cfg(target_arch = "aarch64")]
pub mod dotprod;
pub mod float;
pub mod groups;
#[cfg(target_arch = "aarch64")]
pub mod i8mm;
pub mod int4;
pub mod int8_groups;
#[cfg(target_arch = "aarch64")]
pub mod neon;
pub mod scalar;

pub use float::{FloatPanels, SPAN, Stored, place};
pub use groups::Signed;

/// Rows of weights and of what they are multiplied with are padded with zeros to a multiple of this: whole vectors in
/// every form, and whole cache lines in the smallest.
pub const PAD: usize = 64;

/// Proof that an instruction set exists, and the loops compiled for it.
pub trait Isa: Copy + Send + Sync + 'static {
    /// The name in reports and options.
    const NAME: &'static str;
    /// Whether `f32::mul_add` is one instruction.
    const FMA: bool;
    /// Whether products with bf16 take each f32 activation as a pair of bf16, of which 16 bits count.
    const BF16_PAIRS: bool = false;
    /// Rows, and panels for them, that keep all integer sums in registers: for one row, and for many.
    const PANELS: [(usize, usize); 2];
    /// The same for 4-bit products.
    const INT4: [(usize, usize); 2];
    /// The same for 8-bit products with a scale for each group of inputs.
    const INT8_GROUPS: [(usize, usize); 2];
    /// Whether 8-bit products take activations as two planes of bytes rather than as 16-bit integers.
    const PLANES: bool;
    /// Whether 8-bit products multiply signed with signed, and so take the planes' offset out of the activations before.
    const SIGNED_PLANES: bool = false;

    /// The token, if this processor has the instructions.
    fn detect() -> Option<Self>;

    /// `out = x · wᵀ`, or `out += x · wᵀ` where `add` is set: `x` (rows, w.inputs), `out` (rows, w's outputs).
    fn floats<W: Stored>(self, x: &[f32], w: FloatPanels<'_, W>, add: bool, out: &mut [f32]);
    /// Whether products with `W` take activations as pairs of bf16, split once for all panels.
    fn takes_pairs<W: Stored>(_inputs: usize) -> bool {
        false
    }

    /// Writes `x`, row `row` of a block, as pairs of bf16: (inputs / 32, high | low, BLOCK_ROWS, 32).
    ///
    /// # Panics
    /// Where the instruction set has no matrix unit.
    fn split(self, _x: &[f32], _row: usize, _block: &mut [u16]) {
        unreachable!("{} has no matrix unit", Self::NAME)
    }

    /// [`floats`](Self::floats) of rows that were [split](Self::split): `x` holds whole blocks, `out` (rows, w's outputs).
    ///
    /// # Panics
    /// Where the instruction set has no matrix unit.
    fn pairs<W: Stored>(
        self,
        _x: &[u16],
        _rows: usize,
        _w: FloatPanels<'_, W>,
        _add: bool,
        _out: &mut [f32],
    ) {
        unreachable!("{} has no matrix unit", Self::NAME)
    }

    /// The products of quantised rows with panels, as [`crate::int8`] says, exactly.
    fn panels<const R: usize, const T: usize>(
        self,
        x: [Quantized<'_>; R],
        w: [Panel<'_>; T],
        ahead: Ahead,
    ) -> [[[f32; 16]; T]; R];
    /// Whether [`blocks`](Self::blocks) is there and the best for so many rows and inputs.
    fn takes_blocks(_rows: usize, _inputs: usize) -> bool {
        false
    }

    /// The products of quantised rows with `panels`, by a matrix unit, exactly as [`panels`](Self::panels) finds them.
    /// `emit(rows, first panel, products)` hears each block of rows with each pair of panels; where the number of panels
    /// is odd, what it hears for the last one's partner means nothing.
    ///
    /// # Panics
    /// Where the instruction set has no matrix unit.
    fn blocks<'a>(
        self,
        _x: &QuantizedBlocks<'_>,
        _panels: Range<usize>,
        _panel: &dyn Fn(usize) -> Panel<'a>,
        _emit: &mut dyn FnMut(Range<usize>, usize, &Products),
    ) {
        unreachable!("{} has no matrix unit", Self::NAME)
    }

    /// The products of quantised rows with 4-bit panels, each a stream of blocks as [`groups`] says, with offsets where
    /// `AFFINE`.
    fn int4<const AFFINE: bool, const R: usize, const T: usize>(
        self,
        x: [Signed<'_>; R],
        w: [&[u8]; T],
        ahead: Ahead,
    ) -> [[[f32; 16]; T]; R];
    /// The same with 8-bit panels.
    fn int8_groups<const R: usize, const T: usize>(
        self,
        x: [Signed<'_>; R],
        w: [&[u8]; T],
        ahead: Ahead,
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
    /// How many `Float` sums stay in registers beside the weights that they take in.
    const FLOATS: usize;
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
    /// The first of each pair, as f32, from 16 readable pairs.
    unsafe fn load_first(from: *const bf16) -> Self::Float;
    /// The second of each pair, as f32, from 16 readable pairs.
    unsafe fn load_second(from: *const bf16) -> Self::Float;
    /// To 16 writable numbers.
    unsafe fn store(to: *mut f32, a: Self::Float);
    /// Sixteen times the same number.
    unsafe fn splat(x: f32) -> Self::Float;
    /// `a + b`
    unsafe fn add(a: Self::Float, b: Self::Float) -> Self::Float;
    /// `a · b + sum`, fused where the instruction set can.
    unsafe fn mul_add(a: Self::Float, b: Self::Float, sum: Self::Float) -> Self::Float;

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
    /// `(totals - offset · w.sums) · (scale · w.scales)`: integers below 2⁵³ up to the first rounding, to f32.
    #[inline(always)]
    unsafe fn scale(totals: &[f64; 16], offset: f64, scale: f32, w: &Panel<'_>) -> [f32; 16] {
        let mut products = [0.0; 16];
        for j in 0..16 {
            products[j] = (totals[j] - offset * f64::from(w.sums[j])) as f32 * (scale * w.scales[j]);
        }
        products
    }

    /// Asks for the cache line at an address, which need not be readable.
    unsafe fn prefetch(at: *const u8);
}

/// Asks for a cache line, anywhere, outside of loops that have their own [`Lanes::prefetch`].
pub fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and prefetching an address never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    // The stable intrinsics of other processors have none.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// How far ahead of a product its panels are fetched, in bytes: far enough for the memory to answer, near enough to
/// stay in the first-level cache.
pub const PANEL_AHEAD: isize = 4096;

/// Bytes of a cache line.
pub const CACHE_LINE: usize = 64;

/// What is fetched from memory while panels are multiplied: for each of their cache lines another, of which the first is
/// `start` bytes behind the first of the panel, and each next one `step` bytes further.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    start: isize,
    step: isize,
}

impl Ahead {
    /// The panels themselves, as a stream from memory.
    pub const STREAM: Self = Self { start: PANEL_AHEAD, step: CACHE_LINE as isize };

    /// A share, the `index`-th of `count`, of panels that lie `distance` bytes behind those in hand, all of `len` bytes.
    pub fn share(distance: usize, len: usize, (index, count): (usize, usize)) -> Self {
        let start = distance + len * index / count;
        Self { start: start as isize, step: CACHE_LINE.div_ceil(count) as isize }
    }

    /// What is fetched with a panel's cache line at `line`, to which belongs the distance `fetch`. One row alone is always
    /// multiplied with a stream, whose distances the compiler knows: that is faster by some hundredths.
    #[inline(always)]
    fn fetched<const ROWS: usize>(panel: *const u8, line: usize, fetch: isize) -> *const u8 {
        if ROWS == 1 {
            panel.wrapping_add(line).wrapping_offset(PANEL_AHEAD)
        } else {
            panel.wrapping_offset(fetch)
        }
    }
}

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

/// Rows of a block that a matrix unit multiplies at once.
pub const BLOCK_ROWS: usize = 16;

/// Products of a block of rows with two panels: (rows, panels, outputs).
pub type Products = [[[f32; PANEL]; 2]; BLOCK_ROWS];

/// Quantised activations as a matrix unit takes them.
#[derive(Clone, Copy)]
pub struct QuantizedBlocks<'a> {
    /// A multiple of [`PAD`].
    pub inputs: usize,
    /// (blocks of rows, inputs / 64, high | low, BLOCK_ROWS, 64): the planes of [`Quantized`], tile by tile.
    pub planes: &'a [u8],
    /// What one unit stands for. (rows,)
    pub scales: &'a [f32],
}

// Plain loops over indices and no closures below: what the compiler does not inline, it compiles without the
// instruction set, and every vector then goes through memory.

/// How many inputs the panels have, and so the rows.
#[inline(always)]
fn inputs_of<L: Lanes, const PLANES: bool>(x: &[Quantized<'_>], w: &[Panel<'_>]) -> usize {
    let len = w[0].values.len() / PANEL;
    let whole = len.is_multiple_of(2 * L::STEP * GROUP) && w.iter().all(|w| w.values.len() == len * PANEL);
    assert!(whole, "length of the panels");
    let fits = |x: &Quantized<'_>| {
        if PLANES { x.high.len() == len && x.low.len() == len } else { x.shorts.len() == len }
    };
    assert!(x.iter().all(fits), "length of the activations");
    len
}

/// # Safety
/// As for [`Lanes`].
#[expect(clippy::needless_range_loop, reason = "iterators over tuples of arrays are not always inlined")]
#[inline(always)]
unsafe fn panels<L: Lanes, const PLANES: bool, const R: usize, const T: usize>(
    x: [Quantized<'_>; R],
    w: [Panel<'_>; T],
    ahead: Ahead,
) -> [[[f32; 16]; T]; R] {
    let len = inputs_of::<L, PLANES>(&x, &w);
    // One row by one panel would wait for each sum before it can add to it: two take turns.
    let chains = if R * T == 1 { 2 } else { 1 };
    let mut totals = [[[0.0_f64; 16]; T]; R];
    let (mut k, mut fetch) = (0, ahead.start);
    // SAFETY: the caller vouches for the instructions; activations have `len` numbers and panels sixteen times as many,
    // both whole steps. Prefetching may go anywhere.
    unsafe {
        while k < len {
            let end = len.min(k + L::FLUSH * GROUP);
            let mut sums = [[[L::no_sums(); T]; R]; 2];
            while k < end {
                for chain in 0..chains {
                    let mut weights = [L::weights(w[0].values.as_ptr().add(k * PANEL)); T];
                    for t in 0..T {
                        let panel = w[t].values.as_ptr();
                        for line in 0..L::STEP {
                            let fetch = fetch + line as isize * ahead.step;
                            let at = k * PANEL + line * CACHE_LINE;
                            L::prefetch(Ahead::fetched::<R>(panel.cast(), at, fetch));
                        }
                        weights[t] = L::weights(panel.add(k * PANEL));
                    }
                    fetch += L::STEP as isize * ahead.step;
                    for r in 0..R {
                        let inputs = L::inputs(&x[r], k);
                        for t in 0..T {
                            sums[chain][r][t] = L::add_products(inputs, weights[t], sums[chain][r][t]);
                        }
                    }
                    k += L::STEP * GROUP;
                }
            }
            for chain in 0..chains {
                for r in 0..R {
                    for t in 0..T {
                        L::add_sums(sums[chain][r][t], &mut totals[r][t]);
                    }
                }
            }
        }
    }
    let mut products = [[[0.0; 16]; T]; R];
    for r in 0..R {
        for t in 0..T {
            let offset = if PLANES { L::OFFSET } else { 0.0 };
            // SAFETY: the caller vouches for the instructions.
            products[r][t] = unsafe { L::scale(&totals[r][t], offset, x[r].scale, &w[t]) };
        }
    }
    products
}

/// Writes the methods of [`Isa`] that run loops, compiled with `$features`.
macro_rules! stamp {
    ($lanes:ty, $features:literal, planes: $planes:literal) => {
        fn floats<W: crate::cpu::isa::Stored>(
            self,
            x: &[f32],
            w: crate::cpu::isa::FloatPanels<'_, W>,
            add: bool,
            out: &mut [f32],
        ) {
            #[target_feature(enable = $features)]
            fn stamped<W: crate::cpu::isa::Stored>(
                x: &[f32],
                w: crate::cpu::isa::FloatPanels<'_, W>,
                add: bool,
                out: &mut [f32],
            ) {
                // SAFETY: this function is compiled for these instructions.
                unsafe { crate::cpu::isa::float::floats::<$lanes, W>(x, w, add, out) }
            }
            // SAFETY: the token proves that the processor has the instructions.
            unsafe { stamped(x, w, add, out) }
        }

        fn panels<const R: usize, const T: usize>(
            self,
            x: [crate::cpu::isa::Quantized<'_>; R],
            w: [crate::cpu::isa::Panel<'_>; T],
            ahead: crate::cpu::isa::Ahead,
        ) -> [[[f32; 16]; T]; R] {
            #[target_feature(enable = $features)]
            fn stamped<const R: usize, const T: usize>(
                x: [crate::cpu::isa::Quantized<'_>; R],
                w: [crate::cpu::isa::Panel<'_>; T],
                ahead: crate::cpu::isa::Ahead,
            ) -> [[[f32; 16]; T]; R] {
                // SAFETY: this function is compiled for these instructions.
                unsafe { crate::cpu::isa::panels::<$lanes, { $planes }, R, T>(x, w, ahead) }
            }
            // SAFETY: the token proves that the processor has the instructions.
            unsafe { stamped(x, w, ahead) }
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
        const FLOATS: usize = <$lanes as Lanes>::FLOATS;

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
        unsafe fn load_first(from: *const bf16) -> Self::Float {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::load_first(from) }
        }

        #[inline(always)]
        unsafe fn load_second(from: *const bf16) -> Self::Float {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::load_second(from) }
        }

        #[inline(always)]
        unsafe fn store(to: *mut f32, a: Self::Float) {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::store(to, a) }
        }

        #[inline(always)]
        unsafe fn splat(x: f32) -> Self::Float {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::splat(x) }
        }

        #[inline(always)]
        unsafe fn add(a: Self::Float, b: Self::Float) -> Self::Float {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::add(a, b) }
        }

        #[inline(always)]
        unsafe fn mul_add(a: Self::Float, b: Self::Float, sum: Self::Float) -> Self::Float {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::mul_add(a, b, sum) }
        }

        #[inline(always)]
        unsafe fn prefetch(at: *const u8) {
            // SAFETY: the caller vouches for what this asks for.
            unsafe { <$lanes as Lanes>::prefetch(at) }
        }
    };
}
pub(crate) use floats_of;
