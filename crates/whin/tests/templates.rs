//! Conversations rendered with the templates of real models, as transformers renders them, and the tokens of what came
//! out. Made by `tools/goldens/chat.py`.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

mod golden;

use serde_json::Value;
use whin::ErrorKind;
use whin::chat::template::Template;
use whin::checkpoint::Source;
use whin::tokenizer::Tokenizer;

/// Compares every conversation with what the table has for this model.
fn compare(model: &str, template: &Template, tokenizer: &Tokenizer) {
    let golden = golden::table();
    let conversations = golden["conversations"].as_array().unwrap();
    let expected = golden["templates"][model].as_array().unwrap();
    assert!(conversations.len() >= 40 && conversations.len() == expected.len());
    let mut wrong = Vec::new();
    for (entry, expected) in conversations.iter().zip(expected) {
        let found = template.apply(&golden::conversation(entry));
        let same = match (&found, &expected["text"], &expected["raised"]) {
            (Ok(found), Value::String(text), _) if found == text => {
                let ids = tokenizer.encode(found).unwrap();
                let expected: Vec<u64> =
                    expected["ids"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
                ids.into_iter().map(u64::from).eq(expected)
            }
            (Err(error), _, Value::String(raised)) => {
                error.kind() == ErrorKind::UnsupportedChatTemplate && error.to_string().contains(raised)
            }
            (Err(_), Value::Null, Value::Null) => true,
            _ => false,
        };
        if !same {
            wrong.push(format!("{}: {:?}\n  found {found:?}", entry["name"], expected["text"]));
        }
    }
    assert!(wrong.is_empty(), "{model}: {} of {} differ:\n{}", wrong.len(), expected.len(), wrong.join("\n"));
}

/// As [`compare`], for one of the models whose files are fetched.
fn compare_fetched(model: &str) {
    let Some(folder) = golden::models() else { return };
    let folder = folder.join(model);
    let json = std::fs::read(folder.join("tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_bytes(&json, "tokenizer.json").unwrap();
    compare(model, &Template::open(&Source::Folder(folder)).unwrap(), &tokenizer);
}

#[test]
fn seedling_as_transformers() {
    let json = include_bytes!("../../../models/seedling/tokenizer.json");
    let tokenizer = Tokenizer::from_bytes(json, "tokenizer.json").unwrap();
    compare("seedling", &Template::open(&Source::BuiltIn).unwrap(), &tokenizer);
}

#[test]
fn qwen3_as_transformers() {
    compare_fetched("qwen3");
}

#[test]
fn llama3_1_as_transformers() {
    compare_fetched("llama3_1");
}

#[test]
fn gemma3_as_transformers() {
    compare_fetched("gemma3");
}

#[test]
fn deepseek_v3_as_transformers() {
    compare_fetched("deepseek_v3");
}

#[test]
fn smollm2_as_transformers() {
    compare_fetched("smollm2");
}
