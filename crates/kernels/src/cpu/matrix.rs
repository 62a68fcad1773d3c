//! Weight matrices, and the product of rows with them.

use std::ops::Range;

use half::bf16;

use super::buffer::{Buffer, Parts};
use super::int4;
use super::isa::{GROUP, Isa, PAD, PANEL, Panel, Quantized};
use super::rows::{Input, Rows, quantize_weights};
use super::threads::Threads;
use crate::{Error, Result, Tensor, WeightKind};

/// A matrix, its inputs padded with zeros to a multiple of [`PAD`]: floats output after output, integers in panels of
/// [`PANEL`] outputs.
#[derive(Debug)]
pub struct Weight {
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    stride: usize,
    numbers: Numbers,
}

#[derive(Debug)]
enum Numbers {
    F32(Buffer<f32>),  // (outputs, stride)
    Bf16(Buffer<u16>), // (outputs, stride), the bits of bf16
    Int8 {
        values: Buffer<i8>,  // (panels, stride / GROUP, PANEL, GROUP)
        scales: Buffer<f32>, // (panels, PANEL)
        sums: Buffer<i32>,   // (panels, PANEL), of each output's values
    },
    Int4(int4::Panels),
}

impl Weight {
    pub(super) fn new(kind: WeightKind, outputs: usize, inputs: usize) -> Result<Self> {
        let stride = inputs.next_multiple_of(PAD);
        let what = "weights";
        let count = outputs.saturating_mul(stride);
        let numbers = match kind {
            WeightKind::F32 => Numbers::F32(Buffer::new(count, what)?),
            WeightKind::Bf16 => Numbers::Bf16(Buffer::new(count, what)?),
            WeightKind::Int8 => {
                let padded = outputs.next_multiple_of(PANEL);
                Numbers::Int8 {
                    values: Buffer::new(padded.saturating_mul(stride), what)?,
                    scales: Buffer::new(padded, what)?,
                    sums: Buffer::new(padded, what)?,
                }
            }
            WeightKind::Int4 => Numbers::Int4(int4::Panels::new(outputs, stride)?),
        };
        Ok(Self { outputs, inputs, stride, numbers })
    }

    pub(super) fn kind(&self) -> WeightKind {
        match self.numbers {
            Numbers::F32(_) => WeightKind::F32,
            Numbers::Bf16(_) => WeightKind::Bf16,
            Numbers::Int8 { .. } => WeightKind::Int8,
            Numbers::Int4(_) => WeightKind::Int4,
        }
    }

    /// Converts the rows of `source` into the outputs from `first` on, on all threads.
    pub(super) fn write<I: Isa>(
        &mut self,
        isa: I,
        threads: &mut Threads,
        first: usize,
        source: &Tensor<'_>,
    ) -> Result<()> {
        assert!(source.cols() == self.inputs && first + source.rows() <= self.outputs, "shape of the source");
        let (inputs, stride) = (self.inputs, self.stride);
        let span = first * stride..(first + source.rows()) * stride;
        match &mut self.numbers {
            Numbers::F32(numbers) => {
                let rows = Parts::new(&mut numbers.values_mut()[span]);
                each_row(threads, source.rows(), &|row| {
                    // SAFETY: each row is written by one task.
                    let out = unsafe { rows.part(row * stride..row * stride + inputs) };
                    source.row(row, out);
                });
            }
            Numbers::Bf16(numbers) => {
                let rows = Parts::new(&mut numbers.values_mut()[span]);
                each_row(threads, source.rows(), &|row| {
                    // SAFETY: each row is written by one task.
                    let out = unsafe { rows.part(row * stride..row * stride + inputs) };
                    write_bf16(source, row, bytemuck::cast_slice_mut(out));
                });
            }
            Numbers::Int8 { values, scales, sums } => {
                let outputs = first..first + source.rows();
                let parts = PanelParts {
                    stride,
                    values: Parts::new(values.values_mut()),
                    scales: Parts::new(scales.values_mut()),
                    sums: Parts::new(sums.values_mut()),
                };
                let panels = first / PANEL..outputs.end.div_ceil(PANEL);
                threads.run(panels.len(), &|task| {
                    let panel = panels.start + task;
                    let lines = outputs.start.max(panel * PANEL)..outputs.end.min((panel + 1) * PANEL);
                    // SAFETY: each panel belongs to one task.
                    unsafe {
                        parts.write(isa, panel, lines, |output, out| source.row(output - first, out), inputs)
                    };
                });
                if let Some(row) = scales.values()[outputs].iter().position(|scale| scale.is_nan()) {
                    return Err(Error::NotFinite { row });
                }
            }
            Numbers::Int4(panels) => panels.write(isa, threads, first, source)?,
        }
        Ok(())
    }

