//! How fast the products of Qwen3-0.6B run on the best instruction set of this processor, and how fast its memory is.
//!
//! Decode reads each weight once a token: what counts is GB/s, and its share of what memory gives, measured first. Prefill
//! computes: its column says `Gitem/s`, and an item is one floating-point operation (two a multiplication).
//!
//! `cargo bench -p whin-kernels`; `WHIN_THREADS=1` sets the number of threads, else all cores work, and `WHIN_ISA=avx2`
//! the instruction set.

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use whin_kernels::cpu::{Cpu, Isa, isa, read_bandwidth};
use whin_kernels::{Activation, Backend, Dtype, Gated, Head, Norm, Project, Step, Tensor, WeightKind};

fn main() {
    let bandwidth = read_bandwidth(threads()).expect("memory") / 1e9;
    println!("{} threads, memory is read at {bandwidth:.1} GB/s", threads());
    divan::main();
}

/// (outputs, inputs) of a product, and the stage that computes it.
struct Shape {
    name: &'static str,
    outputs: usize,
    inputs: usize,
    stage: Stage,
}

#[derive(PartialEq)]
enum Stage {
    /// Norm and product.
    Logits,
    /// Norm, product and gate.
    Gated,
    /// Product and sum.
    ProjectAdd,
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}, {})", self.name, self.outputs, self.inputs)
    }
}

const SHAPES: [Shape; 5] = [
    Shape { name: "qkv", outputs: 4096, inputs: 1024, stage: Stage::Logits },
    Shape { name: "attention out", outputs: 1024, inputs: 2048, stage: Stage::ProjectAdd },
    Shape { name: "gate and up", outputs: 6144, inputs: 1024, stage: Stage::Gated },
    Shape { name: "down", outputs: 1024, inputs: 3072, stage: Stage::ProjectAdd },
    Shape { name: "head", outputs: 151_936, inputs: 1024, stage: Stage::Logits },
];

#[divan::bench(args = &SHAPES, sample_count = 20, sample_size = 1)]
fn decode_int8(bencher: Bencher, shape: &Shape) {
    on_best(bencher, shape, WeightKind::Int8, 1);
}

#[divan::bench(args = &SHAPES, sample_count = 20, sample_size = 1)]
fn sixteen_int8(bencher: Bencher, shape: &Shape) {
    on_best(bencher, shape, WeightKind::Int8, 16);
}

#[divan::bench(args = &SHAPES, sample_count = 20, sample_size = 1)]
fn decode_int4(bencher: Bencher, shape: &Shape) {
    on_best(bencher, shape, WeightKind::Int4, 1);
}

#[divan::bench(args = &SHAPES, sample_count = 20, sample_size = 1)]
fn decode_int4_affine(bencher: Bencher, shape: &Shape) {
    on_best(bencher, shape, WeightKind::Int4Affine, 1);
}

#[divan::bench(args = &SHAPES, sample_count = 20, sample_size = 1)]
fn decode_int8_groups(bencher: Bencher, shape: &Shape) {
    on_best(bencher, shape, WeightKind::Int8Groups, 1);
}

#[divan::bench(args = &SHAPES, sample_count = 20, sample_size = 1)]
fn sixteen_int8_groups(bencher: Bencher, shape: &Shape) {
    on_best(bencher, shape, WeightKind::Int8Groups, 16);
}

#[divan::bench(args = &SHAPES, sample_count = 20, sample_size = 1)]
fn decode_bf16(bencher: Bencher, shape: &Shape) {
    on_best(bencher, shape, WeightKind::Bf16, 1);
}

#[divan::bench(args = &SHAPES[..4], sample_count = 10, sample_size = 1)]
fn prefill_int8(bencher: Bencher, shape: &Shape) {
    on_best(bencher, shape, WeightKind::Int8, 512);
}

#[divan::bench(args = &SHAPES[..4], sample_count = 10, sample_size = 1)]
fn prefill_int4(bencher: Bencher, shape: &Shape) {
    on_best(bencher, shape, WeightKind::Int4, 512);
}

#[divan::bench(args = &SHAPES[..4], sample_count = 10, sample_size = 1)]
fn prefill_int4_affine(bencher: Bencher, shape: &Shape) {
    on_best(bencher, shape, WeightKind::Int4Affine, 512);
}

#[divan::bench(args = &SHAPES[..4], sample_count = 10, sample_size = 1)]
fn prefill_int8_groups(bencher: Bencher, shape: &Shape) {
    on_best(bencher, shape, WeightKind::Int8Groups, 512);
}

