//! x86-64 with AMX: a matrix unit that multiplies tiles of 16 rows by 64 bytes. Sapphire Rapids and later.
//!
//! Integers and bf16 both come as two planes of 16 rows, tile by tile, and as panels of 16 outputs, of which 64 bytes a
//! row are one tile. f32 activations are split into a bf16 and what it lacks, another bf16: 16 bits of each number count.
//!
//! Eight tile registers: two hold the planes of 16 rows, two the panels of 32 outputs, four the sums of each plane with
//! each panel. So each kibibyte that is loaded is multiplied once, and sums leave the registers only at the end. What is
//! not a block of rows goes through AVX-512, whose integer products have the same bits.

use std::any::TypeId;
use std::arch::asm;
use std::arch::x86_64::*;
use std::cell::RefCell;
use std::mem::swap;
use std::ops::Range;
use std::sync::OnceLock;

use bytemuck::Pod;
use half::bf16;

use super::avx512::Avx512;
use super::{
    Ahead, BLOCK_ROWS, FloatPanels, Isa, PANEL, PANEL_AHEAD, PLANE_OFFSET, Panel, Products, Quantized,
    QuantizedBlocks, Signed, Stored,
};

/// Proof that AMX with 8-bit integers and bf16 exists beside AVX-512, and that the system lets this process use it.
#[derive(Clone, Copy, Debug)]
pub struct Amx(Avx512);

/// Inputs of one tile: each of its rows has 64 bytes.
const TILE_INPUTS: usize = 64;
/// bf16 inputs of one tile.
const TILE_BF16: usize = 32;
/// Bytes of a tile.
const TILE_BYTES: usize = BLOCK_ROWS * TILE_INPUTS;
/// More inputs could overflow a 32-bit sum: 65,536 · 255 · 127 < 2³¹.
const MOST_INPUTS: usize = 65_536;

impl Isa for Amx {
    const NAME: &'static str = "amx";
    const FMA: bool = Avx512::FMA;
    const BF16_PAIRS: bool = true;
    const PANELS: [(usize, usize); 2] = Avx512::PANELS;
    const PLANES: bool = Avx512::PLANES;
    const INT4: [(usize, usize); 2] = Avx512::INT4;
    const INT8_GROUPS: [(usize, usize); 2] = Avx512::INT8_GROUPS;

    fn detect() -> Option<Self> {
        static USABLE: OnceLock<bool> = OnceLock::new();
        let avx512 = Avx512::detect()?;
        USABLE.get_or_init(|| exists() && permitted()).then_some(Self(avx512))
    }

    fn takes_blocks(rows: usize, inputs: usize) -> bool {
        // One or two rows are done in vector registers while the tiles would still be loading.
        rows > 2 && inputs <= MOST_INPUTS
    }

