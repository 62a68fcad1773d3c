//! What is computed: a stage with a shape, options and numbers, for any backend.

use whin_kernels::{
    Activation, Attend, BLOCK, Backend, CacheShape, Dtype, Gated, Head, HeadNorm, KvKind, LayerCache, Norm,
    Project, Qkv, Rotation, Span, Step, Tensor, WeightKind,
};

use crate::bounds::{self, Bounded};

/// Something to compute on every backend.
pub trait Case {
    /// For messages.
    fn name(&self) -> String;
    /// The numbers that come out. Where `poison` is set, memory that the case must not read is full of NaN before.
    fn run<B: Backend>(&self, backend: &mut B, poison: bool) -> Vec<f32>;
    /// The exact numbers, and how far off each may be.
    fn bounds(&self) -> Bounded;
    /// Whether every backend has to find the bits of the reference.
    fn exact(&self) -> bool;
}

/// Numbers within ±1, always the same for one seed. Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", applied to a counter.
pub fn uniform(seed: u64, count: usize) -> Vec<f32> {
    let number = |index: u64| {
        let mut z = (seed << 32 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count as u64).map(number).collect()
}

/// Rows of many kinds: plain, small, with outliers, tiny, so large that squares leave the range of f32, zero, positive.
pub fn rows(seed: u64, rows: usize, width: usize) -> Vec<f32> {
    let mut x = uniform(seed, rows * width);
    for (row, x) in x.chunks_exact_mut(width).enumerate() {
        match (row + seed as usize) % 7 {
            1 => x.iter_mut().for_each(|x| *x *= 1e-3),
            2 => x.iter_mut().step_by(17).for_each(|x| *x *= 100.0),
            3 => x.iter_mut().for_each(|x| *x *= 1e-20),
            4 => x.iter_mut().for_each(|x| *x *= 1e25),
            5 => x.fill(0.0),
            6 => x.iter_mut().for_each(|x| *x = x.abs() + 0.5),
            _ => {}
        }
    }
    x
}

/// A weight matrix before a backend converts it: (outputs, inputs).
#[derive(Clone, Debug)]
pub struct Matrix {
    pub kind: WeightKind,
    pub outputs: usize,
    pub inputs: usize,
    pub values: Vec<f32>,
}

impl Matrix {
    pub fn new(kind: WeightKind, outputs: usize, inputs: usize, seed: u64) -> Self {
        let mut values = uniform(seed, outputs * inputs);
        values.iter_mut().for_each(|w| *w /= (inputs as f32).sqrt());
        Self { kind, outputs, inputs, values }
    }

    /// Written in two pieces, as the loader does with fused projections.
    pub fn upload<B: Backend>(&self, backend: &mut B) -> B::Weight {
        let mut weight = backend.weight(self.kind, self.outputs, self.inputs).expect("memory");
        let half = self.outputs / 2;
        for (first, end) in [(half, self.outputs), (0, half)] {
            let bytes: Vec<u8> = self.values[first * self.inputs..end * self.inputs]
                .iter()
                .flat_map(|w| w.to_le_bytes())
                .collect();
            let tensor = Tensor::new(Dtype::F32, end - first, self.inputs, &bytes).expect("whole rows");
            backend.write(&mut weight, first, &tensor).expect("finite weights");
        }
        weight
    }
}

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
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    Project,
    Gated(Activation),
    /// Of all rows, the last first.
    Logits,
}

pub const EPS: f32 = 1e-6;

impl Product {
    /// `outputs` is made even where the stage wants a gate for each number.
    pub fn new(
        stage: Stage,
        kind: WeightKind,
        (rows, inputs, outputs): (usize, usize, usize),
        seed: u64,
    ) -> Self {
        let outputs = if let Stage::Gated(_) = stage { outputs.next_multiple_of(2) } else { outputs };
        let norm = uniform(seed + 1, inputs).iter().map(|w| 1.0 + 0.5 * w).collect();
        Self {
            stage,
            matrix: Matrix::new(kind, outputs, inputs, seed + 2),
            norm,
            bias: seed.is_multiple_of(2).then(|| uniform(seed + 3, outputs)),
            row_gate: (matches!(stage, Stage::Gated(_)) && seed % 3 == 1).then(|| uniform(seed + 5, inputs)),
            x: self::rows(seed, rows, inputs),
            base: uniform(seed + 4, rows * outputs),
        }
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
        format!("{:?} of {} rows, {} ({outputs}, {inputs}){bias}{gate}", self.stage, self.rows(), kind.name())
    }

