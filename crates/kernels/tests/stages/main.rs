//! Every processor backend × stage × shape × option against the reference, under a tolerance that is derived and not
//! tuned: `bounds.rs` says how.
//!
//! `WHIN_STAGES=few` keeps one case in eight, for emulators that need minutes for all.

mod backends;
mod blocks;
mod bounds;
mod cases;
mod compare;
mod embed;
mod experts;
mod extremes;
mod options;
mod packed;
mod products;
mod recurrent;
mod recurrent_bounds;
mod refusals;

use backends::Cpus;
use cases::{Attention, Case, Cut, Matrix, Shape, uniform};
use compare::{compare, same};
use embed::Embed;
use options::AttentionOptions;
use products::{Product, Stage};
use whin_kernels::cpu::Cpu;
use whin_kernels::cpu::isa::scalar::Scalar;
use whin_kernels::reference::Reference;
use whin_kernels::{Activation, Backend, Best, KvKind, WeightKind};

const KINDS: [WeightKind; 6] = [
    WeightKind::F32,
    WeightKind::Bf16,
    WeightKind::Int8,
    WeightKind::Int8Groups,
    WeightKind::Int4,
    WeightKind::Int4Affine,
];
const KVS: [KvKind; 3] = [KvKind::F32, KvKind::Bf16, KvKind::Int8];
const WIDTHS: [usize; 7] = [1, 5, 36, 64, 100, 320, 1024];
const ROWS: [usize; 8] = [1, 2, 3, 4, 5, 17, 33, 64];
const ACTIVATIONS: [Activation; 16] = [
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::GeluSigmoid,
    Activation::GeluClipped,
    Activation::Relu,
    Activation::ReluSquared,
    Activation::Relu6,
    Activation::LeakyRelu,
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::Mish,
    Activation::HardSwish,
    Activation::Laplace,
    Activation::SqrtSoftplus,
    Activation::Identity,
];

/// Whether only some of the cases run.
fn few() -> bool {
    std::env::var("WHIN_STAGES").is_ok_and(|value| value == "few")
}

/// Whether case number `index` runs.
fn kept(index: usize) -> bool {
    !few() || index.is_multiple_of(8)
}

#[test]
fn embed() {
    let mut cpus = Cpus::new();
    for kind in KINDS {
        for (seed, width) in WIDTHS.into_iter().enumerate() {
            let matrix = Matrix::new(kind, 19, width, seed as u64);
            let scale = [1.0, 45.254_834, 0.3][seed % 3];
            cpus.check(&Embed { matrix, tokens: vec![18, 0, 7, 7, 3], scale });
        }
    }
}

fn products(stage: impl Fn(usize) -> Stage) {
    const OUTPUTS: [usize; 9] = [1, 2, 3, 6, 7, 65, 130, 258, 1030];
    let mut cpus = Cpus::new();
    let mut seed = 0;
    for kind in KINDS {
        for inputs in WIDTHS {
            for rows in ROWS {
                seed += 1;
                let outputs = OUTPUTS[seed % OUTPUTS.len()];
                let outputs = if rows * inputs > 20_000 { outputs.min(65) } else { outputs };
                if !kept(seed) {
                    continue;
                }
                let case = Product::new(stage(seed), kind, (rows, inputs, outputs), seed as u64);
                // So that all options come with all numbers of rows.
                let case = case.with(seed + seed / ROWS.len());
                check_together_and_alone(&mut cpus, &case, &[0, 1, rows / 2, rows - 1]);
            }
        }
    }
}

/// Checks a case, and that these of its rows have the same bits alone.
fn check_together_and_alone(cpus: &mut Cpus, case: &Product, alone: &[usize]) {
    let answers = cpus.check(case);
    let rows = case.x.len() / case.matrix.inputs;
    for &row in alone.iter().filter(|row| rows > 1 && **row < rows) {
        alone_is_the_same(cpus, case, &answers, row);
    }
}

