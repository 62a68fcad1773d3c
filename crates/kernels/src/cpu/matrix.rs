//! Weight matrices, and the product of rows with them.

use std::ops::Range;

use half::bf16;

use super::buffer::{Buffer, Parts};
use super::isa::{FloatPanels, GROUP, Isa, PAD, PANEL, PANEL_AHEAD, Panel, Quantized, Stored, place};
use super::rows::{Input, Rows, quantize_weights};
use super::threads::Threads;
use crate::{Error, Result, Tensor, WeightKind};

/// A matrix in panels of [`PANEL`] outputs, its inputs padded with zeros to a multiple of [`PAD`].
#[derive(Debug)]
pub struct Weight {
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    stride: usize,
    numbers: Numbers,
}

#[derive(Debug)]
enum Numbers {
    F32(Buffer<f32>),  // (panels, stride, PANEL)
    Bf16(Buffer<u16>), // (panels, stride / 2, PANEL, 2), the bits of bf16
    Int8 {
        values: Buffer<i8>,  // (panels, stride / GROUP, PANEL, GROUP)
        scales: Buffer<f32>, // (panels, PANEL)
        sums: Buffer<i32>,   // (panels, PANEL), of each output's values
    },
}

impl Weight {
    pub(super) fn new(kind: WeightKind, outputs: usize, inputs: usize) -> Result<Self> {
        let stride = inputs.next_multiple_of(PAD);
        let what = "weights";
        let padded = outputs.next_multiple_of(PANEL);
        let count = padded.saturating_mul(stride);
        let numbers = match kind {
            WeightKind::F32 => Numbers::F32(Buffer::new(count, what)?),
            WeightKind::Bf16 => Numbers::Bf16(Buffer::new(count, what)?),
            WeightKind::Int8 => Numbers::Int8 {
                values: Buffer::new(count, what)?,
                scales: Buffer::new(padded, what)?,
                sums: Buffer::new(padded, what)?,
            },
        };
        Ok(Self { outputs, inputs, stride, numbers })
    }

    pub(super) fn kind(&self) -> WeightKind {
        match self.numbers {
            Numbers::F32(_) => WeightKind::F32,
            Numbers::Bf16(_) => WeightKind::Bf16,
            Numbers::Int8 { .. } => WeightKind::Int8,
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
        match &mut self.numbers {
            Numbers::F32(numbers) => write_panels(threads, numbers.values_mut(), (first, stride), source),
            Numbers::Bf16(numbers) => {
                let numbers: &mut [bf16] = bytemuck::cast_slice_mut(numbers.values_mut());
                write_panels(threads, numbers, (first, stride), source);
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
        }
        Ok(())
    }

    /// Row `output` as f32: (inputs,).
    pub(super) fn row(&self, output: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.inputs, "length of the output row");
        match &self.numbers {
            Numbers::F32(numbers) => read_panel(numbers.values(), (output, self.stride), out),
            Numbers::Bf16(numbers) => {
                let numbers: &[bf16] = bytemuck::cast_slice(numbers.values());
                read_panel(numbers, (output, self.stride), out);
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

/// Converts the rows of `source` into the outputs from `first` on of `values` (panels, stride, PANEL).
fn write_panels<W: Stored>(
    threads: &mut Threads,
    values: &mut [W],
    (first, stride): (usize, usize),
    source: &Tensor<'_>,
) {
    let end = first + source.rows();
    let len = PANEL * stride;
    let parts = Parts::new(values);
    let panels = first / PANEL..end.div_ceil(PANEL);
    threads.run(panels.len(), &|task| {
        let panel = panels.start + task;
        // SAFETY: each panel belongs to one task.
        let values = unsafe { parts.part(panel * len..(panel + 1) * len) };
        let mut row = vec![0.0; source.cols()];
        for output in first.max(panel * PANEL)..end.min((panel + 1) * PANEL) {
            source.row(output - first, &mut row);
            for (k, number) in row.iter().enumerate() {
                values[place::<W>(output, k)] = W::nearest(*number);
            }
        }
    });
}

/// The first inputs of an output, as many as `out` has room for, from `values` (panels, stride, PANEL).
fn read_panel<W: Stored>(values: &[W], (output, stride): (usize, usize), out: &mut [f32]) {
    let panel = line(values, PANEL * stride, output / PANEL);
    for (k, out) in out.iter_mut().enumerate() {
        *out = panel[place::<W>(output, k)].number();
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

/// Bytes of float weights that stay in the second-level cache while many rows pass over them.
const CACHED: usize = 512 << 10;

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
    let most = match weight.kind() {
        WeightKind::F32 | WeightKind::Bf16 => {
            let outputs = CACHED / weight.kind().bytes(1, weight.stride);
            (outputs / (2 * PANEL) * (2 * PANEL)).clamp(2 * PANEL, 128)
        }
        WeightKind::Int8 => 128,
    };
    let chunk = if tasks == 1 { chunk } else { chunk.min(most) };
    let out = Output { stride: weight.outputs, sink, parts: Parts::new(out.values_mut()) };
    let stride = weight.stride;
    threads.run(weight.outputs.div_ceil(chunk), &|task| {
        let outputs = task * chunk..weight.outputs.min((task + 1) * chunk);
        match &weight.numbers {
            Numbers::F32(w) => cover_with_float_panels(isa, input, outputs, w.values(), &out),
            Numbers::Bf16(w) => {
                let w: &[bf16] = bytemuck::cast_slice(w.values());
                cover_with_float_panels(isa, input, outputs, w, &out);
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
        }
    });
}

/// Rows whose products with a chunk of float panels are computed before they are stored.
const ROWS_AT_ONCE: usize = 32;

/// Multiplies all rows with the panels of `outputs`, of which one task alone writes the products.
fn cover_with_float_panels<I: Isa, W: Stored>(
    isa: I,
    input: &Input,
    outputs: Range<usize>,
    w: &[W],
    out: &Output<'_>,
) {
    let len = PANEL * input.stride;
    let panels = outputs.start / PANEL..outputs.end.div_ceil(PANEL);
    let values = &w[panels.start * len..panels.end * len];
    let panels = FloatPanels { values, inputs: input.stride, ahead: PANEL_AHEAD };
    let width = values.len() / input.stride;
    let mut products = vec![0.0; width * input.rows.min(ROWS_AT_ONCE)];
    for first in (0..input.rows).step_by(ROWS_AT_ONCE) {
        let rows = first..input.rows.min(first + ROWS_AT_ONCE);
        let products = &mut products[..width * rows.len()];
        isa.floats(input.floats(rows.clone()), panels, false, products);
        for (row, products) in rows.zip(products.chunks_exact(width)) {
            // SAFETY: these outputs belong to one task.
            unsafe { out.put(row, outputs.start, &products[..outputs.len()]) };
        }
    }
}

/// Multiplies all rows with the panels of `outputs`; only the last panel may be incomplete. Rows are the outer loop: a
/// few of them stay in the first-level cache while the weights of all `outputs` stream past from the second.
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
