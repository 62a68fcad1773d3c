//! Matrices of the reference: how they are written, read and multiplied.

use std::ops::Range;

use half::{bf16, f16};

use super::dot;
use crate::int4::GROUP;
use crate::{Error, Result, Tensor, WeightKind, int4, int4_affine, int8, int8_groups};

/// A matrix, row after row.
#[derive(Debug)]
pub struct Weight {
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    numbers: Numbers,
}

#[derive(Debug)]
enum Numbers {
    F32(Vec<f32>),   // (outputs, inputs)
    Bf16(Vec<bf16>), // (outputs, inputs)
    Int8 {
        values: Vec<i8>,  // (outputs, inputs)
        scales: Vec<f32>, // (outputs,)
    },
    Int8Groups {
        values: Vec<i8>,  // (outputs, inputs)
        scales: Vec<f16>, // (outputs, groups)
    },
    Int4 {
        values: Vec<u8>,  // (outputs, inputs)
        scales: Vec<f16>, // (outputs, groups)
    },
    Int4Affine {
        values: Vec<u8>,  // (outputs, inputs)
        scales: Vec<f16>, // (outputs, groups)
        leasts: Vec<f16>, // (outputs, groups)
    },
}

impl Weight {
    pub(super) fn new(kind: WeightKind, outputs: usize, inputs: usize) -> Self {
        let (count, groups) = (outputs * inputs, outputs * inputs.div_ceil(GROUP));
        let halves = || vec![f16::ZERO; groups];
        let numbers = match kind {
            WeightKind::F32 => Numbers::F32(vec![0.0; count]),
            WeightKind::Bf16 => Numbers::Bf16(vec![bf16::ZERO; count]),
            WeightKind::Int8 => Numbers::Int8 { values: vec![0; count], scales: vec![0.0; outputs] },
            WeightKind::Int8Groups => Numbers::Int8Groups { values: vec![0; count], scales: halves() },
            WeightKind::Int4 => Numbers::Int4 { values: vec![0; count], scales: halves() },
            WeightKind::Int4Affine => {
                Numbers::Int4Affine { values: vec![0; count], scales: halves(), leasts: halves() }
            }
        };
        Self { outputs, inputs, numbers }
    }

    /// The groups of an output, of all groups.
    fn groups(&self, output: usize) -> Range<usize> {
        let groups = self.inputs.div_ceil(GROUP);
        output * groups..(output + 1) * groups
    }

    /// Converts row `index` of `source` into `output`.
    pub(super) fn write(&mut self, output: usize, source: &Tensor<'_>, index: usize) -> Result<()> {
        let mut row = vec![0.0; self.inputs];
        source.row(index, &mut row);
        let (range, groups) = (output * self.inputs..(output + 1) * self.inputs, self.groups(output));
        let is_finite = |halves: &[f16]| halves.iter().all(|half| half.is_finite());
        let is_whole = match &mut self.numbers {
            Numbers::F32(numbers) => {
                numbers[range].copy_from_slice(&row);
                true
            }
            Numbers::Bf16(numbers) => {
                numbers[range].iter_mut().zip(&row).for_each(|(number, x)| *number = bf16::from_f32(*x));
                true
            }
            Numbers::Int8 { values, scales } => {
                let scale = int8::quantize_weights(&row, &mut values[range]);
                scales[output] = scale.unwrap_or_default();
                scale.is_some()
            }
            Numbers::Int8Groups { values, scales } => {
                let (values, scales) = (&mut values[range], &mut scales[groups]);
                if source.int8_groups_row(index, values, scales).is_none() {
                    for ((w, q), scale) in row.chunks(GROUP).zip(values.chunks_mut(GROUP)).zip(&mut *scales) {
                        *scale = int8_groups::quantize(w, q).unwrap_or(f16::NAN);
                    }
                }
                is_finite(scales)
            }
            Numbers::Int4 { values, scales } => {
                let (values, scales) = (&mut values[range], &mut scales[groups]);
                if source.int4_row(index, values, scales).is_none() {
                    for ((w, q), scale) in row.chunks(GROUP).zip(values.chunks_mut(GROUP)).zip(&mut *scales) {
                        let [found] = int4::quantize(w.as_chunks::<1>().0, q.as_chunks_mut::<1>().0);
                        *scale = f16::from_f32(found);
                    }
                }
                is_finite(scales)
            }
            Numbers::Int4Affine { values, scales, leasts } => {
                let (values, scales, leasts) =
                    (&mut values[range], &mut scales[groups.clone()], &mut leasts[groups]);
                if source.int4_affine_row(index, values, scales, leasts).is_none() {
                    let shared = scales.iter_mut().zip(&mut *leasts);
                    for ((w, q), (scale, least)) in
                        row.chunks(GROUP).zip(values.chunks_mut(GROUP)).zip(shared)
                    {
                        (*scale, *least) = int4_affine::quantize(w, q).unwrap_or((f16::NAN, f16::NAN));
                    }
                }
                is_finite(scales) && is_finite(leasts)
            }
        };
        if is_whole { Ok(()) } else { Err(Error::NotFinite { row: index }) }
    }