    fn blocks<'a>(
        self,
        x: &QuantizedBlocks<'_>,
        panels: Range<usize>,
        panel: &dyn Fn(usize) -> Panel<'a>,
        emit: &mut dyn FnMut(Range<usize>, usize, &Products),
    ) {
        let mut tiles = Tiles::new(self);
        // While the matrix unit works on one pair of panels, the products of the one before are scaled.
        let [first_sums, second_sums] = &mut [Sums([[[[0_i32; PANEL]; BLOCK_ROWS]; 2]; 2]); 2];
        let (mut new, mut old) = (first_sums, second_sums);
        let mut pending: Option<(usize, [Panel<'_>; 2])> = None;
        let mut products = [[[0.0; PANEL]; 2]; BLOCK_ROWS];
        let bytes = BLOCK_ROWS * 2 * x.inputs;
        for (index, scales) in x.scales.chunks(BLOCK_ROWS).enumerate() {
            tiles.configure(scales.len());
            let planes = &x.planes[index * bytes..(index + 1) * bytes];
            let rows = index * BLOCK_ROWS..index * BLOCK_ROWS + scales.len();
            for first in panels.clone().step_by(2) {
                // The last panel stands in for a partner that does not exist.
                let pair = [panel(first), panel((first + 1).min(panels.end - 1))];
                let before = pending.replace((first, pair));
                let mut between = |rows| {
                    if let Some((_, pair)) = &before {
                        // SAFETY: the token proves that the processor has AVX-512.
                        unsafe { scale(old, rows, scales, pair, &mut products) };
                    }
                };
                // Weights come from memory for the first rows, and from the cache for the others.
                tiles.multiply(planes, pair.map(|panel| panel.values), index == 0, new, &mut between);
                if let Some((first, _)) = before {
                    emit(rows.clone(), first, &products);
                }
                swap(&mut new, &mut old);
            }
            if let Some((first, pair)) = pending.take() {
                // SAFETY: the token proves that the processor has AVX-512.
                unsafe { scale(old, 0..BLOCK_ROWS, scales, &pair, &mut products) };
                emit(rows, first, &products);
            }
        }
    }

    fn floats<W: Stored>(self, x: &[f32], w: FloatPanels<'_, W>, add: bool, out: &mut [f32]) {
        // What is not bf16 in whole tiles keeps to vectors, however many rows there are.
        if !Self::takes_pairs::<W>(w.inputs) {
            return self.0.floats(x, w, add, out);
        }
        assert!(x.len().is_multiple_of(w.inputs), "length of the rows");
        let rows = x.len() / w.inputs;
        PAIRS.with_borrow_mut(|pairs| {
            let len = rows.next_multiple_of(BLOCK_ROWS) * 2 * w.inputs;
            pairs.resize(pairs.len().max(len), 0);
            let pairs = &mut pairs[..len];
            for (row, x) in x.chunks_exact(w.inputs).enumerate() {
                let block = row / BLOCK_ROWS * BLOCK_ROWS * 2 * w.inputs;
                self.split(x, row % BLOCK_ROWS, &mut pairs[block..block + BLOCK_ROWS * 2 * w.inputs]);
            }
            self.pairs(pairs, rows, w, add, out);
        });
    }

    fn takes_pairs<W: Stored>(inputs: usize) -> bool {
        TypeId::of::<W>() == TypeId::of::<bf16>() && inputs.is_multiple_of(TILE_BF16)
    }

    fn split(self, x: &[f32], row: usize, block: &mut [u16]) {
        // SAFETY: the token proves that the processor has AVX-512.
        unsafe { split(x, row, block) }
    }

    fn pairs<W: Stored>(self, x: &[u16], rows: usize, w: FloatPanels<'_, W>, add: bool, out: &mut [f32]) {
        let inputs = w.inputs;
        assert!(Self::takes_pairs::<W>(inputs), "weights in bf16 and whole tiles");
        let values: &[bf16] = bytemuck::cast_slice(w.values);
        assert!(values.len().is_multiple_of(inputs * PANEL), "length of the panels");
        assert_eq!(x.len(), rows.next_multiple_of(BLOCK_ROWS) * 2 * inputs, "length of the rows");
        let panels = values.len() / (inputs * PANEL);
        assert_eq!(out.len(), rows * panels * PANEL, "length of the output");
        let mut tiles = Tiles::new(self);
        let outs = out.chunks_mut((BLOCK_ROWS * panels * PANEL).max(1));
        for (index, (block, out)) in x.chunks_exact(BLOCK_ROWS * 2 * inputs).zip(outs).enumerate() {
            tiles.configure(out.len() / (panels * PANEL));
            block_of_pairs(&tiles, block, values, index == 0 && w.ahead != 0, (panels, add), out);
        }
    }

    fn panels<const R: usize, const T: usize>(
        self,
        x: [Quantized<'_>; R],
        w: [Panel<'_>; T],
        ahead: Ahead,
    ) -> [[[f32; PANEL]; T]; R] {
        self.0.panels(x, w, ahead)
    }

    fn int4<const AFFINE: bool, const R: usize, const T: usize>(
        self,
        x: [Signed<'_>; R],
        w: [&[u8]; T],
        ahead: Ahead,
    ) -> [[[f32; PANEL]; T]; R] {
        self.0.int4::<AFFINE, R, T>(x, w, ahead)
    }

    fn int8_groups<const R: usize, const T: usize>(
        self,
        x: [Signed<'_>; R],
        w: [&[u8]; T],
        ahead: Ahead,
    ) -> [[[f32; PANEL]; T]; R] {
        self.0.int8_groups(x, w, ahead)
    }

    fn run<T>(self, loops: impl FnOnce() -> T) -> T {
        self.0.run(loops)
    }
}

thread_local! {
    /// The pairs of the rows of a call: room that every product would otherwise ask the system for.
    static PAIRS: RefCell<Vec<u16>> = const { RefCell::new(Vec::new()) };
}

/// The products of one block of rows with all panels: `out` (rows, panels · PANEL).
fn block_of_pairs(
    tiles: &Tiles,
    block: &[u16],
    values: &[bf16],
    stream: bool,
    (panels, add): (usize, bool),
    out: &mut [f32],
) {
    let len = values.len() / panels;
    let panel = |index: usize| &values[index * len..(index + 1) * len];
    let [first_sums, second_sums] = &mut [Sums([[[[0.0_f32; PANEL]; BLOCK_ROWS]; 2]; 2]); 2];
    let (mut new, mut old) = (first_sums, second_sums);
    let rows = out.len() / (panels * PANEL);
    let put_rows = |sums: &Sums<f32>, turn: usize, between: Range<usize>, out: &mut [f32]| {
        for row in between.start..between.end.min(rows) {
            let out = &mut out[row * panels * PANEL..(row + 1) * panels * PANEL];
            for (p, out) in out.as_chunks_mut::<PANEL>().0[2 * turn..].iter_mut().take(2).enumerate() {
                let (high, low) = (&sums.0[0][p][row], &sums.0[1][p][row]);
                // SAFETY: who has configured tiles holds the token, which proves that the processor has AVX-512.
                unsafe { put(high, low, add, out) };
            }
        }
    };
    // One pair behind, as for integers.
    let turns = panels.div_ceil(2);
    for turn in 0..turns {
        let first = 2 * turn;
        let pair = [panel(first), panel((first + 1).min(panels - 1))];
        tiles.multiply(block, pair, stream, new, &mut |rows| {
            if turn > 0 {
                put_rows(old, turn - 1, rows, out);
            }
        });
        swap(&mut new, &mut old);
    }
    if turns > 0 {
        put_rows(old, turns - 1, 0..BLOCK_ROWS, out);
    }
}

/// `out = high + low`, or added to `out`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn put(high: &[f32; PANEL], low: &[f32; PANEL], add: bool, out: &mut [f32; PANEL]) {
    // SAFETY: all pointers lead to sixteen numbers.
    unsafe {
        let sum = _mm512_add_ps(_mm512_loadu_ps(high.as_ptr()), _mm512_loadu_ps(low.as_ptr()));
        let sum = if add { _mm512_add_ps(_mm512_loadu_ps(out.as_ptr()), sum) } else { sum };
        _mm512_storeu_ps(out.as_mut_ptr(), sum);
    }
}

/// Row `row` of a block as two planes of bf16, (inputs / 32, high | low, BLOCK_ROWS, 32): the nearest bf16, and the one
/// nearest to what it lacks. What is infinite or NaN stands in the first alone.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn split(x: &[f32], row: usize, planes: &mut [u16]) {
    assert!(x.len().is_multiple_of(TILE_BF16), "whole tiles");
    assert!(row < BLOCK_ROWS && planes.len() == BLOCK_ROWS * 2 * x.len(), "room for the planes");
    let infinity = _mm512_set1_epi32(0x7f80_0000);
    // The bits of the nearest bf16, ties to even, in the upper half.
    let nearest = |x: __m512i| {
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(x), _mm512_set1_epi32(1));
        let sum = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), odd);
        _mm512_and_si512(sum, _mm512_set1_epi32(-0x1_0000))
    };
    for (index, x) in x.as_chunks::<16>().0.iter().enumerate() {
        let at = (index / 2 * 2 * BLOCK_ROWS + row) * TILE_BF16 + index % 2 * 16;
        let (high_at, low_at) =
            (planes[at..].as_mut_ptr(), planes[at + BLOCK_ROWS * TILE_BF16..].as_mut_ptr());
        // SAFETY: sixteen numbers can be read; sixteen can be written to each plane, whose length was checked.
        unsafe {
            let bits = _mm512_loadu_si512(x.as_ptr().cast());
            let rounded = nearest(bits);
            // Rounding may reach infinity, from where there is no way back: there the number is cut off instead.
            let reached = _mm512_cmpeq_epi32_mask(_mm512_and_si512(rounded, infinity), infinity);
            let cut = _mm512_and_si512(bits, _mm512_set1_epi32(-0x1_0000));
            let finite = !_mm512_cmpeq_epi32_mask(_mm512_and_si512(bits, infinity), infinity);
            let high = _mm512_mask_mov_epi32(rounded, reached | !finite, cut);
            // What makes a NaN may stand in the lower half alone, or be carried away by the rounding.
            let nan = _mm512_cmpunord_ps_mask(_mm512_castsi512_ps(bits), _mm512_castsi512_ps(bits));
            let high = _mm512_mask_or_epi32(high, nan, cut, _mm512_set1_epi32(0x40_0000));
            let rest = _mm512_sub_ps(_mm512_castsi512_ps(bits), _mm512_castsi512_ps(high));
            let low = _mm512_maskz_mov_epi32(finite, nearest(_mm512_castps_si512(rest)));
            _mm256_storeu_si256(high_at.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(high)));
            _mm256_storeu_si256(low_at.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(low)));
        }
    }
}