    fn run<B: Backend>(&self, backend: &mut B, poison: bool) -> Vec<f32> {
        let count = self.rows();
        let weight = self.matrix.upload(backend);
        let norm = backend.vector(&self.norm).expect("memory");
        let bias = self.bias.as_ref().map(|bias| backend.vector(bias).expect("memory"));
        let row_gate = self.row_gate.as_ref().map(|gate| backend.vector(gate).expect("memory"));
        // One row more than the step has.
        let mut x = backend.rows(count + 1, self.matrix.inputs).expect("memory");
        let mut out = backend.rows(count + 1, self.width()).expect("memory");
        if poison {
            backend.fill(&mut x, &vec![f32::NAN; (count + 1) * self.matrix.inputs]).expect("memory");
            backend.fill(&mut out, &vec![f32::NAN; (count + 1) * self.width()]).expect("memory");
        }
        backend.fill(&mut x, &self.x).expect("memory");
        let wanted = (0..count as u32).rev().collect();
        let step = Step { tokens: vec![0; count], wanted, ..Step::default() };
        let norm = Norm { weight: &norm, eps: EPS, centred: false };
        let weight = &weight;
        match self.stage {
            Stage::Project => {
                backend.fill(&mut out, &self.base).expect("memory");
                let args = Project { weight, bias: bias.as_ref(), norm: None, scale: 1.0 };
                backend.project_add(&args, &step, &x, &mut out);
            }
            Stage::Gated(activation) => {
                let row_gate = row_gate.as_ref();
                let args = Gated { norm: Some(norm), weight, bias: None, activation, row_gate };
                backend.gated(&args, &step, &x, &mut out)
            }
            Stage::Logits => {
                let args = Head { norm, weight, scale: 1.0, softcap: None };
                backend.logits(&args, &step, &x, &mut out)
            }
        }
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
            let norm = || bounds::norm(&x, &self.norm, EPS);
            let normed = || bounds::product(&self.matrix, &norm());
            all.extend(&match self.stage {
                Stage::Project => {
                    let product = bounds::product(&self.matrix, &x);
                    let product = self.bias.as_ref().map_or(product.clone(), |bias| product.plus(bias));
                    product.plus(&self.base[row * outputs..][..outputs])
                }
                Stage::Gated(activation) => {
                    let out = normed();
                    let h =
                        bounds::gate(activation, &out.part(0..outputs / 2), &out.part(outputs / 2..outputs));
                    match &self.row_gate {
                        Some(gate) => h.times_uncertain(bounds::sigmoid_of_product(&norm(), gate)),
                        None => h,
                    }
                }
                Stage::Logits => normed(),
            });
        }
        all
    }

    /// Integer products of the same input have the same bits everywhere.
    fn exact(&self) -> bool {
        self.stage == Stage::Project && matches!(self.matrix.kind, WeightKind::Int8 | WeightKind::Int4)
    }
}

/// `qkv` and `attend` over whole sequences, cut into steps in some way.
#[derive(Clone, Debug)]
pub struct Attention {
    pub kv: KvKind,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub scale: f32,
    pub window: Option<usize>,
    /// Pairs of a head that rotate.
    pub pairs: usize,
    pub matrix: Matrix,
    pub norm: Vec<f32>,
    pub eps: f32,
    pub bias: Option<Vec<f32>>,
    pub q_norm: Option<Vec<f32>>,
    pub k_norm: Option<Vec<f32>>,
    /// For each sequence its rows: (positions, inputs).
    pub sequences: Vec<Vec<f32>>,
    pub cut: Cut,
    /// Queries, keys and values come out of `qkv` exactly, so that the errors of `attend` stand alone.
    pub exact_inputs: bool,
}

/// How positions are put into steps.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// All in one step, sequence after sequence.
    Whole,
    /// So many positions of each sequence a step.
    Chunks(usize),
    /// All in one step, position after position, the sequences taking turns.
    Mixed,
    /// All but the last so many positions in one step, then one position of each sequence a step.
    Decode(usize),
}

