//! Enforced tool calls on the demo model, and what else an enforced form has to do with: ends, log-probabilities,
//! continued messages.

use std::sync::OnceLock;

use serde_json::{Value, json};
use whin::chat::{Chat, ToolChoice};
use whin::constrain::Format;
use whin::{Completion, Engine, ErrorKind, FinishReason, Options, Request, Sampling};

fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::load(None, &Options::default()).expect("an answer"))
}

fn user(text: &str) -> Vec<Value> {
    vec![json!({ "role": "user", "content": text })]
}

fn wild(seed: u64) -> Sampling {
    Sampling { temperature: 1.5, seed: Some(seed), ..Sampling::default() }
}

/// What the answer says, without its reasoning.
fn content(completion: &Completion) -> String {
    match &completion.answer {
        Some(answer) => answer.content.clone().expect("an answer"),
        None => completion.generated_text.clone().expect("an answer"),
    }
}

fn finish(request: &Request) -> Completion {
    engine().generate(request).expect("an answer").finish().expect("an answer")
}

fn weather() -> Value {
    json!({ "type": "function", "function": { "name": "get_weather", "parameters": { "type": "object",
        "properties": { "location": { "type": "string", "maxLength": 20 } }, "required": ["location"] } } })
}

fn chat(text: &str) -> Chat {
    let mut chat = Chat::new(user(text));
    chat.conversation.template_kwargs.insert("enable_thinking".into(), json!(false));
    chat
}

#[test]
fn one_of_several_texts_is_chosen_and_the_end_follows() {
    let choices = vec!["Tokyo".to_owned(), "Paris".to_owned()];
    let request = Request {
        format: Some(Format::Choice(choices.clone())),
        ignore_eos: true, // the form has an end of its own
        logprobs: Some(3),
        ..Request::chat(chat("What is the capital of Japan?"))
    };
    let completion = finish(&request);
    assert!(choices.contains(&content(&completion)), "{completion:?}");
    assert_eq!(completion.finish_reason, FinishReason::Eos);
    // Nothing but the two end tokens had a chance in the end.
    let last = completion.logprobs.as_ref().unwrap().last().unwrap();
    assert_eq!(last.top.len(), 2, "{last:?}");
    assert!((last.top[0].1.exp() + last.top[1].1.exp() - 1.0).abs() < 1e-5, "{last:?}");
}

#[test]
fn required_calls_are_calls() {
    for choice in [ToolChoice::Required, ToolChoice::Function("get_weather".into())] {
        for seed in 0..40 {
            let mut chat = chat("What is 2 + 2?");
            chat.conversation.tools = vec![weather()];
            chat.tool_choice = choice.clone();
            chat.parallel_tool_calls = seed % 2 == 0;
            let request = Request {
                sampling: if seed < 2 { Sampling::default() } else { wild(seed) },
                max_new_tokens: Some(1500),
                ..Request::chat(chat)
            };
            let completion = finish(&request);
            let written = completion.generated_text.unwrap();
            assert_ne!(completion.finish_reason, FinishReason::Length, "{written}");
            let answer = completion.answer.unwrap();
            assert_eq!(answer.content, None, "{answer:?}");
            assert!(!answer.tool_calls.is_empty(), "{written}");
            for call in &answer.tool_calls {
                assert_eq!(call.name, "get_weather");
                let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
                assert!(arguments["location"].is_string() && arguments.as_object().unwrap().len() == 1);
            }
        }
    }
}

#[test]
fn messages_are_continued_in_their_form() {
    let format = Some(Format::json_schema(
        json!({ "type": "array", "items": { "type": "integer", "maximum": 9 }, "maxItems": 2 }),
    ));
    let mut begun = user("Two numbers, please");
    begun.push(json!({ "role": "assistant", "content": "[3" }));
    let mut chat = chat("");
    chat.conversation.messages = begun;
    chat.conversation.continue_final_message = true;
    let request = Request { format: format.clone(), sampling: wild(1), ..Request::chat(chat.clone()) };
    let text = "[3".to_owned() + &content(&finish(&request));
    assert!(
        serde_json::from_str::<Vec<f64>>(&text)
            .is_ok_and(|items| items[0] as i64 % 10 == 3 || items[0] == 3.0),
        "{text}"
    );
    chat.conversation.messages[1]["content"] = json!("{");
    let error = engine().generate(&Request { format, ..Request::chat(chat) }).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArguments);
}

#[test]
fn contradictions_are_refused() {
    let mut chat = chat("What?");
    chat.conversation.tools = vec![weather()];
    chat.tool_choice = ToolChoice::Required;
    let request = Request { format: Some(Format::JsonObject), ..Request::chat(chat.clone()) };
    assert_eq!(engine().generate(&request).err().unwrap().kind(), ErrorKind::InvalidArguments);
    chat.conversation.tools[0]["function"]["parameters"]["properties"]["location"]["not"] = json!({});
    let error = engine().generate(&Request::chat(chat)).err().unwrap();
    assert!(error.to_string().contains("get_weather") && error.to_string().contains("not"), "{error}");
}

#[test]
fn strict_tools_are_called_as_they_want_it_or_not_at_all() {
    let (mut calls, mut spoken) = (0, 0);
    for seed in 0..60 {
        let mut chat = chat(if seed % 3 == 0 {
            "What is the capital of Japan?"
        } else {
            "What is the weather in Paris?"
        });
        let mut strict = weather();
        let parameters = json!({ "type": "object", "properties": {
            "location": { "type": "string", "enum": ["Oslo", "Lima"] }, "days": { "type": "integer", "maximum": 3 } } });
        strict["function"]["parameters"] = parameters;
        strict["function"]["strict"] = json!(true);
        chat.conversation.tools = vec![strict];
        let request = Request { sampling: wild(seed), max_new_tokens: Some(300), ..Request::chat(chat) };
        let completion = finish(&request);
        let answer = completion.answer.unwrap();
        if completion.finish_reason != FinishReason::Length {
            let content = answer.content.as_deref().unwrap_or_default();
            assert!(!content.contains("<tool_call>"), "no call: {content:?}");
        }
        spoken += usize::from(answer.tool_calls.is_empty());
        for call in &answer.tool_calls {
            calls += 1;
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            assert_eq!(call.name, "get_weather");
            assert!(["Oslo", "Lima"].contains(&arguments["location"].as_str().unwrap()), "{arguments}");
            assert!(
                arguments["days"].as_i64().unwrap() <= 3 && arguments.as_object().unwrap().len() == 2,
                "{arguments}"
            );
        }
    }
    assert!(calls > 5 && spoken > 5, "{calls} calls, {spoken} answers without");
}