    /// The number of one input of an output.
    pub(super) fn number(&self, output: usize, input: usize) -> f32 {
        assert!(input < self.inputs, "input {input} of {}", self.inputs);
        let (index, group) = (output * self.inputs + input, self.groups(output).start + input / GROUP);
        match &self.numbers {
            Numbers::F32(numbers) => numbers[index],
            Numbers::Bf16(numbers) => numbers[index].to_f32(),
            Numbers::Int8 { values, scales } => f32::from(values[index]) * scales[output],
            Numbers::Int8Groups { values, scales } => int8_groups::weight(values[index], scales[group]),
            Numbers::Int4 { values, scales } => int4::weight(values[index], scales[group]),
            Numbers::Int4Affine { values, scales, leasts } => {
                int4_affine::weight(values[index], scales[group], leasts[group])
            }
        }
    }

    /// `self · x`: (outputs,)
    pub(super) fn multiply(&self, x: &[f32]) -> Vec<f32> {
        self.multiply_part(0..self.outputs, x)
    }

    /// The same of some outputs.
    pub(super) fn multiply_part(&self, outputs: Range<usize>, x: &[f32]) -> Vec<f32> {
        assert_eq!(x.len(), self.inputs, "width of the input row");
        let mut quantized = vec![0; x.len()];
        let scale = int8::quantize_activations(x, &mut quantized);
        outputs.map(|output| self.product(output, x, (&quantized, scale))).collect()
    }

    /// The product of an output with `x`, of which `q`, times `scale`, is the quantised form.
    fn product(&self, output: usize, x: &[f32], (q, scale): (&[i16], f32)) -> f32 {
        let (range, groups) = (output * self.inputs..(output + 1) * self.inputs, self.groups(output));
        match &self.numbers {
            Numbers::F32(numbers) => dot(x, &numbers[range]) as f32,
            Numbers::Bf16(numbers) => {
                let terms = numbers[range].iter().zip(x).map(|(w, x)| w.to_f64() * f64::from(*x));
                terms.sum::<f64>() as f32
            }
            Numbers::Int8 { values, scales } => {
                let sum = values[range].iter().zip(q).map(|(w, x)| i64::from(*w) * i64::from(*x)).sum();
                int8::product(sum, scale, scales[output])
            }
            Numbers::Int8Groups { values, scales } => {
                let sums = sums(&values[range], q, i32::from);
                int8_groups::product(sums.zip(scales[groups].iter().copied()), scale)
            }
            Numbers::Int4 { values, scales } => {
                let sums = sums(&values[range], q, |w| i32::from(w) - i32::from(int4::ZERO));
                int4::product(sums.zip(scales[groups].iter().copied()), scale)
            }
            Numbers::Int4Affine { values, scales, leasts } => {
                let inputs = q.chunks(GROUP).map(|q| q.iter().map(|q| i32::from(*q)).sum());
                let shared = scales[groups.clone()].iter().zip(&leasts[groups]);
                let parts = sums(&values[range], q, i32::from).zip(inputs).zip(shared);
                int4_affine::product(parts.map(|((sum, inputs), (d, m))| (sum, inputs, *d, *m)), scale)
            }
        }
    }
}

/// The sum of each group's products of weights, as `meant` reads them, and activations.
fn sums<W: Copy>(w: &[W], x: &[i16], meant: impl Fn(W) -> i32) -> impl Iterator<Item = i32> {
    let sum = move |(w, x): (&[W], &[i16])| w.iter().zip(x).map(|(w, x)| meant(*w) * i32::from(*x)).sum();
    w.chunks(GROUP).zip(x.chunks(GROUP)).map(sum)
}