    /// Row `output` as f32: (inputs,).
    pub(super) fn row(&self, output: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.inputs, "length of the output row");
        let range = output * self.stride..output * self.stride + self.inputs;
        match &self.numbers {
            Numbers::F32(numbers) => out.copy_from_slice(&numbers.values()[range]),
            Numbers::Bf16(numbers) => {
                for (out, bits) in out.iter_mut().zip(&numbers.values()[range]) {
                    *out = bf16::from_bits(*bits).to_f32();
                }
            }
            Numbers::Int8 { values, scales, .. } => {
                let scale = scales.values()[output];
                let panel = line(values.values(), PANEL * self.stride, output / PANEL);
                for (group, out) in out.chunks_mut(GROUP).enumerate() {
                    let at = (group * PANEL + output % PANEL) * GROUP;
                    for (out, value) in out.iter_mut().zip(&panel[at..at + GROUP]) {
                        *out = f32::from(*value) * scale;
                    }
                }
            }
            Numbers::Int4(panels) => panels.row(output, out),
        }
    }
}

/// A quantised matrix of which each panel is written by one task.
struct PanelParts<'a> {
    stride: usize,
    values: Parts<'a, i8>,
    scales: Parts<'a, f32>,
    sums: Parts<'a, i32>,
}

impl PanelParts<'_> {
    /// Quantises `outputs`, all of one panel, from what `source(output, row)` writes.
    ///
    /// # Safety
    /// Only one thread at a time may write a panel.
    unsafe fn write<I: Isa>(
        &self,
        isa: I,
        panel: usize,
        outputs: Range<usize>,
        source: impl Fn(usize, &mut [f32]),
        inputs: usize,
    ) {
        let len = PANEL * self.stride;
        // SAFETY: the caller keeps others away from this panel.
        let (values, scales, sums) = unsafe {
            let lanes = panel * PANEL..(panel + 1) * PANEL;
            (
                self.values.part(panel * len..(panel + 1) * len),
                self.scales.part(lanes.clone()),
                self.sums.part(lanes),
            )
        };
        let (mut row, mut quantized) = (vec![0.0; inputs], vec![0; self.stride]);
        for output in outputs {
            let lane = output % PANEL;
            isa.run(|| source(output, &mut row));
            scales[lane] = quantize_weights(isa, &row, &mut quantized[..inputs]).unwrap_or(f32::NAN);
            sums[lane] = quantized.iter().map(|value| i32::from(*value)).sum();
            for (group, four) in quantized.as_chunks::<GROUP>().0.iter().enumerate() {
                let at = (group * PANEL + lane) * GROUP;
                values[at..at + GROUP].copy_from_slice(four);
            }
        }
    }
}

/// Rows that one task of [`Weight::write`] converts.
const ROWS_A_TASK: usize = 64;

fn each_row(threads: &mut Threads, rows: usize, convert: &(dyn Fn(usize) + Sync)) {
    threads.run(rows.div_ceil(ROWS_A_TASK), &|task| {
        (task * ROWS_A_TASK..rows.min((task + 1) * ROWS_A_TASK)).for_each(convert);
    });
}

fn write_bf16(source: &Tensor<'_>, row: usize, out: &mut [bf16]) {
    if source.bf16_row(row, out).is_none() {
        let mut numbers = vec![0.0; out.len()];
        source.row(row, &mut numbers);
        for (out, number) in out.iter_mut().zip(&numbers) {
            *out = bf16::from_f32(*number);
        }
    }
}

