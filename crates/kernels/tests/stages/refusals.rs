//! Threads write to parts of rows whose borders follow from shapes: one that does not fit must stop the stage before
//! two threads get the same number.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::panic::{AssertUnwindSafe, catch_unwind};

use whin_kernels::cpu::Cpu;
use whin_kernels::cpu::isa::scalar::Scalar;
use whin_kernels::{
    Activation, Attend, Backend, CacheShape, Gated, HeadNorm, KvKind, LayerCache, Norm, Project, Qkv,
    Rotation, Span, Step, WeightKind,
};

use crate::cases::EPS;

fn refused(what: &str, run: impl FnOnce(&mut Cpu<Scalar>)) {
    let mut cpu = Cpu::new(2).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| run(&mut cpu))).is_err(), "{what} went through");
}

fn step() -> Step {
    Step {
        tokens: vec![0; 2],
        positions: vec![0, 1],
        slots: vec![0; 2],
        tables: vec![vec![0]],
        states: vec![],
        rotations: vec![Rotation::default()],
        wanted: vec![0],
    }
}

/// A cache of one layer with two heads of eight numbers.
fn state(cpu: &mut Cpu<Scalar>) -> <Cpu<Scalar> as Backend>::State {
    let mut state = cpu
        .state(&CacheShape {
            kind: KvKind::Bf16,
            layers: vec![LayerCache::Positions { kv_heads: 2, head_dim: 8 }],
        })
        .unwrap();
    cpu.grow(&mut state, 1).unwrap();
    state
}

#[test]
fn attend() {
    const ARGS: Attend<'static, Cpu<Scalar>> = Attend {
        layer: 0,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        scale: 1.0,
        window: None,
        softcap: None,
        sinks: None,
        gated: false,
    };
    let attend_with = |cpu: &mut Cpu<Scalar>, args: &Attend<'_, Cpu<Scalar>>, (q, y): (usize, usize)| {
        let state = state(cpu);
        let (q, mut y) = (cpu.rows(4, q).unwrap(), cpu.rows(4, y).unwrap());
        cpu.attend(args, &step(), &q, &state, &mut y);
    };
    let attend = |cpu: &mut Cpu<Scalar>, heads: usize, kv_heads: usize, widths: (usize, usize)| {
        attend_with(cpu, &Attend { heads, kv_heads, ..ARGS }, widths);
    };
    attend(&mut Cpu::new(2).unwrap(), 4, 2, (32, 32));
    refused("a narrow result", |cpu| attend(cpu, 4, 2, (32, 24)));
    refused("a wide result", |cpu| attend(cpu, 4, 2, (32, 40)));
    refused("narrow queries", |cpu| attend(cpu, 4, 2, (24, 32)));
    refused("more key-value heads than the cache has", |cpu| attend(cpu, 4, 4, (32, 32)));
    refused("heads that do not divide", |cpu| attend(cpu, 5, 2, (40, 40)));
    let gated = |cpu: &mut Cpu<Scalar>, q| attend_with(cpu, &Attend { gated: true, ..ARGS }, (q, 32));
    gated(&mut Cpu::new(2).unwrap(), 64);
    refused("queries without their gates", |cpu| gated(cpu, 32));
    refused("queries with gates that nobody asks for", |cpu| attend(cpu, 4, 2, (64, 32)));
    let sunk = |cpu: &mut Cpu<Scalar>, count| {
        attend_with(cpu, &Attend { sinks: Some(&vec![0.0; count]), ..ARGS }, (32, 32));
    };
    sunk(&mut Cpu::new(2).unwrap(), 4);
    refused("too few sinks", |cpu| sunk(cpu, 3));
    refused("too many sinks", |cpu| sunk(cpu, 5));
}

#[test]
fn qkv() {
    let qkv =
        |cpu: &mut Cpu<Scalar>, heads: usize, kv_heads: usize, outputs: usize, (x, q): (usize, usize)| {
            let mut state = state(cpu);
            let (x, mut q) = (cpu.rows(4, x).unwrap(), cpu.rows(4, q).unwrap());
            let weight = &cpu.weight(WeightKind::F32, outputs, 16).unwrap();
            let norm = Some(Norm { weight: &vec![1.0; 16], eps: EPS, centred: false });
            let (bias, q_norm, k_norm) = (None, None, None);
            let args = Qkv {
                layer: 0,
                heads,
                kv_heads,
                head_dim: 8,
                norm,
                weight,
                bias,
                q_norm,
                k_norm,
                rotation: Some(0),
                gated: false,
            };
            cpu.qkv(&args, &step(), &x, &mut state, &mut q);
        };
    qkv(&mut Cpu::new(2).unwrap(), 4, 2, 64, (16, 32));
    refused("a projection with too few outputs", |cpu| qkv(cpu, 4, 2, 40, (16, 32)));
    refused("queries of another width", |cpu| qkv(cpu, 4, 2, 64, (16, 40)));
    refused("rows of another width", |cpu| qkv(cpu, 4, 2, 64, (8, 32)));
    refused("another number of key-value heads", |cpu| qkv(cpu, 4, 1, 48, (16, 32)));
}

