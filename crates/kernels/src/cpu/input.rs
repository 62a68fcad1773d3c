//! The left side of a product: rows in the form that the kind of its weight and the instruction set want.

use std::ops::Range;

use half::bf16;

use super::buffer::{Buffer, Parts};
use super::groups;
use super::isa::groups::{Format, Int4, Int4Affine, Int8Groups};
use super::isa::{BLOCK_ROWS, Isa, PAD, Quantized, QuantizedBlocks, Signed};
use super::rows::quantize;
use super::threads::Threads;
use crate::int4::GROUP;
use crate::{Result, WeightKind};

/// Rows padded with zeros to a multiple of [`PAD`], and quantised as [`crate::int8`] says where the weight is.
#[derive(Debug)]
pub struct Input {
    pub kind: WeightKind,
    pub rows: usize,
    pub stride: usize,
    form: Form,
    floats: Buffer<f32>,  // (rows, stride)
    shorts: Buffer<i16>,  // (rows, stride)
    planes: Buffer<u8>,   // (rows, high | low, stride), or as `QuantizedBlocks` says
    pairs: Buffer<u16>,   // (blocks of rows), each as `Isa::split` says
    offsets: Buffer<i32>, // (rows, stride / GROUP), for weights in groups
    scales: Buffer<f32>,  // (rows,)
}

/// What a product reads.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Floats,
    /// Pairs of bf16, tile by tile.
    Pairs,
    /// 16-bit integers.
    Shorts,
    /// As [`Quantized`] has them: bytes plus 128.
    Planes,
    /// The same, tile by tile.
    Blocks,
    /// Signed bytes, and the offset of each group of inputs.
    Signed,
    /// 16-bit integers, and the offset of each group of inputs.
    SignedShorts,
}

/// Rows that one task prepares.
const ROWS_A_TASK: usize = 4;

/// Inputs that stand together for each row of a block.
const TILE_INPUTS: usize = 64;

impl Input {
    pub fn new() -> Result<Self> {
        Ok(Self {
            kind: WeightKind::F32,
            rows: 0,
            stride: 0,
            form: Form::Floats,
            floats: Buffer::new(0, "")?,
            shorts: Buffer::new(0, "")?,
            planes: Buffer::new(0, "")?,
            pairs: Buffer::new(0, "")?,
            offsets: Buffer::new(0, "")?,
            scales: Buffer::new(0, "")?,
        })
    }

    /// Rows that are not quantised: (rows, stride).
    pub fn floats(&self, rows: Range<usize>) -> &[f32] {
        &self.floats.values()[rows.start * self.stride..rows.end * self.stride]
    }

    /// Rows that are split into pairs of bf16, from the first of a block on: whole blocks. None where they are not split.
    pub fn pairs(&self, rows: Range<usize>) -> Option<&[u16]> {
        let blocks = rows.start / BLOCK_ROWS..rows.end.div_ceil(BLOCK_ROWS);
        let len = BLOCK_ROWS * 2 * self.stride;
        (self.form == Form::Pairs).then(|| &self.pairs.values()[blocks.start * len..blocks.end * len])
    }

