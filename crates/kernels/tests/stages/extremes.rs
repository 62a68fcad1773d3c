//! Options of the stages at the ends of what they can take, and options that a backend leaves out.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use whin_kernels::cpu::Cpu;
use whin_kernels::cpu::isa::scalar::Scalar;
use whin_kernels::reference::Reference;
use whin_kernels::{Activation, Backend, Dtype, KvKind, Step, Tensor, WeightKind};

use crate::backends::Cpus;
use crate::bounds::{PAIR, with_loss};
use crate::cases::{Attention, Case, Cut, Matrix, Shape, uniform};
use crate::compare::{compare, same};
use crate::options::{AttentionOptions, RowOptions};
use crate::products::{Product, Stage};
use crate::{KINDS, KVS, kept};

const PLAIN: AttentionOptions = AttentionOptions::PLAIN;

/// Takes something off a case.
type Wrong<T> = dyn Fn(&mut T);

/// Heads of which nothing is turned, normalised or added to.
fn bare_heads(heads: (usize, usize), head_dim: usize, options: AttentionOptions) -> Shape {
    let (kind, kv) = (WeightKind::F32, KvKind::F32);
    let (window, bias, norms) = (None, false, false);
    Shape { kind, kv, width: 256, heads, head_dim, pairs: 0, window, bias, norms, options, seed: 70 }
}

/// Gates where exponentials reach their ends, around zero, and far out.
fn extreme_gates(case: &mut Attention) {
    const GATES: [f32; 11] = [100.0, -100.0, 0.0, 88.8, -88.8, 87.2, -87.2, 1.0, -1e-6, 3e38, -3e38];
    let first = (case.heads + 2 * case.kv_heads) * case.head_dim * 256;
    for (index, gate) in case.matrix.values[first..].iter_mut().enumerate() {
        *gate = GATES[(index / 256 + index % 256) % GATES.len()];
    }
}

#[test]
fn caps_sinks_and_gates_far_out() {
    let mut cpus = Cpus::new();
    let gated = AttentionOptions { gated: true, ..PLAIN };
    let capped = |cap| AttentionOptions { softcap: Some(cap), ..PLAIN };
    let sunk = |sinks| AttentionOptions { sinks: Some(sinks), ..PLAIN };
    let table: [(_, _, f32, _); 13] = [
        ((2, 1), 40, 400.0, capped(0.5)), // scores far beyond the cap
        ((1, 1), 64, -2000.0, capped(5.0)),
        ((4, 2), 40, 20.0, capped(50.0)),
        ((3, 1), 6, 1.0, capped(1e6)), // a cap far beyond the scores
        ((2, 2), 80, 3000.0, capped(30.0)),
        ((3, 1), 40, 20.0, sunk(1e4)), // nothing is left
        ((2, 1), 24, 20.0, sunk(-1e4)),
        ((4, 2), 40, 8.0, sunk(75.0)),
        ((4, 2), 40, 8.0, sunk(-75.0)),
        ((1, 1), 2, 1.0, sunk(f32::MAX)),
        ((3, 1), 40, 8.0, gated),
        ((4, 2), 24, 400.0, AttentionOptions { softcap: Some(3.0), sinks: Some(3.0), ..gated }),
        ((2, 1), 64, 400.0, AttentionOptions { softcap: Some(20.0), sinks: Some(-1e4), ..gated }),
    ];
    for (index, (heads, head_dim, spread, options)) in table.into_iter().enumerate() {
        if !kept(index) {
            continue;
        }
        for kv in KVS {
            // Of the largest scores, 8-bit keys leave no more than a guess, the less so the more a cap takes.
            let most = if options.softcap.is_none_or(|cap| cap > 10.0) { 20.0 } else { 60.0 };
            let spread = if kv == KvKind::Int8 { spread.clamp(-most, most) } else { spread };
            let shape = Shape { kv, ..bare_heads(heads, head_dim, options) };
            let case = |cut| {
                let mut case = Attention::exact(shape, spread, &[130, 3], cut);
                if options.gated {
                    extreme_gates(&mut case);
                }
                case
            };
            let whole = cpus.check(&case(Cut::Whole));
            let cut = case(if index % 2 == 0 { Cut::Decode(3) } else { Cut::Chunks(33) });
            for (answer, whole) in cpus.answers(&cut).iter().zip(&whole) {
                same(&answer.values, &whole.values)
                    .unwrap_or_else(|why| panic!("{}: {} and at once: {why}", cut.name(), whole.backend));
            }
        }
    }
}