/// Where the numbers of a product go.
#[derive(Clone, Copy)]
pub enum Sink<'a> {
    /// `out = x · wᵀ + bias`
    Store(Option<&'a [f32]>),
    /// `out += x · wᵀ + bias`
    Add(Option<&'a [f32]>),
}

/// Below this many multiplications, some ten microseconds, a product is done sooner by one thread than shared out.
const WORTH_SHARING: usize = 1 << 19;

/// Outputs of one tile.
const TILE: usize = 4;

/// The product of all rows of `input` with `weight`, into `out` (rows, outputs).
pub fn multiply<I: Isa>(
    isa: I,
    threads: &mut Threads,
    weight: &Weight,
    input: &Input,
    sink: Sink<'_>,
    out: &mut Rows,
) {
    let rows = input.rows;
    assert!(input.stride == weight.stride && input.kind == weight.kind(), "input of the product");
    assert_eq!(out.width(), weight.outputs, "width of the product");
    let work = rows * weight.outputs * weight.stride;
    let tasks = if work < WORTH_SHARING { 1 } else { threads.count() * 8 };
    // Whole tiles and panels a task, and no more than stay in the second-level cache while many rows pass over them.
    let chunk = weight.outputs.div_ceil(tasks).next_multiple_of(4 * PANEL);
    let chunk = if tasks == 1 { chunk } else { chunk.min(128) };
    let out = Output { stride: weight.outputs, sink, parts: Parts::new(out.values_mut()) };
    let stride = weight.stride;
    threads.run(weight.outputs.div_ceil(chunk), &|task| {
        let outputs = task * chunk..weight.outputs.min((task + 1) * chunk);
        let emit = |row, output, value| {
            // SAFETY: each output column belongs to one task.
            unsafe { out.put(row, output, &[value]) }
        };
        match &weight.numbers {
            Numbers::F32(w) => {
                let (x, w) = (|row| input.floats(row), |output| line(w.values(), stride, output));
                tiles(I::TILE_ROWS, rows, outputs, (&x, &w), &FloatTile(isa), &emit);
            }
            Numbers::Bf16(w) => {
                let w: &[bf16] = bytemuck::cast_slice(w.values());
                let (x, w) = (|row| input.floats(row), |output| line(w, stride, output));
                tiles(I::TILE_ROWS, rows, outputs, (&x, &w), &Bf16Tile(isa), &emit);
            }
            Numbers::Int8 { values, scales, sums } => {
                let panel = |panel: usize| Panel {
                    values: line(values.values(), PANEL * stride, panel),
                    scales: &scales.values().as_chunks().0[panel],
                    sums: &sums.values().as_chunks().0[panel],
                };
                // SAFETY: each output column belongs to one task.
                let emit = |row, output, values: &[f32]| unsafe { out.put(row, output, values) };
                cover_with_panels(isa, input, outputs, &panel, &emit);
            }
            Numbers::Int4(panels) => {
                // SAFETY: each output column belongs to one task.
                let emit = |row, output, values: &[f32]| unsafe { out.put(row, output, values) };
                panels.multiply(isa, input, outputs, &emit);
            }
        }
    });
}

/// Multiplies all rows with the panels of `outputs`; only the last panel may be incomplete. Rows are the outer loop, as
/// in [`tiles`].
fn cover_with_panels<'a, I: Isa>(
    isa: I,
    input: &Input,
    outputs: Range<usize>,
    panel: &dyn Fn(usize) -> Panel<'a>,
    emit: &dyn Fn(usize, usize, &[f32]),
) {
    let mut row = 0;
    while row < input.rows {
        let rows = (input.rows - row).min(I::PANELS[1].0);
        let at = (row, outputs.clone());
        row += match (rows, if rows == 1 { I::PANELS[0].1 } else { I::PANELS[1].1 }) {
            (4, 2) => panel_row::<I, 4, 2>(isa, input, at, panel, emit),
            (3, 2) => panel_row::<I, 3, 2>(isa, input, at, panel, emit),
            (2, 2) => panel_row::<I, 2, 2>(isa, input, at, panel, emit),
            (2, _) => panel_row::<I, 2, 1>(isa, input, at, panel, emit),
            (_, 4) => panel_row::<I, 1, 4>(isa, input, at, panel, emit),
            _ => panel_row::<I, 1, 1>(isa, input, at, panel, emit),
        };
    }
}

/// `R` rows by all `outputs`, `T` panels at a time. Returns `R`.
fn panel_row<'a, I: Isa, const R: usize, const T: usize>(
    isa: I,
    input: &Input,
    (row, outputs): (usize, Range<usize>),
    panel: &dyn Fn(usize) -> Panel<'a>,
    emit: &dyn Fn(usize, usize, &[f32]),
) -> usize {
    let x: [Quantized<'_>; R] = std::array::from_fn(|r| input.quantized(row + r));
    let put = |r: usize, output: usize, products: &[f32; PANEL]| {
        let count = PANEL.min(outputs.end - output);
        emit(row + r, output, &products[..count]);
    };
    let mut output = outputs.start;
    while output < outputs.end {
        let first = output / PANEL;
        if outputs.end.div_ceil(PANEL) - first >= T {
            for (r, products) in
                isa.panels::<R, T>(x, std::array::from_fn(|t| panel(first + t))).iter().enumerate()
            {
                for (t, products) in products.iter().enumerate() {
                    put(r, output + t * PANEL, products);
                }
            }
            output += T * PANEL;
        } else {
            for (r, [products]) in isa.panels::<R, 1>(x, [panel(first)]).iter().enumerate() {
                put(r, output, products);
            }
            output += PANEL;
        }
    }
    R
}

fn line<T>(numbers: &[T], stride: usize, row: usize) -> &[T] {
    &numbers[row * stride..(row + 1) * stride]
}

struct Output<'a> {
    stride: usize,
    sink: Sink<'a>,
    parts: Parts<'a, f32>, // (rows, stride)
}

