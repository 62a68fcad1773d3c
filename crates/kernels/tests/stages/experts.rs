//! Mixtures of experts: experts of every size, chosen by rows of every kind, together and alone.

use whin_kernels::{Activation, Backend, Experts, Gating, Norm, Shares, Step, WeightKind};

use crate::backends::{Answer, Cpus};
use crate::bounds::{self, Bounded};
use crate::cases::{Case, EPS, Matrix, rows, uniform};
use crate::compare::same;
use crate::{ACTIVATIONS, KINDS, kept};

/// A mixture and the rows that it works on.
#[derive(Clone, Debug)]
struct Mixture {
    experts: usize,
    top_k: usize,
    shares: Shares,
    gating: Gating,
    norm: Option<Vec<f32>>,
    router: Matrix,
    router_bias: Option<Vec<f32>>,
    gate_up: Matrix,
    gate_up_bias: Option<Vec<f32>>,
    down: Matrix,
    down_bias: Option<Vec<f32>>,
    scale: f32,
    x: Vec<f32>, // (rows, width)
}

impl Mixture {
    fn new(
        kind: WeightKind,
        (experts, top_k): (usize, usize),
        (count, width, inner): (usize, usize, usize),
        seed: u64,
    ) -> Self {
        let has_bias = seed % 3 == 1;
        let bias = |seed, count| has_bias.then(|| uniform(seed, count));
        Self {
            experts,
            top_k,
            shares: if seed.is_multiple_of(2) { Shares::OfChosen } else { Shares::OfAll },
            gating: match seed % 5 {
                0 | 3 => Gating::Clamped { limit: 0.25 },
                _ => Gating::Plain(ACTIVATIONS[seed as usize / 5 % ACTIVATIONS.len()]),
            },
            norm: (seed % 7 != 2).then(|| uniform(seed + 1, width).iter().map(|w| 1.0 + 0.5 * w).collect()),
            router: Matrix::new(WeightKind::F32, experts, width, seed + 2),
            router_bias: bias(seed + 3, experts),
            gate_up: Matrix::new(kind, experts * 2 * inner, width, seed + 4),
            gate_up_bias: bias(seed + 5, experts * 2 * inner),
            down: Matrix::new(kind, experts * width, inner, seed + 6),
            down_bias: bias(seed + 7, experts * width),
            scale: if seed % 4 == 3 { 0.22 } else { 1.0 },
            x: match seed % 7 {
                // Without a norm the scores of large rows would leave the range in which shares mean something.
                2 => uniform(seed, count * width),
                _ => rows(seed, count, width),
            },
        }
    }

    fn width(&self) -> usize {
        self.down.outputs / self.experts
    }

    fn rows(&self) -> usize {
        self.x.len() / self.width()
    }

    fn only(&self, row: usize) -> Self {
        Self { x: self.x[row * self.width()..(row + 1) * self.width()].to_vec(), ..self.clone() }
    }

    /// The same without the few of many rows whose choice errors could change.
    fn clear(mut self) -> Self {
        let (width, before) = (self.width(), self.rows());
        let rows =
            self.x.chunks_exact(width).filter(|x| self.chosen(&self.scores(&self.normed(x))).is_some());
        self.x = rows.flatten().copied().collect();
        let gone = before - self.rows();
        assert!(gone <= before.div_ceil(10) && gone < before, "{}: {before} rows before", self.name());
        self
    }

    fn normed(&self, x: &[f32]) -> Bounded {
        let exact = Bounded::exact(x);
        self.norm.as_ref().map_or(exact.clone(), |norm| bounds::norm(&exact, norm, EPS))
    }

    fn scores(&self, normed: &Bounded) -> Bounded {
        with(bounds::product(&self.router, normed), self.router_bias.as_deref())
    }

    /// The experts of a row, by falling scores; none where errors could change the choice.
    fn chosen(&self, scores: &Bounded) -> Option<Vec<usize>> {
        let mut experts: Vec<usize> = (0..self.experts).collect();
        let score = |expert: usize| scores.values[expert];
        experts.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
        let (chosen, others) = experts.split_at(self.top_k);
        let is_exact = scores.values.iter().zip(&scores.errors).all(|(v, e)| *v == 0.0 && *e < 1e-38);
        let least = chosen.iter().map(|e| score(*e) - scores.errors[*e]).fold(f64::INFINITY, f64::min);
        let most = others.iter().map(|e| score(*e) + scores.errors[*e]).fold(f64::NEG_INFINITY, f64::max);
        (is_exact || least > most).then(|| chosen.to_vec())
    }

