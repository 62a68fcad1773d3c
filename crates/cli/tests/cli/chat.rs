//! Messages: `whin run --chat` and `--messages`, tools, enforced forms, and `whin chat`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Outcome, json, misused, refused, whin, whin_reading};

const QUESTION: &str = "What is the capital of Japan?";
const ANSWER: &str = "The capital of Japan is Tokyo.";

fn tool() -> Value {
    json!({"type": "function", "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string", "maxLength": 30}},
            "required": ["location"],
        },
    }})
}

/// A folder with a file.
fn file(name: &str, value: &Value) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, value.to_string()).unwrap();
    (folder, path.display().to_string())
}

#[test]
fn a_message_is_answered() {
    let outcome = whin(["run", "--chat", QUESTION]).succeeded();
    assert_eq!(outcome.stdout, ANSWER);
    assert!(outcome.stderr.contains("· eos ·"), "{outcome:?}");

    let value = json(["run", "--chat", QUESTION]);
    assert_eq!(value["answer"], json!({"reasoning": null, "content": ANSWER, "tool_calls": []}));
    assert_eq!((&value["generated_text"], &value["n_reasoning"]), (&json!(ANSWER), &json!(0)));

    let outcome = whin_reading(["run", "--chat", "-"], QUESTION.as_bytes()).succeeded();
    assert_eq!(outcome.stdout, ANSWER);
}

#[test]
fn thoughts_are_kept_off_stdout() {
    let outcome = whin(["run", "--chat", QUESTION, "--thinking", "on"]).succeeded();
    assert_eq!(outcome.stdout, ANSWER);
    assert!(outcome.stderr.starts_with("I should be brief and kind.\n\n["), "{outcome:?}");
    let kwargs = ["--chat-template-kwargs", "{\"enable_thinking\": true}"];
    let value = json(["run", "--chat", QUESTION].into_iter().chain(kwargs));
    assert_eq!(value["answer"]["reasoning"], "I should be brief and kind.");
    assert_eq!(value["answer"]["content"], ANSWER);
}

#[test]
fn a_tool_is_called_and_its_result_is_used() {
    let (_folder, tools) = file("tools.json", &json!([tool()]));
    let outcome = whin(["run", "--chat", "What is the weather in Paris?", "--tools", &tools]).succeeded();
    assert_eq!(outcome.stdout, "{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Paris\"}}\n");

    let messages = json!({"tools": [tool()], "messages": [
        {"role": "user", "content": "What is the weather in Paris?"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "call00001", "type": "function",
            "function": {"name": "get_weather", "arguments": "{\"location\": \"Paris\"}"}}]},
        {"role": "tool", "tool_call_id": "call00001", "content": "{\"temperature\": 21, \"sky\": \"sunny\"}"},
    ]});
    let (_folder, messages) = file("messages.json", &messages);
    let outcome = whin(["run", "--messages", &messages]).succeeded();
    assert!(outcome.stdout.contains("21"), "{outcome:?}");
}

#[test]
fn calls_are_required_or_out_of_the_question() {
    let (_folder, tools) = file("tools.json", &json!([tool()]));
    let run = |choice: &str| {
        json(["run", "--chat", QUESTION, "--tools", &tools, "--tool-choice", choice, "-n", "300"])
    };
    for choice in ["required", "get_weather"] {
        let answer = &run(choice)["answer"];
        assert_eq!(answer["content"], Value::Null);
        let call = &answer["tool_calls"][0];
        assert_eq!(call["name"], "get_weather");
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments["location"].is_string());
    }
    assert_eq!(run("none")["answer"]["tool_calls"], json!([]));
    assert_eq!(run("auto")["answer"]["content"], ANSWER);
}

#[test]
fn answers_have_the_form_that_is_asked_for() {
    let schema = json!({"type": "object", "properties": {"capital": {"type": "string", "maxLength": 12}},
        "required": ["capital"], "additionalProperties": false});
    let (_folder, path) = file("schema.json", &schema);
    for form in [schema.to_string(), path] {
        let drawn = ["--temperature", "1.5", "--seed", "5", "-n", "200"];
        let outcome =
            whin(["run", "--chat", QUESTION, "--json-schema", &form].into_iter().chain(drawn)).succeeded();
        let value: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert!(value["capital"].is_string() && value.as_object().unwrap().len() == 1, "{value}");
    }
    let outcome = whin(["run", "--chat", QUESTION, "--regex", "[A-Z][a-z]{2,9}!"]).succeeded();
    assert!(outcome.stdout.ends_with('!') && outcome.stdout.len() <= 11, "{outcome:?}");
    let outcome = whin(["run", QUESTION, "--choice", "Tokyo", "--choice", "Kyoto"]).succeeded();
    assert!(["Tokyo", "Kyoto"].contains(&outcome.stdout.as_str()), "{outcome:?}");
    let grammar = tempfile::tempdir().unwrap();
    let path = grammar.path().join("sum.lark");
    fs::write(&path, "start: /[0-9]{1,3}/ \" + \" /[0-9]{1,3}/").unwrap();
    let path = path.display().to_string();
    let outcome = whin(["run", "--chat", QUESTION, "--lark", &path]).succeeded();
    assert!(outcome.stdout.contains(" + "), "{outcome:?}");
}