impl Output<'_> {
    /// Takes the products of the outputs from `output` on.
    ///
    /// # Safety
    /// Only one thread at a time may write these outputs of this row.
    #[inline(always)]
    unsafe fn put(&self, row: usize, output: usize, products: &[f32]) {
        let at = row * self.stride + output;
        // SAFETY: the caller keeps others away from these numbers.
        let out = unsafe { self.parts.part(at..at + products.len()) };
        let (Sink::Store(bias) | Sink::Add(bias)) = self.sink;
        for (index, (out, product)) in out.iter_mut().zip(products).enumerate() {
            let value = bias.map_or(*product, |bias| product + bias[output + index]);
            *out = if matches!(self.sink, Sink::Add(_)) { *out + value } else { value };
        }
    }
}

/// The numbers of one row.
type Line<'a, T> = dyn Fn(usize) -> &'a [T] + 'a;

/// The sums of one tile of rows by outputs.
trait Tile<X, W, S> {
    fn sums<const R: usize, const N: usize>(&self, x: [&[X]; R], w: [&[W]; N]) -> [[S; N]; R];
}

struct FloatTile<I>(I);
struct Bf16Tile<I>(I);

impl<I: Isa> Tile<f32, f32, f32> for FloatTile<I> {
    fn sums<const R: usize, const N: usize>(&self, x: [&[f32]; R], w: [&[f32]; N]) -> [[f32; N]; R] {
        self.0.dots_f32(x, w)
    }
}

impl<I: Isa> Tile<f32, bf16, f32> for Bf16Tile<I> {
    fn sums<const R: usize, const N: usize>(&self, x: [&[f32]; R], w: [&[bf16]; N]) -> [[f32; N]; R] {
        self.0.dots_bf16(x, w)
    }
}

/// Covers rows × outputs with tiles. Rows are the outer loop: a few of them stay in the first-level cache while the
/// weights of all `outputs` stream past from the second.
fn tiles<'a, X: 'a, W: 'a, S: Copy>(
    tile_rows: usize,
    rows: usize,
    outputs: Range<usize>,
    (x, w): (&Line<'a, X>, &Line<'a, W>),
    tile: &impl Tile<X, W, S>,
    emit: &impl Fn(usize, usize, S),
) {
    let mut row = 0;
    while row < rows {
        row += match rows - row {
            left if left >= 4 && tile_rows == 4 => {
                tile_row::<4, _, _, _>(row, outputs.clone(), (x, w), tile, emit)
            }
            left if left >= 2 => tile_row::<2, _, _, _>(row, outputs.clone(), (x, w), tile, emit),
            _ => tile_row::<1, _, _, _>(row, outputs.clone(), (x, w), tile, emit),
        };
    }
}

/// `R` rows by all `outputs`. Returns `R`.
fn tile_row<'a, const R: usize, X: 'a, W: 'a, S: Copy>(
    row: usize,
    outputs: Range<usize>,
    (x, w): (&Line<'a, X>, &Line<'a, W>),
    tile: &impl Tile<X, W, S>,
    emit: &impl Fn(usize, usize, S),
) -> usize {
    let lines: [&[X]; R] = std::array::from_fn(|r| x(row + r));
    let mut output = outputs.start;
    while output < outputs.end {
        if outputs.end - output >= TILE {
            let sums = tile.sums::<R, TILE>(lines, std::array::from_fn(|n| w(output + n)));
            for (r, sums) in sums.iter().enumerate() {
                for (n, sum) in sums.iter().enumerate() {
                    emit(row + r, output + n, *sum);
                }
            }
            output += TILE;
        } else {
            let sums = tile.sums::<R, 1>(lines, [w(output)]);
            for (r, [sum]) in sums.iter().enumerate() {
                emit(row + r, output, *sum);
            }
            output += 1;
        }
    }
    R
}