/// Whether the processor has tiles, of 8-bit integers and of bf16, and the system saves them when it switches threads.
fn exists() -> bool {
    const TILES: u32 = 1 << 22 | 1 << 24 | 1 << 25; // leaf 7, EDX: AMX-BF16, AMX-TILE, AMX-INT8
    const STATE: u64 = 1 << 17 | 1 << 18; // XCR0: the configuration and the data of tiles
    #[target_feature(enable = "xsave")]
    fn enabled() -> u64 {
        // SAFETY: register 0 exists wherever the instruction does.
        unsafe { _xgetbv(0) }
    }
    __cpuid(0).eax >= 7
        && __cpuid_count(7, 0).edx & TILES == TILES
        && is_x86_feature_detected!("xsave")
        // SAFETY: the instruction exists, as just asked; AVX-512 implies that the system has enabled it.
        && unsafe { enabled() } & STATE == STATE
}

/// Asks Linux for room for the tiles, which it grants to a process once and for all its threads. How other systems
/// are asked nobody has tried here.
fn permitted() -> bool {
    #[cfg(target_os = "linux")]
    {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const TILE_DATA: libc::c_long = 18;
        // SAFETY: the call takes two numbers and touches no memory.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        false
    }
}

/// The sums of two planes of a block of rows with two panels: (planes, panels, rows, outputs).
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Sums<S>([[[[S; PANEL]; BLOCK_ROWS]; 2]; 2]);