    /// A row quantised for 8-bit weights.
    pub fn quantized(&self, row: usize) -> Quantized<'_> {
        let (stride, scale) = (self.stride, self.scales.values()[row]);
        if self.form == Form::Planes {
            let (high, low) = self.planes.values()[2 * row * stride..2 * (row + 1) * stride].split_at(stride);
            return Quantized { shorts: &[], high, low, scale };
        }
        let shorts = &self.shorts.values()[row * stride..(row + 1) * stride];
        Quantized { shorts, high: &[], low: &[], scale }
    }

    /// Rows quantised for 8-bit weights, from the first of a block on, where they are laid out for a matrix unit.
    pub fn blocks(&self, rows: Range<usize>) -> Option<QuantizedBlocks<'_>> {
        (self.form == Form::Blocks).then(|| QuantizedBlocks {
            inputs: self.stride,
            planes: &self.planes.values()[2 * rows.start * self.stride..],
            scales: &self.scales.values()[rows],
        })
    }

    /// Rows of a block where inputs of so many numbers, of which `together` rows at most are multiplied at once, come in
    /// blocks; else one.
    pub fn block<I: Isa>(kind: WeightKind, together: usize, width: usize) -> usize {
        match form::<I>(kind, together, width.next_multiple_of(PAD)) {
            Form::Pairs | Form::Blocks => BLOCK_ROWS,
            _ => 1,
        }
    }

    /// A row quantised for weights in groups.
    pub fn signed(&self, row: usize) -> Signed<'_> {
        let (stride, groups) = (self.stride, self.stride / GROUP);
        let (offsets, scale) =
            (&self.offsets.values()[row * groups..(row + 1) * groups], self.scales.values()[row]);
        if self.form == Form::SignedShorts {
            let shorts = &self.shorts.values()[row * stride..(row + 1) * stride];
            return Signed { high: &[], low: &[], shorts, offsets, scale };
        }
        let planes = &self.planes.values()[2 * row * stride..2 * (row + 1) * stride];
        let (high, low) = bytemuck::cast_slice(planes).split_at(stride);
        Signed { high, low, shorts: &[], offsets, scale }
    }

    /// Room for (`rows`, `stride`) in the form in which `together` of them are multiplied with a weight of this kind.
    fn allocate<I: Isa>(
        &mut self,
        kind: WeightKind,
        (rows, together): (usize, usize),
        stride: usize,
    ) -> Result<()> {
        let form = form::<I>(kind, together, stride);
        (self.kind, self.rows, self.stride, self.form) = (kind, rows, stride, form);
        let padded = if form == Form::Blocks { rows.next_multiple_of(BLOCK_ROWS) } else { rows };
        // What only the quantising needs is kept for one row at a time.
        match form {
            Form::Floats => return grow(&mut self.floats, rows * stride),
            Form::Pairs => {
                return grow(&mut self.pairs, rows.next_multiple_of(BLOCK_ROWS) * 2 * stride);
            }
            Form::Shorts | Form::SignedShorts => grow(&mut self.shorts, rows * stride)?,
            Form::Planes | Form::Blocks | Form::Signed => grow(&mut self.planes, 2 * padded * stride)?,
        }
        let grouped = matches!(form, Form::Signed | Form::SignedShorts);
        grow(&mut self.offsets, if grouped { rows * stride / GROUP } else { 0 })?;
        grow(&mut self.scales, rows)
    }

    /// Fills this with `rows` rows that `write(row, out)` computes, `out` being (width,).
    pub fn prepare<I: Isa>(
        &mut self,
        isa: I,
        threads: &mut Threads,
        kind: WeightKind,
        (rows, width): (usize, usize),
        write: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) -> Result<()> {
        self.prepare_groups(isa, threads, kind, (rows, rows, width), write)
    }

    /// The same for rows of which at most `together` are multiplied at once.
    pub fn prepare_groups<I: Isa>(
        &mut self,
        isa: I,
        threads: &mut Threads,
        kind: WeightKind,
        (rows, together, width): (usize, usize, usize),
        write: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) -> Result<()> {
        let stride = width.next_multiple_of(PAD);
        self.allocate::<I>(kind, (rows, together), stride)?;
        match self.form {
            Form::Floats => self.prepare_floats(threads, width, write),
            Form::Pairs => self.prepare_pairs(isa, threads, width, write),
            _ => self.prepare_integers(isa, threads, width, write),
        }
        Ok(())
    }

    /// [`Self::prepare`] for quantised rows.
    fn prepare_integers<I: Isa>(
        &mut self,
        isa: I,
        threads: &mut Threads,
        width: usize,
        write: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) {
        let (form, rows, stride) = (self.form, self.rows, self.stride);
        let groups = stride / GROUP;
        let factor = match self.kind {
            WeightKind::Int4 => Int4::FACTOR,
            WeightKind::Int4Affine => Int4Affine::FACTOR,
            _ => Int8Groups::FACTOR,
        };
        let shorts = Parts::new(self.shorts.values_mut());
        let planes = Parts::new(self.planes.values_mut());
        let offsets = Parts::new(self.offsets.values_mut());
        let scales = Parts::new(self.scales.values_mut());
        let row_of = |row: usize, x: &mut [f32], q: &mut [i16]| {
            write(row, &mut x[..width]);
            // SAFETY: each row belongs to one task.
            let scale = unsafe { &mut scales.part(row..row + 1)[0] };
            let q = match form {
                // SAFETY: each row belongs to one task.
                Form::Shorts | Form::SignedShorts => unsafe { shorts.part(row * stride..(row + 1) * stride) },
                _ => q,
            };
            *scale = quantize(isa, x, q);
            if matches!(form, Form::Signed | Form::SignedShorts) {
                // SAFETY: each row belongs to one task.
                groups::offsets(isa, q, factor, unsafe { offsets.part(row * groups..(row + 1) * groups) });
            }
            // SAFETY: each row belongs to one task.
            let planes_of = || unsafe { planes.part(2 * row * stride..2 * (row + 1) * stride) };
            match form {
                Form::Planes => split_row(isa, q, planes_of()),
                Form::Signed => groups::split(isa, q, bytemuck::cast_slice_mut(planes_of())),
                // SAFETY: each row belongs to one task.
                Form::Blocks => unsafe { split_into_tiles(isa, q, row, &planes) },
                Form::Floats | Form::Pairs | Form::Shorts | Form::SignedShorts => {}
            }
        };
        threads.run(rows.div_ceil(ROWS_A_TASK), &|task| {
            let task = task * ROWS_A_TASK..rows.min((task + 1) * ROWS_A_TASK);
            let (mut x, mut q) = (vec![0.0; stride], vec![0; stride]);
            task.for_each(|row| row_of(row, &mut x, &mut q));
        });
    }

    /// [`Self::prepare`] for rows as they are.
    fn prepare_floats(
        &mut self,
        threads: &mut Threads,
        width: usize,
        write: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) {
        let (rows, stride) = (self.rows, self.stride);
        let floats = Parts::new(self.floats.values_mut());
        threads.run(rows.div_ceil(ROWS_A_TASK), &|task| {
            for row in task * ROWS_A_TASK..rows.min((task + 1) * ROWS_A_TASK) {
                // SAFETY: each row belongs to one task.
                let out = unsafe { floats.part(row * stride..(row + 1) * stride) };
                write(row, &mut out[..width]);
                out[width..].fill(0.0);
            }
        });
    }

    /// [`Self::prepare`] for pairs of bf16. A task prepares a whole block, whose rows lie between each other.
    fn prepare_pairs<I: Isa>(
        &mut self,
        isa: I,
        threads: &mut Threads,
        width: usize,
        write: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) {
        let (rows, stride) = (self.rows, self.stride);
        let len = BLOCK_ROWS * 2 * stride;
        let pairs = Parts::new(self.pairs.values_mut());
        threads.run(rows.div_ceil(BLOCK_ROWS), &|task| {
            // SAFETY: each block belongs to one task.
            let block = unsafe { pairs.part(task * len..(task + 1) * len) };
            let mut x = vec![0.0; stride];
            for row in task * BLOCK_ROWS..rows.min((task + 1) * BLOCK_ROWS) {
                write(row, &mut x[..width]);
                isa.split(&x, row % BLOCK_ROWS, block);
            }
        });
    }
}

