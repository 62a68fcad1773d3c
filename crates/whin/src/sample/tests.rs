//! Each link of the chain on rows that were worked out by hand, and all of it against a naive one.

use super::*;
use proptest::prelude::*;

const NONE: f32 = f32::NEG_INFINITY;

fn drawn() -> Sampling {
    Sampling { temperature: 1.0, ..Sampling::default() }
}

fn sampler(sampling: Sampling) -> Sampler {
    Sampler::new(sampling, 7, &[], 0)
}

/// The logits after bias, mask and penalties, for a prompt and an output.
fn changed(sampling: Sampling, prompt: &[u32], output: &[u32], logits: &[f32]) -> Vec<f32> {
    let mut sampler = Sampler::new(sampling, 7, prompt, 0);
    output.iter().for_each(|&id| sampler.accept(id));
    let mut logits = logits.to_vec();
    sampler.sample(&mut logits, None).unwrap();
    logits
}

/// The ids that can be drawn.
fn kept(sampling: Sampling, logits: &[f32]) -> Vec<u32> {
    let mut scratch = Scratch::default();
    let best = draw::largest(logits);
    scratch.weigh(logits, best, sampling.temperature);
    scratch.cut(logits, best, &sampler(sampling).cuts(logits.len()));
    (0..).zip(&scratch.weights).filter(|&(_, &weight)| weight > 0.0).map(|(id, _)| id).collect()
}

/// Logits of these probabilities.
fn logs(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|probability| probability.ln()).collect()
}

#[test]
fn repetition_counts_each_id_of_prompt_and_output_once() {
    let sampling = Sampling { repetition_penalty: 2.0, ..Sampling::default() };
    let logits = changed(sampling, &[0, 0, 1, 99], &[2, 2, 2], &[4.0, -4.0, 3.0, 3.0, 0.0]);
    assert_eq!(logits, [2.0, -8.0, 1.5, 3.0, 0.0]);
}

#[test]
fn presence_and_frequency_see_the_output_only() {
    let sampling = Sampling { presence_penalty: 0.5, frequency_penalty: 0.25, ..Sampling::default() };
    let logits = changed(sampling, &[0, 3], &[1, 1, 2], &[4.0, 4.0, 4.0, 4.0]);
    assert_eq!(logits, [4.0, 3.0, 3.25, 4.0]);
    let sampling = Sampling { presence_penalty: -2.0, ..Sampling::default() };
    assert_eq!(changed(sampling, &[], &[1], &[1.0, 1.0]), [1.0, 3.0]);
}

#[test]
fn bias_comes_before_repetition_and_repetition_before_presence() {
    let sampling = Sampling {
        logit_bias: vec![(0, 5.0), (1, -5.0)],
        repetition_penalty: 2.0,
        presence_penalty: 1.0,
        ..Sampling::default()
    };
    // (-1 + 5) / 2 - 1; (1 - 5) · 2 - 1
    assert_eq!(changed(sampling, &[], &[0, 1], &[-1.0, 1.0, 0.0]), [1.0, -9.0, 0.0]);
}

#[test]
fn the_mask_undoes_bias_and_covers_nothing_past_its_end() {
    let sampling = Sampling { logit_bias: vec![(0, 100.0)], ..Sampling::default() };
    let mut logits = vec![1.0; 70];
    logits[40] = 2.0;
    logits[69] = 3.0;
    let token = sampler(sampling).sample(&mut logits, Some(&[0b10, u32::MAX])).unwrap();
    assert_eq!(token, 40);
    assert_eq!((logits[0], logits[1], logits[2], logits[69]), (NONE, 1.0, NONE, NONE));
}

#[test]
fn extreme_penalties_stay_finite() {
    let sampling = Sampling { repetition_penalty: f32::MIN_POSITIVE, ..drawn() };
    assert_eq!(changed(sampling, &[0], &[], &[1e9, -1.0]), [f32::MAX, -1.0]);
    let sampling = Sampling { repetition_penalty: f32::MAX, ..drawn() };
    assert_eq!(changed(sampling, &[0, 1], &[], &[-1e9, NONE, 2.0]), [f32::MIN, NONE, 2.0]);
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    for sampling in [
        Sampling::default(),
        Sampling { temperature: 1e-5, ..drawn() },
        Sampling { temperature: 100.0, top_k: 1, ..drawn() },
        Sampling { top_p: 0.0, ..drawn() },
    ] {
        assert!(sampling.is_greedy());
        for step in 0..20 {
            let mut sampler = Sampler::new(sampling.clone(), step, &[], 0);
            assert_eq!(sampler.sample(&mut [1.0, -0.0, 3.0, 3.0, 2.0], None).unwrap(), 2);
            assert_eq!(sampler.sample(&mut [-0.0, 0.0, NONE], None).unwrap(), 0);
        }
    }
}