fn alone_is_the_same(cpus: &mut Cpus, case: &Product, answers: &[backends::Answer], row: usize) {
    for (alone, all) in cpus.answers(&case.only(row)).iter().zip(answers) {
        same(&alone.values, &all.values[case.result(row)])
            .unwrap_or_else(|why| panic!("{}: {}: row {row} alone: {why}", case.name(), all.backend));
    }
}

#[test]
fn project_add() {
    products(|_| Stage::Project);
}

#[test]
fn gated() {
    products(|seed| Stage::Gated(ACTIVATIONS[seed % ACTIVATIONS.len()]));
    let mut cpus = Cpus::new();
    for (seed, activation) in ACTIVATIONS.into_iter().enumerate() {
        for kind in KINDS {
            let mut case = Product::new(Stage::Gated(activation), kind, (6, 36, 64), seed as u64);
            // Gates far out, where exponentials reach their ends.
            case.matrix.values[..32 * 36].iter_mut().for_each(|w| *w *= 60.0);
            cpus.check(&case);
            // With a bias, gates meet their partners behind the product.
            case.bias = if case.bias.is_some() { None } else { Some(uniform(seed as u64 + 30, 64)) };
            cpus.check(&case);
        }
    }
}

/// Of whole panels, where gates meet their partners in the product itself: one task and several, few rows and many.
#[test]
fn gates_of_whole_panels() {
    let mut cpus = Cpus::new();
    let mut seed = 900;
    for kind in KINDS {
        for rows in [1, 2, 5, 7, 8, 16, 24, 31, 32, 33, 65] {
            seed += 1;
            if !kept(seed) {
                continue;
            }
            let outputs = [32, 64, 96, 160, 1056][seed % 5];
            let stage = Stage::Gated(ACTIVATIONS[seed % ACTIVATIONS.len()]);
            let mut case = Product::new(stage, kind, (rows, [36, 100, 320][seed % 3], outputs), seed as u64);
            case.bias = None;
            let case = case.with(seed);
            check_together_and_alone(&mut cpus, &case, &[0, rows / 2, rows - 1]);
        }
    }
}

#[test]
fn every_number_of_rows() {
    let mut cpus = Cpus::new();
    let mut seed = 2900;
    for kind in KINDS {
        for rows in 1..=33 {
            seed += 1;
            if !kept(seed) {
                continue;
            }
            let shape = (rows, [100, 256, 700][seed % 3], [17, 65, 130, 1030][seed % 4]);
            let case = Product::new(Stage::Project, kind, shape, seed as u64);
            check_together_and_alone(&mut cpus, &case, &[0, rows / 2, rows - 1]);
        }
    }
}

#[test]
fn heads_of_24() {
    let mut cpus = Cpus::new();
    let mut seed = 300;
    for kind in KINDS {
        for kv in KVS {
            seed += 1;
            if !kept(seed) {
                continue;
            }
            let (heads, window) = ([(3, 1), (4, 2), (6, 2)][seed % 3], [None, Some(66), Some(5)][seed % 3]);
            let (bias, norms) = (true, true);
            let shape = Shape {
                kind,
                kv,
                width: 36,
                heads,
                head_dim: 24,
                pairs: 12,
                window,
                bias,
                norms,
                options: AttentionOptions::ALL,
                seed: seed as u64,
            };
            check_cuts(&mut cpus, shape, &[130, 1, 64, 67], 1 + seed % 33);
        }
    }
}

#[test]
fn logits() {
    products(|_| Stage::Logits);
}