impl Cut {
    /// The rows of each step, (slot, position), for sequences of these lengths.
    pub fn steps(self, lengths: &[usize]) -> Vec<Vec<(usize, usize)>> {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let rows = |range: std::ops::Range<usize>| {
            let of_slot = |(slot, length): (usize, &usize)| {
                (range.start..range.end.min(*length)).map(move |position| (slot, position))
            };
            lengths.iter().enumerate().flat_map(of_slot).collect::<Vec<_>>()
        };
        match self {
            Self::Whole => vec![rows(0..longest)],
            Self::Chunks(size) => (0..longest).step_by(size).map(|at| rows(at..at + size)).collect(),
            Self::Mixed => vec![(0..longest).flat_map(|p| rows(p..p + 1)).collect()],
            Self::Decode(last) => {
                let first = longest.saturating_sub(last);
                let decode = (first..longest).map(|p| rows(p..p + 1));
                std::iter::once(rows(0..first)).chain(decode).filter(|rows| !rows.is_empty()).collect()
            }
        }
    }
}

/// The options of [`Attention::new`].
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub kind: WeightKind,
    pub kv: KvKind,
    pub width: usize,
    pub heads: (usize, usize),
    pub head_dim: usize,
    pub pairs: usize,
    pub window: Option<usize>,
    pub bias: bool,
    pub norms: bool,
    pub seed: u64,
}

impl Attention {
    pub fn new(shape: Shape, lengths: &[usize], cut: Cut) -> Self {
        let Shape { kind, kv, width, heads: (heads, kv_heads), head_dim, pairs, window, bias, norms, seed } =
            shape;
        let outputs = (heads + 2 * kv_heads) * head_dim;
        let near_one = |seed, count| uniform(seed, count).iter().map(|w| 1.0 + 0.5 * w).collect::<Vec<_>>();
        Self {
            kv,
            heads,
            kv_heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            window,
            pairs,
            matrix: Matrix::new(kind, outputs, width, seed),
            norm: near_one(seed + 1, width),
            eps: EPS,
            bias: bias.then(|| uniform(seed + 2, outputs)),
            q_norm: norms.then(|| near_one(seed + 3, head_dim)),
            k_norm: norms.then(|| near_one(seed + 4, head_dim)),
            sequences: (5..).zip(lengths).map(|(i, len)| rows(seed + i, *len, width)).collect(),
            cut,
            exact_inputs: false,
        }
    }

    /// Queries, keys and values are columns of the matrix: each row is 16 at one of 256 places, so its mean square is
    /// one, and with a norm of 1/16 it picks that column to the bit. `spread` is the size of the scores.
    pub fn exact(shape: Shape, spread: f32, lengths: &[usize], cut: Cut) -> Self {
        assert!(shape.kind == WeightKind::F32 && shape.pairs == 0 && !shape.bias && !shape.norms);
        let mut case = Self::new(Shape { width: 256, ..shape }, lengths, cut);
        let outputs = case.matrix.outputs;
        case.matrix.values = uniform(shape.seed, outputs * 256);
        case.scale *= spread;
        (case.norm, case.eps) = (vec![1.0 / 16.0; 256], 0.0);
        case.exact_inputs = true;
        for (slot, sequence) in case.sequences.iter_mut().enumerate() {
            sequence.fill(0.0);
            for (position, row) in sequence.chunks_exact_mut(256).enumerate() {
                row[(position * 37 + slot * 101) % 256] = 16.0;
            }
        }
        case
    }

    fn width(&self) -> usize {
        self.matrix.inputs
    }

    pub fn length(&self, slot: usize) -> usize {
        self.sequences[slot].len() / self.width()
    }

    /// Numbers of the result for one position: its queries, its values for each query head, and the attention.
    pub fn result_width(&self) -> usize {
        3 * self.heads * self.head_dim
    }

    /// Which results belong to a position.
    pub fn result(&self, slot: usize, position: usize) -> std::ops::Range<usize> {
        let before: usize = (0..slot).map(|slot| self.length(slot)).sum();
        (before + position) * self.result_width()..(before + position + 1) * self.result_width()
    }

    /// The rows of each step: (slot, position).
    fn steps(&self) -> Vec<Vec<(usize, usize)>> {
        let lengths: Vec<usize> = (0..self.sequences.len()).map(|slot| self.length(slot)).collect();
        self.cut.steps(&lengths)
    }