#[test]
fn only_the_plain_arg_max_is_greedy() {
    assert!(!drawn().is_greedy());
    assert!(!Sampling { repetition_penalty: 1.1, ..Sampling::default() }.is_greedy());
    assert!(!Sampling { presence_penalty: 0.1, ..Sampling::default() }.is_greedy());
    assert!(!Sampling { frequency_penalty: 0.1, ..Sampling::default() }.is_greedy());
    assert!(!Sampling { logit_bias: vec![(0, 1.0)], ..Sampling::default() }.is_greedy());
    // Still no draw, but penalties move the maximum.
    let sampling = Sampling { frequency_penalty: 1.0, ..Sampling::default() };
    let mut sampler = sampler(sampling);
    let mut tokens = Vec::new();
    for _ in 0..4 {
        tokens.push(sampler.sample(&mut [1.5, 2.0, 0.0], None).unwrap());
    }
    assert_eq!(tokens, [1, 0, 1, 0]);
}

#[test]
fn top_k_keeps_the_lowest_ids_at_its_border() {
    let logits = [1.0, 2.0, 1.0, 3.0, 1.0];
    let with = |top_k| kept(Sampling { top_k, ..drawn() }, &logits);
    assert_eq!(with(2), [1, 3]);
    assert_eq!(with(3), [0, 1, 3]);
    assert_eq!(with(4), [0, 1, 2, 3]);
    for off in [0, -1, 5, 6, i64::MAX] {
        assert_eq!(with(off), [0, 1, 2, 3, 4], "{off}");
    }
}

#[test]
fn top_p_keeps_the_token_that_crosses() {
    let logits = logs(&[0.1, 0.4, 0.2, 0.3]);
    let with = |top_p| kept(Sampling { top_p, ..drawn() }, &logits);
    assert_eq!(with(1.0), [0, 1, 2, 3]);
    assert_eq!(with(0.95), [0, 1, 2, 3]);
    assert_eq!(with(0.85), [1, 2, 3]);
    assert_eq!(with(0.65), [1, 3]);
    assert_eq!(with(0.35), [1]);
    assert_eq!(with(1e-30), [1]);
    // Exactly reached: the next one is not needed. Equals: the lowest ids.
    assert_eq!(kept(Sampling { top_p: 0.5, ..drawn() }, &[1.0; 4]), [0, 1]);
    assert_eq!(kept(Sampling { top_p: 0.5, ..drawn() }, &[1.0; 200]), (0..100).collect::<Vec<u32>>());
}

#[test]
fn min_p_is_relative_to_the_best() {
    let logits = logs(&[0.1, 0.4, 0.2, 0.3]);
    let with = |min_p| kept(Sampling { min_p, ..drawn() }, &logits);
    assert_eq!(with(0.0), [0, 1, 2, 3]);
    assert_eq!(with(0.3), [1, 2, 3]);
    assert_eq!(with(0.6), [1, 3]);
    assert_eq!(with(1.0), [1]);
    // The best and its ties, and not what only rounds to them.
    assert_eq!(kept(Sampling { min_p: 1.0, ..drawn() }, &[2.0, 1.999_999_9, 2.0]), [0, 2]);
}

#[test]
fn each_cut_works_on_what_the_one_before_has_left() {
    let logits = logs(&[0.1, 0.4, 0.2, 0.3]);
    // Of 0.4 and 0.3 the first has 0.57 of the rest: enough for 0.5, though 0.4 of the whole is not.
    assert_eq!(kept(Sampling { top_k: 2, top_p: 0.5, ..drawn() }, &logits), [1]);
    assert_eq!(kept(Sampling { min_p: 0.6, top_p: 0.5, ..drawn() }, &logits), [1]);
    assert_eq!(kept(Sampling { top_p: 0.5, ..drawn() }, &logits), [1, 3]);
    // The temperature comes first: at 2 the weights are as the roots, 0.316, 0.632, 0.447, 0.548.
    let warm = Sampling { temperature: 2.0, ..drawn() };
    assert_eq!(kept(Sampling { min_p: 0.6, ..warm.clone() }, &logits), [1, 2, 3]);
    assert_eq!(kept(Sampling { top_p: 0.65, ..warm }, &logits), [1, 2, 3]);
}

