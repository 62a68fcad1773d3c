//! `short_conv` and `delta` over whole sequences, cut into steps in some way.

use whin_kernels::cpu::Cpu;
use whin_kernels::cpu::isa::scalar::Scalar;
use whin_kernels::reference::Reference;
use whin_kernels::{
    Activation, Backend, CacheShape, Convolution, Delta, KvKind, LayerCache, Norm, ShortConv, StateShape,
    Step, WeightKind,
};

use crate::backends::Cpus;
use crate::bounds::{self, Bounded};
use crate::cases::{Case, Cut, EPS, Matrix, rows, uniform};
use crate::compare::same;
use crate::recurrent_bounds::{self as recurrence, Position};
use crate::{KINDS, kept};

/// One layer and the sequences that run through it.
#[derive(Clone, Debug)]
struct Recurrent {
    mixer: Mixer,
    matrix: Matrix,
    norm: Vec<f32>,
    taps: Vec<f32>, // (count, channels)
    sequences: Vec<Vec<f32>>,
    cut: Cut,
}

#[derive(Clone, Debug)]
enum Mixer {
    /// The biases of the projection and of the convolution, if there are any.
    ShortConv(Option<(Vec<f32>, Vec<f32>)>),
    Delta(Heads),
}

#[derive(Clone, Debug)]
struct Heads {
    heads: (usize, usize), // of keys, of values
    dims: (usize, usize),  // likewise
    activation: Activation,
    rates: Vec<f32>,
    time_bias: Vec<f32>,
    norm: Vec<f32>,
}

/// Of the norm of what the delta rule finds: large enough that zeros stay certain.
const OUT_EPS: f32 = 0.1;

impl Heads {
    fn keys(&self) -> usize {
        self.heads.0 * self.dims.0
    }

    fn values(&self) -> usize {
        self.heads.1 * self.dims.1
    }
}

impl Recurrent {
    fn short_conv(kind: WeightKind, (width, count): (usize, usize), bias: bool, seed: u64) -> Self {
        let bias = bias.then(|| (uniform(seed + 7, 3 * width), uniform(seed + 8, width)));
        Self::new(Mixer::ShortConv(bias), (kind, width, count), (3 * width, width), seed)
    }

    fn delta(
        kind: WeightKind,
        (width, count): (usize, usize),
        (heads, dims): ((usize, usize), (usize, usize)),
        activation: Activation,
        seed: u64,
    ) -> Self {
        let mixer = Heads {
            heads,
            dims,
            activation,
            // From those that hardly fade to those that nearly forget at once.
            rates: uniform(seed + 7, heads.1).iter().map(|x| (3.0 * x - 1.0).exp()).collect(),
            time_bias: uniform(seed + 8, heads.1),
            norm: uniform(seed + 9, dims.1).iter().map(|w| 1.0 + 0.5 * w).collect(),
        };
        let (keys, values) = (mixer.keys(), mixer.values());
        let outputs = 2 * keys + 2 * values + 2 * heads.1;
        Self::new(Mixer::Delta(mixer), (kind, width, count), (outputs, 2 * keys + values), seed)
    }

    fn new(
        mixer: Mixer,
        (kind, width, count): (WeightKind, usize, usize),
        (outputs, channels): (usize, usize),
        seed: u64,
    ) -> Self {
        Self {
            mixer,
            matrix: Matrix::new(kind, outputs, width, seed),
            norm: uniform(seed + 1, width).iter().map(|w| 1.0 + 0.5 * w).collect(),
            taps: uniform(seed + 2, count * channels),
            sequences: vec![],
            cut: Cut::Whole,
        }
    }

    fn over(mut self, lengths: &[usize], seed: u64) -> Self {
        let width = self.matrix.inputs;
        self.sequences = (seed..).zip(lengths).map(|(seed, len)| rows(seed, *len, width)).collect();
        self
    }

    fn channels(&self) -> usize {
        match &self.mixer {
            Mixer::ShortConv(_) => self.matrix.inputs,
            Mixer::Delta(heads) => 2 * heads.keys() + heads.values(),
        }
    }

    fn count(&self) -> usize {
        self.taps.len() / self.channels()
    }

    /// Numbers of the result for one position.
    fn out(&self) -> usize {
        match &self.mixer {
            Mixer::ShortConv(_) => self.matrix.inputs,
            Mixer::Delta(heads) => heads.values(),
        }
    }

    fn lengths(&self) -> Vec<usize> {
        self.sequences.iter().map(|sequence| sequence.len() / self.matrix.inputs).collect()
    }

