//! How 4-bit weights get into their panels and out of them. `isa/int4.rs` has the layout.

use std::ops::Range;

use half::f16;

use super::groups::{Pack, put_group, write_rows};
use super::isa::groups::{BLOCK, Format, Int4};
use super::isa::int4::{LINE, LINE_INPUTS};
use super::isa::{Isa, PANEL};
use crate::Tensor;
use crate::int4::{self, GROUP};

impl Pack for Int4 {
    fn write<I: Isa>(
        isa: I,
        stream: &mut [u8],
        outputs: Range<usize>,
        first: usize,
        source: &Tensor<'_>,
    ) -> Option<usize> {
        let inputs = source.cols();
        let stored =
            |output: usize, q: &mut [u8], scales: &mut [f16]| source.q4_0_row(output - first, q, scales);
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
                put_group::<Self>(stream, group, lane, f16::from_f32(scales[lane]), |k| q[k][lane]);
            }
        }
        let lane = lanes.clone().find(|lane| faults[*lane])?;
        Some(outputs.start + lane - lanes.start - first)
    }

    fn put(block: &mut [u8], half: usize, lane: usize, q: impl Fn(usize) -> u8) {
        for line in 0..GROUP / LINE_INPUTS {
            let at = (half * (GROUP / LINE_INPUTS) + line) * LINE + lane * 4;
            for i in 0..4 {
                let k = line * LINE_INPUTS + i;
                block[at + i] = q(k) | q(k + 4) << 4;
            }
        }
    }

    fn weight(block: &[u8], k: usize, lane: usize, scale: f16) -> f32 {
        let byte = block[k / LINE_INPUTS * LINE + lane * 4 + k % 4];
        int4::weight(byte >> (k % LINE_INPUTS / 4 * 4) & 15, scale)
    }
}