/// Scores below what f32 can hold have no weight; where all of a row are, only a sink leaves anything. A cap holds them.
#[test]
fn scores_of_minus_infinity() {
    let mut cpus = Cpus::new();
    for (sinks, softcap) in [(None, None), (Some(0.0), None), (None, Some(2.0)), (Some(0.0), Some(2.0))] {
        let shape = bare_heads((2, 1), 40, AttentionOptions { sinks, softcap, ..PLAIN });
        let mut case = Attention::exact(shape, 1.0, &[140], Cut::Whole);
        for (index, w) in case.matrix.values.iter_mut().enumerate() {
            // Queries and keys of opposite signs, but for the keys of every 70th position.
            let (output, input) = (index / 256, index % 256);
            let small = (69..140).step_by(70).any(|position| position * 37 % 256 == input);
            match output {
                0..80 => *w = 1e25,
                80..120 => *w = if small { 0.0 } else { -1e25 },
                _ => {}
            }
        }
        let want = case.run(&mut Reference, false);
        let row = |position| case.result(0, position).end - 80..case.result(0, position).end;
        assert!(want[row(0)].iter().all(|y| match (sinks, softcap) {
            (None, None) => y.is_nan(),
            (Some(_), None) => *y == 0.0,
            (_, Some(_)) => y.is_finite() && *y != 0.0,
        }));
        assert!(want[row(69)].iter().chain(&want[row(138)]).all(|y| y.is_finite() && *y != 0.0));
        for cut in [Cut::Whole, Cut::Decode(72)] {
            for answer in cpus.answers(&Attention { cut, ..case.clone() }) {
                // Values are within ±1, and scores, if not infinite, are exact.
                compare(&answer.values, &want, &vec![1e-5; want.len()])
                    .unwrap_or_else(|why| panic!("{}: {}: {why}", case.name(), answer.backend));
            }
        }
    }
}

#[test]
fn norms_and_caps_of_extreme_rows() {
    let mut cpus = Cpus::new();
    for (index, kind) in KINDS.into_iter().enumerate() {
        for stage in [Stage::Logits, Stage::Gated(Activation::Silu), Stage::Project] {
            let mut case = Product::new(stage, kind, (8, 100, 34), 40 + index as u64).with(1);
            case.options.post_norm = (stage == Stage::Project).then(|| vec![1.0; 34]);
            for (row, x) in case.x.chunks_exact_mut(100).enumerate() {
                let noise = uniform(row as u64, 100);
                // Means far above the deviation, constant rows, and sums that leave the range of f32.
                for (x, noise) in x.iter_mut().zip(noise) {
                    *x = match row {
                        0 => 1000.0 + noise,
                        1 => -3e4 + 100.0 * noise,
                        2 => 0.1,
                        3 => 1e38 * (1.0 + 0.1 * noise),
                        4 => 1e38 * noise,
                        5 => 1e-30 * noise,
                        6 => 1e19 + 1e18 * noise,
                        _ => noise,
                    };
                }
            }
            if stage == Stage::Project {
                // A product of 1e38 leaves the range itself.
                case.x[300..500].iter_mut().for_each(|x| *x *= 1e-2);
            }
            cpus.check(&case);
            if stage == Stage::Logits {
                for (scale, softcap) in [(1e30, Some(30.0)), (3e38, Some(1e-3)), (1e-30, Some(2.0))] {
                    case.options = RowOptions { scale, softcap, ..case.options };
                    cpus.check(&case);
                }
            }
        }
    }
}

