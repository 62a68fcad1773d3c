//! Enforced calls of tools: whatever is drawn from the allowed tokens is read back as calls that the tools accept.

#[allow(dead_code)]
mod walks;

use serde_json::{Value, json};
use walks::{Walker, seedling};
use whin::chat::{Answer, Conventions, Phase, Router, Syntax};
use whin::constrain::{Calls, tool_grammar};

fn tool(name: &str, parameters: Value) -> Value {
    json!({ "type": "function", "function": { "name": name, "parameters": parameters } })
}

/// Parameters of all kinds.
fn tools() -> Vec<Value> {
    vec![
        tool(
            "get_weather",
            json!({ "type": "object", "properties": {
            "location": { "type": "string", "maxLength": 12 },
            "days": { "type": "integer", "minimum": 1, "maximum": 14 },
            "unit": { "enum": ["celsius", "fahrenheit"] },
        }, "required": ["location", "unit"] }),
        ),
        tool(
            "search-2",
            json!({ "type": "object", "properties": {
            "flags": { "type": "array", "items": { "type": "boolean" }, "maxItems": 3 },
            "deep": { "type": "boolean" },
            "filter": { "type": "object", "properties": { "a": { "type": ["number", "null"] } }, "additionalProperties": false },
        }, "required": [] }),
        ),
        tool("now", json!({ "type": "object", "properties": {} })),
        json!({ "type": "function", "function": { "name": "ping" } }),
    ]
}

fn read(syntax: Syntax, tools: &[Value], text: &str) -> Answer {
    let conventions = Conventions { reasoning: None, syntax: Some(syntax) };
    let mut router = Router::new(&conventions, Phase::Content, true).with_tools(tools);
    if syntax == Syntax::Harmony {
        router = Router::new(&conventions, Phase::Undecided, true).with_tools(tools);
    }
    let mut answer = Answer::default();
    router.push(text).iter().chain(&router.finish()).for_each(|delta| answer.push(delta));
    answer
}

fn check(walker: &Walker, syntax: Syntax, calls: &Calls, count: u64) {
    let mut all = tools();
    if syntax == Syntax::Gemma4 {
        // Lists and objects are not enforced there.
        let properties = all[1]["function"]["parameters"]["properties"]
            .as_object_mut()
            .expect("a tool or a tokenizer of this test");
        properties.retain(|name, _| name == "deep");
    }
    let grammar = tool_grammar(&walker.tokenizer, syntax, &all, calls)
        .unwrap_or_else(|error| panic!("{syntax:?}: {error}"));
    let matcher = walker.grammars.compile(&grammar).unwrap_or_else(|error| panic!("{syntax:?}: {error}"));
    for text in walker.walks(&matcher, count, &|_| true) {
        let answer = read(syntax, &all, &text);
        assert_eq!(answer.content, None, "{syntax:?}: {text:?}");
        match calls {
            Calls::Required { parallel: true } => {
                assert!(!answer.tool_calls.is_empty(), "{syntax:?}: {text:?}")
            }
            _ => assert_eq!(answer.tool_calls.len(), 1, "{syntax:?}: {text:?}"),
        }
        for call in answer.tool_calls {
            let tool = all
                .iter()
                .find(|tool| tool["function"]["name"] == call.name.as_str())
                .expect("a tool or a tokenizer of this test");
            let arguments: Value =
                serde_json::from_str(&call.arguments).expect("a tool or a tokenizer of this test");
            let none = json!({ "maxProperties": 0 });
            let schema = tool["function"].get("parameters").unwrap_or(&none);
            assert!(jsonschema::is_valid(schema, &arguments), "{syntax:?}: {text:?}: {}", call.arguments);
            if let Calls::Named(name) = calls {
                assert_eq!(&call.name, name);
            }
        }
    }
}

