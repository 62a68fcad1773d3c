//! Products with panels of floats.

use bytemuck::Pod;
use half::bf16;

use super::{Lanes, PANEL};

/// How many terms of a float sum are added up before they join the sum of those before them: few enough for rounding
/// not to grow with the length of a row.
pub const SPAN: usize = 128;

/// Sixteen outputs at a time of a matrix in floats.
#[derive(Clone, Copy)]
pub struct FloatPanels<'a, W> {
    /// (panels, inputs / [`Stored::GROUP`], 16 outputs, GROUP)
    pub values: &'a [W],
    /// An even number.
    pub inputs: usize,
    /// How far behind these numbers lie those that are needed next, in bytes: they are fetched meanwhile.
    pub ahead: isize,
}

/// A float form of weights.
pub trait Stored: Pod + Send + Sync {
    /// Inputs that stand together for each output of a panel.
    const GROUP: usize;

    /// The nearest number in this form.
    fn nearest(x: f32) -> Self;
    /// The number.
    fn number(self) -> f32;

    /// Sixteen outputs of input `k`, or of `k + 1` where `second` is set.
    ///
    /// # Safety
    /// As for [`Lanes`]; `from` is where the inputs `k` and `k + 1` of a panel begin, `k` being even.
    unsafe fn load<L: Lanes>(from: *const Self, second: bool) -> L::Float;
}

/// Where input `k` of an output stands in its panel.
pub fn place<W: Stored>(output: usize, k: usize) -> usize {
    (k / W::GROUP * PANEL + output % PANEL) * W::GROUP + k % W::GROUP
}

impl Stored for f32 {
    const GROUP: usize = 1;

    fn nearest(x: f32) -> Self {
        x
    }

    fn number(self) -> f32 {
        self
    }

    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const Self, second: bool) -> L::Float {
        // SAFETY: as the caller vouches.
        unsafe { L::load(from.add(if second { PANEL } else { 0 })) }
    }
}

impl Stored for bf16 {
    const GROUP: usize = 2;

    // As `from_f32`, without its branches, so that loops over it become vectors.
    #[inline(always)]
    fn nearest(x: f32) -> Self {
        let bits = x.to_bits();
        let odd = bits >> 16 & 1;
        let nearest = bits.wrapping_add(0x7fff + odd) >> 16;
        let quiet = bits >> 16 | 0x40;
        Self::from_bits(if x.is_nan() { quiet } else { nearest } as u16)
    }

    fn number(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const Self, second: bool) -> L::Float {
        // SAFETY: as the caller vouches.
        unsafe { if second { L::load_second(from) } else { L::load_first(from) } }
    }
}

// Plain loops over indices and no closures below: what the compiler does not inline, it compiles without the
// instruction set, and every vector then goes through memory.

/// What the tiles of one product have in common.
#[derive(Clone, Copy)]
struct Shape {
    inputs: usize,
    width: usize, // of a row of the output
    ahead: isize,
    add: bool,
}

/// [`Isa::floats`](super::Isa::floats): tiles of as many rows and panels as there are registers for.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
pub unsafe fn floats<L: Lanes, W: Stored>(x: &[f32], w: FloatPanels<'_, W>, add: bool, out: &mut [f32]) {
    let FloatPanels { values, inputs, ahead } = w;
    assert!(inputs > 0 && inputs.is_multiple_of(2) && x.len().is_multiple_of(inputs), "length of the rows");
    assert!(values.len().is_multiple_of(inputs * PANEL), "length of the panels");
    let (rows, panels) = (x.len() / inputs, values.len() / (inputs * PANEL));
    let shape = Shape { inputs, width: panels * PANEL, ahead, add };
    assert_eq!(out.len(), rows * shape.width, "length of the output");
    let mut row = 0;
    while row < rows {
        // SAFETY: the caller vouches for the instructions; `R` rows are left, in `x` and in `out`, and all panels have
        // `inputs` inputs, as just checked.
        unsafe {
            let (x, w, out) =
                (x.as_ptr().add(row * inputs), values.as_ptr(), out.as_mut_ptr().add(row * shape.width));
            row += match (L::FLOATS, rows - row) {
                (16.., 8..) => float_rows::<L, W, 8, 2>(x, w, out, panels, shape),
                (16.., 4..) => float_rows::<L, W, 4, 4>(x, w, out, panels, shape),
                (16.., 2..) => float_rows::<L, W, 2, 4>(x, w, out, panels, shape),
                (4.., 4..) => float_rows::<L, W, 4, 1>(x, w, out, panels, shape),
                (4.., 2..) => float_rows::<L, W, 2, 2>(x, w, out, panels, shape),
                (4.., 1) => float_rows::<L, W, 1, 4>(x, w, out, panels, shape),
                (_, 2..) => float_rows::<L, W, 2, 1>(x, w, out, panels, shape),
                _ => float_rows::<L, W, 1, 1>(x, w, out, panels, shape),
            };
        }
    }
}