    /// Which results belong to a position.
    fn result(&self, slot: usize, position: usize) -> std::ops::Range<usize> {
        let before: usize = self.lengths()[..slot].iter().sum();
        (before + position) * self.out()..(before + position + 1) * self.out()
    }

    fn shape(&self) -> StateShape {
        let inputs = (self.count() - 1, self.channels());
        let matrices = match &self.mixer {
            Mixer::ShortConv(_) => (0, 0, 0),
            Mixer::Delta(heads) => (heads.heads.1, heads.dims.0, heads.dims.1),
        };
        StateShape { inputs, matrices }
    }

    /// A cache in which this layer is the second of three.
    fn cache<B: Backend>(&self, backend: &mut B, states: usize) -> B::State {
        let other = StateShape { inputs: (1, 5), matrices: (1, 3, 7) };
        let layers = vec![
            LayerCache::State(other),
            LayerCache::State(self.shape()),
            LayerCache::Positions { kv_heads: 1, head_dim: 4 },
        ];
        let mut cache = backend.state(&CacheShape { kind: KvKind::F32, layers }).expect("memory");
        backend.grow_states(&mut cache, states).expect("memory");
        cache
    }

    /// Runs rows of (slot, position), of which `states` says where each slot's state is: (rows, out).
    fn step<B: Backend>(
        &self,
        (backend, cache): (&mut B, &mut B::State),
        weights: &Uploaded<B>,
        states: &[u32],
        rows: &[(usize, usize)],
        values: &[f32],
    ) -> Vec<f32> {
        let step = Step {
            tokens: vec![0; rows.len()],
            positions: rows.iter().map(|row| row.1 as u32).collect(),
            slots: rows.iter().map(|row| row.0 as u32).collect(),
            states: states.to_vec(),
            ..Step::default()
        };
        let mut x = backend.rows(rows.len(), self.matrix.inputs).expect("memory");
        let mut y = backend.rows(rows.len(), self.out()).expect("memory");
        backend.fill(&mut x, values).expect("memory");
        backend.fill(&mut y, &vec![f32::NAN; rows.len() * self.out()]).expect("memory");
        let norm = Some(Norm { weight: &weights.norm, eps: EPS, centred: false });
        let weight = &weights.matrix;
        let convolution =
            Convolution { count: self.count(), taps: &weights.taps, bias: weights.tap_bias.as_ref() };
        match &self.mixer {
            Mixer::ShortConv(_) => {
                let bias = weights.bias.as_ref();
                let args = ShortConv { layer: 1, norm, weight, bias, convolution };
                backend.short_conv(&args, &step, &x, cache, &mut y);
            }
            Mixer::Delta(heads) => {
                let [rates, time_bias, out_norm] = &weights.heads[..] else { panic!("three vectors") };
                let args = Delta {
                    layer: 1,
                    key_heads: heads.heads.0,
                    value_heads: heads.heads.1,
                    key_dim: heads.dims.0,
                    value_dim: heads.dims.1,
                    norm,
                    weight,
                    convolution,
                    activation: heads.activation,
                    rates,
                    time_bias,
                    out_norm: Norm { weight: out_norm, eps: OUT_EPS, centred: false },
                };
                backend.delta(&args, &step, &x, cache, &mut y);
            }
        }
        backend.read(&y, rows.len()).expect("the device works")
    }

    fn upload<B: Backend>(&self, backend: &mut B) -> Uploaded<B> {
        let matrix = self.matrix.upload(backend);
        let mut vector = |numbers: &Vec<f32>| backend.vector(numbers).expect("memory");
        let (norm, taps) = (vector(&self.norm), vector(&self.taps));
        let (mut bias, mut tap_bias, mut of_heads) = (None, None, vec![]);
        match &self.mixer {
            Mixer::ShortConv(biases) => {
                bias = biases.as_ref().map(|(bias, _)| vector(bias));
                tap_bias = biases.as_ref().map(|(_, bias)| vector(bias));
            }
            Mixer::Delta(heads) => {
                of_heads = [&heads.rates, &heads.time_bias, &heads.norm].map(vector).into();
            }
        }
        Uploaded { matrix, norm, taps, bias, tap_bias, heads: of_heads }
    }

