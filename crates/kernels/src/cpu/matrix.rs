//! Weight matrices: how they lie in memory, and how they are written and read.

use std::ops::Range;

use half::bf16;

use super::buffer::{Buffer, Parts};
use super::groups::Panels;
use super::isa::groups::{Int4, Int4Affine, Int8Groups};
use super::isa::{GROUP, Isa, PAD, PANEL, Stored, place};
use super::rows::quantize_weights;
use super::threads::Threads;
use crate::bytes::Section;
use crate::{Error, Result, SECTION_ALIGNMENT, Tensor, WeightKind};

/// A matrix in panels of [`PANEL`] outputs, its inputs padded with zeros to a multiple of [`PAD`].
#[derive(Debug)]
pub struct Weight {
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    pub(super) stride: usize,
    pub(super) numbers: Numbers,
}

#[derive(Debug)]
pub(super) enum Numbers {
    F32(Buffer<f32>),  // (panels, stride, PANEL)
    Bf16(Buffer<u16>), // (panels, stride / 2, PANEL, 2), the bits of bf16
    Int8 {
        values: Buffer<i8>,  // (panels, stride / GROUP, PANEL, GROUP)
        scales: Buffer<f32>, // (panels, PANEL)
        sums: Buffer<i32>,   // (panels, PANEL), of each output's values
    },
    Int8Groups(Panels<Int8Groups>),
    Int4(Panels<Int4>),
    Int4Affine(Panels<Int4Affine>),
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
            WeightKind::Int8Groups => Numbers::Int8Groups(Panels::new(outputs, stride)?),
            WeightKind::Int4 => Numbers::Int4(Panels::new(outputs, stride)?),
            WeightKind::Int4Affine => Numbers::Int4Affine(Panels::new(outputs, stride)?),
        };
        Ok(Self { outputs, inputs, stride, numbers })
    }

    /// A matrix whose numbers lie in a file, as [`Self::packed`] gave them, each part from the next multiple of
    /// [`SECTION_ALIGNMENT`] on; none where the length does not fit.
    pub(super) fn of_file(
        kind: WeightKind,
        outputs: usize,
        inputs: usize,
        mut file: Section,
    ) -> Option<Self> {
        let stride = inputs.checked_next_multiple_of(PAD)?;
        let padded = outputs.checked_next_multiple_of(PANEL)?;
        let count = padded.checked_mul(stride)?;
        let mut part = |count: usize, size: usize| {
            let bytes = count.checked_mul(size)?;
            let section = file.take(bytes)?;
            let gap = bytes.next_multiple_of(SECTION_ALIGNMENT) - bytes;
            file.take(gap.min(file.len()))?;
            Some(section)
        };
        let numbers = match kind {
            WeightKind::F32 => Numbers::F32(Buffer::of_file(part(count, 4)?)?),
            WeightKind::Bf16 => Numbers::Bf16(Buffer::of_file(part(count, 2)?)?),
            WeightKind::Int8 => Numbers::Int8 {
                values: Buffer::of_file(part(count, 1)?)?,
                scales: Buffer::of_file(part(padded, 4)?)?,
                sums: Buffer::of_file(part(padded, 4)?)?,
            },
            WeightKind::Int8Groups => {
                let len = Panels::<Int8Groups>::len(outputs, stride)?;
                Numbers::Int8Groups(Panels::of_file(stride, part(len, 1)?)?)
            }
            WeightKind::Int4 => {
                let len = Panels::<Int4>::len(outputs, stride)?;
                Numbers::Int4(Panels::of_file(stride, part(len, 1)?)?)
            }
            WeightKind::Int4Affine => {
                let len = Panels::<Int4Affine>::len(outputs, stride)?;
                Numbers::Int4Affine(Panels::of_file(stride, part(len, 1)?)?)
            }
        };
        file.is_empty().then_some(Self { outputs, inputs, stride, numbers })
    }

    /// The numbers as they lie in memory.
    pub(super) fn packed(&self) -> Vec<&[u8]> {
        match &self.numbers {
            Numbers::F32(numbers) => vec![bytemuck::cast_slice(numbers.values())],
            Numbers::Bf16(numbers) => vec![bytemuck::cast_slice(numbers.values())],
            Numbers::Int8 { values, scales, sums } => vec![
                bytemuck::cast_slice(values.values()),
                bytemuck::cast_slice(scales.values()),
                bytemuck::cast_slice(sums.values()),
            ],
            Numbers::Int8Groups(panels) => vec![panels.bytes()],
            Numbers::Int4(panels) => vec![panels.bytes()],
            Numbers::Int4Affine(panels) => vec![panels.bytes()],
        }
    }

    pub(super) fn kind(&self) -> WeightKind {
        match self.numbers {
            Numbers::F32(_) => WeightKind::F32,
            Numbers::Bf16(_) => WeightKind::Bf16,
            Numbers::Int8 { .. } => WeightKind::Int8,
            Numbers::Int8Groups(_) => WeightKind::Int8Groups,
            Numbers::Int4(_) => WeightKind::Int4,
            Numbers::Int4Affine(_) => WeightKind::Int4Affine,
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
            Numbers::Int8Groups(panels) => panels.write(isa, threads, first, source)?,
            Numbers::Int4(panels) => panels.write(isa, threads, first, source)?,
            Numbers::Int4Affine(panels) => panels.write(isa, threads, first, source)?,
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
            Numbers::Int8Groups(panels) => panels.row(output, out),
            Numbers::Int4(panels) => panels.row(output, out),
            Numbers::Int4Affine(panels) => panels.row(output, out),
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

fn line<T>(numbers: &[T], stride: usize, row: usize) -> &[T] {
    &numbers[row * stride..(row + 1) * stride]
}