#[test]
fn every_syntax_reads_back_what_its_grammar_allows() {
    let walker = seedling();
    for syntax in Syntax::ALL {
        check(&walker, syntax, &Calls::Required { parallel: true }, 40);
        check(&walker, syntax, &Calls::Required { parallel: false }, 40);
        check(&walker, syntax, &Calls::Named("search-2".into()), 40);
    }
}

/// The demo tokenizer with the markers of all syntaxes as special tokens.
fn with_special_markers() -> Walker {
    let json = include_bytes!("../../../models/seedling/tokenizer.json");
    let mut json: Value = serde_json::from_slice(json).expect("a tool or a tokenizer of this test");
    let added = json["added_tokens"].as_array_mut().expect("a tool or a tokenizer of this test");
    let mut next = added
        .iter()
        .filter_map(|token| token["id"].as_u64())
        .max()
        .expect("a tool or a tokenizer of this test")
        + 1;
    let markers: Vec<&str> = Syntax::ALL
        .into_iter()
        .flat_map(|syntax| Conventions { reasoning: None, syntax: Some(syntax) }.markers())
        .collect();
    for marker in &markers {
        if !added.iter().any(|token| token["content"] == *marker) {
            added.push(
                json!({ "id": next, "content": marker, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true }),
            );
            next += 1;
        }
    }
    let mut walker = Walker::new(json.to_string().as_bytes(), &["<|im_end|>", "<|call|>"]);
    walker.shown = markers.iter().filter_map(|marker| walker.tokenizer.token_to_id(marker)).collect();
    walker.shown.retain(|id| walker.tokenizer.is_special(*id));
    assert!(walker.shown.len() > 20);
    walker
}

#[test]
fn markers_that_are_special_tokens_are_these_tokens() {
    let walker = with_special_markers();
    for syntax in Syntax::ALL {
        check(&walker, syntax, &Calls::Required { parallel: true }, 30);
    }
    let grammar =
        tool_grammar(&walker.tokenizer, Syntax::DeepSeekV31, &tools(), &Calls::Named("now".into())).unwrap();
    let mut matcher = walker.grammars.compile(&grammar).unwrap();
    let begin = walker.tokenizer.token_to_id("<｜tool▁calls▁begin｜>").unwrap();
    assert_eq!(walker.allowed(matcher.mask().unwrap()), [begin]);
}

#[test]
fn what_a_syntax_cannot_enforce_is_refused_with_the_tool() {
    let walker = seedling();
    let refused = |syntax, tool: Value, part: &str| {
        let calls = Calls::Required { parallel: false };
        let error = tool_grammar(&walker.tokenizer, syntax, &[tool], &calls).unwrap_err();
        assert_eq!(error.kind(), whin::ErrorKind::InvalidArguments);
        assert!(error.to_string().contains(part), "{error}");
    };
    let with = |schema: Value| tool("f", json!({ "type": "object", "properties": { "a": schema } }));
    for syntax in Syntax::ALL {
        refused(syntax, with(json!({ "not": {} })), "the tool \"f\"");
        refused(syntax, tool("", json!({})), "has no name");
        refused(syntax, json!({ "type": "function" }), "has no name");
        refused(syntax, tool("f", json!({ "type": "array" })), "must be the schema of an object");
        refused(syntax, tool("f", json!([])), "must be the schema of an object");
    }
    refused(Syntax::Qwen3Coder, with(json!({ "type": "string", "pattern": "a" })), "only the length");
    refused(Syntax::Qwen3Coder, with(json!({ "enum": ["a", 1] })), "mixes texts");
    refused(Syntax::Glm4, with(json!({ "$ref": "#" })), "refers to all parameters");
    refused(Syntax::Glm4, tool("f", json!({ "type": "object" })), "must be declared");
    refused(Syntax::Pythonic, tool("f x", json!({})), "consists of letters");
    let named = tool_grammar(&walker.tokenizer, Syntax::Hermes, &tools(), &Calls::Named("other".into()));
    assert!(named.unwrap_err().to_string().contains("no such tool"));
}