#[divan::bench(args = &SHAPES[..4], sample_count = 10, sample_size = 1)]
fn prefill_bf16(bencher: Bencher, shape: &Shape) {
    on_best(bencher, shape, WeightKind::Bf16, 512);
}

fn on_best(bencher: Bencher, shape: &Shape, kind: WeightKind, rows: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        if usable::<isa::amx::Amx>() {
            return products::<isa::amx::Amx>(bencher, shape, kind, rows);
        }
        if usable::<isa::avx512::Avx512>() {
            return products::<isa::avx512::Avx512>(bencher, shape, kind, rows);
        }
        if usable::<isa::avxvnni::AvxVnni>() {
            return products::<isa::avxvnni::AvxVnni>(bencher, shape, kind, rows);
        }
        if usable::<isa::avx2::Avx2>() {
            return products::<isa::avx2::Avx2>(bencher, shape, kind, rows);
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        if usable::<isa::i8mm::I8mm>() {
            return products::<isa::i8mm::I8mm>(bencher, shape, kind, rows);
        }
        if usable::<isa::dotprod::DotProd>() {
            return products::<isa::dotprod::DotProd>(bencher, shape, kind, rows);
        }
        if usable::<isa::neon::Neon>() {
            return products::<isa::neon::Neon>(bencher, shape, kind, rows);
        }
    }
    products::<isa::scalar::Scalar>(bencher, shape, kind, rows)
}

fn usable<I: Isa>() -> bool {
    I::detect().is_some() && std::env::var("WHIN_ISA").map_or(true, |name| name == I::NAME)
}

/// For few rows, passes over so many copies of the matrix that no cache holds them; for many, over one.
fn products<I: Isa>(bencher: Bencher, shape: &Shape, kind: WeightKind, rows: usize) {
    let mut cpu = Cpu::<I>::new(threads()).expect("threads");
    let Shape { outputs, inputs, .. } = *shape;
    let bytes = kind.bytes(outputs, inputs);
    let copies = if rows <= 16 { (256_usize << 20).div_ceil(bytes) } else { 1 };
    let numbers: Vec<u8> = (0..outputs * inputs)
        .flat_map(|i| ((i.wrapping_mul(0x9e37_79b9) >> 7) as f32 % 1000.0 - 500.0).to_le_bytes())
        .collect();
    let tensor = Tensor::new(Dtype::F32, outputs, inputs, &numbers).expect("whole rows");
    let weights: Vec<_> = (0..copies)
        .map(|_| {
            let mut weight = cpu.weight(kind, outputs, inputs).expect("memory");
            cpu.write(&mut weight, 0, &tensor).expect("finite weights");
            weight
        })
        .collect();
    let width = if shape.stage == Stage::Gated { outputs / 2 } else { outputs };
    let mut x = cpu.rows(rows, inputs).expect("memory");
    let values: Vec<f32> = (0..rows * inputs).map(|i| (i % 97) as f32 * 0.01 - 0.5).collect();
    cpu.fill(&mut x, &values).expect("memory");
    let mut out = cpu.rows(rows, width).expect("memory");
    let ones = cpu.vector(&vec![1.0; inputs]).expect("memory");
    let step = Step { tokens: vec![0; rows], wanted: (0..rows as u32).collect(), ..Step::default() };
    let mut pass = || {
        for weight in &weights {
            let norm = Norm { weight: &ones, eps: 1e-6, centred: false };
            match shape.stage {
                Stage::Logits => {
                    cpu.logits(&Head { norm, weight, scale: 1.0, softcap: None }, &step, &x, &mut out)
                }
                Stage::Gated => {
                    let args = Gated {
                        norm: Some(norm),
                        weight,
                        bias: None,
                        activation: Activation::Silu,
                        row_gate: None,
                    };
                    cpu.gated(&args, &step, &x, &mut out);
                }
                Stage::ProjectAdd => cpu.project_add(
                    &Project { weight, bias: None, norm: None, scale: 1.0 },
                    &step,
                    &x,
                    &mut out,
                ),
            }
        }
    };
    if rows <= 16 {
        bencher.counter(BytesCount::new(copies * bytes)).bench_local(&mut pass);
    } else {
        bencher.counter(ItemsCount::new(2 * rows * outputs * inputs)).bench_local(&mut pass);
    }
}

fn threads() -> usize {
    let wanted = std::env::var("WHIN_THREADS").ok().and_then(|count| count.parse().ok());
    wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}
