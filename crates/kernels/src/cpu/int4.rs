//! 4-bit matrices: how they are written, read and multiplied, a panel of 16 outputs at a time. `isa/int4.rs` has the
//! layout.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use half::f16;

use super::buffer::{Buffer, Parts};
use super::isa::int4::{BLOCK, BLOCK_BYTES, LINE, LINE_INPUTS, SCALES};
use super::isa::{Isa, PANEL};
use super::threads::Threads;
use crate::bytes::Section;
use crate::int4::{self, GROUP};
use crate::{Error, Result, Tensor};

/// A matrix of 4-bit weights, its inputs padded with scales of zero.
#[derive(Debug)]
pub struct Panels {
    len: usize, // bytes a panel
    stream: Buffer<u8>,
}

impl Panels {
    /// Room for (`outputs`, `stride`), all zero; `stride` is a multiple of [`BLOCK`].
    pub fn new(outputs: usize, stride: usize) -> Result<Self> {
        let all = Self::len(outputs, stride).unwrap_or(usize::MAX);
        Ok(Self { len: panel_len(stride), stream: Buffer::new(all, "weights")? })
    }

    /// Bytes of all panels of (`outputs`, `stride`); none where they cannot be counted.
    pub fn len(outputs: usize, stride: usize) -> Option<usize> {
        outputs.div_ceil(PANEL).checked_mul(panel_len(stride))
    }

    /// The panels that lie in a part of a file, as [`Self::bytes`] gave them.
    pub fn of_file(stride: usize, stream: Section) -> Option<Self> {
        Some(Self { len: panel_len(stride), stream: Buffer::of_file(stream)? })
    }

    /// All panels.
    pub fn bytes(&self) -> &[u8] {
        self.stream.values()
    }

    /// One panel: (stride / BLOCK, BLOCK_BYTES).
    pub fn panel(&self, index: usize) -> &[u8] {
        &self.stream.values()[index * self.len..(index + 1) * self.len]
    }

    /// Quantises the rows of `source` into the outputs from `first` on.
    pub fn write<I: Isa>(
        &mut self,
        isa: I,
        threads: &mut Threads,
        first: usize,
        source: &Tensor<'_>,
    ) -> Result<()> {
        let (outputs, len) = (first..first + source.rows(), self.len);
        let panels = first / PANEL..outputs.end.div_ceil(PANEL);
        let stream = Parts::new(self.stream.values_mut());
        let fault = AtomicUsize::new(usize::MAX);
        threads.run(panels.len(), &|task| {
            let panel = panels.start + task;
            let lines = outputs.start.max(panel * PANEL)..outputs.end.min((panel + 1) * PANEL);
            // SAFETY: each panel belongs to one task.
            let stream = unsafe { stream.part(panel * len..(panel + 1) * len) };
            if let Some(row) = write_panel(isa, stream, lines, first, source) {
                fault.fetch_min(row, Relaxed);
            }
        });
        match fault.into_inner() {
            usize::MAX => Ok(()),
            row => Err(Error::NotFinite { row }),
        }
    }

    /// Output `output` as f32: (inputs,).
    pub fn row(&self, output: usize, out: &mut [f32]) {
        let (panel, lane) = (self.panel(output / PANEL), output % PANEL);
        for (group, out) in out.chunks_mut(GROUP).enumerate() {
            let block = &panel[group * GROUP / BLOCK * BLOCK_BYTES..][..BLOCK_BYTES];
            let first = group * GROUP % BLOCK;
            let at = SCALES + (first / GROUP * PANEL + lane) * 2;
            let scale = f16::from_le_bytes([block[at], block[at + 1]]);
            for (k, out) in (first..).zip(out) {
                let (at, shift) = place(k, lane);
                *out = int4::weight(block[at] >> shift & 15, scale);
            }
        }
    }
}

fn panel_len(stride: usize) -> usize {
    stride / BLOCK * BLOCK_BYTES
}

/// Where the weight of input `k` and output `lane` lies in a block: the byte, and by how many bits it is shifted.
fn place(k: usize, lane: usize) -> (usize, usize) {
    (k / LINE_INPUTS * LINE + lane * 4 + k % 4, k % LINE_INPUTS / 4 * 4)
}

/// Quantises `outputs`, all of one panel, from the rows of `source`, the first of which is output `first`. Returns the
/// first row that holds a weight without a number.
fn write_panel<I: Isa>(
    isa: I,
    stream: &mut [u8],
    outputs: Range<usize>,
    first: usize,
    source: &Tensor<'_>,
) -> Option<usize> {
    let (inputs, lanes) = (source.cols(), outputs.start % PANEL..outputs.start % PANEL + outputs.len());
    let mut rows = vec![0.0; outputs.len() * inputs];
    for (output, row) in outputs.clone().zip(rows.chunks_exact_mut(inputs.max(1))) {
        isa.run(|| source.row(output - first, row));
    }
    let mut faults = [false; PANEL];
    for (block, stream) in stream.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        for half in 0..BLOCK / GROUP {
            let start = inputs.min(block * BLOCK + half * GROUP);
            let end = inputs.min(start + GROUP);
            let (mut w, mut q) = ([[0.0; PANEL]; GROUP], [[int4::ZERO; PANEL]; GROUP]);
            for (lane, row) in lanes.clone().zip(rows.chunks_exact(inputs.max(1))) {
                for (w, x) in w.iter_mut().zip(&row[start..end]) {
                    w[lane] = *x;
                }
            }
            let count = end - start;
            let scales = isa.run(|| int4::quantize(&w[..count], &mut q[..count]));
            for lane in lanes.clone() {
                faults[lane] |= scales[lane].is_nan();
                let at = SCALES + (half * PANEL + lane) * 2;
                stream[at..at + 2].copy_from_slice(&f16::from_f32(scales[lane]).to_le_bytes());
                for line in 0..GROUP / LINE_INPUTS {
                    let at = (half * (GROUP / LINE_INPUTS) + line) * LINE + lane * 4;
                    for i in 0..4 {
                        let k = line * LINE_INPUTS + i;
                        stream[at + i] = q[k][lane] | q[k + 4][lane] << 4;
                    }
                }
            }
        }
    }
    let lane = lanes.clone().find(|lane| faults[*lane])?;
    Some(outputs.start + lane - lanes.start - first)
}