    /// Runs all steps, with the states of the slots in these places, and puts each number where [`Self::result`] says.
    fn run_in<B: Backend>(&self, (backend, cache): (&mut B, &mut B::State), states: &[u32]) -> Vec<f32> {
        let (weights, width, out) = (self.upload(backend), self.matrix.inputs, self.out());
        let mut results = vec![0.0; self.lengths().iter().sum::<usize>() * out];
        for rows in self.cut.steps(&self.lengths()) {
            let row = |&(slot, p): &(usize, usize)| &self.sequences[slot][p * width..(p + 1) * width];
            let values: Vec<f32> = rows.iter().flat_map(row).copied().collect();
            let found = self.step((&mut *backend, &mut *cache), &weights, states, &rows, &values);
            for (&(slot, position), found) in rows.iter().zip(found.chunks_exact(out)) {
                results[self.result(slot, position)].copy_from_slice(found);
            }
        }
        results
    }

    /// Every second state, the last slot first.
    fn states(&self) -> Vec<u32> {
        (0..self.sequences.len() as u32).rev().map(|state| 2 * state + 1).collect()
    }
}

/// The weights of a layer, on a backend.
struct Uploaded<B: Backend> {
    matrix: B::Weight,
    norm: B::Vector,
    taps: B::Vector,
    bias: Option<B::Vector>,
    tap_bias: Option<B::Vector>,
    heads: Vec<B::Vector>,
}

impl Case for Recurrent {
    fn name(&self) -> String {
        let what = match &self.mixer {
            Mixer::ShortConv(bias) => format!("short_conv, bias {}", bias.is_some()),
            Mixer::Delta(heads) => {
                format!("delta of {:?} heads of {:?}, {:?}", heads.heads, heads.dims, heads.activation)
            }
        };
        let (kind, inputs) = (self.matrix.kind.name(), self.matrix.inputs);
        let (count, cut, lengths) = (self.count(), self.cut, self.lengths());
        format!("{what}: {kind} ({inputs} inputs), {count} taps, {cut:?}, lengths {lengths:?}")
    }

    fn run<B: Backend>(&self, backend: &mut B, poison: bool) -> Vec<f32> {
        let states = self.states();
        let mut cache = self.cache(backend, 2 * states.len());
        if poison {
            let weights = self.upload(backend);
            let rows: Vec<_> = (0..states.len()).flat_map(|slot| (0..9).map(move |p| (slot, p))).collect();
            let nan = vec![f32::NAN; rows.len() * self.matrix.inputs];
            self.step((&mut *backend, &mut cache), &weights, &states, &rows, &nan);
        }
        self.run_in((backend, &mut cache), &states)
    }

    fn bounds(&self) -> Bounded {
        let mut all = Bounded::default();
        for sequence in &self.sequences {
            match &self.mixer {
                Mixer::ShortConv(bias) => all.extend(&self.bounded_conv(sequence, bias.as_ref())),
                Mixer::Delta(heads) => all.extend(&self.bounded_delta(sequence, heads)),
            }
        }
        all
    }

    fn exact(&self) -> bool {
        false
    }
}

impl Recurrent {
    fn projected(&self, sequence: &[f32]) -> Vec<Bounded> {
        let rows = sequence.chunks_exact(self.matrix.inputs);
        let projected =
            |row| bounds::product(&self.matrix, &bounds::norm(&Bounded::exact(row), &self.norm, EPS));
        rows.map(projected).collect()
    }

    /// What the convolution makes of the inputs up to a position.
    fn convolved(&self, inputs: &[Bounded], position: usize, bias: Option<&[f32]>) -> Bounded {
        let inputs: Vec<&Bounded> =
            inputs[(position + 1).saturating_sub(self.count())..=position].iter().collect();
        recurrence::convolve(&inputs, &self.taps, bias)
    }

    fn bounded_conv(&self, sequence: &[f32], bias: Option<&(Vec<f32>, Vec<f32>)>) -> Bounded {
        let width = self.matrix.inputs;
        let projected = self.projected(sequence).into_iter();
        let projected: Vec<Bounded> =
            projected.map(|row| bias.map_or(row.clone(), |(bias, _)| row.plus(bias))).collect();
        let inputs = projected
            .iter()
            .map(|row| recurrence::times(&row.part(0..width), &row.part(2 * width..3 * width)));
        let inputs: Vec<Bounded> = inputs.collect();
        let mut all = Bounded::default();
        for (position, row) in projected.iter().enumerate() {
            let found = self.convolved(&inputs, position, bias.map(|(_, bias)| bias.as_slice()));
            all.extend(&recurrence::times(&found, &row.part(width..2 * width)));
        }
        all
    }