/// The answers to `wrong` must not pass for those to `case`, on the backend that may miss the most.
fn rejected(what: &str, case: &impl Case, wrong: &impl Case) {
    let bounds = with_loss(PAIR, || case.bounds());
    let tolerances: Vec<f64> = bounds.errors.iter().map(|e| 2.0 * e).collect();
    let (want, got) = (case.run(&mut Reference, false), wrong.run(&mut Reference, false));
    compare(&want, &want, &tolerances).unwrap();
    assert!(compare(&got, &want, &tolerances).is_err(), "{}: {what} went unnoticed", case.name());
}

#[test]
fn options_of_products_that_are_left_out_are_rejected() {
    for (index, kind) in KINDS.into_iter().enumerate() {
        let seed = 2 * index as u64;
        let made = |stage, options: RowOptions, wrong: &Wrong<Product>| {
            let mut case = Product::new(stage, kind, (3, 100, 34), seed);
            case.options = options;
            let mut other = case.clone();
            wrong(&mut other);
            (case, other)
        };
        let weights = Some(uniform(3, 34));
        let full = RowOptions { centred: true, scale: 0.37, ..RowOptions::PLAIN };
        let project = RowOptions { post_norm: weights, ..full.clone() };
        let logits = RowOptions { softcap: Some(1.0), ..full.clone() };
        let bare = RowOptions { bare: true, ..RowOptions::PLAIN };
        let gate = Stage::Gated(Activation::Silu);
        let table: [(&str, Stage, &RowOptions, &Wrong<Product>); 12] = [
            ("the mean of a norm behind", Stage::Project, &project, &|c| c.options.centred = false),
            ("a norm behind", Stage::Project, &project, &|c| c.options.post_norm = None),
            ("a factor", Stage::Project, &project, &|c| c.options.scale = 1.0),
            ("a factor a little off", Stage::Project, &project, &|c| c.options.scale *= 1.001),
            ("a bias", Stage::Project, &project, &|c| c.bias = None),
            ("the mean of a norm", Stage::Logits, &logits, &|c| c.options.centred = false),
            ("a factor of logits", Stage::Logits, &logits, &|c| c.options.scale = 1.0),
            ("a cap of logits", Stage::Logits, &logits, &|c| c.options.softcap = None),
            ("a cap a little off", Stage::Logits, &logits, &|c| c.options.softcap = Some(1.003)),
            ("the mean of a norm before gates", gate, &full, &|c| c.options.centred = false),
            ("no norm", gate, &bare, &|c| c.options = RowOptions::PLAIN),
            ("a bias of gates", gate, &full, &|c| c.bias = None),
        ];
        for (what, stage, options, wrong) in table {
            let (case, other) = made(stage, options.clone(), wrong);
            rejected(what, &case, &other);
        }
    }
}

#[test]
fn options_of_attention_that_are_left_out_are_rejected() {
    let options = AttentionOptions {
        centred: true,
        together: true,
        gated: true,
        softcap: Some(2.0),
        sinks: Some(1.0),
        ..PLAIN
    };
    for (kind, kv) in KINDS.into_iter().flat_map(|kind| KVS.map(|kv| (kind, kv))) {
        let (window, bias, norms) = (Some(20), true, true);
        let heads = (4, 2);
        let shape = Shape {
            kind,
            kv,
            width: 36,
            heads,
            head_dim: 24,
            pairs: 6,
            window,
            bias,
            norms,
            options,
            seed: 8,
        };
        let case = Attention::new(shape, &[30], Cut::Whole);
        let table: [(&str, &Wrong<Attention>); 9] = [
            ("the mean of norms", &|c| c.options.centred = false),
            ("the norm before", &|c| c.options.bare = true),
            ("the rotation", &|c| c.options.unrotated = true),
            ("the cap", &|c| c.options.softcap = None),
            ("a cap a little off", &|c| c.options.softcap = Some(2.1)),
            ("the sinks", &|c| c.sinks = None),
            ("sinks a little off", &|c| c.sinks.iter_mut().flatten().for_each(|sink| *sink += 0.1)),
            ("the sinks of other heads", &|c| c.sinks.iter_mut().for_each(|sinks| sinks.reverse())),
            ("the norms of queries and keys", &|c| (c.q_norm, c.k_norm) = (None, None)),
        ];
        for (what, wrong) in table {
            let mut other = case.clone();
            wrong(&mut other);
            rejected(what, &case, &other);
        }
        // Heads apart with the same weights, and a result without the gates that stand behind the queries.
        let mut apart = case.clone();
        apart.options.together = false;
        let of_first = |norm: &Option<Vec<f32>>| norm.as_ref().map(|w| w[..24].to_vec());
        (apart.q_norm, apart.k_norm) = (of_first(&case.q_norm), of_first(&case.k_norm));
        let mut alike = case.clone();
        let repeated = |norm: &Option<Vec<f32>>, count| norm.as_ref().map(|w| w[..24].repeat(count));
        (alike.q_norm, alike.k_norm) = (repeated(&case.q_norm, 4), repeated(&case.k_norm, 2));
        rejected("heads together", &alike, &apart);
        let mut open = case.clone();
        let gates = (4 + 2 * 2) * 24;
        open.matrix.values[gates * 36..].fill(0.0);
        open.bias.iter_mut().for_each(|bias| bias[gates..].fill(60.0));
        rejected("gates", &case, &open);
    }
}