#[test]
fn tokens_without_a_chance_are_never_kept() {
    assert_eq!(kept(Sampling { top_k: 2, ..drawn() }, &[NONE, 1.0, NONE]), [1]);
    assert_eq!(kept(Sampling { top_p: 0.999_999_9, ..drawn() }, &[NONE, 1.0, NONE]), [1]);
    assert_eq!(kept(Sampling { temperature: 2e-5, ..drawn() }, &[f32::MAX, f32::MIN]), [0]);
}

#[test]
fn draws_follow_the_probabilities() {
    let logits = logs(&[0.1, 0.4, 0.2, 0.3]);
    let mut sampler = sampler(drawn());
    let mut counts = [0; 4];
    for _ in 0..20_000 {
        counts[sampler.sample(&mut logits.clone(), None).unwrap() as usize] += 1;
    }
    for (count, probability) in counts.into_iter().zip([0.1, 0.4, 0.2, 0.3]) {
        // Six standard deviations.
        let expected = 20_000.0 * probability;
        let bound = 6.0 * f64::sqrt(expected * (1.0 - probability));
        assert!((f64::from(count) - expected).abs() < bound, "{counts:?}");
    }
}

fn tokens(seed: u64, choice: u64) -> Vec<u32> {
    let mut sampler = Sampler::new(drawn(), seed, &[], choice);
    (0..24).map(|_| sampler.sample(&mut [0.0; 1000], None).unwrap()).collect()
}

#[test]
fn draws_depend_on_seed_choice_and_step_alone() {
    assert_eq!(tokens(1, 0), tokens(1, 0));
    assert_ne!(tokens(1, 0), tokens(2, 0));
    assert_ne!(tokens(1, 0), tokens(1, 1));
    let distinct: std::collections::HashSet<u32> = tokens(1, 0).into_iter().collect();
    assert!(distinct.len() > 12, "the steps of one answer must differ: {distinct:?}");
    // These stand for all releases and machines: whoever gave a seed wants the same answer again.
    assert_eq!(tokens(1, 0)[..4], [402, 80, 596, 219]);

    // A step that was chosen elsewhere counts; a step that failed does not.
    let mut sampler = Sampler::new(drawn(), 1, &[], 0);
    sampler.accept(5);
    assert!(sampler.sample(&mut [f32::NAN], None).is_err());
    assert_eq!(sampler.sample(&mut [0.0; 1000], None).unwrap(), tokens(1, 0)[1]);
}