/// `R` rows by all panels, `T` at a time. Returns `R`.
///
/// # Safety
/// As for [`Lanes`]; `x` leads to `R` rows, `w` to all panels and `out` to `R` rows of the output.
#[inline(always)]
unsafe fn float_rows<L: Lanes, W: Stored, const R: usize, const T: usize>(
    x: *const f32,
    w: *const W,
    out: *mut f32,
    panels: usize,
    shape: Shape,
) -> usize {
    let mut panel = 0;
    // SAFETY: as the caller vouches, of which the tiles use parts.
    unsafe {
        while panel + T <= panels {
            float_tile::<L, W, R, T>(x, w.add(panel * shape.inputs * PANEL), out.add(panel * PANEL), shape);
            panel += T;
        }
        while panel < panels {
            float_tile::<L, W, R, 1>(x, w.add(panel * shape.inputs * PANEL), out.add(panel * PANEL), shape);
            panel += 1;
        }
    }
    R
}

/// `R` rows by `T` panels.
///
/// ```text
/// for each span of inputs:  sums = 0
///     for each input k:     sums[r][t] += x[r][k] · w[t][k]
///     out = sums or out + sums
/// ```
///
/// # Safety
/// As for [`Lanes`]; `x` leads to `R` rows, `w` to `T` panels and `out` to `R` rows of the output.
#[expect(clippy::needless_range_loop, reason = "iterators over tuples of arrays are not always inlined")]
#[inline(always)]
unsafe fn float_tile<L: Lanes, W: Stored, const R: usize, const T: usize>(
    x: *const f32,
    w: *const W,
    out: *mut f32,
    Shape { inputs, width, ahead, add }: Shape,
) {
    let (mut k, mut add) = (0, add);
    // SAFETY: as the caller vouches. Prefetching may go anywhere.
    unsafe {
        while k < inputs {
            let end = inputs.min(k + SPAN);
            let mut sums = [[L::zero(); T]; R];
            while k < end {
                // Many rows keep the processor busy for so long that the hardware's own prefetching is enough.
                if R < 8 {
                    for t in 0..T {
                        let at = w.add((t * inputs + k) * PANEL).cast::<u8>().wrapping_offset(ahead);
                        L::prefetch(at);
                        if W::GROUP == 1 {
                            L::prefetch(at.wrapping_add(64));
                        }
                    }
                }
                for second in [false, true] {
                    let mut weights = [L::zero(); T];
                    for t in 0..T {
                        weights[t] = W::load::<L>(w.add((t * inputs + k) * PANEL), second);
                    }
                    for r in 0..R {
                        let number = L::splat(*x.add(r * inputs + k + usize::from(second)));
                        for t in 0..T {
                            sums[r][t] = L::mul_add(number, weights[t], sums[r][t]);
                        }
                    }
                }
                k += 2;
            }
            for r in 0..R {
                for t in 0..T {
                    let to = out.add(r * width + t * PANEL);
                    L::store(to, if add { L::add(L::load(to), sums[r][t]) } else { sums[r][t] });
                }
            }
            add = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_bf16_is_the_libraries() {
        let check = |bits: u32| {
            let x = f32::from_bits(bits);
            let (ours, right) = (<bf16 as Stored>::nearest(x), bf16::from_f32(x));
            assert_eq!(ours.to_bits(), right.to_bits(), "{bits:#x}");
        };
        // Every upper half with the lower halves around the middle, and others anywhere.
        for upper in 0..=u32::from(u16::MAX) {
            for lower in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, upper.wrapping_mul(40_503) & 0xffff] {
                check(upper << 16 | lower);
            }
        }
    }
}
