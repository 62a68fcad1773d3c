//! The stages of recurrent layers: products as elsewhere, then each position after the one before it.
//!
//! Rows of a convolution run side by side, since they read inputs alone, of the step and of the state. The matrices of
//! the delta rule are shared out by sequence, head and columns; each task takes all rows of its sequence in order.

use super::buffer::Parts;
use super::isa::Isa;
use super::product::{Sink, multiply};
use super::rows::{Rows, activate, fused, gate_by_silu, norm_in_place, unit};
use super::states::{COLUMNS, Place, States};
use super::threads::Threads;
use super::{Cpu, each_row, of_rows};
use crate::{Convolution, Delta, Norm, Result, ShortConv, StateShape, Step, delta};

/// The rows of one sequence in a step.
struct Run {
    state: usize,
    rows: Vec<usize>, // in the order of their positions
    /// Whether they begin with position 0.
    is_first: bool,
}

/// The sequences of a step.
fn runs(step: &Step) -> Vec<Run> {
    let mut of_slot = vec![None; step.states.len()];
    let mut runs: Vec<Run> = Vec::new();
    for row in 0..step.rows() {
        match of_slot[step.slots[row] as usize] {
            Some(run) => {
                let run: &mut Run = &mut runs[run];
                run.rows.push(row);
            }
            None => {
                of_slot[step.slots[row] as usize] = Some(runs.len());
                let is_first = step.positions[row] == 0;
                runs.push(Run { state: step.state(row), rows: vec![row], is_first });
            }
        }
    }
    let mut states: Vec<usize> = runs.iter().map(|run| run.state).collect();
    states.sort_unstable();
    // Two tasks would write the same numbers otherwise.
    assert!(states.windows(2).all(|pair| pair[0] != pair[1]), "each sequence has a state of its own");
    runs
}

impl<I: Isa> Cpu<I> {
    /// The product of the normalised rows with `weight`, in `output`.
    fn project(
        &mut self,
        norm: Option<&Norm<'_, Self>>,
        (weight, bias): (&super::Weight, Option<&Vec<f32>>),
        (step, x): (&Step, &Rows),
    ) -> Result<()> {
        self.normalize(weight, norm, x, (step.rows(), &|row| row))?;
        self.output.reshape(step.rows(), weight.outputs)?;
        let sink = Sink::Store(bias.map(Vec::as_slice));
        multiply(self.isa, &mut self.threads, weight, &self.input, sink, &mut self.output);
        Ok(())
    }

    pub(super) fn try_short_conv(
        &mut self,
        args: &ShortConv<'_, Self>,
        step: &Step,
        x: &Rows,
        state: &mut super::State,
        y: &mut Rows,
    ) -> Result<()> {
        let (isa, width) = (self.isa, y.width());
        assert_eq!(args.weight.outputs, 3 * width, "outputs of the projection");
        let runs = runs(step);
        self.project(args.norm.as_ref(), (args.weight, args.bias), (step, x))?;
        let out = Parts::new(self.output.values_mut());
        each_row(&mut self.threads, step.rows(), &|row| {
            // SAFETY: each row belongs to one task.
            let out = unsafe { out.part(row * 3 * width..(row + 1) * 3 * width) };
            let (gates, rest) = out.split_at_mut(width);
            isa.run(|| gates.iter_mut().zip(&rest[width..]).for_each(|(gate, x)| *gate *= x));
        });
        let shape = StateShape { inputs: (args.convolution.count - 1, width), matrices: (0, 0, 0) };
        let place = state.states.place(args.layer, shape);
        let (convolution, inputs) = (&args.convolution, &self.output);
        let convolved = Convolved { isa, convolution, channels: width, inputs, place };
        convolved.run(&mut self.threads, &mut state.states, (step, &runs), y, &|row, y| {
            let gates = &inputs.row(row)[width..2 * width];
            isa.run(|| y.iter_mut().zip(gates).for_each(|(y, gate)| *y *= gate));
        });
        Ok(())
    }