/// The form in which so many rows at once are multiplied with a weight of this kind.
fn form<I: Isa>(kind: WeightKind, together: usize, stride: usize) -> Form {
    match kind {
        WeightKind::Bf16 if I::takes_pairs::<bf16>(stride) => Form::Pairs,
        WeightKind::F32 | WeightKind::Bf16 => Form::Floats,
        WeightKind::Int4 | WeightKind::Int4Affine => Form::Signed,
        WeightKind::Int8Groups if !I::PLANES => Form::SignedShorts,
        WeightKind::Int8Groups => Form::Signed,
        WeightKind::Int8 if !I::PLANES => Form::Shorts,
        WeightKind::Int8 if I::takes_blocks(together, stride) => Form::Blocks,
        WeightKind::Int8 => Form::Planes,
    }
}

fn grow<T: bytemuck::Pod>(buffer: &mut Buffer<T>, len: usize) -> Result<()> {
    if buffer.values().len() < len {
        *buffer = Buffer::new(len, "activations")?;
    }
    Ok(())
}

/// Row `row` of [`QuantizedBlocks::planes`].
///
/// # Safety
/// Only one thread at a time may write a row.
unsafe fn split_into_tiles<I: Isa>(isa: I, q: &[i16], row: usize, planes: &Parts<'_, u8>) {
    const PLANE: usize = BLOCK_ROWS * TILE_INPUTS;
    let block = row / BLOCK_ROWS * (q.len() / TILE_INPUTS) * 2 * PLANE;
    isa.run(|| {
        for (step, q) in q.as_chunks::<TILE_INPUTS>().0.iter().enumerate() {
            let high = block + step * 2 * PLANE + row % BLOCK_ROWS * TILE_INPUTS;
            let low = high + PLANE;
            // SAFETY: these bytes belong to this row, and the caller keeps others away from it.
            let (high, low) =
                unsafe { (planes.part(high..high + TILE_INPUTS), planes.part(low..low + TILE_INPUTS)) };
            split(q, high, low);
        }
    });
}

/// The planes of a quantised row, high and then low, as [`Quantized`] has them.
pub fn split_row<I: Isa>(isa: I, q: &[i16], planes: &mut [u8]) {
    let (high, low) = planes.split_at_mut(q.len());
    isa.run(|| split(q, high, low));
}

/// The planes of a quantised row without negative numbers, for a product that is told of no offset (weights' sums of
/// zero).
pub fn split_positive_row<I: Isa>(isa: I, q: &[i16], planes: &mut [u8]) {
    if I::SIGNED_PLANES {
        // The product takes the offset out of the activations themselves.
        return split_row(isa, q, planes);
    }
    let (high, low) = planes.split_at_mut(q.len());
    isa.run(|| {
        for ((high, low), q) in high.iter_mut().zip(low).zip(q) {
            *high = (q >> 8) as u8;
            *low = *q as u8;
        }
    });
}

/// The planes of quantised numbers: the high bytes plus 128, and the low bytes plus 128.
#[inline(always)]
fn split(q: &[i16], high: &mut [u8], low: &mut [u8]) {
    for ((high, low), q) in high.iter_mut().zip(low).zip(q) {
        // The nearest multiple of 256, so that what is left fits a signed byte.
        *high = (((q + 128) >> 8) + 128) as u8;
        *low = (q + 128) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_put_every_activation_together_again() {
        let q: Vec<i16> = (-32_512..=32_512).collect();
        let (mut high, mut low) = (vec![0; q.len()], vec![0; q.len()]);
        split(&q, &mut high, &mut low);
        for ((high, low), q) in high.iter().zip(&low).zip(&q) {
            assert_eq!(256 * (i32::from(*high) - 128) + i32::from(*low) - 128, i32::from(*q));
        }
    }
}