    fn row_bounds(&self, x: &[f32]) -> Bounded {
        let normed = self.normed(x);
        let scores = self.scores(&normed);
        let chosen = self.chosen(&scores);
        let chosen = chosen.unwrap_or_else(|| panic!("{}: a choice that errors could change", self.name()));
        let inner = self.down.inputs;
        let outs = chosen.iter().map(|expert| {
            let part = |matrix: &Matrix, bias: &Option<Vec<f32>>, count: usize, x: &Bounded| {
                let outputs = expert * count..(expert + 1) * count;
                let values =
                    matrix.values[outputs.start * matrix.inputs..outputs.end * matrix.inputs].to_vec();
                let matrix = Matrix { outputs: count, values, ..matrix.clone() };
                with(bounds::product(&matrix, x), bias.as_ref().map(|bias| &bias[outputs]))
            };
            let out = part(&self.gate_up, &self.gate_up_bias, 2 * inner, &normed);
            let h = bounds::gate_as(self.gating, &out.part(0..inner), &out.part(inner..2 * inner));
            part(&self.down, &self.down_bias, self.width(), &h)
        });
        let outs: Vec<Bounded> = outs.collect();
        let among: Vec<usize> = match self.shares {
            Shares::OfAll => (0..self.experts).collect(),
            Shares::OfChosen => chosen.clone(),
        };
        bounds::mix(&scores, (&chosen, &among), &outs).times(self.scale).plus(x)
    }
}

fn with(out: Bounded, bias: Option<&[f32]>) -> Bounded {
    bias.map_or(out.clone(), |bias| out.plus(bias))
}

impl Case for Mixture {
    fn name(&self) -> String {
        let Self { experts, top_k, shares, gating, gate_up, .. } = self;
        format!(
            "{top_k} of {experts} experts of {}, {}, {shares:?}, {gating:?}, {} rows of {}, bias {}, norm {}",
            self.down.inputs,
            gate_up.kind.name(),
            self.rows(),
            self.width(),
            self.router_bias.is_some(),
            self.norm.is_some(),
        )
    }

    fn run<B: Backend>(&self, backend: &mut B, poison: bool) -> Vec<f32> {
        let (count, width) = (self.rows(), self.width());
        let [router, gate_up, down] = [&self.router, &self.gate_up, &self.down].map(|m| m.upload(backend));
        let mut vector =
            |values: &Option<Vec<f32>>| values.as_ref().map(|v| backend.vector(v).expect("memory"));
        let (norm, router_bias) = (vector(&self.norm), vector(&self.router_bias));
        let (gate_up_bias, down_bias) = (vector(&self.gate_up_bias), vector(&self.down_bias));
        // One row more than the step has.
        let mut x = backend.rows(count + 1, width).expect("memory");
        if poison {
            backend.fill(&mut x, &vec![f32::NAN; (count + 1) * width]).expect("memory");
        }
        backend.fill(&mut x, &self.x).expect("memory");
        let args = Experts {
            norm: norm.as_ref().map(|weight| Norm { weight, eps: EPS, centred: false }),
            router: &router,
            router_bias: router_bias.as_ref(),
            experts: self.experts,
            top_k: self.top_k,
            shares: self.shares,
            gate_up: &gate_up,
            gate_up_bias: gate_up_bias.as_ref(),
            gating: self.gating,
            down: &down,
            down_bias: down_bias.as_ref(),
            scale: self.scale,
        };
        backend.experts_add(&args, &Step { tokens: vec![0; count], ..Step::default() }, &mut x);
        backend.read(&x, count).expect("the device works")
    }

    fn bounds(&self) -> Bounded {
        let mut all = Bounded::default();
        self.x.chunks_exact(self.width()).for_each(|x| all.extend(&self.row_bounds(x)));
        all
    }

    /// The scores are sums of floats.
    fn exact(&self) -> bool {
        false
    }
}