#[test]
fn long_sums_of_extreme_integers_do_not_overflow() {
    let mut cpus = Cpus::new();
    let mut index = 0;
    for inputs in [9_000, 20_000] {
        for (name, sign) in [("plus", [1.0, 1.0]), ("minus", [-1.0, -1.0]), ("halves", [1.0, -1.0])] {
            for rows in [1, 2, 5] {
                for kind in &KINDS[2..] {
                    index += 1;
                    if !kept(index * 3) {
                        continue;
                    }
                    let mut case = Product::new(Stage::Project, *kind, (rows, inputs, 6), 7);
                    for (index, w) in case.matrix.values.iter_mut().enumerate() {
                        *w = if index % inputs < inputs / 2 + 1000 { sign[0] } else { sign[1] };
                    }
                    case.x.fill(1.0);
                    let answers = cpus.check(&case);
                    assert!(answers[0].values[0].abs() > 1_000.0, "{name}");
                }
            }
        }
    }
}

/// Every pattern of signs and extremes within a group, scales at both ends of f16, and activations at their bounds.
#[test]
fn groups_of_extreme_integers_do_not_overflow() {
    let mut cpus = Cpus::new();
    let sizes = [1.0, -1.0, 1e-6, 3e-8, 6e4, 5e5, 3e6].into_iter().enumerate();
    for (kind, (seed, size)) in [WeightKind::Int4, WeightKind::Int4Affine, WeightKind::Int8Groups]
        .into_iter()
        .flat_map(|kind| sizes.clone().map(move |s| (kind, s)))
    {
        let shapes = [(32, 16, 1), (100, 40, 2), (1000, 17, 7), (3072, 33, 33)];
        for (index, (inputs, outputs, rows)) in shapes.into_iter().enumerate() {
            if !kept(2 * index + seed) {
                continue;
            }
            let mut case = Product::new(Stage::Project, kind, (rows, inputs, outputs), seed as u64);
            for (index, w) in case.matrix.values.iter_mut().enumerate() {
                let (output, input) = (index / inputs, index % inputs);
                // In int4, output 0 is -8 throughout, 1 is 7 where it can be, the others change at a pace of their own.
                // In int8-groups, all are at or near the bounds, but for the sevens of output 1.
                *w = match output {
                    0 => -8.0,
                    1 => [7.0, -8.0][usize::from(input % 32 == 31)],
                    _ => [-8.0, 7.0][input / (output - 1) % 2],
                } * size;
            }
            for (row, x) in case.x.chunks_exact_mut(inputs).enumerate() {
                // The largest integer is 32,512; below 32,384 the low plane is at its own ends.
                let values = [1.0, -1.0, 32_383.0 / 32_512.0, -32_384.0 / 32_512.0];
                for (input, x) in x.iter_mut().enumerate() {
                    *x = values[if row < 4 { row } else { (input / row) % 4 }];
                }
                x[0] = 1.0;
            }
            cpus.check(&case);
        }
    }
}