/// A quantised row in the form of [`Signed`]: all high bytes and then all low bytes, and the offsets of its groups.
pub fn split<I: Isa>(isa: I, q: &[i16], planes: &mut [i8], offsets: &mut [i32]) {
    let (high, low) = planes.split_at_mut(q.len());
    isa.run(|| {
        for ((high, low), q) in high.iter_mut().zip(low).zip(q) {
            // The nearest multiple of 256, so that what is left fits a signed byte.
            *high = ((q + 128) >> 8) as i8;
            *low = *q as i8;
        }
        for (offset, q) in offsets.iter_mut().zip(q.as_chunks::<GROUP>().0) {
            *offset = -i32::from(int4::ZERO) * q.iter().map(|q| i32::from(*q)).sum::<i32>();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::isa::scalar::Scalar;
    use super::*;
    use crate::{Dtype, WeightKind};

    /// What the reference makes of the same numbers, in every lane and with every instruction set.
    fn the_references<I: Isa>() {
        let Some(isa) = I::detect() else { return };
        use crate::{Backend, Step, reference::Reference};
        for (inputs, scale) in [(1, 1.0), (31, 1e-6), (33, 1e3), (100, 0.1), (1000, 3e-5)] {
            let outputs = 37;
            let numbers: Vec<u8> = (0..outputs * inputs)
                .flat_map(|i| (((i * 7919 % 1013) as f32 * 0.37 - 180.0) * scale).to_le_bytes())
                .collect();
            let mut panels = Panels::new(outputs, inputs.next_multiple_of(BLOCK)).unwrap();
            let (mut backend, mut threads) = (Reference, Threads::new(2).unwrap());
            let mut weight = backend.weight(WeightKind::Int4, outputs, inputs).unwrap();
            for (first, end) in [(5, 24), (24, outputs), (0, 5)] {
                let bytes = &numbers[first * inputs * 4..end * inputs * 4];
                let tensor = Tensor::new(Dtype::F32, end - first, inputs, bytes).unwrap();
                panels.write(isa, &mut threads, first, &tensor).unwrap();
                backend.write(&mut weight, first, &tensor).unwrap();
            }
            let mut x = backend.rows(outputs, inputs).unwrap();
            let step = Step { tokens: (0..outputs as u32).collect(), ..Step::default() };
            backend.embed(&crate::Embed { table: &weight, scale: 1.0 }, &step, &mut x);
            let right = backend.read(&x, outputs).unwrap();
            let mut row = vec![0.0; inputs];
            for output in 0..outputs {
                panels.row(output, &mut row);
                let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                let right = &right[output * inputs..(output + 1) * inputs];
                assert_eq!(bits(&row), bits(right), "output {output} of {inputs} inputs with {}", I::NAME);
            }
        }
    }

    #[test]
    fn panels_hold_what_the_reference_makes_of_the_weights() {
        the_references::<Scalar>();
        #[cfg(target_arch = "x86_64")]
        {
            the_references::<super::super::isa::avx2::Avx2>();
            the_references::<super::super::isa::avxvnni::AvxVnni>();
            the_references::<super::super::isa::avx512::Avx512>();
        }
        #[cfg(target_arch = "aarch64")]
        {
            the_references::<super::super::isa::neon::Neon>();
            the_references::<super::super::isa::dotprod::DotProd>();
            the_references::<super::super::isa::i8mm::I8mm>();
        }
    }

    #[test]
    fn the_first_row_without_numbers_is_named() {
        let mut threads = Threads::new(2).unwrap();
        let mut panels = Panels::new(100, BLOCK).unwrap();
        for (rows, right) in [(vec![9, 50, 51], 9), (vec![0], 0), (vec![79], 79), (vec![63, 40], 40)] {
            let mut numbers = vec![1.0_f32; 80 * 40];
            rows.iter().for_each(|row| numbers[row * 40 + row % 40] = f32::NEG_INFINITY);
            let tensor = Tensor::new(Dtype::F32, 80, 40, bytemuck::cast_slice(&numbers)).unwrap();
            let result = panels.write(Scalar, &mut threads, 7, &tensor);
            assert_eq!(result, Err(Error::NotFinite { row: right }));
        }
    }

    #[test]
    fn planes_put_every_activation_together_again() {
        let q: Vec<i16> = (-32_512..32_512).collect();
        let (mut planes, mut offsets) = (vec![0; 2 * q.len()], vec![0; q.len() / GROUP]);
        split(Scalar, &q, &mut planes, &mut offsets);
        let (high, low) = planes.split_at(q.len());
        for ((high, low), q) in high.iter().zip(low).zip(&q) {
            assert_eq!(256 * i32::from(*high) + i32::from(*low), i32::from(*q));
        }
        for (offset, q) in offsets.iter().zip(q.chunks(GROUP)) {
            assert_eq!(*offset, q.iter().map(|q| -8 * i32::from(*q)).sum());
        }
    }
}
