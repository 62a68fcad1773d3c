//! Answers of an enforced form, on the demo model, at temperatures where nothing comes right by itself.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::sync::LazyLock;

use serde_json::{Value, json};
use whin::constrain::Format;
use whin::{Chat, Completion, Engine, ErrorKind, FinishReason, Options, Request, Sampling};

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::load(None, &Options::default()).unwrap());

/// Runs of each form.
const RUNS: u64 = 200;

fn complete(base: &Request, seed: u64) -> Completion {
    let sampling = Sampling { temperature: 1.5, seed: Some(seed), ..Sampling::default() };
    let request = Request { sampling, ..base.clone() };
    ENGINE.generate(&request).unwrap().finish().unwrap()
}

fn question(format: Format) -> Request {
    let chat = Chat::new([json!({"role": "user", "content": "What is the capital of Japan?"})]);
    Request { format: Some(format), max_new_tokens: Some(300), ..Request::chat(chat) }
}

#[test]
fn json_is_what_the_schema_says_in_every_run() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1, "maxLength": 20},
            "people": {"type": "integer", "minimum": 0, "maximum": 99_000_000},
            "capital": {"type": "boolean"},
            "kind": {"enum": ["town", "city", null]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
            "place": {
                "type": "object",
                "properties": {"x": {"type": "number", "multipleOf": 0.5, "minimum": -90, "maximum": 90}},
                "additionalProperties": false,
            },
        },
        "required": ["city", "people", "capital", "tags", "place"],
        "additionalProperties": false,
    });
    let validator = jsonschema::validator_for(&schema).unwrap();
    let request = question(Format::json_schema(schema));
    for seed in 0..RUNS {
        let completion = complete(&request, seed);
        let content = completion.answer.unwrap().content.unwrap();
        assert_eq!(completion.finish_reason, FinishReason::Eos, "{content}");
        let value: Value =
            serde_json::from_str(&content).unwrap_or_else(|error| panic!("{error}: {content}"));
        validator.validate(&value).unwrap_or_else(|error| panic!("{error}: {content}"));
    }
}

#[test]
fn a_regular_expression_is_obeyed_in_every_run() {
    let pattern = r"[A-Z][a-zé]{2,12}( und [A-Z][a-z]{1,9})? are (good|bad|🙂), [0-9]{3}\.[^\n]?";
    let regex = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
    let request = question(Format::Regex(pattern.to_owned()));
    for seed in 0..RUNS {
        let completion = complete(&request, seed);
        let content = completion.answer.unwrap().content.unwrap();
        assert!(regex.is_match(&content), "{content:?}");
        assert_eq!(completion.finish_reason, FinishReason::Eos);
    }
}

#[test]
fn grammars_and_choices_are_obeyed_as_well() {
    let choices = ["yes", "no", "yes, \"perhaps\"\n", ""].map(str::to_owned);
    let request = question(Format::Choice(choices.to_vec()));
    for seed in 0..40 {
        let content = complete(&request, seed).answer.unwrap().content.unwrap_or_default();
        assert!(choices.contains(&content), "{content:?}");
    }
    let lark = "start: sum\nsum: NUMBER (\" + \" NUMBER)*\nNUMBER: /[1-9][0-9]{0,2}/\n";
    let request = Request { max_new_tokens: Some(40), ..question(Format::Lark(lark.to_owned())) };
    for seed in 0..40 {
        let completion = complete(&request, seed);
        let content = completion.answer.unwrap().content.unwrap_or_default();
        let is_number = |part: &str| part.len() <= 3 && !part.starts_with('0') && part.parse::<u32>().is_ok();
        if completion.finish_reason == FinishReason::Eos {
            assert!(content.split(" + ").all(is_number), "{content:?}");
        }
    }
}

#[test]
fn the_form_begins_where_the_thoughts_end() {
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer", "maximum": 9, "minimum": 0}},
        "required": ["x"], "additionalProperties": false});
    let mut chat = Chat::new([json!({"role": "user", "content": "What is the capital of Japan?"})]);
    chat.conversation.template_kwargs.insert("enable_thinking".to_owned(), true.into());
    let request = Request {
        format: Some(Format::json_schema(schema)),
        max_new_tokens: Some(400),
        ..Request::chat(chat)
    };
    let completion = ENGINE.generate(&request).unwrap().finish().unwrap();
    let answer = completion.answer.unwrap();
    assert_eq!(answer.reasoning.as_deref(), Some("I should be brief and kind."));
    let value: Value = serde_json::from_str(&answer.content.unwrap()).unwrap();
    assert!(value["x"].is_number());
    for seed in 0..40 {
        let Completion { answer, finish_reason, .. } = complete(&request, seed);
        let answer = answer.unwrap();
        assert!(answer.reasoning.is_some());
        if finish_reason == FinishReason::Eos {
            let value: Value = serde_json::from_str(&answer.content.unwrap()).unwrap();
            assert!(value["x"].is_number());
        }
    }
}

#[test]
fn texts_without_messages_obey_too() {
    let request = Request {
        format: Some(Format::Regex(" [A-Z]{3}!".to_owned())),
        max_new_tokens: Some(20),
        ..Request::text("The capital of France is")
    };
    for seed in 0..20 {
        let text = complete(&request, seed).generated_text.unwrap();
        assert!(text.len() == 5 && text.starts_with(' ') && text.ends_with('!'), "{text:?}");
    }
    let ids = ENGINE.checkpoint().tokenizer().unwrap().encode("The capital of France is").unwrap();
    let request = Request { detokenize: true, prompt: whin::Prompt::Ids(ids), ..request };
    assert_eq!(complete(&request, 1).generated_text.unwrap().len(), 5);
}

#[test]
fn seeds_and_neighbours_change_nothing() {
    let request = question(Format::Regex("[a-z ]{5,30}\\.".to_owned()));
    let alone = complete(&request, 7).token_ids;
    let together: Vec<_> = (0..8)
        .map(|i| {
            let sampling = Sampling { temperature: 1.5, seed: Some(7), ..Sampling::default() };
            let format = if i % 2 == 0 { request.format.clone() } else { None };
            ENGINE.generate(&Request { sampling, format, ..request.clone() }).unwrap()
        })
        .collect();
    for (i, generation) in together.into_iter().enumerate() {
        let ids = generation.finish().unwrap().token_ids;
        assert_eq!(ids == alone, i % 2 == 0, "{i}");
    }
}

#[test]
fn what_cannot_be_enforced_is_refused_by_name() {
    for (format, part) in [
        (Format::json_schema(json!({"type": "object", "not": {}})), "not"),
        (Format::json_schema(json!({"type": "strin"})), "strin"),
        (Format::Regex("(a".to_owned()), "(a"),
        (Format::Regex("(?=a)b".to_owned()), "look"),
        (Format::Choice(Vec::new()), "choice"),
        (Format::Lark("start: nothing".to_owned()), "nothing"),
    ] {
        let error = ENGINE.generate(&question(format)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArguments, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}