/// Demands that these rows of a case have the same bits alone.
fn alone_is_the_same(cpus: &mut Cpus, case: &Mixture, answers: &[Answer], rows: &[usize]) {
    let width = case.width();
    for &row in rows.iter().filter(|row| case.rows() > 1 && **row < case.rows()) {
        for (alone, all) in cpus.answers(&case.only(row)).iter().zip(answers) {
            same(&alone.values, &all.values[row * width..(row + 1) * width])
                .unwrap_or_else(|why| panic!("{}: {}: row {row} alone: {why}", case.name(), all.backend));
        }
    }
}

#[test]
fn experts() {
    const EXPERTS: [(usize, usize); 7] = [(1, 1), (4, 2), (6, 6), (8, 3), (33, 4), (5, 1), (16, 8)];
    let mut cpus = Cpus::new();
    let mut seed = 4100;
    for kind in KINDS {
        for experts in EXPERTS {
            for rows in [1, 2, 5, 18, 40] {
                seed += 1;
                if !kept(seed) {
                    continue;
                }
                // Of whole panels and not, for the gates and for the way back.
                let (width, inner) = ([36, 64, 100, 160, 7][seed % 5], [16, 10, 32, 24, 1, 48, 33][seed % 7]);
                let case = Mixture::new(kind, experts, (rows, width, inner), seed as u64).clear();
                let rows = case.rows();
                let answers = cpus.check(&case);
                alone_is_the_same(&mut cpus, &case, &answers, &[0, 1, rows / 2, rows - 1]);
            }
        }
    }
}

/// Large enough for tasks to be shared out, with many rows for some experts and few for others.
#[test]
fn experts_with_work_for_all_threads() {
    let mut cpus = Cpus::new();
    for (seed, kind) in (4300..).zip(KINDS) {
        for (rows, top_k) in [(1, 4), (4, 4), (150, 2)] {
            if !kept(seed + rows) {
                continue;
            }
            let mut case = Mixture::new(kind, (8, top_k), (rows, 320, 96), seed as u64);
            // One expert is liked by most rows.
            case.router_bias = Some(vec![1.5, 0.0, 0.1, -0.1, 0.2, -0.2, 0.3, -0.3]);
            let case = case.clear();
            let answers = cpus.check(&case);
            alone_is_the_same(&mut cpus, &case, &answers, &[0, rows / 2, case.rows() - 1]);
        }
    }
}

/// Experts whose scores are equal: the lowest are chosen, to the bit of a mixture that has no others.
#[test]
fn the_lowest_of_equal_experts_are_chosen() {
    let mut cpus = Cpus::new();
    for kind in KINDS {
        let mut case = Mixture::new(kind, (9, 3), (4, 64, 16), 4202);
        case.router.values.fill(0.0);
        case.router_bias = Some(vec![0.5; 9]);
        case.shares = Shares::OfChosen;
        let answers = cpus.answers(&case);
        let mut fewer = case.clone();
        fewer.experts = 3;
        fewer.router.outputs = 3;
        fewer.router_bias = Some(vec![0.5; 3]);
        fewer.router.values.truncate(3 * 64);
        for (matrix, outputs) in [(&mut fewer.gate_up, 2 * 16 * 3), (&mut fewer.down, 64 * 3)] {
            matrix.outputs = outputs;
            matrix.values.truncate(outputs * matrix.inputs);
        }
        for (few, all) in cpus.answers(&fewer).iter().zip(&answers) {
            same(&few.values, &all.values)
                .unwrap_or_else(|why| panic!("{}: {}: {why}", case.name(), all.backend));
        }
    }
}

#[test]
fn faults_stay_in_the_row_that_has_them() {
    let mut cpus = Cpus::new();
    for kind in KINDS {
        for fault in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut clean = Mixture::new(kind, (6, 2), (7, 100, 32), 4203);
            clean.gating = Gating::Plain(Activation::Silu);
            let before = cpus.answers(&clean);
            let mut case = clean.clone();
            case.x[3 * 100 + 99] = fault;
            for (after, before) in cpus.answers(&case).iter().zip(&before) {
                for row in 0..7 {
                    let range = row * 100..(row + 1) * 100;
                    let what = format!("{}: {}: {fault} in row 3, row {row}", case.name(), after.backend);
                    if row == 3 {
                        assert!(after.values[range].iter().all(|x| !x.is_finite()), "{what}");
                    } else {
                        same(&after.values[range.clone()], &before.values[range])
                            .unwrap_or_else(|why| panic!("{what}: {why}"));
                    }
                }
            }
        }
    }
}
