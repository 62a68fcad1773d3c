//! The engine through its public door: neighbours, streams, seeds, limits, cancelling.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::path::Path;

use whin::{
    CacheMode, Device, Engine, ErrorKind, FinishReason, KvKind, Options, Prompt, Request, Sampling, Token,
    Weights,
};

fn engine() -> Engine {
    Engine::load(None, &Options { threads: Some(2), ..Options::default() }).unwrap()
}

fn drawn(seed: u64) -> Sampling {
    Sampling { temperature: 0.9, top_p: 0.95, seed: Some(seed), ..Sampling::default() }
}

#[test]
fn an_answer_does_not_depend_on_its_neighbours() {
    let engine = engine();
    let requests: Vec<Request> = (0..9)
        .map(|i| {
            let text =
                ["Once upon a time", "The capital of Peru is", "<|im_start|>user\nHello", "One windy day"]
                    [i % 4];
            Request {
                max_new_tokens: Some(20 + 9 * i),
                sampling: if i % 3 == 0 { Sampling::default() } else { drawn(i as u64) },
                ignore_eos: true,
                ..Request::text(text.repeat(1 + 11 * (i % 5)))
            }
        })
        .collect();
    let alone: Vec<Vec<u32>> = requests
        .iter()
        .map(|request| engine.generate(request).unwrap().finish().unwrap().token_ids)
        .collect();
    let together: Vec<_> = requests.iter().map(|request| engine.generate(request).unwrap()).collect();
    for (generation, alone) in together.into_iter().zip(&alone) {
        assert_eq!(generation.finish().unwrap().token_ids, *alone);
    }
    // And from several threads at once.
    std::thread::scope(|scope| {
        for (request, alone) in requests.iter().zip(&alone) {
            let engine = engine.clone();
            scope.spawn(move || {
                assert_eq!(engine.generate(request).unwrap().finish().unwrap().token_ids, *alone);
            });
        }
    });
}

#[test]
fn chunks_threads_and_blocks_change_nothing() {
    let request = Request {
        max_new_tokens: Some(150),
        ignore_eos: true,
        ..Request::text("Once upon a time, ".repeat(20))
    };
    let mut right = None;
    for (threads, prefill_chunk) in [(1, 512), (2, 512), (2, 64), (3, 70)] {
        let options = Options { threads: Some(threads), prefill_chunk, ..Options::default() };
        let engine = Engine::load(None, &options).unwrap();
        let ids = engine.generate(&request).unwrap().finish().unwrap().token_ids;
        assert_eq!(
            *right.get_or_insert_with(|| ids.clone()),
            ids,
            "{threads} threads, chunks of {prefill_chunk}"
        );
    }
}

/// Over spans of the context: log-probabilities show a difference in any bit of the forward pass. Scores come from steps
/// that several texts share; an answer follows a prompt that runs a whole chunk at a time, and its own tokens one by one.
#[test]
fn every_bit_is_the_same_whatever_the_threads_the_chunks_and_the_neighbours() {
    let ids: Vec<u32> = (0..700_u32).map(|i| 7 + i * i % 5000).collect();
    let text = Prompt::Ids(ids.clone());
    let forms = [
        (Weights::Int8, KvKind::Bf16),
        (Weights::Int8, KvKind::Int8),
        (Weights::Int8Groups, KvKind::Bf16),
        (Weights::Int4, KvKind::F32),
        (Weights::Int4All, KvKind::Bf16),
        (Weights::Bf16, KvKind::Bf16),
    ];
    for (weights, kv) in forms {
        let mut right = None;
        for (threads, prefill_chunk) in [(1, 512), (2, 512), (3, 37), (2, 700), (2, 1)] {
            let options =
                Options { threads: Some(threads), prefill_chunk, weights, kv, ..Options::default() };
            let engine = Engine::load(None, &options).unwrap();
            let neighbour = Prompt::Ids((0..300_u32).map(|i| 9 + i % 4000).collect());
            let scores = std::thread::scope(|scope| {
                let others = (0..2).map(|_| scope.spawn(|| engine.score(&neighbour).unwrap().logprobs));
                let others: Vec<_> = others.collect();
                let scores = engine.score(&text).unwrap().logprobs;
                let others: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
                assert_eq!(others[0], others[1]);
                scores
            });
            let request = Request {
                max_new_tokens: Some(8),
                ignore_eos: true,
                logprobs: Some(50),
                ..Request::ids(ids.clone())
            };
            let answer = engine.generate(&request).unwrap().finish().unwrap().logprobs.unwrap();
            assert_eq!(answer.len(), 8);
            let found = (scores, answer);
            let right = right.get_or_insert_with(|| found.clone());
            let (weights, kv) = (weights.name(), kv.name());
            assert!(found == *right, "{weights}, {kv}: {threads} threads, chunks of {prefill_chunk}");
        }
    }
}

