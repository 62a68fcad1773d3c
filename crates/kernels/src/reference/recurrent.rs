//! The stages of recurrent layers, position by position.

use super::{Layer, Reference, Rows, State, add_bias, dot, normalize};
use crate::{Activation, Convolution, Delta, ShortConv, StateShape, Step, delta};

impl State {
    /// The inputs and the matrices of the sequence that `row` belongs to; zero where it is the first.
    fn of_row(
        &mut self,
        layer: usize,
        shape: StateShape,
        step: &Step,
        row: usize,
    ) -> (&mut [f32], &mut [f32]) {
        let Layer::States(states) = &mut self.layers[layer] else { panic!("layer {layer} keeps no state") };
        assert_eq!(states.shape, shape, "shape of the state");
        let len = shape.numbers();
        let numbers = &mut states.numbers[step.state(row) * len..(step.state(row) + 1) * len];
        if step.positions[row] == 0 {
            numbers.fill(0.0);
        }
        numbers.split_at_mut(shape.inputs.0 * shape.inputs.1)
    }
}

pub(super) fn short_conv(
    args: &ShortConv<'_, Reference>,
    step: &Step,
    x: &Rows,
    state: &mut State,
    y: &mut Rows,
) {
    let width = y.width;
    let shape = StateShape { inputs: (args.convolution.count - 1, width), matrices: (0, 0, 0) };
    for row in 0..step.rows() {
        let mut out = args.weight.multiply(&normalize(x.row(row), args.norm.as_ref()));
        add_bias(&mut out, args.bias);
        let (before, rest) = out.split_at(width);
        let (after, inner) = rest.split_at(width);
        let input: Vec<f32> = before.iter().zip(inner).map(|(gate, x)| gate * x).collect();
        let (history, _) = state.of_row(args.layer, shape, step, row);
        let found = convolve(&args.convolution, history, &input);
        for ((y, gate), found) in y.row_mut(row).iter_mut().zip(after).zip(found) {
            *y = gate * found;
        }
    }
}

pub(super) fn delta(args: &Delta<'_, Reference>, step: &Step, x: &Rows, state: &mut State, y: &mut Rows) {
    let (keys, values) = (args.key_heads * args.key_dim, args.value_heads * args.value_dim);
    let channels = 2 * keys + values;
    let shape = StateShape {
        inputs: (args.convolution.count - 1, channels),
        matrices: (args.value_heads, args.key_dim, args.value_dim),
    };
    for row in 0..step.rows() {
        let out = args.weight.multiply(&normalize(x.row(row), args.norm.as_ref()));
        let (input, rest) = out.split_at(channels);
        let (gates, rest) = rest.split_at(values);
        let (b, a) = rest.split_at(args.value_heads);
        let (history, matrices) = state.of_row(args.layer, shape, step, row);
        let mut mixed = convolve(&args.convolution, history, input);
        mixed.iter_mut().for_each(|x| *x = args.activation.apply(*x));
        let (queries, rest) = mixed.split_at_mut(keys);
        let (keys, value) = rest.split_at_mut(keys);
        queries.chunks_exact_mut(args.key_dim).for_each(|q| unit(q, (args.key_dim as f64).sqrt()));
        keys.chunks_exact_mut(args.key_dim).for_each(|k| unit(k, 1.0));
        let found = y.row_mut(row);
        for head in 0..args.value_heads {
            let key_head = head / (args.value_heads / args.key_heads);
            let of_key = key_head * args.key_dim..(key_head + 1) * args.key_dim;
            let of_value = head * args.value_dim..(head + 1) * args.value_dim;
            let position = Position {
                query: &queries[of_key.clone()],
                key: &keys[of_key],
                value: &value[of_value.clone()],
                share: delta::share(b[head]),
                decay: delta::decay(args.rates[head], a[head], args.time_bias[head]),
            };
            let len = args.key_dim * args.value_dim;
            let found = &mut found[of_value.clone()];
            position.advance(&mut matrices[head * len..(head + 1) * len], found);
            let normed = normalize(found, Some(&args.out_norm));
            for ((y, normed), gate) in found.iter_mut().zip(normed).zip(&gates[of_value]) {
                *y = normed * Activation::Silu.apply(*gate);
            }
        }
    }
}

/// One position of one value head.
struct Position<'a> {
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    share: f32,
    decay: f32,
}

impl Position<'_> {
    /// Changes `matrix` (key_dim, value_dim) and reads it: `found` (value_dim,).
    fn advance(&self, matrix: &mut [f32], found: &mut [f32]) {
        let (decay, share, width) = (f64::from(self.decay), f64::from(self.share), self.value.len());
        let column = |matrix: &[f32], j: usize| -> Vec<f32> {
            matrix.iter().skip(j).step_by(width).copied().collect()
        };
        for (j, found) in found.iter_mut().enumerate() {
            let seen = dot(self.key, &column(matrix, j));
            let change = share * (f64::from(self.value[j]) - decay * seen);
            for (i, key) in self.key.iter().enumerate() {
                let number = &mut matrix[i * width + j];
                *number = (decay * f64::from(*number) + f64::from(*key) * change) as f32;
            }
            *found = dot(self.query, &column(matrix, j)) as f32;
        }
    }
}

/// The results for one position, which takes its place in `history` (count - 1, channels).
fn convolve(args: &Convolution<'_, Reference>, history: &mut [f32], input: &[f32]) -> Vec<f32> {
    let channels = input.len();
    assert_eq!(args.taps.len(), args.count * channels, "taps of the convolution");
    let all = [&*history, input].concat();
    let result = |channel: usize| {
        let terms = all.iter().zip(args.taps).skip(channel).step_by(channels);
        let sum: f64 = terms.map(|(x, tap)| f64::from(*x) * f64::from(*tap)).sum();
        (sum + args.bias.map_or(0.0, |bias| f64::from(bias[channel]))) as f32
    };
    history.copy_from_slice(&all[channels..]);
    (0..channels).map(result).collect()
}

/// `x / √(Σ x² + EPS) / divisor`
fn unit(x: &mut [f32], divisor: f64) {
    let length = (dot(x, x) + f64::from(delta::EPS)).sqrt() * divisor;
    x.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
}