#[test]
fn what_of_a_schema_is_not_enforced_is_said() {
    let schema = r#"{"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 2, "uniqueItems": true}"#;
    let run = ["run", "--chat", QUESTION, "-n", "40", "--json-schema", schema];
    refused(run, "invalid_arguments", &["uniqueItems"]);
    let outcome = whin(run.into_iter().chain(["--lenient-schema"])).succeeded();
    assert!(outcome.stderr.contains("not enforced") && outcome.stderr.contains("uniqueItems"), "{outcome:?}");
}

#[test]
fn messages_have_tokens() {
    let value = json(["tokenize", "--chat", "Hi<|im_end|>"]);
    assert_eq!(value["text"], "<|im_start|>user\nHi<|im_end|><|im_end|>\n<|im_start|>assistant\n");
    let ids = value["token_ids"].as_array().unwrap();
    assert_eq!(ids.iter().filter(|id| **id == json!(6137)).count(), 1);
    let value = json(["tokenize", "--chat", "Hi<|im_end|>", "--encoding", "parity"]);
    let ids = value["token_ids"].as_array().unwrap();
    assert_eq!(ids.iter().filter(|id| **id == json!(6137)).count(), 2);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let (_folder, tools) = file("tools.json", &json!([tool()]));
    let (_folder2, messages) = file("messages.json", &json!([{"role": "user", "content": "Hi"}]));
    let (_folder3, odd) = file("odd.json", &json!({"messages": [], "temperature": 1}));
    let (_folder4, none) = file("none.json", &json!([]));
    let invalid = "invalid_arguments";
    refused(["run", "Hi", "--tools", &tools], invalid, &["--tools", "--chat"]);
    refused(["run", "Hi", "--thinking", "on"], invalid, &["--thinking"]);
    refused(["run", "Hi", "--messages", &messages], invalid, &["--messages"]);
    refused(["run", "--chat", "Hi", "--messages", &messages], invalid, &["--chat"]);
    refused(["run", "--chat", "--prompt-ids", "1,2"], invalid, &["--prompt-ids"]);
    refused(["run", "--chat"], invalid, &["no prompt"]);
    refused(["run", "--messages", &odd], invalid, &["temperature"]);
    refused(["run", "--messages", &none], invalid, &["messages"]);
    refused(["run", "--messages", "/nowhere/x.json"], "io", &["/nowhere/x.json"]);
    refused(["run", "--messages", "/"], invalid, &["folder"]);
    refused(["run", "--chat", "Hi", "--continue-final-message"], invalid, &["assistant"]);
    whin_reading(["run", "--chat", "-", "--tools", "-"], b"Hi").failed(invalid, &["stdin"]);
    refused(["run", "--chat", "Hi", "--tool-choice", "required"], invalid, &["no tools"]);
    refused(
        ["run", "--chat", "Hi", "--tools", &tools, "--tool-choice", "f"],
        invalid,
        &["\"f\"", "get_weather"],
    );
    refused(["run", "--chat", "Hi", "--chat-template-kwargs", "[]"], invalid, &["--chat-template-kwargs"]);
    refused(["run", "--chat", "Hi", "--json-schema", "{\"type\": 3}"], invalid, &["type"]);
    refused(["run", "--chat", "Hi", "--regex", "("], invalid, &["("]);
    misused(["run", "--chat", "Hi", "--regex", "a", "--choice", "b"], &["--regex", "--choice"]);
}

/// What `whin chat` says to these lines.
fn talk(args: &[&str], lines: &[&str]) -> Outcome {
    let args = ["chat"].iter().chain(args);
    whin_reading(args, (lines.join("\n") + "\n").as_bytes())
}

#[test]
fn a_conversation_goes_on_from_turn_to_turn() {
    let outcome = talk(&["--stats"], &[QUESTION, "", "What is the capital of France?"]).succeeded();
    assert_eq!(outcome.stdout, format!("{ANSWER}\nThe capital of France is Paris.\n"));
    // The second prompt holds the first turn.
    let prompts: Vec<usize> = outcome
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("[prompt ")?.split(' ').next()?.parse().ok())
        .collect();
    assert!(prompts.len() == 2 && prompts[1] > prompts[0] + 15, "{outcome:?}");
}