#[test]
fn streamed_text_is_the_whole_text() {
    let engine = engine();
    for seed in 0..6 {
        // A high temperature, for tokens that cut characters.
        let sampling = Sampling { temperature: 3.0, seed: Some(seed), ..Sampling::default() };
        let request =
            Request {
                max_new_tokens: Some(100), ignore_eos: true, sampling, ..Request::text("Emoji: 🦊é")
            };
        let mut generation = engine.generate(&request).unwrap();
        let tokens: Vec<Token> = generation.by_ref().map(|token| token.unwrap()).collect();
        let completion = generation.finish().unwrap();
        let streamed: String = tokens.iter().map(|token| token.text.as_str()).collect();
        let generated = &completion.token_ids[completion.n_prompt..];
        let whole = engine.checkpoint().tokenizer().unwrap().decode(generated, true);
        assert_eq!(Some(&streamed), completion.generated_text.as_ref());
        assert_eq!(streamed, whole);
        assert_eq!(tokens.iter().map(|token| token.id).collect::<Vec<_>>(), generated);
    }
}

#[test]
fn seeds_reproduce_and_are_reported() {
    let engine = engine();
    let run = |sampling: &Sampling| {
        let request = Request {
            max_new_tokens: Some(40),
            sampling: sampling.clone(),
            ..Request::text("Once upon a time")
        };
        engine.generate(&request).unwrap().finish().unwrap()
    };
    let unset = Sampling { seed: None, ..drawn(0) };
    let first = run(&unset);
    assert_eq!(run(&Sampling { seed: Some(first.seed), ..unset.clone() }).token_ids, first.token_ids);
    assert_ne!(run(&unset).seed, first.seed);
    assert_ne!(run(&drawn(1)).token_ids, run(&drawn(2)).token_ids);
    let greedy = run(&Sampling::default()).token_ids;
    assert_eq!(run(&Sampling { top_k: 1, temperature: 1.7, ..Sampling::default() }).token_ids, greedy);
}

#[test]
fn stops_cut_the_text_and_name_themselves() {
    let engine = engine();
    let run = |stop: &[&str]| {
        let stop = stop.iter().map(|s| (*s).to_owned()).collect();
        let request = Request { stop, max_new_tokens: Some(60), ..Request::text("The capital of France is") };
        engine.generate(&request).unwrap().finish().unwrap()
    };
    let stopped = run(&["nothing", "ris."]);
    assert_eq!(stopped.generated_text.as_deref(), Some(" Pa"));
    assert_eq!((stopped.finish_reason, stopped.stop.as_deref()), (FinishReason::Stop, Some("ris.")));
    let unstopped = run(&["Paris.!"]);
    assert_eq!(unstopped.generated_text.as_deref(), Some(" Paris."));
    assert_eq!((unstopped.finish_reason, unstopped.stop), (FinishReason::Eos, None));
}

#[test]
fn a_dropped_generation_ends_and_others_go_on() {
    let engine = engine();
    let endless = Request { ignore_eos: true, ..Request::text("Once upon a time") };
    for _ in 0..70 {
        let mut generation = engine.generate(&endless).unwrap();
        assert!(generation.next().unwrap().is_ok());
    }
    let short = Request { max_new_tokens: Some(3), ..Request::text("The capital of France is") };
    let completion = engine.generate(&short).unwrap().finish().unwrap();
    assert_eq!(completion.generated_text.as_deref(), Some(" Paris."));
    // Cancelled from elsewhere, what was generated stays.
    let mut generation = engine.generate(&endless).unwrap();
    assert!(generation.next().unwrap().is_ok());
    generation.canceller().cancel();
    let completion = generation.finish().unwrap();
    assert_eq!(completion.finish_reason, FinishReason::Cancelled);
    assert!(completion.n_generated() >= 1);
}

#[test]
fn more_requests_than_run_at_once_all_get_their_answer() {
    let engine = engine();
    let request = Request { max_new_tokens: Some(3), ..Request::text("The capital of France is") };
    let all: Vec<_> = (0..150).map(|_| engine.generate(&request).unwrap()).collect();
    for generation in all {
        assert_eq!(generation.finish().unwrap().generated_text.as_deref(), Some(" Paris."));
    }
}

#[test]
fn the_window_is_a_promise() {
    let engine = Engine::load(None, &Options { context: Some(64), ..Options::default() }).unwrap();
    let ids = |n: usize| Request { ignore_eos: true, ..Request::ids(vec![313; n]) };
    let kind = |request: &Request| engine.generate(request).err().map(|error| error.kind());
    assert_eq!(kind(&ids(64)), Some(ErrorKind::ContextExceeded));
    assert_eq!(kind(&Request { max_new_tokens: Some(55), ..ids(10) }), Some(ErrorKind::ContextExceeded));
    assert_eq!(
        kind(&Request { max_new_tokens: Some(usize::MAX), ..ids(10) }),
        Some(ErrorKind::ContextExceeded)
    );
    let guarded = Request { max_new_tokens: Some(30), max_ctx: Some(39), ..ids(10) };
    assert_eq!(kind(&guarded), Some(ErrorKind::ContextExceeded));
    assert_eq!(kind(&Request { max_new_tokens: Some(0), ..ids(10) }), Some(ErrorKind::InvalidArguments));
    assert_eq!(kind(&ids(0)), Some(ErrorKind::InvalidArguments));
    assert_eq!(kind(&Request::ids([6144])), Some(ErrorKind::InvalidArguments));
    let message = engine.generate(&ids(70)).err().unwrap().to_string();
    assert!(message.contains("70") && message.contains("64"), "{message}");
    let completion = engine.generate(&ids(10)).unwrap().finish().unwrap();
    assert_eq!((completion.token_ids.len(), completion.finish_reason), (64, FinishReason::Length));
    let completion = engine.generate(&Request { max_ctx: Some(20), ..ids(10) }).unwrap().finish().unwrap();
    assert_eq!(completion.token_ids.len(), 20);
    assert_eq!(engine.score(&Prompt::Ids(vec![313; 65])).err().unwrap().kind(), ErrorKind::ContextExceeded);
    assert_eq!(engine.score(&Prompt::Ids(vec![313; 64])).unwrap().logprobs.len(), 64);
}

