//! What is computed: a stage with a shape, options and numbers, for any backend.

use whin_kernels::{
    Attend, BLOCK, Backend, CacheShape, Dtype, HeadNorm, KvKind, LayerCache, Norm, Qkv, Rotation, Span, Step,
    Tensor, WeightKind,
};

use crate::bounds::{self, Bounded};
use crate::options::{AttentionOptions, near_one, norm};

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

pub const EPS: f32 = 1e-6;

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
    pub options: AttentionOptions,
    /// (heads,)
    pub sinks: Option<Vec<f32>>,
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
    pub options: AttentionOptions,
    pub seed: u64,
}

impl Attention {
    pub fn new(shape: Shape, lengths: &[usize], cut: Cut) -> Self {
        let Shape { kind, kv, width, heads: (heads, kv_heads), head_dim, pairs, window, bias, norms, .. } =
            shape;
        let Shape { options, seed, .. } = shape;
        let gates = if options.gated { heads } else { 0 };
        let outputs = (heads + 2 * kv_heads + gates) * head_dim;
        // Of heads together, each has weights of its own.
        let [q_dim, k_dim] =
            [heads, kv_heads].map(|count| if options.together { count * head_dim } else { head_dim });
        let sink = |level: f32| uniform(seed + 9, heads).iter().map(|x| level + x).collect();
        // Without a norm, rows so large that their products leave the range of f32 have no right result.
        let tall = rows;
        let rows = |seed, len| {
            if options.bare { uniform(seed, len * width) } else { tall(seed, len, width) }
        };
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
            q_norm: norms.then(|| near_one(seed + 3, q_dim)),
            k_norm: norms.then(|| near_one(seed + 4, k_dim)),
            options,
            sinks: options.sinks.map(sink),
            sequences: (5..).zip(lengths).map(|(i, len)| rows(seed + i, *len)).collect(),
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

    /// Numbers that `qkv` leaves for one position: queries, and gates.
    fn q_width(&self) -> usize {
        (1 + usize::from(self.options.gated)) * self.heads * self.head_dim
    }

    /// Numbers of the result for one position: those, its values for each query head, and the attention.
    pub fn result_width(&self) -> usize {
        self.q_width() + 2 * self.heads * self.head_dim
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

    fn attend<'a, B: Backend>(&self, sinks: Option<&'a B::Vector>) -> Attend<'a, B> {
        let Self { heads, kv_heads, head_dim, scale, window, .. } = *self;
        let AttentionOptions { softcap, gated, .. } = self.options;
        Attend { layer: 1, heads, kv_heads, head_dim, scale, window, softcap, sinks, gated }
    }
}

impl Case for Attention {
    fn name(&self) -> String {
        format!(
            "attention {:?} in {}: {} ({} inputs), {}/{} heads of {}, {} pairs, window {:?}, bias {}, norms {}, {}, lengths {:?}",
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
            self.options.names().join(", "),
            (0..self.sequences.len()).map(|slot| self.length(slot)).collect::<Vec<_>>(),
        )
    }

