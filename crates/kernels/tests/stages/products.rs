//! Stages that multiply each row with a matrix.

use whin_kernels::{Activation, Backend, Gated, Head, Norm, Project, Step, WeightKind};

use crate::bounds::{self, Bounded};
use crate::cases::{self, Case, EPS, Matrix, uniform};
use crate::options::{RowOptions, near_one, norm};

/// A stage whose output rows each depend on one input row and nothing else.
#[derive(Clone, Debug)]
pub struct Product {
    pub stage: Stage,
    pub matrix: Matrix,
    pub norm: Vec<f32>,
    pub bias: Option<Vec<f32>>,
    pub row_gate: Option<Vec<f32>>,
    pub x: Vec<f32>,    // (rows, inputs)
    pub base: Vec<f32>, // (rows, outputs), what `project_add` adds to
    pub options: RowOptions,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    Project,
    Gated(Activation),
    /// Of all rows, the last first.
    Logits,
}

impl Product {
    /// `outputs` is made even where the stage wants a gate for each number.
    pub fn new(
        stage: Stage,
        kind: WeightKind,
        (rows, inputs, outputs): (usize, usize, usize),
        seed: u64,
    ) -> Self {
        let outputs = if let Stage::Gated(_) = stage { outputs.next_multiple_of(2) } else { outputs };
        let norm = near_one(seed + 1, inputs);
        Self {
            stage,
            matrix: Matrix::new(kind, outputs, inputs, seed + 2),
            norm,
            bias: seed.is_multiple_of(2).then(|| uniform(seed + 3, outputs)),
            row_gate: (matches!(stage, Stage::Gated(_)) && seed % 3 == 1).then(|| uniform(seed + 5, inputs)),
            x: cases::rows(seed, rows, inputs),
            base: uniform(seed + 4, rows * outputs),
            options: RowOptions::PLAIN,
        }
    }

    /// The same with the options of that number.
    pub fn with(self, number: usize) -> Self {
        let options = RowOptions::of(number, self.matrix.outputs);
        // Without a norm, large rows make gates of zero and numbers without bound.
        let row_gate = self.row_gate.filter(|_| !options.bare);
        Self { options, row_gate, ..self }
    }

    pub fn rows(&self) -> usize {
        self.x.len() / self.matrix.inputs
    }

    /// Numbers of one output row.
    pub fn width(&self) -> usize {
        if let Stage::Gated(_) = self.stage { self.matrix.outputs / 2 } else { self.matrix.outputs }
    }

    /// The same with one row alone.
    pub fn only(&self, row: usize) -> Self {
        let (inputs, outputs) = (self.matrix.inputs, self.matrix.outputs);
        Self {
            x: self.x[row * inputs..(row + 1) * inputs].to_vec(),
            base: self.base[row * outputs..(row + 1) * outputs].to_vec(),
            ..self.clone()
        }
    }

    /// Where the result of input row `row` lies.
    pub fn result(&self, row: usize) -> std::ops::Range<usize> {
        let at = if self.stage == Stage::Logits { self.rows() - 1 - row } else { row };
        at * self.width()..(at + 1) * self.width()
    }
}

impl Case for Product {
    fn name(&self) -> String {
        let Matrix { kind, outputs, inputs, .. } = self.matrix;
        let bias = if self.bias.is_some() { ", bias" } else { "" };
        let gate = if self.row_gate.is_some() { ", gate of rows" } else { "" };
        let RowOptions { bare, centred, post_norm, scale, softcap } = &self.options;
        format!(
            "{:?} of {} rows, {} ({outputs}, {inputs}){bias}{gate}, bare {bare}, centred {centred}, post-norm {}, scale {scale}, \
             softcap {softcap:?}",
            self.stage,
            self.rows(),
            kind.name(),
            post_norm.is_some()
        )
    }