/// Rows of a table that was written from a tensor in another order.
fn rows_in_order<B: Backend>(mut backend: B, kind: WeightKind, tensors: [&Tensor<'_>; 2]) {
    let (outputs, inputs) = (tensors[0].rows(), tensors[0].cols());
    let mut rows = |tensor: &Tensor<'_>| {
        let mut weight = backend.weight(kind, outputs + 3, inputs).unwrap();
        backend.write(&mut weight, 3, tensor).unwrap();
        let mut x = backend.rows(outputs + 3, inputs).unwrap();
        let step = Step { tokens: (0..outputs as u32 + 3).collect(), ..Step::default() };
        backend.embed(&whin_kernels::Embed { table: &weight, scale: 1.0 }, &step, &mut x);
        backend.read(&x, outputs + 3).unwrap()
    };
    let (found, right) = (rows(tensors[0]), rows(tensors[1]));
    assert!(found[3 * inputs..].iter().any(|x| *x != 0.0));
    same(&found, &right).unwrap_or_else(|why| panic!("{} of {tensors:?}: {why}", kind.name()));
}

#[test]
fn rows_of_a_file_in_another_order() {
    let order: Vec<u32> = (0..37).map(|row| (row * 11 + 5) % 40).collect();
    for (seed, inputs) in [1, 33, 100].into_iter().enumerate() {
        let values = Matrix::new(WeightKind::F32, 40, inputs, seed as u64).values;
        let scales: Vec<u8> = uniform(9, 40).iter().flat_map(|x| (2.0 + x).to_le_bytes()).collect();
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::I8] {
            let bytes: Vec<u8> = match dtype {
                Dtype::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
                Dtype::Bf16 => values.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect(),
                _ => values.iter().map(|x| (x * 100.0) as i8 as u8).collect(),
            };
            let pick = |bytes: &[u8]| -> Vec<u8> {
                let row = |row: &u32| bytes[*row as usize * bytes.len() / 40..][..bytes.len() / 40].to_vec();
                order.iter().flat_map(row).collect()
            };
            let (picked, picked_scales) = (pick(&bytes), pick(&scales));
            let scaled = |rows, bytes, scales| {
                let stored = Tensor::new(dtype, rows, inputs, bytes).unwrap();
                let scales = Tensor::new(Dtype::F32, rows, 1, scales).unwrap();
                if dtype == Dtype::I8 { stored.scaled(&scales, (1, inputs)).unwrap() } else { stored }
            };
            let turned = scaled(40, &bytes, &scales).in_order(&order).unwrap();
            let right = scaled(37, &picked, &picked_scales);
            for kind in KINDS {
                rows_in_order(Reference, kind, [&turned, &right]);
                rows_in_order(Cpu::<Scalar>::new(2).unwrap(), kind, [&turned, &right]);
            }
        }
    }
}