    fn bounded_delta(&self, sequence: &[f32], heads: &Heads) -> Bounded {
        let (channels, values, count) = (self.channels(), heads.values(), heads.heads.1);
        let (key_dim, value_dim) = heads.dims;
        let projected = self.projected(sequence);
        let inputs: Vec<Bounded> = projected.iter().map(|row| row.part(0..channels)).collect();
        let mut matrices: Vec<_> = (0..count).map(|_| recurrence::Matrix::new(key_dim, value_dim)).collect();
        let mut all = Bounded::default();
        for (position, row) in projected.iter().enumerate() {
            let mixed = recurrence::activated(heads.activation, &self.convolved(&inputs, position, None));
            for (head, matrix) in matrices.iter_mut().enumerate() {
                let key_head = head / (count / heads.heads.0);
                let of_key =
                    |first: usize| mixed.part(first + key_head * key_dim..first + (key_head + 1) * key_dim);
                let of_value = |first: usize| first + head * value_dim..first + (head + 1) * value_dim;
                let number = |at: usize| (row.values[at], row.errors[at]);
                let (b, a) = (channels + values + head, channels + values + count + head);
                let found = matrix.advance(&Position {
                    query: &recurrence::unit(&of_key(0), 1.0 / (key_dim as f64).sqrt()),
                    key: &recurrence::unit(&of_key(heads.keys()), 1.0),
                    value: &mixed.part(of_value(2 * heads.keys())),
                    share: recurrence::share(number(b)),
                    decay: recurrence::decay(heads.rates[head], number(a), heads.time_bias[head]),
                });
                let normed = bounds::norm(&found, &heads.norm, OUT_EPS);
                all.extend(&bounds::gate(Activation::Silu, &row.part(of_value(channels)), &normed));
            }
        }
        all
    }
}

/// The case against the reference; cut into steps in other ways; and one of its sequences alone, in another state.
fn check_cuts(cpus: &mut Cpus, case: &Recurrent, rows: usize) {
    let whole = cpus.check(case);
    for cut in [Cut::Chunks(rows), Cut::Mixed, Cut::Decode(7), Cut::Chunks(1)] {
        let cut = Recurrent { cut, ..case.clone() };
        let right = case.run(&mut Reference, false);
        same(&cut.run(&mut Reference, true), &right)
            .unwrap_or_else(|why| panic!("{}: reference and at once: {why}", cut.name()));
        for (answer, whole) in cpus.answers(&cut).iter().zip(&whole) {
            same(&answer.values, &whole.values)
                .unwrap_or_else(|why| panic!("{}: {} and at once: {why}", cut.name(), whole.backend));
        }
    }
    let slot = rows % case.sequences.len();
    let alone = Recurrent { sequences: vec![case.sequences[slot].clone()], ..case.clone() };
    let range = case.result(slot, 0).start..case.result(slot, case.lengths()[slot] - 1).end;
    for (answer, whole) in cpus.answers(&alone).iter().zip(&whole) {
        same(&answer.values, &whole.values[range.clone()])
            .unwrap_or_else(|why| panic!("{}: {} alone: {why}", alone.name(), whole.backend));
    }
}

#[test]
fn short_conv() {
    let mut cpus = Cpus::new();
    let mut seed = 0;
    for kind in KINDS {
        for (width, count) in [(1, 3), (5, 1), (36, 4), (64, 2), (100, 3)] {
            seed += 1;
            if kept(seed + 6) {
                let case = Recurrent::short_conv(kind, (width, count), seed % 2 == 0, seed as u64);
                check_cuts(&mut cpus, &case.over(&[23, 1, 2, 40], seed as u64), 3 + seed % 5);
            }
        }
    }
}

#[test]
fn delta() {
    const SHAPES: [((usize, usize), (usize, usize)); 5] =
        [((1, 1), (1, 1)), ((2, 2), (8, 12)), ((1, 3), (16, 40)), ((2, 4), (40, 70)), ((1, 2), (64, 128))];
    const ACTIVATIONS: [Activation; 3] = [Activation::Silu, Activation::Gelu, Activation::Relu];
    let mut cpus = Cpus::new();
    let mut seed = 0;
    for kind in KINDS {
        for (heads, dims) in SHAPES {
            seed += 1;
            if kept(seed + 6) {
                let activation = ACTIVATIONS[seed / 2 % 3];
                let (width, count) = ([36, 64, 20][seed % 3], 1 + seed % 4);
                let case = Recurrent::delta(kind, (width, count), (heads, dims), activation, seed as u64);
                let lengths: &[usize] = if dims.0 * dims.1 < 1000 { &[70, 1, 3, 90] } else { &[30, 5] };
                check_cuts(&mut cpus, &case.over(lengths, seed as u64), 2 + seed % 7);
            }
        }
    }
}