#[test]
fn argmax() {
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    let mut x = uniform(3, 7 * 100);
    x[100 + 41] = 2.0; // a tie: the first counts
    x[100 + 77] = 2.0;
    x[200 + 50] = nan;
    x[200 + 99] = nan;
    x[300..400].fill(-infinity);
    x[400 + 99] = infinity;
    x[500..600].fill(nan);
    x[600..700].fill(0.0);
    x[600] = -0.0; // equal to zero
    let ids: Vec<u32> = vec![best_of(&x[..100]), 41, 50, 0, 99, 0, 0];
    fn check<B: Backend>(mut backend: B, x: &[f32], ids: &[u32]) {
        let mut rows = backend.rows(8, 100).unwrap();
        backend.fill(&mut rows, x).unwrap();
        let best = backend.argmax(&rows, 7).unwrap();
        for (row, Best { id, logit }) in best.into_iter().enumerate() {
            assert_eq!(id, ids[row], "row {row} on {}", backend.name());
            same(&[logit], &[if row == 3 { f32::NEG_INFINITY } else { x[row * 100 + id as usize] }]).unwrap();
        }
    }
    check(Reference, &x, &ids);
    for threads in 1..=3 {
        check(Cpu::<Scalar>::new(threads).unwrap(), &x, &ids);
        #[cfg(target_arch = "x86_64")]
        {
            use whin_kernels::cpu::isa::{Isa, amx::Amx, avx2::Avx2, avx512::Avx512, avxvnni::AvxVnni};
            if Amx::detect().is_some() {
                check(Cpu::<Amx>::new(threads).unwrap(), &x, &ids);
            }
            if Avx2::detect().is_some() {
                check(Cpu::<Avx2>::new(threads).unwrap(), &x, &ids);
            }
            if AvxVnni::detect().is_some() {
                check(Cpu::<AvxVnni>::new(threads).unwrap(), &x, &ids);
            }
            if Avx512::detect().is_some() {
                check(Cpu::<Avx512>::new(threads).unwrap(), &x, &ids);
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            use whin_kernels::cpu::isa::{Isa, dotprod::DotProd, i8mm::I8mm, neon::Neon};
            check(Cpu::<Neon>::new(threads).unwrap(), &x, &ids);
            if DotProd::detect().is_some() {
                check(Cpu::<DotProd>::new(threads).unwrap(), &x, &ids);
            }
            if I8mm::detect().is_some() {
                check(Cpu::<I8mm>::new(threads).unwrap(), &x, &ids);
            }
        }
    }
}

fn best_of(x: &[f32]) -> u32 {
    let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    x.iter().position(|x| *x == largest).expect("a number") as u32
}

#[test]
fn attention() {
    const HEADS: [(usize, usize); 4] = [(1, 1), (3, 1), (4, 2), (16, 8)];
    const DIMS: [usize; 6] = [2, 6, 40, 64, 80, 128];
    const WINDOWS: [Option<usize>; 5] = [None, Some(1), Some(3), Some(66), Some(1000)];
    let mut cpus = Cpus::new();
    let mut seed = 0;
    for kind in KINDS {
        for heads in HEADS {
            for head_dim in DIMS {
                seed += 1;
                if !kept(seed + 7) {
                    continue;
                }
                let shape = Shape {
                    kind,
                    kv: KVS[(seed / 4 + seed) % KVS.len()],
                    width: WIDTHS[1 + seed % 5],
                    heads,
                    head_dim,
                    pairs: [head_dim / 2, head_dim / 4, 0, 1][seed % 4],
                    window: WINDOWS[seed % 5],
                    bias: seed % 3 != 0,
                    norms: seed % 2 == 0,
                    options: AttentionOptions::of(seed),
                    seed: seed as u64,
                };
                let small = heads.0 * head_dim <= 128;
                let lengths: &[usize] = if small { &[130, 1, 64, 67] } else { &[70, 3] };
                check_cuts(&mut cpus, shape, lengths, ROWS[seed % 8]);
            }
        }
    }
}

/// The same sequences cut into steps in other ways, and one of them alone.
fn check_cuts(cpus: &mut Cpus, shape: Shape, lengths: &[usize], rows: usize) {
    let whole = cpus.check(&Attention::new(shape, lengths, Cut::Whole));
    // A cut into single rows takes long, so it is left to short sequences.
    let rows = if lengths.len() > 2 { rows.max(4) } else { rows };
    for cut in [Cut::Chunks(rows), if rows % 2 == 0 { Cut::Mixed } else { Cut::Decode(7) }] {
        let case = Attention::new(shape, lengths, cut);
        for (answer, whole) in cpus.answers(&case).iter().zip(&whole) {
            same(&answer.values, &whole.values)
                .unwrap_or_else(|why| panic!("{}: {} and at once: {why}", case.name(), whole.backend));
        }
    }
    let together = Attention::new(shape, lengths, Cut::Whole);
    let slot = shape.seed as usize % lengths.len();
    let alone = Attention { sequences: vec![together.sequences[slot].clone()], ..together.clone() };
    let range = together.result(slot, 0).start..together.result(slot, lengths[slot] - 1).end;
    for (answer, whole) in cpus.answers(&alone).iter().zip(&whole) {
        same(&answer.values, &whole.values[range.clone()])
            .unwrap_or_else(|why| panic!("{}: {} alone: {why}", alone.name(), whole.backend));
    }
}

#[test]
fn attention_over_many_spans() {
    let mut cpus = Cpus::new();
    for (seed, window) in [(0, None), (8, Some(700)), (16, Some(600)), (24, None)] {
        if !kept(seed) || (seed > 0 && !kept(1)) {
            continue;
        }
        let shape = Shape {
            kind: WeightKind::F32,
            kv: KVS[seed / 8 % KVS.len()],
            width: 36,
            heads: (4, 1),
            head_dim: 40,
            pairs: 20,
            window,
            bias: false,
            norms: true,
            options: AttentionOptions::of(17 + seed / 8),
            seed: 60 + seed as u64,
        };
        let whole = cpus.check(&Attention::new(shape, &[1100], Cut::Whole));
        for cut in [Cut::Decode(3), Cut::Chunks(450)] {
            let case = Attention::new(shape, &[1100], cut);
            for (answer, whole) in cpus.answers(&case).iter().zip(&whole) {
                same(&answer.values, &whole.values)
                    .unwrap_or_else(|why| panic!("{}: {} and at once: {why}", case.name(), whole.backend));
            }
        }
    }
}

#[test]
fn attention_over_exact_inputs() {
    let mut cpus = Cpus::new();
    let table = [
        ((1, 1), 2, None, 1.0),
        ((3, 1), 40, None, 20.0),
        ((4, 2), 64, Some(65), 8.0),
        ((2, 1), 80, Some(128), 200.0),
        ((4, 2), 128, None, 40.0),
        ((1, 1), 6, Some(300), -30.0),
    ];
    for (seed, (heads, head_dim, window, spread)) in table.into_iter().enumerate() {
        if !kept(seed * 4) {
            continue;
        }
        let shape = Shape {
            kind: WeightKind::F32,
            kv: KvKind::F32,
            width: 256,
            heads,
            head_dim,
            pairs: 0,
            window,
            bias: false,
            norms: false,
            options: AttentionOptions::PLAIN,
            seed: seed as u64,
        };
        for kv in KVS {
            // Of the largest scores, 8-bit keys leave no more than a guess.
            let spread = if kv == KvKind::Int8 { spread / 10.0 } else { spread };
            for cut in [Cut::Whole, Cut::Decode(3)] {
                cpus.check(&Attention::exact(Shape { kv, ..shape }, spread, &[200, 65], cut));
            }
        }
    }
}

#[test]
fn faults_stay_in_their_row() {
    let mut cpus = Cpus::new();
    for kind in KINDS {
        for (seed, stage) in
            [Stage::Project, Stage::Gated(Activation::Silu), Stage::Logits].into_iter().enumerate()
        {
            // Bits of NaN that stand in the lower half alone, and bits that rounding would carry away.
            let nans = [0x7f80_0001, 0x7fff_ffff, 0xffff_ffff].map(f32::from_bits);
            for fault in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().chain(nans) {
                let clean = Product::new(stage, kind, (7, 100, 66), 10 + 2 * seed as u64);
                let before = cpus.answers(&clean);
                let mut case = clean.clone();
                case.x[3 * 100 + 99] = fault;
                for (after, before) in cpus.answers(&case).iter().zip(&before) {
                    for row in 0..7 {
                        let (after_row, range) = (&after.values[case.result(row)], case.result(row));
                        let what = format!("{}: {}: {fault} in row 3, row {row}", case.name(), after.backend);
                        if row == 3 {
                            assert!(after_row.iter().all(|x| !x.is_finite()), "{what}: {after_row:?}");
                        } else {
                            same(after_row, &before.values[range])
                                .unwrap_or_else(|why| panic!("{what}: {why}"));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn faults_stay_in_their_sequence() {
    let mut cpus = Cpus::new();
    for (kind, window) in KINDS.into_iter().zip([None, Some(5), Some(1), Some(66), Some(7)]) {
        for (fault, kv) in [f32::NAN, f32::INFINITY].into_iter().flat_map(|fault| KVS.map(|kv| (fault, kv))) {
            let shape = Shape {
                kind,
                kv,
                width: 36,
                heads: (4, 2),
                head_dim: 40,
                pairs: 10,
                window,
                bias: true,
                norms: kind == WeightKind::Bf16,
                options: AttentionOptions { bare: false, ..AttentionOptions::of(41 + kv as usize) },
                seed: 50,
            };
            let lengths = [70, 80, 66];
            let clean = Attention::new(shape, &lengths, Cut::Chunks(33));
            let before = cpus.answers(&clean);
            let mut case = clean.clone();
            case.sequences[1][60 * 36 + 7] = fault;
            for (after, before) in cpus.answers(&case).iter().zip(&before) {
                for (slot, length) in lengths.into_iter().enumerate() {
                    for position in 0..length {
                        let range = case.result(slot, position);
                        let y = range.end - 4 * 40..range.end;
                        let reached =
                            slot == 1 && position >= 60 && position - 60 < window.unwrap_or(usize::MAX);
                        let what = format!("{}: {}: slot {slot}, {position}", case.name(), after.backend);
                        if reached {
                            assert!(after.values[y].iter().all(|x| x.is_nan()), "{what}");
                        } else {
                            same(&after.values[range.clone()], &before.values[range])
                                .unwrap_or_else(|why| panic!("{what}: {why}"));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_comparer_rejects_planted_errors() {
    let mut case = Product::new(Stage::Project, WeightKind::Bf16, (4, 320, 7), 5);
    // Row 2 comes to exactly zero from numbers that cancel, row 3 from nothing.
    let (half, rest) = (160, 320);
    for output in 0..7 {
        let row = &mut case.matrix.values[output * 320..][..rest];
        row.copy_within(..half, half);
    }
    case.bias = None;
    case.base[14..].fill(0.0);
    for i in 0..half {
        let x = (case.x[2 * 320 + i] * 1024.0).round() / 1024.0; // so that f64 sums it exactly
        (case.x[2 * 320 + i], case.x[2 * 320 + half + i]) = (x, -x);
    }
    case.x[3 * 320..].fill(0.0);
    let want = case.run(&mut Reference, false);
    let tolerances: Vec<f64> = case.bounds().errors.iter().map(|e| 2.0 * e).collect();
    assert!(want[14..].iter().all(|x| *x == 0.0) && tolerances[14] > 1e-10 && tolerances[21] < 1e-30);
    compare(&want, &want, &tolerances).unwrap();

    for index in [0, 6, 13, 14, 20, 21, 27] {
        let tolerance = tolerances[index].max(f64::from(f32::MIN_POSITIVE));
        for error in [2.0 * tolerance, -2.0 * tolerance] {
            let mut got = want.clone();
            got[index] = (f64::from(want[index]) + error) as f32;
            let why = compare(&got, &want, &tolerances).unwrap_err();
            assert!(why.contains("1 of 28") && why.contains(&format!("number {index}:")), "{why}");
        }
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (mut got, tolerances) = (want.clone(), &tolerances);
            got[index] = wrong;
            assert!(compare(&got, &want, tolerances).is_err());
            assert!(compare(&want, &got, tolerances).is_err());
            assert!(same(&got, &want).is_err());
            compare(&got, &got, tolerances).unwrap();
        }
        let mut got = want.clone();
        got[index] = f32::INFINITY;
        let mut want = want.clone();
        want[index] = f32::NEG_INFINITY;
        assert!(compare(&got, &want, &tolerances).is_err());
    }
    assert!(compare(&want[1..], &want, &tolerances).is_err());
}
