//! Weights that a file holds in blocks whose integers and scales are kept as they are.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use half::f16;
use whin_kernels::{
    Backend, Dtype, Error, Tensor, WeightKind, cpu::Cpu, cpu::isa::scalar::Scalar, reference::Reference,
};

use crate::backends::Cpus;
use crate::bounds::Bounded;
use crate::cases::{Case, uniform};
use crate::kept;

/// `x · wᵀ` with a matrix of blocks.
#[derive(Clone, Debug)]
struct Blocks {
    dtype: Dtype,
    kind: WeightKind,
    outputs: usize,
    inputs: usize,
    bytes: Vec<u8>,
    x: Vec<f32>, // (rows, inputs)
}

/// Types of a file, each with a form that takes it as it is.
const STORED: [(Dtype, WeightKind); 8] = [
    (Dtype::Q8_0, WeightKind::Int8Groups),
    (Dtype::Q5_0, WeightKind::Int8Groups),
    (Dtype::Q4_0, WeightKind::Int8Groups),
    (Dtype::Iq4Nl, WeightKind::Int8Groups),
    (Dtype::Mxfp4, WeightKind::Int8Groups),
    (Dtype::Q4_0, WeightKind::Int4),
    (Dtype::Q4_0, WeightKind::Int4Affine),
    (Dtype::Q4_1, WeightKind::Int4Affine),
];

impl Blocks {
    /// Integers of every kind, those that no quantiser makes among them, and scales from all over the range of f16, of
    /// both signs, subnormal and zero.
    fn new(
        (dtype, kind): (Dtype, WeightKind),
        (rows, inputs, outputs): (usize, usize, usize),
        seed: u64,
    ) -> Self {
        let (_, size) = dtype.block();
        let mut bytes: Vec<u8> = uniform(seed, outputs * inputs / 32 * size)
            .iter()
            .map(|x| (x * 128.0).floor() as i8 as u8)
            .collect();
        let halves = match dtype {
            Dtype::Mxfp4 => 0,
            Dtype::Q4_1 => 2,
            _ => 1,
        };
        for (index, block) in bytes.chunks_exact_mut(size).enumerate() {
            for half in 0..halves {
                let index = index + half * 3;
                let place = 2 * half..2 * half + 2;
                let mut bits = match (index + seed as usize) % 5 {
                    0 => [0x0001, 0x8001, 0x03ff, 0, 0x8000][index / 5 % 5],
                    1 => [0x7bff_u16, 0xfbff][index / 5 % 2],
                    _ => {
                        let bits = u16::from_le_bytes([block[place.start], block[place.start + 1]]);
                        if f16::from_bits(bits).is_finite() { bits } else { bits & 0x83ff | 0x3c00 }
                    }
                };
                if (dtype, kind) == (Dtype::Q4_0, WeightKind::Int4Affine) && bits & 0x7fff >= 0x6c00 {
                    bits &= 0xebff; // eight times this is the offset
                }
                block[place].copy_from_slice(&bits.to_le_bytes());
            }
            if dtype == Dtype::Mxfp4 {
                block[0] = 104 + block[0] % 40; // what f16 holds
            }
            if index % 7 == 0 {
                block[(2 * halves).max(1)..].fill(0x80); // -128, and 0 beside 8
            }
        }
        let mut x = uniform(seed + 1, rows * inputs);
        // A row at the bounds of the integers, where sums of 8 bits leave those that f32 holds.
        x[..inputs].iter_mut().enumerate().for_each(|(i, x)| *x = if i % 64 < 32 { 1.0 } else { -1.0 });
        Self { dtype, kind, outputs, inputs, bytes, x }
    }

    /// The offset of a group, counted from the first row on.
    fn least(&self, group: usize) -> f64 {
        let block = &self.bytes[group * self.dtype.block().1..];
        let half = |at: usize| f64::from(f16::from_le_bytes([block[at], block[at + 1]]));
        match (self.dtype, self.kind) {
            (Dtype::Q4_1, _) => half(2),
            (Dtype::Q4_0, WeightKind::Int4Affine) => -8.0 * half(0),
            _ => 0.0,
        }
    }

    fn tensor(&self, rows: std::ops::Range<usize>) -> Tensor<'_> {
        let len = self.inputs / 32 * self.dtype.block().1;
        Tensor::new(self.dtype, rows.len(), self.inputs, &self.bytes[rows.start * len..rows.end * len])
            .unwrap()
    }

    fn upload<B: Backend>(&self, backend: &mut B) -> B::Weight {
        let mut weight = backend.weight(self.kind, self.outputs, self.inputs).unwrap();
        let half = self.outputs / 2;
        for rows in [half..self.outputs, 0..half] {
            backend.write(&mut weight, rows.start, &self.tensor(rows)).unwrap();
        }
        weight
    }
}

impl Case for Blocks {
    fn name(&self) -> String {
        format!(
            "{} rows by {:?} of a file in {}, ({}, {})",
            self.x.len() / self.inputs,
            self.dtype,
            self.kind.name(),
            self.outputs,
            self.inputs
        )
    }

