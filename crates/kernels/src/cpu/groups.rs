//! Matrices whose weights share scales in groups: how they are written and read, a panel of 16 outputs at a time.
//! `isa/groups.rs` has the layout.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use half::f16;

use super::buffer::{Buffer, Parts};
use super::isa::groups::{BLOCK, Format};
use super::isa::{Isa, PANEL};
use super::threads::Threads;
use crate::bytes::Section;
use crate::int4::GROUP;
use crate::{Error, Result, Tensor};

/// How a format gets into its panels and out of them.
pub trait Pack: Format {
    /// Writes `outputs`, all of one panel, from the rows of `source`, the first of which is output `first`. Returns the
    /// first row that holds a weight without a number.
    fn write<I: Isa>(
        isa: I,
        stream: &mut [u8],
        outputs: Range<usize>,
        first: usize,
        source: &Tensor<'_>,
    ) -> Option<usize>;
    /// Writes the integers of an output of group `half` of a block: `q(k)` is the one of input `k` of the group.
    fn put(block: &mut [u8], half: usize, lane: usize, q: impl Fn(usize) -> u8);
    /// The weight of input `k` of a block, whose group has this scale and this offset, zero where there are none.
    fn weight(block: &[u8], k: usize, lane: usize, shared: Shared) -> f32;
}

/// What a group has for all its weights.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shared {
    pub scale: f16,
    /// The offset; zero where the format has none.
    pub least: f16,
}

/// A matrix whose inputs are padded with scales and offsets of zero.
#[derive(Debug)]
pub struct Panels<F> {
    len: usize, // bytes a panel
    stream: Buffer<u8>,
    format: PhantomData<F>,
}

impl<F: Pack> Panels<F> {
    /// Room for (`outputs`, `stride`), all zero; `stride` is a multiple of [`BLOCK`].
    pub fn new(outputs: usize, stride: usize) -> Result<Self> {
        let all = Self::len(outputs, stride).unwrap_or(usize::MAX);
        let stream = Buffer::new(all, "weights")?;
        Ok(Self { len: stride / BLOCK * F::BLOCK_BYTES, stream, format: PhantomData })
    }

    /// Bytes of all panels of (`outputs`, `stride`); none where they cannot be counted.
    pub fn len(outputs: usize, stride: usize) -> Option<usize> {
        outputs.div_ceil(PANEL).checked_mul((stride / BLOCK).checked_mul(F::BLOCK_BYTES)?)
    }

    /// The panels that lie in a part of a file, as [`Self::bytes`] gave them.
    pub fn of_file(stride: usize, stream: Section) -> Option<Self> {
        let stream = Buffer::of_file(stream)?;
        Some(Self { len: stride / BLOCK * F::BLOCK_BYTES, stream, format: PhantomData })
    }

    /// All panels.
    pub fn bytes(&self) -> &[u8] {
        self.stream.values()
    }

    /// One panel: (stride / BLOCK, BLOCK_BYTES).
    pub fn panel(&self, index: usize) -> &[u8] {
        &self.stream.values()[index * self.len..(index + 1) * self.len]
    }

    /// Converts the rows of `source` into the outputs from `first` on.
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
            if let Some(row) = F::write(isa, stream, lines, first, source) {
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
            let block = &panel[group * GROUP / BLOCK * F::BLOCK_BYTES..][..F::BLOCK_BYTES];
            let first = group * GROUP % BLOCK;
            let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]);
            let at = place(first / GROUP, lane);
            let least = if F::AFFINE { half(F::LEASTS + at) } else { f16::ZERO };
            let shared = Shared { scale: half(F::SCALES + at), least };
            for (k, out) in (first..).zip(out) {
                *out = F::weight(block, k, lane, shared);
            }
        }
    }
}

/// Where group `half` of an output has its scale among those of a block, and its offset among those.
fn place(half: usize, lane: usize) -> usize {
    (half * PANEL + lane) * 2
}

/// Writes group `group` of the output `lane` of a panel.
pub fn put_group<F: Pack>(
    stream: &mut [u8],
    group: usize,
    lane: usize,
    shared: Shared,
    q: impl Fn(usize) -> u8,
) {
    const GROUPS: usize = BLOCK / GROUP;
    let block = &mut stream[group / GROUPS * F::BLOCK_BYTES..][..F::BLOCK_BYTES];
    let at = place(group % GROUPS, lane);
    block[F::SCALES + at..][..2].copy_from_slice(&shared.scale.to_le_bytes());
    if F::AFFINE {
        block[F::LEASTS + at..][..2].copy_from_slice(&shared.least.to_le_bytes());
    }
    F::put(block, group % GROUPS, lane, q);
}

/// Writes `outputs` of `inputs` inputs, all of one panel: `read(output, q, groups)` finds the integers of an output and
/// what its groups share. None where it finds none; else the first output with a scale or an offset that is no number, as
/// an error.
pub fn write_rows<F: Pack>(
    stream: &mut [u8],
    outputs: Range<usize>,
    inputs: usize,
    mut read: impl FnMut(usize, &mut [u8], &mut [Shared]) -> Option<()>,
) -> Option<Result<(), usize>> {
    let padded = inputs.next_multiple_of(GROUP);
    let (mut q, mut groups) = (vec![F::ZERO as u8; padded], vec![Shared::default(); padded / GROUP]);
    for output in outputs {
        read(output, &mut q[..inputs], &mut groups)?;
        if !groups.iter().all(|shared| shared.scale.is_finite() && shared.least.is_finite()) {
            return Some(Err(output));
        }
        for (group, (q, shared)) in q.as_chunks::<GROUP>().0.iter().zip(&groups).enumerate() {
            put_group::<F>(stream, group, output % PANEL, *shared, |k| q[k]);
        }
    }
    Some(Ok(()))
}