    pub(super) fn try_delta(
        &mut self,
        args: &Delta<'_, Self>,
        step: &Step,
        x: &Rows,
        state: &mut super::State,
        y: &mut Rows,
    ) -> Result<()> {
        let shape = Shape::new(args, y.width());
        let runs = runs(step);
        self.project(args.norm.as_ref(), (args.weight, None), (step, x))?;
        let width = shape.channels + 2 * args.value_heads;
        self.mixed.reshape(step.rows(), width)?;
        let (isa, output) = (self.isa, &self.output);
        let state_shape = StateShape {
            inputs: (args.convolution.count - 1, shape.channels),
            matrices: (args.value_heads, args.key_dim, args.value_dim),
        };
        let place = state.states.place(args.layer, state_shape);
        let (convolution, channels) = (&args.convolution, shape.channels);
        let convolved = Convolved { isa, convolution, channels, inputs: output, place };
        convolved.run(&mut self.threads, &mut state.states, (step, &runs), &mut self.mixed, &|row, mixed| {
            let (numbers, rest) = mixed.split_at_mut(channels);
            activate(isa, args.activation, numbers);
            let scale = 1.0 / (args.key_dim as f32).sqrt();
            let (queries, keys) = numbers[..2 * shape.keys].split_at_mut(shape.keys);
            queries.chunks_exact_mut(args.key_dim).for_each(|q| unit(isa, q, delta::EPS, scale));
            keys.chunks_exact_mut(args.key_dim).for_each(|k| unit(isa, k, delta::EPS, 1.0));
            let (shares, decays) = rest.split_at_mut(args.value_heads);
            let (b, a) = output.row(row)[channels + shape.values..].split_at(args.value_heads);
            for head in 0..args.value_heads {
                shares[head] = delta::share(b[head]);
                decays[head] = delta::decay(args.rates[head], a[head], args.time_bias[head]);
            }
        });
        let heads = Heads { args, shape, mixed: &self.mixed };
        heads.run(isa, &mut self.threads, (&mut state.states, place), &runs, y);
        let (values, norm) = (shape.values, of_rows(&args.out_norm));
        let y = Parts::new(y.values_mut());
        each_row(&mut self.threads, step.rows(), &|row| {
            // SAFETY: each row belongs to one task.
            let y = unsafe { y.part(row * values..(row + 1) * values) };
            let gates = &output.row(row)[shape.channels..shape.channels + values];
            y.chunks_exact_mut(args.value_dim).for_each(|head| norm_in_place(isa, head, norm));
            gate_by_silu(isa, gates, y);
        });
        Ok(())
    }
}

/// A convolution over the first channels of `inputs`.
struct Convolved<'a, I: Isa> {
    isa: I,
    convolution: &'a Convolution<'a, Cpu<I>>,
    channels: usize,
    inputs: &'a Rows, // (rows, channels and more)
    place: Place,
}

impl<I: Isa> Convolved<'_, I> {
    /// Writes the results of each row to the first numbers of its row of `out`, which `finish` may go on with; then
    /// puts the last inputs into the states.
    fn run(
        &self,
        threads: &mut Threads,
        states: &mut States,
        (step, runs): (&Step, &[Run]),
        out: &mut Rows,
        finish: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) {
        for run in runs.iter().filter(|run| run.is_first) {
            states.numbers_mut(run.state)[self.place.inputs()].fill(0.0);
        }
        let mut places = vec![(0, 0); step.rows()]; // of each row: its run, and its place there
        for (number, run) in runs.iter().enumerate() {
            run.rows.iter().enumerate().for_each(|(index, row)| places[*row] = (number, index));
        }
        let (now, width) = (&*states, out.width());
        let out = Parts::new(out.values_mut());
        each_row(threads, step.rows(), &|row| {
            // SAFETY: each row belongs to one task.
            let out = unsafe { out.part(row * width..(row + 1) * width) };
            let run = &runs[places[row].0];
            self.convolve(&now.numbers(run.state)[self.place.inputs()], (run, places[row].1), out);
            finish(row, out);
        });
        for run in runs {
            self.remember(&mut states.numbers_mut(run.state)[self.place.inputs()], &run.rows);
        }
    }

    /// The results of row number `index` of a sequence that had `history` before the step.
    fn convolve(&self, history: &[f32], (run, index): (&Run, usize), out: &mut [f32]) {
        let (isa, channels) = (self.isa, self.channels);
        let Convolution { count, taps, bias } = *self.convolution;
        assert_eq!(taps.len(), count * channels, "taps of the convolution");
        let out = &mut out[..channels];
        out.fill(0.0);
        for (at, taps) in (index..).zip(taps.chunks_exact(channels)) {
            let input = match at.checked_sub(count - 1) {
                Some(own) => &self.inputs.row(run.rows[own])[..channels],
                None => &history[at * channels..(at + 1) * channels],
            };
            isa.run(|| add_products::<I>(input, taps, out));
        }
        if let Some(bias) = bias {
            isa.run(|| out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias));
        }
    }

    /// Puts the last inputs of a sequence, of which `rows` are the new ones, into its `history`.
    fn remember(&self, history: &mut [f32], rows: &[usize]) {
        let (before, channels) = (self.convolution.count - 1, self.channels);
        let stay = before.saturating_sub(rows.len());
        history.copy_within((before - stay) * channels.., 0);
        let new = &rows[rows.len() - (before - stay)..];
        for (to, row) in history[stay * channels..].chunks_exact_mut(channels).zip(new) {
            to.copy_from_slice(&self.inputs.row(*row)[..channels]);
        }
    }
}