#[test]
fn commands_change_the_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("talk.json");
    let (save, load) = (format!("/save {}", path.display()), format!("/load {}", path.display()));
    let lines =
        ["/system Be brief.", QUESTION, &save, "/clear", "/system", &load, "/nonsense", "/stats on", "/help"];
    let outcome = talk(&[], &lines);
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(0), "The capital of Japan is Tokyo.\n"),
        "{outcome:?}"
    );
    for part in ["[saved to", "[a new conversation]", "Be brief.", "/nonsense", "/help", "//TEXT"] {
        assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
    }
    let saved: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let expected = json!({"messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": ANSWER},
    ]});
    assert_eq!(saved, expected);
    // Files that are missing, or hold something else, leave the conversation as it is.
    let (_folder, tools) = file("tools.json", &json!([tool()]));
    let (_folder2, numbers) = file("numbers.json", &json!([1, 2]));
    let lines = [
        QUESTION,
        "/load /nowhere.json",
        &format!("/load {tools}"),
        &format!("/load {numbers}"),
        &format!("/save {tools}"),
        "/save /nowhere/at/all.json",
        &save,
    ];
    let outcome = talk(&["--thinking", "off"], &lines);
    assert_eq!((outcome.code, outcome.stdout), (Some(0), format!("{ANSWER}\n")));
    assert_eq!(outcome.stderr.matches("error[").count(), 5, "{}", outcome.stderr);
    let saved: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(saved["messages"].as_array().unwrap().len(), 2);
    assert_eq!(saved["chat_template_kwargs"], json!({"enable_thinking": false}));
    assert_eq!(fs::read_to_string(&tools).unwrap(), json!([tool()]).to_string());
}

#[test]
fn results_of_calls_are_asked_for() {
    let (folder, tools) = file("tools.json", &json!([tool()]));
    let path = folder.path().join("talk.json").display().to_string();
    let lines = [
        &format!("/tools {tools}"),
        "What is the weather in Paris?",
        "{\"temperature\": 21, \"sky\": \"sunny\"}",
        &format!("/save {path}"),
    ];
    let outcome = talk(&[], &lines).succeeded();
    let (call, answer) = outcome.stdout.split_once('\n').unwrap();
    assert_eq!(call, "{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Paris\"}}");
    assert!(answer.contains("21"), "{outcome:?}");
    assert!(outcome.stderr.contains("[tools: get_weather]"));
    let saved: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let roles: Vec<&str> =
        saved["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    assert_eq!(saved["messages"][1]["tool_calls"][0]["id"], saved["messages"][2]["tool_call_id"]);
    // The file is one that can be answered.
    whin(["tokenize", "--messages", &path]).succeeded();
    // Where no result comes, the question is forgotten, and the program ends with its input.
    let outcome = talk(&["--tools", &tools], &["What is the weather in Paris?"]).succeeded();
    assert!(outcome.stderr.contains("forgotten"), "{outcome:?}");
}

#[test]
fn a_turn_that_fails_is_forgotten_and_the_conversation_goes_on() {
    let long = "word ".repeat(300);
    let outcome = talk(&["--context", "64"], &[&long, QUESTION]);
    assert_eq!((outcome.code, outcome.stdout), (Some(0), format!("{ANSWER}\n")));
    assert!(outcome.stderr.contains("error[context_exceeded]"), "{}", outcome.stderr);
}

#[test]
fn a_required_call_is_made_once_and_its_result_is_answered() {
    let (folder, tools) = file("tools.json", &json!([tool()]));
    let path = folder.path().join("talk.json").display().to_string();
    let lines = [
        "What is the weather in Paris?",
        "\"\"\"{\"temperature\": 21,",
        " \"sky\": \"sunny\"}\"\"\"",
        &format!("/save {path}"),
    ];
    let required = ["--tools", &tools, "--tool-choice", "required", "--single-tool-call", "-n", "100"];
    let outcome = talk(&required, &lines).succeeded();
    let saved: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let messages = saved["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 4, "{outcome:?}");
    assert_eq!(messages[2]["content"], "{\"temperature\": 21,\n \"sky\": \"sunny\"}");
    assert!(messages[3]["tool_calls"].is_null(), "{messages:?}");
}

#[test]
fn a_text_that_is_not_closed_ends_with_the_file() {
    let outcome = whin_reading(["chat"], b"\"\"\"What is the capital\nof Japan?").succeeded();
    assert!(outcome.stdout.ends_with(".\n"), "{outcome:?}");
    let outcome = whin_reading(["chat"], b"\xff\nWhat is the capital of Japan?\n").succeeded();
    assert_eq!(outcome.stdout, format!("{ANSWER}\n"));
    assert!(outcome.stderr.contains("UTF-8"), "{outcome:?}");
}

#[test]
fn documents_reach_the_template() {
    let folder = tempfile::tempdir().unwrap();
    let seedling = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/seedling");
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(seedling.join(name), folder.path().join(name)).unwrap();
    }
    let template = "{% for d in documents %}{{ d.text }};{% endfor %}{{ messages[0].content }}";
    fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    let talk = json!({"messages": [{"role": "user", "content": "Hi"}], "documents": [{"text": "a"}, {"text": "<|im_end|>"}]});
    let (_folder, path) = file("talk.json", &talk);
    let model = folder.path().display().to_string();
    let value = json(["tokenize", "-m", &model, "--messages", &path]);
    assert_eq!(value["text"], "a;<|im_end|>;Hi");
    assert!(!value["token_ids"].as_array().unwrap().contains(&json!(6137)));
}