    /// Block tables that jump about the cache, and the number of blocks.
    fn tables(&self) -> (Vec<Vec<u32>>, usize) {
        let counts: Vec<usize> =
            (0..self.sequences.len()).map(|slot| self.length(slot).div_ceil(BLOCK)).collect();
        let total: usize = counts.iter().sum();
        let mut free: Vec<u32> = (0..total as u32).rev().collect();
        free.rotate_left(total / 3);
        let take = |count: &usize| free.drain(..*count).collect();
        (counts.iter().map(take).collect(), total)
    }

    fn rotation(&self, rows: &[(usize, usize)]) -> Rotation {
        let angle = |position: usize, pair: usize| {
            position as f64 * 10_000_f64.powf(-(pair as f64) / self.pairs as f64)
        };
        let angles = || rows.iter().flat_map(|&(_, p)| (0..self.pairs).map(move |i| angle(p, i)));
        Rotation {
            pairs: self.pairs,
            cos: angles().map(|a| a.cos() as f32).collect(),
            sin: angles().map(|a| a.sin() as f32).collect(),
        }
    }

    fn step(&self, rows: &[(usize, usize)], tables: &[Vec<u32>]) -> Step {
        Step {
            tokens: vec![0; rows.len()],
            positions: rows.iter().map(|r| r.1 as u32).collect(),
            slots: rows.iter().map(|r| r.0 as u32).collect(),
            tables: tables.to_vec(),
            states: vec![],
            rotations: vec![Rotation::default(), self.rotation(rows)],
            wanted: vec![],
        }
    }

    fn attend<B: Backend>(&self, window: Option<usize>) -> Attend<'_, B> {
        let Self { heads, kv_heads, head_dim, scale, .. } = *self;
        let (softcap, sinks) = (None, None);
        Attend { layer: 1, heads, kv_heads, head_dim, scale, window, softcap, sinks, gated: false }
    }
}

impl Case for Attention {
    fn name(&self) -> String {
        format!(
            "attention {:?} in {}: {} ({} inputs), {}/{} heads of {}, {} pairs, window {:?}, bias {}, norms {}, lengths {:?}",
            self.cut,
            self.kv.name(),
            self.matrix.kind.name(),
            self.width(),
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.pairs,
            self.window,
            self.bias.is_some(),
            self.q_norm.is_some(),
            (0..self.sequences.len()).map(|slot| self.length(slot)).collect::<Vec<_>>(),
        )
    }

    fn run<B: Backend>(&self, backend: &mut B, poison: bool) -> Vec<f32> {
        let weight = self.matrix.upload(backend);
        let mut vector = |v: &Vec<f32>| backend.vector(v).expect("memory");
        let (norm, bias) = (vector(&self.norm), self.bias.as_ref().map(&mut vector));
        let (q_norm, k_norm) = (self.q_norm.as_ref().map(&mut vector), self.k_norm.as_ref().map(&mut vector));
        let head_norm =
            |weight| HeadNorm { norm: Norm { weight, eps: EPS, centred: false }, span: Span::Head };
        let args = Qkv {
            layer: 1,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            norm: Some(Norm { weight: &norm, eps: self.eps, centred: false }),
            weight: &weight,
            bias: bias.as_ref(),
            q_norm: q_norm.as_ref().map(head_norm),
            k_norm: k_norm.as_ref().map(head_norm),
            rotation: Some(1),
            gated: false,
        };
        let layer = |(kv_heads, head_dim)| LayerCache::Positions { kv_heads, head_dim };
        let layers = [(self.kv_heads + 1, 6), (self.kv_heads, self.head_dim), (1, 20)].map(layer).to_vec();
        let mut state = backend.state(&CacheShape { kind: self.kv, layers }).expect("memory");
        let (tables, blocks) = self.tables();
        backend.grow(&mut state, blocks).expect("memory");

        let (width, out) = (self.width(), self.heads * self.head_dim);
        let mut compute = |rows: &[(usize, usize)], values: &[f32], attended: bool| {
            let step = self.step(rows, &tables);
            let mut x = backend.rows(rows.len(), width).expect("memory");
            let [mut q, mut v, mut y] = [(); 3].map(|()| backend.rows(rows.len(), out).expect("memory"));
            backend.fill(&mut x, values).expect("memory");
            backend.qkv(&args, &step, &x, &mut state, &mut q);
            if !attended {
                return [(); 3].map(|()| vec![]);
            }
            // A window of one position gives back its value as it is stored.
            backend.attend(&self.attend(Some(1)), &step, &q, &state, &mut v);
            backend.attend(&self.attend(self.window), &step, &q, &state, &mut y);
            [&q, &v, &y].map(|rows_out| backend.read(rows_out, rows.len()).expect("the device works"))
        };
        if poison {
            for (slot, table) in tables.iter().enumerate() {
                for block in 0..table.len() {
                    let rows: Vec<_> = (0..BLOCK).map(|i| (slot, block * BLOCK + i)).collect();
                    compute(&rows, &vec![f32::NAN; BLOCK * width], false);
                }
            }
        }
        self.collect(|rows, values| compute(rows, values, true))
    }