    fn run<B: Backend>(&self, backend: &mut B, _: bool) -> Vec<f32> {
        let count = self.x.len() / self.inputs;
        let weight = self.upload(backend);
        let (mut x, mut out) =
            (backend.rows(count, self.inputs).unwrap(), backend.rows(count, self.outputs).unwrap());
        backend.fill(&mut x, &self.x).unwrap();
        let step = whin_kernels::Step { tokens: vec![0; count], ..Default::default() };
        let args = whin_kernels::Project { weight: &weight, bias: None, norm: None, scale: 1.0 };
        backend.project_add(&args, &step, &x, &mut out);
        let mut found = backend.read(&out, count).unwrap();
        // The weights themselves as well.
        let tokens: Vec<u32> = (0..self.outputs as u32).collect();
        let mut rows = backend.rows(self.outputs, self.inputs).unwrap();
        let step = whin_kernels::Step { tokens, ..Default::default() };
        backend.embed(&whin_kernels::Embed { table: &weight, scale: 1.0 }, &step, &mut rows);
        found.extend(backend.read(&rows, self.outputs).unwrap());
        found
    }

    /// Of the products as `bounds.rs` says, with weights that the file holds exactly. Activations without an error are
    /// the same integers everywhere.
    fn bounds(&self) -> Bounded {
        let weights = self.tensor(0..self.outputs).to_vec();
        let mut all = Bounded::default();
        for x in self.x.chunks_exact(self.inputs) {
            let mut q = vec![0; self.inputs];
            let scale = f64::from(whin_kernels::int8::quantize_activations(x, &mut q));
            for (output, w) in weights.chunks_exact(self.inputs).enumerate() {
                let groups = self.inputs / 32;
                let (mut total, mut size) = (0.0, 0.0);
                for (group, (w, q)) in w.chunks(32).zip(q.chunks(32)).enumerate() {
                    let terms = w.iter().zip(q).map(|(w, q)| f64::from(*w) * f64::from(*q));
                    let (sum, all) =
                        terms.fold((0.0, 0.0), |(sum, all), term| (sum + term, all + term.abs()));
                    let inputs = q.iter().map(|q| f64::from(*q)).sum::<f64>();
                    let offset = (self.least(output * groups + group) * inputs).abs();
                    total += sum;
                    // The scaled integers are the sum without the offset, and weights with one are rounded to f32 here.
                    size += sum.abs() + 2.0 * offset + if offset > 0.0 { all } else { 0.0 };
                }
                all.values.push(total * scale);
                all.errors
                    .push((2.0 * groups as f64 + 5.0) * crate::bounds::U * size * scale * 1.001 + 1e-44);
            }
        }
        all.extend(&Bounded::exact(&weights));
        all
    }

    fn exact(&self) -> bool {
        true
    }
}

#[test]
fn blocks_are_kept_as_they_are() {
    let mut cpus = Cpus::new();
    let mut seed = 0;
    for stored in STORED {
        for shape in
            [(1, 32, 1), (1, 96, 17), (2, 64, 16), (3, 160, 33), (5, 1024, 7), (17, 96, 40), (33, 320, 65)]
        {
            seed += 1;
            if kept(seed * 4) {
                cpus.check(&Blocks::new(stored, shape, seed as u64));
            }
        }
    }
}

#[test]
fn scales_that_are_no_numbers_are_refused() {
    for stored in STORED.into_iter().filter(|(dtype, _)| *dtype != Dtype::Mxfp4) {
        for bits in [f16::NAN, f16::INFINITY, f16::NEG_INFINITY].map(f16::to_bits) {
            let mut blocks = Blocks::new(stored, (1, 96, 37), 3);
            let size = stored.0.block().1;
            for row in [20, 36] {
                blocks.bytes[(row * 3 + 2) * size..][..2].copy_from_slice(&bits.to_le_bytes());
            }
            fn check<B: Backend>(mut backend: B, blocks: &Blocks) {
                let mut weight = backend.weight(blocks.kind, 40, 96).unwrap();
                let result = backend.write(&mut weight, 3, &blocks.tensor(0..37));
                assert_eq!(result, Err(Error::NotFinite { row: 20 }), "{}", backend.name());
            }
            check(Reference, &blocks);
            check(Cpu::<Scalar>::new(2).unwrap(), &blocks);
        }
    }
}

/// What quantising makes of floats is what ggml writes into its files: both ways lead to the same bytes.
#[test]
fn floats_become_the_blocks_of_gguf() {
    let (outputs, inputs) = (37, 352);
    let mut values = uniform(9, outputs * inputs);
    values.iter_mut().enumerate().for_each(|(i, w)| *w *= [1.0, 1e-3, 30.0, 2e-7, 0.0][i / 32 % 5]);
    values[64..96].iter_mut().enumerate().for_each(|(i, w)| *w = if i == 0 { 127.0 } else { i as f32 * 0.5 });
    let mut blocks = Vec::new();
    for group in values.chunks_exact(32) {
        let largest = group.iter().fold(0.0_f32, |max, w| max.max(w.abs()));
        let scale = largest / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        blocks.extend(f16::from_f32(scale).to_le_bytes());
        blocks.extend(group.iter().map(|w| (w * inverse).round() as i8 as u8));
    }
    let floats: Vec<u8> = values.iter().flat_map(|w| w.to_le_bytes()).collect();
    let mut cpu = Cpu::<Scalar>::new(2).unwrap();
    let [stored, quantized] = [(Dtype::Q8_0, &blocks), (Dtype::F32, &floats)].map(|(dtype, bytes)| {
        let mut weight = cpu.weight(WeightKind::Int8Groups, outputs, inputs).unwrap();
        cpu.write(&mut weight, 0, &Tensor::new(dtype, outputs, inputs, bytes).unwrap()).unwrap();
        Cpu::<Scalar>::packed(&weight).concat()
    });
    assert!(stored == quantized);
}