    fn run<B: Backend>(&self, backend: &mut B, poison: bool) -> Vec<f32> {
        let count = self.rows();
        let weight = self.matrix.upload(backend);
        let norm = backend.vector(&self.norm).expect("memory");
        let bias = self.bias.as_ref().map(|bias| backend.vector(bias).expect("memory"));
        let row_gate = self.row_gate.as_ref().map(|gate| backend.vector(gate).expect("memory"));
        let post_norm = self.options.post_norm.as_ref().map(|w| backend.vector(w).expect("memory"));
        // One row more than the step has.
        let mut x = backend.rows(count + 1, self.matrix.inputs).expect("memory");
        let mut out = backend.rows(count + 1, self.width()).expect("memory");
        if poison {
            backend.fill(&mut x, &vec![f32::NAN; (count + 1) * self.matrix.inputs]).expect("memory");
            backend.fill(&mut out, &vec![f32::NAN; (count + 1) * self.width()]).expect("memory");
        }
        let (weight, bias, row_gate) = (&weight, bias.as_ref(), row_gate.as_ref());
        let RowOptions { centred, scale, softcap, .. } = self.options;
        let compute = |backend: &mut B, rows: usize, x: &B::Rows, out: &mut B::Rows| {
            let wanted = (0..rows as u32).rev().collect();
            let step = Step { tokens: vec![0; rows], wanted, ..Step::default() };
            match self.stage {
                Stage::Project => {
                    let norm = post_norm.as_ref().map(|weight| Norm { weight, eps: EPS, centred });
                    backend.project_add(&Project { weight, bias, norm, scale }, &step, x, out);
                }
                Stage::Gated(activation) => {
                    let norm = self.options.norm(&norm, EPS);
                    backend.gated(&Gated { norm, weight, bias, activation, row_gate }, &step, x, out);
                }
                Stage::Logits => {
                    let norm = Norm { weight: &norm, eps: EPS, centred };
                    backend.logits(&Head { norm, weight, scale, softcap }, &step, x, out);
                }
            }
        };
        if poison {
            // What the backend keeps between stages is full of NaN then.
            compute(backend, count + 1, &x, &mut out);
        }
        backend.fill(&mut x, &self.x).expect("memory");
        if self.stage == Stage::Project {
            backend.fill(&mut out, &self.base).expect("memory");
        }
        compute(backend, count, &x, &mut out);
        backend.read(&out, count).expect("the device works")
    }

    fn bounds(&self) -> Bounded {
        let mut all = Bounded::default();
        let outputs = self.matrix.outputs;
        let mut rows: Vec<usize> = (0..self.rows()).collect();
        if self.stage == Stage::Logits {
            rows.reverse();
        }
        for row in rows {
            let x = Bounded::exact(&self.x[row * self.matrix.inputs..][..self.matrix.inputs]);
            let RowOptions { centred, post_norm, scale, softcap, .. } = &self.options;
            let biased = |x: &Bounded| {
                let product = bounds::product(&self.matrix, x);
                self.bias.as_ref().map_or(product.clone(), |bias| product.plus(bias))
            };
            all.extend(&match self.stage {
                Stage::Project => {
                    let out = biased(&x);
                    let out = post_norm.as_ref().map_or(out.clone(), |w| norm(*centred, &out, w, EPS));
                    // A factor of one rounds nothing.
                    let out = if *scale == 1.0 { out } else { out.times(*scale) };
                    out.plus(&self.base[row * outputs..][..outputs])
                }
                Stage::Gated(activation) => {
                    let normed = self.options.normed(&x, &self.norm, EPS);
                    let out = biased(&normed);
                    let h =
                        bounds::gate(activation, &out.part(0..outputs / 2), &out.part(outputs / 2..outputs));
                    match &self.row_gate {
                        Some(gate) => h.times_uncertain(bounds::sigmoid_of_product(&normed, gate)),
                        None => h,
                    }
                }
                Stage::Logits => {
                    let out = bounds::product(&self.matrix, &norm(*centred, &x, &self.norm, EPS));
                    bounds::capped(&if *scale == 1.0 { out } else { out.times(*scale) }, *softcap)
                }
            });
        }
        all
    }

    /// Integer products of the same input have the same bits everywhere, and a factor rounds them alike.
    fn exact(&self) -> bool {
        self.stage == Stage::Project
            && self.options.post_norm.is_none()
            && !matches!(self.matrix.kind, WeightKind::F32 | WeightKind::Bf16)
    }
}