    fn bounds(&self) -> Bounded {
        let mut all = Bounded::default();
        for slot in 0..self.sequences.len() {
            let rows: Vec<Vec<Bounded>> =
                (0..self.length(slot)).map(|p| self.bounded_heads(slot, p)).collect();
            for (position, row) in rows.iter().enumerate() {
                let first = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
                let value_of = |head: usize| self.heads + self.kv_heads + head / (self.heads / self.kv_heads);
                let mut attended = Bounded::default();
                for (head, query) in row[..self.heads].iter().enumerate() {
                    let value = value_of(head);
                    let keys: Vec<&Bounded> =
                        rows[first..=position].iter().map(|r| &r[value - self.kv_heads]).collect();
                    let values: Vec<&Bounded> = rows[first..=position].iter().map(|r| &r[value]).collect();
                    let blocks = keys.len() / BLOCK + 2;
                    attended.extend(&bounds::attend(self.kv, query, (&keys, &values), self.scale, blocks));
                }
                (0..self.heads).for_each(|head| all.extend(&row[head]));
                (0..self.heads).for_each(|head| all.extend(&row[value_of(head)]));
                all.extend(&attended);
            }
        }
        all
    }

    fn exact(&self) -> bool {
        false
    }
}

impl Attention {
    /// Runs all steps through `compute`, which makes queries, values and attention of some rows, and puts each number
    /// where [`Self::result`] says.
    fn collect(&self, mut compute: impl FnMut(&[(usize, usize)], &[f32]) -> [Vec<f32>; 3]) -> Vec<f32> {
        let (width, out) = (self.width(), self.heads * self.head_dim);
        let count: usize = (0..self.sequences.len()).map(|slot| self.length(slot)).sum();
        let mut results = vec![0.0; count * self.result_width()];
        for rows in self.steps() {
            let row = |&(slot, p): &(usize, usize)| &self.sequences[slot][p * width..(p + 1) * width];
            let parts = compute(&rows, &rows.iter().flat_map(row).copied().collect::<Vec<_>>());
            for (index, &(slot, position)) in rows.iter().enumerate() {
                let result = &mut results[self.result(slot, position)];
                for (result, part) in result.chunks_exact_mut(out).zip(&parts) {
                    result.copy_from_slice(&part[index * out..(index + 1) * out]);
                }
            }
        }
        results
    }

    /// Query, key and value heads of one position, the latter two as they are stored.
    fn bounded_heads(&self, slot: usize, position: usize) -> Vec<Bounded> {
        let row = &self.sequences[slot][position * self.width()..][..self.width()];
        let mut out =
            bounds::product(&self.matrix, &bounds::norm(&Bounded::exact(row), &self.norm, self.eps));
        if let Some(bias) = &self.bias {
            out = out.plus(bias);
        }
        if self.exact_inputs {
            out.errors.fill(0.0);
        }
        let rotation = self.rotation(&[(slot, position)]);
        let head = |index: usize| {
            let mut head = out.part(index * self.head_dim..(index + 1) * self.head_dim);
            if index < self.heads + self.kv_heads {
                let norm = if index < self.heads { &self.q_norm } else { &self.k_norm };
                if let Some(norm) = norm {
                    head = bounds::norm(&head, norm, EPS);
                }
                bounds::rotate(&mut head, &rotation.cos, &rotation.sin);
            }
            if index < self.heads { head } else { bounds::stored(self.kv, head) }
        };
        (0..self.heads + 2 * self.kv_heads).map(head).collect()
    }
}