#[inline(always)]
fn add_products<I: Isa>(x: &[f32], taps: &[f32], found: &mut [f32]) {
    for ((found, x), tap) in found.iter_mut().zip(x).zip(taps) {
        *found = fused::<I>(*x, *tap, *found);
    }
}

/// The widths of what a projection holds.
#[derive(Clone, Copy)]
struct Shape {
    keys: usize,     // key_heads · key_dim
    values: usize,   // value_heads · value_dim
    channels: usize, // queries, keys and values
}

impl Shape {
    fn new<I: Isa>(args: &Delta<'_, Cpu<I>>, y: usize) -> Self {
        let (keys, values) = (args.key_heads * args.key_dim, args.value_heads * args.value_dim);
        let channels = 2 * keys + values;
        let outputs = channels + values + 2 * args.value_heads;
        assert_eq!(args.weight.outputs, outputs, "outputs of the projection");
        assert_eq!(y, values, "width of the result");
        assert!(args.value_heads.is_multiple_of(args.key_heads), "value heads of a key head");
        for numbers in [args.rates, args.time_bias] {
            assert_eq!(numbers.len(), args.value_heads, "numbers of the heads");
        }
        Self { keys, values, channels }
    }
}

/// The delta rule over what the convolution gave.
struct Heads<'a, I: Isa> {
    args: &'a Delta<'a, Cpu<I>>,
    shape: Shape,
    mixed: &'a Rows, // (rows, queries | keys | values | shares | decays)
}

impl<I: Isa> Heads<'_, I> {
    /// Writes what each position reads, (rows, values), to `y`.
    fn run(
        &self,
        isa: I,
        threads: &mut Threads,
        (states, place): (&mut States, Place),
        runs: &[Run],
        y: &mut Rows,
    ) {
        let (heads, blocks, values) = (self.args.value_heads, place.blocks(), self.shape.values);
        let (states, y) = (states.parts(), Parts::new(y.values_mut()));
        threads.run(runs.len() * heads * blocks, &|task| {
            let (run, head, block) = (&runs[task / (heads * blocks)], task / blocks % heads, task % blocks);
            // SAFETY: each part of a matrix belongs to one task, since each sequence has a state of its own.
            let matrix = unsafe { states[run.state].part(place.matrix(head, block)) };
            let matrix = matrix.as_chunks_mut::<COLUMNS>().0;
            if run.is_first {
                matrix.fill([0.0; COLUMNS]);
            }
            let first = head * self.args.value_dim + block * COLUMNS;
            let columns = first..(first + COLUMNS).min((head + 1) * self.args.value_dim);
            for &row in &run.rows {
                // SAFETY: each column of a row belongs to one task.
                let found = unsafe { y.part(row * values + columns.start..row * values + columns.end) };
                let position = self.position(row, head, columns.clone());
                isa.run(|| position.advance::<I>(matrix, found));
            }
        });
    }

    /// Some columns of one head of one row.
    fn position(&self, row: usize, head: usize, columns: std::ops::Range<usize>) -> Position<'_> {
        let (Shape { keys, channels, .. }, args) = (self.shape, self.args);
        let row = self.mixed.row(row);
        let key_head = head / (args.value_heads / args.key_heads);
        let of_key = key_head * args.key_dim..(key_head + 1) * args.key_dim;
        Position {
            query: &row[of_key.clone()],
            key: &row[keys + of_key.start..keys + of_key.end],
            value: &row[2 * keys + columns.start..2 * keys + columns.end],
            share: row[channels + head],
            decay: row[channels + args.value_heads + head],
        }
    }
}

/// What one position brings to some columns of a matrix.
struct Position<'a> {
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32], // of at most COLUMNS columns
    share: f32,
    decay: f32,
}

impl Position<'_> {
    /// Changes `matrix` (key_dim, COLUMNS) as [`delta`] says, and reads it: `found` as long as `value`.
    #[inline(always)]
    fn advance<I: Isa>(&self, matrix: &mut [[f32; COLUMNS]], found: &mut [f32]) {
        let mut seen = [0.0; COLUMNS];
        for (key, numbers) in self.key.iter().zip(&*matrix) {
            for (seen, number) in seen.iter_mut().zip(numbers) {
                *seen = fused::<I>(*key, *number, *seen);
            }
        }
        // Zero in the columns that there are none of, so that they stay zero.
        let mut change = [0.0; COLUMNS];
        for ((change, seen), value) in change.iter_mut().zip(&seen).zip(self.value) {
            *change = (value - self.decay * seen) * self.share;
        }
        let mut sums = [0.0; COLUMNS];
        for ((key, query), numbers) in self.key.iter().zip(self.query).zip(matrix) {
            for ((number, change), sum) in numbers.iter_mut().zip(&change).zip(&mut sums) {
                *number = fused::<I>(*key, *change, self.decay * *number);
                *sum = fused::<I>(*query, *number, *sum);
            }
        }
        found.copy_from_slice(&sums[..found.len()]);
    }
}
