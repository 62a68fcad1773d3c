//! The demo model against transformers: answers, scores, and what integer weights cost.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::path::Path;

use serde::Deserialize;
use whin::{Device, Engine, KvKind, Options, Prompt, Request, Weights};

#[derive(Deserialize)]
struct Answers {
    prompts: Vec<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    text: String,
    ids: Vec<u32>,
    greedy_ids: Vec<u32>,
    /// By how much the best logit leads at each greedy token.
    gaps: Vec<f32>,
    /// The best ids at the first of them, with their logits.
    top: Vec<(u32, f32)>,
}

#[derive(Deserialize)]
struct Texts {
    documents: Vec<Document>,
}

#[derive(Deserialize)]
struct Document {
    text: String,
    ids: Vec<u32>,
    /// Of each token after the first.
    logprobs: Vec<f64>,
}

fn fixture<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn engine(device: Device, weights: Weights, kv: KvKind) -> Engine {
    Engine::load(None, &Options { device, weights, kv, ..Options::default() }).unwrap()
}

#[test]
fn greedy_answers_are_those_of_transformers() {
    let answers: Answers = fixture("seedling-golden.json");
    assert!(answers.prompts.len() >= 20);
    let engine = engine(Device::Auto, Weights::Bf16, KvKind::F32);
    for answer in &answers.prompts {
        // Where two tokens are all but equally likely, the last bits of a logit decide, and they are nobody's fault.
        let sure = answer.gaps.iter().position(|gap| *gap < 0.02).unwrap_or(answer.gaps.len());
        let request = Request {
            max_new_tokens: Some(sure.max(1)),
            ignore_eos: true,
            logprobs: Some(5),
            ..Request::text(answer.text.clone())
        };
        let completion = engine.generate(&request).unwrap().finish().unwrap();
        assert_eq!(completion.token_ids[..completion.n_prompt], answer.ids, "{}", answer.text);
        assert_eq!(
            completion.token_ids[completion.n_prompt..],
            answer.greedy_ids[..sure.max(1)],
            "{}",
            answer.text
        );
        let top = &completion.logprobs.unwrap()[0].top;
        for (found, right) in top.iter().zip(&answer.top) {
            assert_eq!(found.0, right.0, "{}", answer.text);
            let (found, right) = (found.1 - top[0].1, right.1 - answer.top[0].1);
            assert!((found - right).abs() < 2e-3, "{}: {found} is not {right}", answer.text);
        }
    }
}

#[test]
fn the_backends_agree_on_integer_weights() {
    let answers: Answers = fixture("seedling-golden.json");
    for weights in [Weights::Int8, Weights::Int8Groups, Weights::Int4, Weights::Int4All] {
        let [reference, cpu] =
            [Device::Reference, Device::Auto].map(|device| engine(device, weights, KvKind::Bf16));
        for answer in answers.prompts.iter().take(4) {
            let request = Request { max_new_tokens: Some(12), ..Request::text(answer.text.clone()) };
            let [a, b] =
                [&reference, &cpu].map(|engine| engine.generate(&request).unwrap().finish().unwrap());
            assert_eq!(a.token_ids, b.token_ids, "{} with {}", answer.text, weights.name());
        }
    }
}

/// Log-probabilities of all tokens but the first of each document.
fn scores(engine: &Engine, documents: &[Document]) -> Vec<f64> {
    let score = |document: &Document| {
        let score = engine.score(&Prompt::Text(document.text.clone())).unwrap();
        assert_eq!(score.token_ids, document.ids);
        assert_eq!(score.logprobs[0], None);
        score.logprobs[1..].iter().map(|logprob| logprob.unwrap()).collect::<Vec<f64>>()
    };
    documents.iter().flat_map(score).collect()
}

#[test]
fn scores_are_those_of_transformers_and_integers_cost_less_than_a_percent() {
    let texts: Texts = fixture("seedling-text.json");
    let right: Vec<f64> = texts.documents.iter().flat_map(|document| document.logprobs.clone()).collect();
    assert!(right.len() >= 2000);
    let exact = scores(&engine(Device::Auto, Weights::Bf16, KvKind::F32), &texts.documents);
    for (found, right) in exact.iter().zip(&right) {
        assert!((found - right).abs() < 2e-3, "{found} is not {right}");
    }
    let perplexity = |scores: &[f64]| (-scores.iter().sum::<f64>() / scores.len() as f64).exp();
    println!("perplexity over {} tokens: {:.5}", right.len(), perplexity(&exact));
    for (weights, kv) in [
        (Weights::Bf16, KvKind::Bf16),
        (Weights::Int8, KvKind::F32),
        (Weights::Int8, KvKind::Bf16),
        (Weights::Bf16, KvKind::Int8),
        (Weights::Int8Groups, KvKind::Bf16),
        (Weights::Int4, KvKind::Bf16),
        (Weights::Int4All, KvKind::Bf16),
    ] {
        let ratio =
            perplexity(&scores(&engine(Device::Auto, weights, kv), &texts.documents)) / perplexity(&exact);
        let what = format!("weights in {} and keys and values in {}", weights.name(), kv.name());
        println!("{what}: × {ratio:.5}");
        assert!((ratio - 1.0).abs() < 0.01, "{what} change the perplexity by a factor of {ratio}");
    }
}