#[test]
fn scores_do_not_depend_on_the_steps_or_the_backend() {
    let ids: Vec<u32> = (0..150).map(|i| (i * 37) % 6000).collect();
    let score = |device, weights| {
        let engine =
            Engine::load(None, &Options { device, weights, kv: KvKind::F32, ..Options::default() }).unwrap();
        engine.score(&Prompt::Ids(ids.clone())).unwrap()
    };
    let cpu = score(Device::Auto, Weights::F32);
    let reference = score(Device::Reference, Weights::F32);
    assert_eq!(cpu.logprobs.len(), 150);
    for (a, b) in cpu.logprobs.iter().zip(&reference.logprobs).skip(1) {
        assert!((a.unwrap() - b.unwrap()).abs() < 1e-3);
    }
    let one = engine().score(&Prompt::Ids(vec![5])).unwrap();
    assert_eq!((one.logprobs, one.token_ids.len()), (vec![None], 1));
    assert!((cpu.perplexity().unwrap() / reference.perplexity().unwrap() - 1.0).abs() < 1e-3);
}

#[test]
fn logprobs_are_those_of_the_model_whatever_changes_the_choice() {
    let engine = engine();
    let run = |sampling: Sampling| {
        let request = Request {
            sampling,
            logprobs: Some(3),
            max_new_tokens: Some(1),
            ..Request::text("Once upon a time")
        };
        engine.generate(&request).unwrap().finish().unwrap().logprobs.unwrap().remove(0)
    };
    let plain = run(Sampling::default());
    let forced = Sampling {
        temperature: 0.7,
        top_k: 1,
        repetition_penalty: 3.0,
        logit_bias: vec![(plain.token_id, -50.0)],
        ..Sampling::default()
    };
    let forced = run(forced);
    assert_ne!(forced.token_id, plain.token_id);
    assert_eq!(forced.top, plain.top);
    assert!((plain.top[0].1 - plain.logprob).abs() < 1e-6 && forced.logprob < plain.logprob);
}

#[test]
fn end_tokens_do_not_depend_on_whether_the_tokenizer_was_read() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/seedling");
    let folder = tempfile::TempDir::new().unwrap();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(name), folder.path().join(name)).unwrap();
    }
    let config = std::fs::read(from.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    config["eos_token_id"] = serde_json::Value::Null;
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let checkpoint = whin::Checkpoint::open(Some(folder.path())).unwrap();
    let before = checkpoint.end_tokens();
    let id = checkpoint.tokenizer().unwrap().token_to_id("<|im_end|>").unwrap();
    assert_eq!(*before, [id]);
    assert_eq!(checkpoint.end_tokens(), before);
}

/// A text of Phi-3 that outgrows the length of its first training goes on as if all of it had been the prompt.
#[test]
fn a_text_that_becomes_long_is_as_one_that_was() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/phi3-longrope");
    for prefill_chunk in [512, 5] {
        let options = Options { cache: CacheMode::Off, prefill_chunk, ..Options::default() };
        let engine = Engine::load(Some(Path::new(folder)), &options).unwrap();
        let vocab = engine.checkpoint().spec().vocab as u32;
        // 32 positions are short.
        for start in [20, 31, 32, 33] {
            let prompt: Vec<u32> = (0..start).map(|i| (i * 37 + 11) % vocab).collect();
            let answer = |prompt: &[u32], max_new_tokens| {
                let limit = Some(max_new_tokens);
                let request = Request { max_new_tokens: limit, ignore_eos: true, ..Request::ids(prompt) };
                engine.generate(&request).unwrap()
            };
            let whole = answer(&prompt, 30).finish().unwrap().token_ids;
            // Beside others, which cross at other times or never, it is the same.
            let others = [3, 12, 29].map(|len| answer(&vec![7; len], 40));
            assert_eq!(answer(&prompt, 30).finish().unwrap().token_ids, whole);
            others.into_iter().for_each(|other| drop(other.finish().unwrap()));
            for end in prompt.len()..whole.len() {
                let next = answer(&whole[..end], 1).finish().unwrap().token_ids;
                assert_eq!(next, whole[..=end], "after {end} tokens");
            }
        }
    }
}