#[test]
fn numbers_that_are_none_fail_the_step() {
    let failure = |logits: &mut [f32], mask: Option<&[u32]>| {
        sampler(drawn()).sample(logits, mask).map_err(|error| (error.kind(), error.to_string()))
    };
    for broken in [f32::NAN, f32::INFINITY] {
        let (kind, message) = failure(&mut [1.0, 2.0, broken, 0.0], None).unwrap_err();
        assert_eq!(kind, ErrorKind::DeviceFailed);
        assert!(message.contains("token 2"), "{message}");
        assert!(sampler(Sampling::default()).sample(&mut [broken], None).is_err());
    }
    let mut later = Sampler::new(Sampling::default(), 7, &[4, 5, 6], 0);
    later.accept(7);
    let message = later.sample(&mut [1.0, f32::NAN], None).unwrap_err().to_string();
    for part in ["position 4", "token 1 is NaN", "--device reference"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(failure(&mut [NONE; 3], None).unwrap_err().0, ErrorKind::DeviceFailed);
    assert_eq!(failure(&mut [], None).unwrap_err().0, ErrorKind::DeviceFailed);
    assert_eq!(failure(&mut [1.0, NONE], Some(&[0b10])).unwrap_err().0, ErrorKind::InvalidArguments);
    assert_eq!(failure(&mut [NONE, 1.0], None), Ok(1));
}

#[test]
fn all_problems_are_named_at_once() {
    let wrong = Sampling {
        temperature: f32::NAN,
        top_k: -2,
        top_p: 1.5,
        min_p: -0.1,
        repetition_penalty: 0.0,
        presence_penalty: 2.5,
        frequency_penalty: f32::NEG_INFINITY,
        logit_bias: vec![(10, 1.0), (3, f32::INFINITY), (3, 1.0)],
        seed: None,
    };
    let error = wrong.validate(10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArguments);
    let message = error.to_string();
    for name in [
        "temperature is NaN",
        "top_k is -2",
        "top_p is 1.5",
        "min_p is -0.1",
        "repetition_penalty is 0",
        "presence_penalty is 2.5",
        "frequency_penalty is -inf",
        "names token 10",
        "token 3 is inf",
        "token 3 twice",
    ] {
        assert!(message.contains(name), "{name}: {message}");
    }
    for temperature in [-0.1, f32::INFINITY] {
        assert!(Sampling { temperature, ..drawn() }.validate(10).is_err());
    }
}

#[test]
fn the_edges_of_what_is_allowed() {
    assert!(Sampling::default().validate(10).is_ok());
    for top_k in [-1, 0, 1, i64::MAX] {
        assert!(Sampling { top_k, temperature: 5.0, ..drawn() }.validate(10).is_ok());
    }
    for edge in [0.0, 1.0] {
        assert!(Sampling { top_p: edge, min_p: edge, ..drawn() }.validate(10).is_ok());
    }
    for penalty in [-2.0, 2.0] {
        let sampling = Sampling { presence_penalty: penalty, frequency_penalty: penalty, ..drawn() };
        assert!(sampling.validate(10).is_ok());
    }
    assert!(Sampling { logit_bias: vec![(9, -100.0)], ..drawn() }.validate(10).is_ok());
}

/// The cuts as they are defined, with full sorts. None where top-p meets its border but for rounding.
fn kept_by_definition(sampling: &Sampling, logits: &[f32]) -> Option<Vec<u32>> {
    let best = draw::largest(logits);
    let weight = |id: usize| (f64::from(logits[id] - best) / f64::from(sampling.temperature)).exp();
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    if sampling.top_k > 0 {
        ids.truncate(sampling.top_k as usize);
    }
    let close = |a: f64, b: f64| (a - b).abs() < 1e-5;
    if ids.iter().any(|&id| close(weight(id), f64::from(sampling.min_p))) {
        return None;
    }
    ids.retain(|&id| weight(id) >= f64::from(sampling.min_p));
    let total: f64 = ids.iter().map(|&id| weight(id)).sum();
    let mut reached = 0.0;
    let mut keep = 0;
    while keep < ids.len() && reached < f64::from(sampling.top_p) {
        reached += weight(ids[keep]) / total;
        keep += 1;
        if sampling.top_p < 1.0 && close(reached, f64::from(sampling.top_p)) {
            return None;
        }
    }
    if sampling.top_p < 1.0 {
        ids.truncate(keep);
    }
    let mut ids: Vec<u32> = ids.into_iter().map(|id| id as u32).collect();
    ids.sort_unstable();
    Some(ids)
}

proptest! {
    #[test]
    fn cuts_without_a_sort_keep_what_cuts_with_a_sort_keep(
        steps in prop::collection::vec(-20_i32..20, 2..300),
        temperature in 0.2_f32..3.0,
        top_k in -1_i64..350,
        top_p in prop_oneof![Just(1.0_f32), 0.01_f32..1.0],
        min_p in prop_oneof![Just(0.0_f32), 0.001_f32..0.9],
    ) {
        let logits: Vec<f32> = steps.iter().map(|&step| step as f32 * 0.25).collect();
        let sampling = Sampling { temperature, top_k, top_p, min_p, ..drawn() };
        if let Some(expected) = kept_by_definition(&sampling, &logits) {
            prop_assert_eq!(kept(sampling, &logits), expected);
        }
    }
}

/// Run with `--release -- --ignored --nocapture` to see what a call costs.
#[test]
#[ignore = "measures, and proves nothing"]
fn time_of_a_call() {
    let mut state = 1_u32;
    let mut uniform = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 16_777_216.0
    };
    let flat: Vec<f32> = (0..151_936).map(|_| 3.0 * (0..12).map(|_| uniform()).sum::<f32>()).collect();
    let mut peaked = flat.clone();
    peaked[77] += 20.0;
    for (name, logits) in [("peaked", peaked), ("flat", flat.clone()), ("all equal", vec![1.0; 151_936])] {
        for (top_k, top_p, min_p) in [(0, 0.95, 0.0), (0, 1.0, 0.0), (40, 0.95, 0.0), (20, 0.95, 0.05)] {
            let mut sampler = sampler(Sampling { temperature: 0.8, top_k, top_p, min_p, ..drawn() });
            let mut row = logits.clone();
            sampler.sample(&mut row, None).unwrap();
            let mut times: Vec<u128> = (0..100)
                .map(|_| {
                    row.copy_from_slice(&logits);
                    let start = std::time::Instant::now();
                    sampler.sample(&mut row, None).unwrap();
                    start.elapsed().as_micros()
                })
                .collect();
            times.sort_unstable();
            eprintln!("{name:9} top_k {top_k:2} top_p {top_p:4} min_p {min_p:4}: {} µs", times[50]);
        }
    }
}
