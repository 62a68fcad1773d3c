//! How 4-bit weights, with and without offsets, get into their panels and out of them. `isa/int4.rs` has the layout.

use std::ops::Range;

use half::f16;

use super::groups::{Pack, Shared, put_group, write_rows};
use super::isa::groups::{BLOCK, Format, Int4, Int4Affine};
use super::isa::int4::{LINE, LINE_INPUTS};
use super::isa::{Isa, PANEL};
use crate::int4::{self, GROUP};
use crate::{Tensor, int4_affine};

impl Pack for Int4 {
    fn write<I: Isa>(
        isa: I,
        stream: &mut [u8],
        outputs: Range<usize>,
        first: usize,
        source: &Tensor<'_>,
    ) -> Option<usize> {
        let inputs = source.cols();
        let mut scales = vec![f16::ZERO; inputs.div_ceil(GROUP)];
        let stored = |output: usize, q: &mut [u8], groups: &mut [Shared]| {
            source.int4_row(output - first, q, &mut scales)?;
            groups.iter_mut().zip(&scales).for_each(|(shared, scale)| shared.scale = *scale);
            Some(())
        };
        if let Some(written) = write_rows::<Self>(stream, outputs.clone(), inputs, stored) {
            return Some(written.err()? - first);
        }
        let lanes = outputs.start % PANEL..outputs.start % PANEL + outputs.len();
        let mut rows = vec![0.0; outputs.len() * inputs];
        for (output, row) in outputs.clone().zip(rows.chunks_exact_mut(inputs.max(1))) {
            isa.run(|| source.row(output - first, row));
        }
        let mut faults = [false; PANEL];
        for group in 0..stream.len() / Self::BLOCK_BYTES * (BLOCK / GROUP) {
            let range = inputs.min(group * GROUP)..inputs.min((group + 1) * GROUP);
            let (mut w, mut q) = ([[0.0; PANEL]; GROUP], [[int4::ZERO; PANEL]; GROUP]);
            for (lane, row) in lanes.clone().zip(rows.chunks_exact(inputs.max(1))) {
                for (w, x) in w.iter_mut().zip(&row[range.clone()]) {
                    w[lane] = *x;
                }
            }
            let count = range.len();
            let scales = isa.run(|| int4::quantize(&w[..count], &mut q[..count]));
            for lane in lanes.clone() {
                faults[lane] |= scales[lane].is_nan();
                let shared = Shared { scale: f16::from_f32(scales[lane]), ..Shared::default() };
                put_group::<Self>(stream, group, lane, shared, |k| q[k][lane]);
            }
        }
        let lane = lanes.clone().find(|lane| faults[*lane])?;
        Some(outputs.start + lane - lanes.start - first)
    }

    fn put(block: &mut [u8], half: usize, lane: usize, q: impl Fn(usize) -> u8) {
        put(block, half, lane, q);
    }

    fn weight(block: &[u8], k: usize, lane: usize, shared: Shared) -> f32 {
        int4::weight(nibble(block, k, lane), shared.scale)
    }
}

impl Pack for Int4Affine {
    fn write<I: Isa>(
        isa: I,
        stream: &mut [u8],
        outputs: Range<usize>,
        first: usize,
        source: &Tensor<'_>,
    ) -> Option<usize> {
        let inputs = source.cols();
        let (mut row, mut halves) =
            (vec![0.0; inputs], [(); 2].map(|()| vec![f16::ZERO; inputs.div_ceil(GROUP)]));
        let read = |output: usize, q: &mut [u8], groups: &mut [Shared]| {
            let [scales, leasts] = &mut halves;
            if source.int4_affine_row(output - first, q, scales, leasts).is_none() {
                isa.run(|| {
                    source.row(output - first, &mut row);
                    quantize(&row, q, scales, leasts);
                });
            }
            for (shared, (scale, least)) in groups.iter_mut().zip(scales.iter().zip(&*leasts)) {
                *shared = Shared { scale: *scale, least: *least };
            }
            Some(())
        };
        let written = write_rows::<Self>(stream, outputs, inputs, read)?;
        Some(written.err()? - first)
    }

    fn put(block: &mut [u8], half: usize, lane: usize, q: impl Fn(usize) -> u8) {
        put(block, half, lane, q);
    }

    fn weight(block: &[u8], k: usize, lane: usize, shared: Shared) -> f32 {
        int4_affine::weight(nibble(block, k, lane), shared.scale, shared.least)
    }
}

/// All groups of a row; the scale of one without numbers is NaN.
#[inline(always)]
fn quantize(row: &[f32], q: &mut [u8], scales: &mut [f16], leasts: &mut [f16]) {
    let shared = scales.iter_mut().zip(leasts);
    for ((w, q), (scale, least)) in row.chunks(GROUP).zip(q.chunks_mut(GROUP)).zip(shared) {
        (*scale, *least) = int4_affine::quantize(w, q).unwrap_or((f16::NAN, f16::NAN));
    }
}

/// Writes the integers of an output of group `half` of a block.
fn put(block: &mut [u8], half: usize, lane: usize, q: impl Fn(usize) -> u8) {
    for line in 0..GROUP / LINE_INPUTS {
        let at = (half * (GROUP / LINE_INPUTS) + line) * LINE + lane * 4;
        for i in 0..4 {
            let k = line * LINE_INPUTS + i;
            block[at + i] = q(k) | q(k + 4) << 4;
        }
    }
}

/// The integer of input `k` of a block.
fn nibble(block: &[u8], k: usize, lane: usize) -> u8 {
    let byte = block[k / LINE_INPUTS * LINE + lane * 4 + k % 4];
    byte >> (k % LINE_INPUTS / 4 * 4) & 15
}