    fn run<B: Backend>(&self, backend: &mut B, poison: bool) -> Vec<f32> {
        let weight = self.matrix.upload(backend);
        let mut vector = |v: &Vec<f32>| backend.vector(v).expect("memory");
        let (norm, bias) = (vector(&self.norm), self.bias.as_ref().map(&mut vector));
        let (q_norm, k_norm) = (self.q_norm.as_ref().map(&mut vector), self.k_norm.as_ref().map(&mut vector));
        let sinks = self.sinks.as_ref().map(&mut vector);
        let AttentionOptions { bare, centred, together, unrotated, gated, .. } = self.options;
        let span = if together { Span::Projection } else { Span::Head };
        let head_norm = |weight| HeadNorm { norm: Norm { weight, eps: EPS, centred }, span };
        let args = Qkv {
            layer: 1,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            norm: (!bare).then_some(Norm { weight: &norm, eps: self.eps, centred }),
            weight: &weight,
            bias: bias.as_ref(),
            q_norm: q_norm.as_ref().map(head_norm),
            k_norm: k_norm.as_ref().map(head_norm),
            rotation: (!unrotated).then_some(1),
            gated,
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
            let mut q = backend.rows(rows.len(), self.q_width()).expect("memory");
            let [mut none, mut v, mut y] = [(); 3].map(|()| backend.rows(rows.len(), out).expect("memory"));
            backend.fill(&mut x, values).expect("memory");
            backend.fill(&mut none, &vec![0.0; rows.len() * out]).expect("memory");
            backend.qkv(&args, &step, &x, &mut state, &mut q);
            if !attended {
                return [(); 3].map(|()| vec![]);
            }
            // A window of one position gives back its value as it is stored, whatever is asked.
            let args = self.attend(sinks.as_ref());
            let one =
                Attend { window: Some(1), softcap: None, sinks: None, gated: false, ..self.attend(None) };
            backend.attend(&one, &step, &none, &state, &mut v);
            backend.attend(&args, &step, &q, &state, &mut y);
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
                let (row, gates) = row.split_at(self.heads + 2 * self.kv_heads);
                let mut attended = Bounded::default();
                for (head, query) in row[..self.heads].iter().enumerate() {
                    let value = value_of(head);
                    let keys: Vec<&Bounded> =
                        rows[first..=position].iter().map(|r| &r[value - self.kv_heads]).collect();
                    let values: Vec<&Bounded> = rows[first..=position].iter().map(|r| &r[value]).collect();
                    let blocks = keys.len() / BLOCK + 2;
                    let extra = (self.options.softcap, self.sinks.as_ref().map(|sinks| sinks[head]));
                    let y = bounds::attend(self.kv, query, (&keys, &values), self.scale, extra, blocks);
                    attended.extend(
                        &gates.get(head).map_or(y.clone(), |gate| bounds::gated_by_sigmoid(&y, gate)),
                    );
                }
                (0..self.heads).for_each(|head| all.extend(&row[head]));
                gates.iter().for_each(|gate| all.extend(gate));
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
                let mut result = &mut results[self.result(slot, position)];
                for (part, len) in parts.iter().zip([self.q_width(), out, out]) {
                    let (own, rest) = result.split_at_mut(len);
                    own.copy_from_slice(&part[index * len..(index + 1) * len]);
                    result = rest;
                }
            }
        }
        results
    }

    /// Query, key and value heads of one position, the latter two as they are stored, and gates.
    fn bounded_heads(&self, slot: usize, position: usize) -> Vec<Bounded> {
        let row = Bounded::exact(&self.sequences[slot][position * self.width()..][..self.width()]);
        let AttentionOptions { bare, centred, together, unrotated, .. } = self.options;
        let row = if bare { row } else { norm(centred, &row, &self.norm, self.eps) };
        let mut out = bounds::product(&self.matrix, &row);
        if let Some(bias) = &self.bias {
            out = out.plus(bias);
        }
        if self.exact_inputs {
            out.errors.fill(0.0);
        }
        let rotation = self.rotation(&[(slot, position)]);
        let (dim, queries) = (self.head_dim, self.heads * self.head_dim);
        let mut at = 0;
        let mut heads = Vec::new();
        for (len, weight) in [(queries, &self.q_norm), (self.kv_heads * dim, &self.k_norm)] {
            for part in (at..at + len).step_by(if together { len } else { dim }) {
                let mut part = out.part(part..part + if together { len } else { dim });
                if let Some(weight) = weight {
                    part = norm(centred, &part, weight, EPS);
                }
                heads.extend((0..part.len()).step_by(dim).map(|head| part.part(head..head + dim)));
            }
            at += len;
        }
        if !unrotated {
            heads.iter_mut().for_each(|head| bounds::rotate(head, &rotation.cos, &rotation.sin));
        }
        heads.extend((at..out.len()).step_by(dim).map(|head| out.part(head..head + dim)));
        for head in &mut heads[self.heads..self.heads + 2 * self.kv_heads] {
            *head = bounds::stored(self.kv, head.clone());
        }
        heads
    }
}