#[test]
fn options_of_qkv() {
    let qkv =
        |cpu: &mut Cpu<Scalar>, (outputs, q): (usize, usize), bias: usize, (span, norm): (Span, usize)| {
            let mut state = state(cpu);
            let (x, mut q) = (cpu.rows(4, 16).unwrap(), cpu.rows(4, q).unwrap());
            let weight = &cpu.weight(WeightKind::F32, outputs, 16).unwrap();
            let norm = Norm { weight: &vec![1.0; norm], eps: EPS, centred: true };
            let args = Qkv {
                layer: 0,
                heads: 4,
                kv_heads: 2,
                head_dim: 8,
                norm: None,
                weight,
                bias: Some(&vec![0.0; bias]),
                q_norm: Some(HeadNorm { norm, span }),
                k_norm: None,
                rotation: None,
                gated: true,
            };
            cpu.qkv(&args, &step(), &x, &mut state, &mut q);
        };
    let (apart, together) = ((Span::Head, 8), (Span::Projection, 32));
    qkv(&mut Cpu::new(2).unwrap(), (96, 64), 96, apart);
    qkv(&mut Cpu::new(2).unwrap(), (96, 64), 96, together);
    refused("a projection without gates", |cpu| qkv(cpu, (64, 64), 64, apart));
    refused("queries without room for gates", |cpu| qkv(cpu, (96, 32), 96, apart));
    refused("a short bias", |cpu| qkv(cpu, (96, 64), 95, apart));
    refused("a long bias", |cpu| qkv(cpu, (96, 64), 97, apart));
    refused("a norm of all heads for each", |cpu| qkv(cpu, (96, 64), 96, (Span::Head, 32)));
    refused("a norm of one head for all", |cpu| qkv(cpu, (96, 64), 96, (Span::Projection, 8)));
}

#[test]
fn products() {
    refused("a gate of another width", |cpu| {
        let (x, mut h) = (cpu.rows(2, 16).unwrap(), cpu.rows(2, 12).unwrap());
        let weight = &cpu.weight(WeightKind::Bf16, 32, 16).unwrap();
        let norm = Some(Norm { weight: &vec![1.0; 16], eps: EPS, centred: false });
        cpu.gated(
            &Gated { norm, weight, bias: None, activation: Activation::Silu, row_gate: None },
            &step(),
            &x,
            &mut h,
        );
    });
    refused("a sum of another width", |cpu| {
        let (h, mut x) = (cpu.rows(2, 16).unwrap(), cpu.rows(2, 12).unwrap());
        let weight = &cpu.weight(WeightKind::Int8, 32, 16).unwrap();
        cpu.project_add(&Project { weight, bias: None, norm: None, scale: 1.0 }, &step(), &h, &mut x);
    });
    let project = |cpu: &mut Cpu<Scalar>, width: usize, norm: Option<usize>| {
        let (h, mut x) = (cpu.rows(2, 16).unwrap(), cpu.rows(2, width).unwrap());
        let weight = &cpu.weight(WeightKind::Int4, 32, 16).unwrap();
        let ones = vec![1.0; norm.unwrap_or(0)];
        let norm = norm.map(|_| Norm { weight: &ones, eps: EPS, centred: false });
        cpu.project_add(&Project { weight, bias: None, norm, scale: 0.5 }, &step(), &h, &mut x);
    };
    project(&mut Cpu::new(2).unwrap(), 32, Some(32));
    refused("a scaled sum of another width", |cpu| project(cpu, 12, None));
    refused("a scaled sum of a larger width", |cpu| project(cpu, 40, None));
    refused("a normalised sum of another width", |cpu| project(cpu, 12, Some(32)));
    refused("a norm of another width", |cpu| project(cpu, 32, Some(31)));
}
