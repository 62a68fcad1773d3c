//! How 8-bit weights that share scales in groups get into their panels and out of them. `isa/int8_groups.rs` has the
//! layout.

use std::ops::Range;

use half::f16;

use super::groups::{Pack, Shared, write_rows};
use super::isa::Isa;
use super::isa::groups::Int8Groups;
use super::isa::int8_groups::{LINE, LINE_INPUTS};
use crate::Tensor;
use crate::int8_groups::{self, GROUP};

/// Turns a signed byte into one that is 128 more, and back.
const SIGN: u8 = 0x80;

impl Pack for Int8Groups {
    fn write<I: Isa>(
        isa: I,
        stream: &mut [u8],
        outputs: Range<usize>,
        first: usize,
        source: &Tensor<'_>,
    ) -> Option<usize> {
        let inputs = source.cols();
        let mut row = vec![0.0; inputs];
        let mut scales = vec![f16::ZERO; inputs.div_ceil(GROUP)];
        let read = |output: usize, q: &mut [u8], groups: &mut [Shared]| {
            let signed: &mut [i8] = bytemuck::cast_slice_mut(q);
            if source.int8_groups_row(output - first, signed, &mut scales).is_none() {
                isa.run(|| {
                    source.row(output - first, &mut row);
                    quantize(&row, signed, &mut scales);
                });
            }
            groups.iter_mut().zip(&scales).for_each(|(shared, scale)| shared.scale = *scale);
            q.iter_mut().for_each(|q| *q ^= SIGN);
            Some(())
        };
        let written = write_rows::<Self>(stream, outputs, inputs, read)?;
        Some(written.err()? - first)
    }

    fn put(block: &mut [u8], half: usize, lane: usize, q: impl Fn(usize) -> u8) {
        for line in 0..GROUP / LINE_INPUTS {
            let at = (half * (GROUP / LINE_INPUTS) + line) * LINE + lane * LINE_INPUTS;
            for i in 0..LINE_INPUTS {
                block[at + i] = q(line * LINE_INPUTS + i);
            }
        }
    }

    fn weight(block: &[u8], k: usize, lane: usize, shared: Shared) -> f32 {
        let byte = block[k / LINE_INPUTS * LINE + lane * LINE_INPUTS + k % LINE_INPUTS];
        int8_groups::weight((byte ^ SIGN) as i8, shared.scale)
    }
}

/// All groups of a row; the scale of one without numbers is NaN.
#[inline(always)]
fn quantize(row: &[f32], q: &mut [i8], scales: &mut [f16]) {
    for ((w, q), scale) in row.chunks(GROUP).zip(q.chunks_mut(GROUP)).zip(scales) {
        *scale = int8_groups::quantize(w, q).unwrap_or(f16::NAN);
    }
}