/// `factor`, a [`Format::FACTOR`], times the sum of each group of a quantised row.
pub fn offsets<I: Isa>(isa: I, q: &[i16], factor: i32, offsets: &mut [i32]) {
    isa.run(|| {
        for (offset, q) in offsets.iter_mut().zip(q.as_chunks::<GROUP>().0) {
            *offset = factor * q.iter().map(|q| i32::from(*q)).sum::<i32>();
        }
    });
}

/// A quantised row in the form of [`Signed`](super::isa::Signed): all high bytes and then all low bytes.
pub fn split<I: Isa>(isa: I, q: &[i16], planes: &mut [i8]) {
    let (high, low) = planes.split_at_mut(q.len());
    isa.run(|| {
        for ((high, low), q) in high.iter_mut().zip(low).zip(q) {
            // The nearest multiple of 256, so that what is left fits a signed byte.
            *high = ((q + 128) >> 8) as i8;
            *low = *q as i8;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::isa::groups::{Int4, Int4Affine, Int8Groups};
    use super::super::isa::scalar::Scalar;
    use super::*;
    use crate::{Backend, Dtype, Step, WeightKind, reference::Reference};

    /// What the reference makes of the same numbers, in every lane and with every instruction set.
    fn the_references<F: Pack, I: Isa>(kind: WeightKind) {
        let Some(isa) = I::detect() else { return };
        for (inputs, scale) in [(1, 1.0), (31, 1e-6), (33, 1e3), (100, 0.1), (1000, 3e-5)] {
            let outputs = 37;
            let numbers: Vec<u8> = (0..outputs * inputs)
                .flat_map(|i| (((i * 7919 % 1013) as f32 * 0.37 - 180.0) * scale).to_le_bytes())
                .collect();
            let mut panels = Panels::<F>::new(outputs, inputs.next_multiple_of(BLOCK)).unwrap();
            let (mut backend, mut threads) = (Reference, Threads::new(2).unwrap());
            let mut weight = backend.weight(kind, outputs, inputs).unwrap();
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

    fn of_all_sets<F: Pack>(kind: WeightKind) {
        the_references::<F, Scalar>(kind);
        #[cfg(target_arch = "x86_64")]
        {
            the_references::<F, super::super::isa::avx2::Avx2>(kind);
            the_references::<F, super::super::isa::avxvnni::AvxVnni>(kind);
            the_references::<F, super::super::isa::avx512::Avx512>(kind);
        }
        #[cfg(target_arch = "aarch64")]
        {
            the_references::<F, super::super::isa::neon::Neon>(kind);
            the_references::<F, super::super::isa::dotprod::DotProd>(kind);
            the_references::<F, super::super::isa::i8mm::I8mm>(kind);
        }
    }

    #[test]
    fn panels_hold_what_the_reference_makes_of_the_weights() {
        of_all_sets::<Int4>(WeightKind::Int4);
        of_all_sets::<Int4Affine>(WeightKind::Int4Affine);
        of_all_sets::<Int8Groups>(WeightKind::Int8Groups);
    }

    fn named<F: Pack>() {
        let mut threads = Threads::new(2).unwrap();
        let mut panels = Panels::<F>::new(100, BLOCK).unwrap();
        for (rows, right) in [(vec![9, 50, 51], 9), (vec![0], 0), (vec![79], 79), (vec![63, 40], 40)] {
            let mut numbers = vec![1.0_f32; 80 * 40];
            rows.iter().for_each(|row| numbers[row * 40 + row % 40] = f32::NEG_INFINITY);
            let tensor = Tensor::new(Dtype::F32, 80, 40, bytemuck::cast_slice(&numbers)).unwrap();
            let result = panels.write(Scalar, &mut threads, 7, &tensor);
            assert_eq!(result, Err(Error::NotFinite { row: right }));
        }
    }

    #[test]
    fn the_first_row_without_numbers_is_named() {
        named::<Int4>();
        named::<Int4Affine>();
        named::<Int8Groups>();
    }

    #[test]
    fn planes_put_every_activation_together_again() {
        let q: Vec<i16> = (-32_512..32_512).collect();
        let mut planes = vec![0; 2 * q.len()];
        split(Scalar, &q, &mut planes);
        let (high, low) = planes.split_at(q.len());
        for ((high, low), q) in high.iter().zip(low).zip(&q) {
            assert_eq!(256 * i32::from(*high) + i32::from(*low), i32::from(*q));
        }
        for factor in [Int4::FACTOR, Int4Affine::FACTOR, Int8Groups::FACTOR] {
            let mut found = vec![0; q.len() / GROUP];
            offsets(Scalar, &q, factor, &mut found);
            for (offset, q) in found.iter().zip(q.chunks(GROUP)) {
                assert_eq!(*offset, q.iter().map(|q| factor * i32::from(*q)).sum());
            }
        }
    }
}