/// The products of some rows from their sums, as [`crate::int8`] says. In vectors by hand: of the plain loops the compiler
/// makes gathers across rows.
///
/// # Safety
/// The processor must have AVX-512.
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn scale(
    sums: &Sums<i32>,
    rows: Range<usize>,
    scales: &[f32],
    panels: &[Panel<'_>; 2],
    products: &mut Products,
) {
    let rows = rows.start..rows.end.min(scales.len());
    let mut bits = _mm512_setzero_si512();
    for (p, panel) in panels.iter().enumerate() {
        // SAFETY: all pointers lead to arrays of sixteen numbers.
        unsafe {
            // What the 128 that the planes have more contribute to each of the sums.
            let weight_sums = _mm512_loadu_si512(panel.sums.as_ptr().cast());
            let offset = _mm512_slli_epi32::<7>(weight_sums);
            let weight_scales = _mm512_loadu_ps(panel.scales.as_ptr());
            for r in rows.clone() {
                let high = _mm512_sub_epi32(_mm512_loadu_si512(sums.0[0][p][r].as_ptr().cast()), offset);
                let low = _mm512_sub_epi32(_mm512_loadu_si512(sums.0[1][p][r].as_ptr().cast()), offset);
                bits = _mm512_or_si512(bits, _mm512_or_si512(_mm512_abs_epi32(high), _mm512_abs_epi32(low)));
                let (high, low) = (_mm512_cvtepi32_ps(high), _mm512_cvtepi32_ps(low));
                let sum = _mm512_fmadd_ps(high, _mm512_set1_ps(256.0), low);
                let scale = _mm512_mul_ps(_mm512_set1_ps(scales[r]), weight_scales);
                _mm512_storeu_ps(products[r][p].as_mut_ptr(), _mm512_mul_ps(sum, scale));
            }
        }
    }
    // Integers of up to 24 bits are exact in f32, so the fused sum was the first to round.
    if _mm512_test_epi32_mask(bits, _mm512_set1_epi32(-1 << 24)) != 0 {
        scale_large(sums, rows, scales, panels, products);
    }
}

/// The same where sums exceed 24 bits.
#[cold]
fn scale_large(
    sums: &Sums<i32>,
    rows: Range<usize>,
    scales: &[f32],
    panels: &[Panel<'_>; 2],
    products: &mut Products,
) {
    for (p, panel) in panels.iter().enumerate() {
        for r in rows.clone() {
            for (j, product) in products[r][p].iter_mut().enumerate() {
                // Integers below 2⁵³ all along, so it rounds once.
                let sum = 256.0 * f64::from(sums.0[0][p][r][j]) + f64::from(sums.0[1][p][r][j]);
                let sum = sum - PLANE_OFFSET * f64::from(panel.sums[j]);
                *product = sum as f32 * (scales[r] * panel.scales[j]);
            }
        }
    }
}

/// The tile registers of this thread, released when dropped.
struct Tiles {
    rows: usize, // of the blocks that they are configured for; 0 before the first
}

/// The shapes of the tile registers, as `ldtilecfg` reads them. Intel, Software Developer's Manual, volume 2.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Adds the products of 64 bytes of each row by `$dot`: `$x` leads to both planes of a block, `$w` to two panels.
macro_rules! step {
    ($dot:literal, $x:expr, $w:expr) => {
        asm!(
            "tileloadd tmm4, [{x} + {line}]",
            "tileloadd tmm6, [{w0} + {line}]",
            "tileloadd tmm7, [{w1} + {line}]",
            concat!($dot, " tmm0, tmm4, tmm6"),
            concat!($dot, " tmm1, tmm4, tmm7"),
            "tileloadd tmm5, [{x} + {line} + 1024]",
            concat!($dot, " tmm2, tmm5, tmm6"),
            concat!($dot, " tmm3, tmm5, tmm7"),
            x = in(reg) $x,
            w0 = in(reg) $w[0],
            w1 = in(reg) $w[1],
            line = in(reg) 64_usize,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, readonly),
        )
    };
}

impl Tiles {
    /// Not configured yet.
    fn new(_: Amx) -> Self {
        Self { rows: 0 }
    }

    /// For blocks of `rows` rows, from 1 to 16.
    fn configure(&mut self, rows: usize) {
        if self.rows == rows {
            return;
        }
        assert!((1..=BLOCK_ROWS).contains(&rows), "rows of a block");
        let mut config =
            Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        config.row_bytes[..8].fill(TILE_INPUTS as u16);
        config.rows[..6].fill(rows as u8); // sums and activations
        config.rows[6..8].fill(BLOCK_ROWS as u8); // panels: 16 groups of inputs
        // SAFETY: the token in `new` proves that the registers exist and may be used; the shapes are legal.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
        self.rows = rows;
    }

    /// Sums of one block (tiles, planes, 16, 64 bytes) with two panels (tiles, 16, 64 bytes); `stream` when these come
    /// from memory. Bytes times bytes, or bf16 times bf16. `between` is called for all rows of a block, a few at a time:
    /// what it does goes on beside the matrix unit.
    fn multiply<X: Pod, W: Pod, S: Pod>(
        &self,
        planes: &[X],
        panels: [&[W]; 2],
        stream: bool,
        sums: &mut Sums<S>,
        between: &mut impl FnMut(Range<usize>),
    ) {
        const { assert!(size_of::<X>() == size_of::<W>() && size_of::<X>() <= 2 && size_of::<S>() == 4) };
        let steps = size_of_val(planes) / (2 * TILE_BYTES);
        assert!(self.rows > 0, "tiles are configured");
        assert!(steps > 0 && size_of_val(planes) == steps * 2 * TILE_BYTES, "length of the activations");
        assert!(panels.iter().all(|panel| size_of_val(*panel) == steps * TILE_BYTES), "length of the panels");
        let (x, w) = (planes.as_ptr().cast::<u8>(), panels.map(|panel| panel.as_ptr().cast::<u8>()));
        // Tiles keep their sums from one piece of assembly to the next. Rust promises that of no register; but compilers
        // touch these ones only for AMX intrinsics, of which there are none, and what `between` calls has no assembly.
        // If that ever changed, the comparison with the reference would show it.
        // SAFETY: the tiles are configured, as just checked. Loads stay within the slices: each step reads two tiles of
        // activations and one of each panel, at most 16 rows each. The stores fit `sums`. Prefetching may go anywhere.
        unsafe {
            asm!(
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, options(nostack, nomem),
            );
            for step in 0..steps {
                let x = x.add(step * 2 * TILE_BYTES);
                let w = w.map(|panel| panel.add(step * TILE_BYTES));
                if stream {
                    for line in (0..TILE_BYTES).step_by(TILE_INPUTS) {
                        for panel in w {
                            let at = panel.wrapping_add(line).wrapping_offset(PANEL_AHEAD);
                            _mm_prefetch::<_MM_HINT_T0>(at.cast());
                        }
                    }
                }
                if size_of::<X>() == 1 {
                    step!("tdpbusd", x, w);
                } else {
                    step!("tdpbf16ps", x, w);
                }
                let rows = step * BLOCK_ROWS / steps..(step + 1) * BLOCK_ROWS / steps;
                if !rows.is_empty() {
                    between(rows);
                }
            }
            asm!(
                "tilestored [{sums} + {line}], tmm0",
                "tilestored [{sums} + {line} + 1024], tmm1",
                "tilestored [{sums} + {line} + 2048], tmm2",
                "tilestored [{sums} + {line} + 3072], tmm3",
                sums = in(reg) &raw mut *sums,
                line = in(reg) 64_usize,
                options(nostack),
            );
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // Registers in use would be saved, eight kibibytes, whenever the system switches threads.
        // SAFETY: the registers exist, as for `configure`, and nobody needs what they hold.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::isa::Isa;

    /// Needs no tiles, only AVX-512.
    #[test]
    fn pairs_hold_sixteen_bits_of_each_number() {
        if Avx512::detect().is_none() {
            return;
        }
        let odd =
            [0x7fff_ffff, 0xffff_ffff, 0x7f80_0001, 0x7fc0_0000, 0x7f80_0000, 0xff80_0000, 0x7f7f_ffff, 1, 0];
        let mut x: Vec<f32> = (0..96).map(|i| ((i * 7919 % 1013) as f32 - 500.0) * 1.37e-3).collect();
        x.iter_mut().zip(odd).for_each(|(x, bits)| *x = f32::from_bits(bits));
        let mut block = vec![0xaaaa; BLOCK_ROWS * 2 * x.len()];
        // SAFETY: the processor has AVX-512, as just asked.
        unsafe { split(&x, 5, &mut block) };
        for (k, x) in x.into_iter().enumerate() {
            let at =
                |plane: usize| ((k / TILE_BF16 * 2 + plane) * BLOCK_ROWS + 5) * TILE_BF16 + k % TILE_BF16;
            let [high, low] = [0, 1].map(|plane| bf16::from_bits(block[at(plane)]).to_f64());
            let (sum, right) = (high + low, f64::from(x));
            let limit = right.abs() * 2_f64.powi(-16) + f64::from(f32::MIN_POSITIVE);
            let close = sum == right || (sum - right).abs() <= limit;
            assert!(if x.is_nan() { sum.is_nan() } else { close }, "{x} became {high} and {low}");
        }
        let written = block.iter().filter(|bits| **bits != 0xaaaa).count();
        assert!(written <= 2 * 96, "other rows stay as they are");
    }

    #[test]
    fn half_a_tile_is_refused() {
        let Some(avx512) = Avx512::detect() else { return };
        let half = || Amx(avx512).split(&[1.0; 16], 0, &mut [0; 2 * 16 * BLOCK_ROWS]);
        assert!(std::panic::catch_unwind(half).is_err());
    }
}