fn both(seed: u64) -> [Recurrent; 2] {
    [
        Recurrent::short_conv(WeightKind::Int8, (36, 4), true, seed).over(&[20, 12, 16], seed),
        Recurrent::delta(WeightKind::Int8, (36, 4), ((2, 4), (8, 12)), Activation::Silu, seed)
            .over(&[20, 12, 16], seed),
    ]
}

/// A text that starts anew, as one that had to give its memory back does, has the same bits in the state that it had and
/// in another's; so has one that comes after a text with faults.
fn a_state_starts_at_zero<B: Backend>(backend: &mut B) {
    for case in both(3) {
        let right = case.run(backend, false);
        let mut cache = case.cache(backend, 4);
        let mut broken = case.clone();
        broken.sequences.iter_mut().for_each(|sequence| sequence.fill(f32::NAN));
        for (case, states) in
            [(&case, [0, 1, 2]), (&broken, [2, 3, 0]), (&case, [2, 0, 3]), (&case, [2, 0, 3])]
        {
            let found = case.run_in((backend, &mut cache), &states);
            if case.sequences[0][0].is_nan() {
                assert!(found.iter().all(|x| x.is_nan()), "{}", case.name());
                // And what is left there is not a number: the next position alone would find it.
                let weights = case.upload(backend);
                let zeros = vec![0.0; case.matrix.inputs];
                let found = case.step((&mut *backend, &mut cache), &weights, &[0], &[(0, 20)], &zeros);
                assert!(found.iter().any(|x| x.is_nan()), "{}", case.name());
            } else {
                same(&found, &right).unwrap_or_else(|why| panic!("{} in {states:?}: {why}", case.name()));
            }
        }
        backend.shrink_states(&mut cache, 0);
        backend.grow_states(&mut cache, 3).expect("memory");
        same(&case.run_in((backend, &mut cache), &[1, 2, 0]), &right)
            .unwrap_or_else(|why| panic!("{}: {why}", case.name()));
    }
}

#[test]
fn states_start_at_zero() {
    a_state_starts_at_zero(&mut Reference);
    a_state_starts_at_zero(&mut Cpu::<Scalar>::new(3).unwrap());
}

#[test]
fn faults_stay_in_their_sequence() {
    let mut cpus = Cpus::new();
    for clean in both(5) {
        let before = cpus.answers(&clean);
        for fault in [f32::NAN, f32::INFINITY] {
            let mut case = clean.clone();
            case.sequences[1][5 * 36 + 7] = fault;
            for (after, before) in cpus.answers(&case).iter().zip(&before) {
                for (slot, length) in case.lengths().into_iter().enumerate() {
                    for position in 0..length {
                        let range = case.result(slot, position);
                        let what = format!("{}: {}: slot {slot}, {position}", case.name(), after.backend);
                        if slot == 1 && position == 5 {
                            assert!(after.values[range].iter().all(|x| x.is_nan()), "{what}");
                        } else if slot != 1 || position < 5 {
                            same(&after.values[range.clone()], &before.values[range])
                                .unwrap_or_else(|why| panic!("{what}: {why}"));
                        }
                    }
                }
            }
        }
    }
}

/// Threads write to parts of states and rows: what does not fit must stop the stage.
#[test]
fn what_does_not_fit_is_refused() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    fn goes_through(case: &Recurrent, states: &[u32], of_cache: &Recurrent) -> bool {
        let mut cpu = Cpu::<Scalar>::new(2).unwrap();
        let mut cache = of_cache.cache(&mut cpu, 4);
        catch_unwind(AssertUnwindSafe(|| case.run_in((&mut cpu, &mut cache), states))).is_ok()
    }
    for case in both(7) {
        assert!(goes_through(&case, &[2, 0, 3], &case));
        assert!(!goes_through(&case, &[2, 0, 2], &case), "{}: two sequences in one state", case.name());
        assert!(!goes_through(&case, &[2, 0, 4], &case), "{}: a state that there is not", case.name());
        let mut wider = case.clone();
        wider.taps.extend(vec![0.0; case.channels()]);
        assert!(!goes_through(&case, &[2, 0, 3], &wider), "{}: a state of another shape", case.name());
        let mut short = case.clone();
        short.taps.pop();
        assert!(!goes_through(&short, &[2, 0, 3], &case), "{}: a tap too few", case.name());
        let mut narrow = case.clone();
        narrow.matrix.outputs -= 1;
        narrow.matrix.values.truncate(narrow.matrix.outputs * case.matrix.inputs);
        assert!(!goes_through(&narrow, &[2, 0, 3], &case), "{}: an output too few", case.name());
    }
}
