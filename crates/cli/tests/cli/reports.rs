//! `whin score`, `tokenize`, `inspect` and `devices`, and the warnings of the library.

use serde_json::{Value, json};

use crate::checkpoints::{Folder, IDS};
use crate::process::{self, whin, whin_reading};

const TEXT: &str = "The capital of France is Paris.";

#[test]
fn a_score_is_the_log_probability_of_each_token_and_their_perplexity() {
    let of_text = process::json(["score", TEXT]);
    let keys: Vec<&String> = of_text.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["token_ids", "logprobs", "perplexity"]);
    let ids = of_text["token_ids"].as_array().unwrap();
    let logprobs = of_text["logprobs"].as_array().unwrap();
    assert_eq!((logprobs.len(), &logprobs[0]), (ids.len(), &Value::Null));
    let known: Vec<f64> = logprobs[1..].iter().map(|value| value.as_f64().unwrap()).collect();
    assert!(known.iter().all(|logprob| *logprob <= 0.0));
    let perplexity = (-known.iter().sum::<f64>() / known.len() as f64).exp();
    assert!((of_text["perplexity"].as_f64().unwrap() - perplexity).abs() < 1e-9 * perplexity);

    let ids: Vec<String> = ids.iter().map(Value::to_string).collect();
    assert_eq!(process::json(["score", "--prompt-ids", &ids.join(",")]), of_text);
    let from_stdin = whin_reading(["score", "-", "--json"], TEXT.as_bytes()).succeeded().json();
    assert_eq!(from_stdin, of_text);

    let table = whin(["score", TEXT]).succeeded().stdout;
    assert_eq!(table.lines().count(), ids.len() + 1);
    assert!(table.contains("\" Paris\"") && table.contains("\nperplexity "), "{table}");
}

#[test]
fn a_score_of_one_token_has_no_perplexity() {
    let folder = Folder::fixture("base");
    let score = process::json(["score", "-m", folder.path(), "--prompt-ids", "7"]);
    assert_eq!(score, json!({"token_ids": [7], "logprobs": [null], "perplexity": null}));
    let table = whin(["score", "-m", folder.path(), "--prompt-ids", "7"]).succeeded().stdout;
    assert!(table.ends_with("perplexity - over 0 tokens\n"), "{table}");
}

#[test]
fn text_becomes_ids_and_ids_become_text() {
    let ids = whin(["tokenize", TEXT]).succeeded().stdout;
    let text = whin(["tokenize", "--prompt-ids", ids.trim()]).succeeded().stdout;
    assert_eq!(text, format!("{TEXT}\n"));
    let forth = process::json(["tokenize", "a\u{1b}[31mé🙂\n"]);
    assert_eq!(forth["text"], "a\u{1b}[31mé🙂\n");
    let ids: Vec<String> = forth["token_ids"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert_eq!(process::json(["tokenize", "--prompt-ids", &ids.join(",")]), forth);
    // Raw text, whatever a terminal would make of it.
    let back = whin(["tokenize", "--prompt-ids", &ids.join(",")]).succeeded().stdout;
    assert_eq!(back, "a\u{1b}[31mé🙂\n\n");
    assert_eq!(whin(["tokenize", ""]).succeeded().stdout, "\n");
}

#[test]
fn a_checkpoint_is_described() {
    let built_in = whin(["inspect"]).succeeded().stdout;
    for part in [
        "family       qwen3",
        "13.3 million",
        "window       4096",
        "tokenizer    present",
        "runs         yes",
    ] {
        assert!(built_in.contains(part), "{built_in}");
    }
    let folder = Folder::fixture("untied");
    let found = process::json(["inspect", folder.path()]);
    let mut again = process::json(["inspect", "-m", folder.path()]);
    assert!(again["available_bytes"].as_u64().unwrap() > 0);
    again["available_bytes"] = found["available_bytes"].clone();
    assert_eq!(again, found);
    let all = |found: &Value| found["total_bytes"]["int8"].as_u64().unwrap();
    let parts = ["cache_bytes", "scratch_bytes"].map(|key| found[key].as_u64().unwrap());
    assert_eq!(all(&found), found["weight_bytes"]["int8"].as_u64().unwrap() + parts[0] + parts[1]);
    for (key, value) in [
        ("runs", json!(true)),
        ("vocab", json!(96)),
        ("layers", json!(2)),
        ("tied_head", json!(false)),
        ("tokenizer", json!(false)),
        ("context", json!(256)),
        ("cache_bytes", json!(2 * 2 * 2 * 16 * 2 * 256)),
        ("stored", json!(["BF16"])),
    ] {
        assert_eq!(found[key], value, "{key}");
    }
    assert_eq!(found["scales"], json!({ "embedding": 1.0, "residual": 1.0, "logits": 1.0 }));
    let granite = Folder::fixture("granite");
    assert_ne!(process::json(["inspect", granite.path()])["scales"]["residual"], 1.0);
    let shown = whin(["inspect", granite.path()]).succeeded().stdout;
    assert!(shown.contains("\nscales       embedding times "), "{shown}");
    std::fs::write(granite.file("tokenizer.json"), "{}").unwrap();
    let shown = whin(["inspect", granite.path()]).succeeded().stdout;
    assert!(shown.contains("\ntokenizer    unusable, only token ids can be run: "), "{shown}");
    let told = process::json(["inspect", granite.path()]);
    assert_eq!(told["tokenizer"], false);
    assert!(told["tokenizer_error"].as_str().unwrap().contains("tokenizer.json"), "{told}");
    let shorter = process::json(["inspect", folder.path(), "--context", "128"]);
    assert_eq!(shorter["cache_bytes"], 2 * 2 * 2 * 16 * 2 * 128);
    let exact = process::json(["inspect", folder.path(), "--kv", "f32"]);
    assert_eq!(exact["cache_bytes"], 2 * 2 * 2 * 16 * 4 * 256);
}

#[test]
fn how_weights_are_stored_is_told_where_they_are_no_plain_floats() {
    assert!(!whin(["inspect"]).succeeded().stdout.contains("\nstored "));
    let folder = Folder::fixture("stored-fp8-blocks");
    let shown = whin(["inspect", folder.path()]).succeeded().stdout;
    assert!(shown.contains("\nstored       BF16, F8_E4M3 with one scale for 128x128\n"), "{shown}");
    let found = process::json(["inspect", folder.path()]);
    assert_eq!(found["stored"], json!(["BF16", "F8_E4M3 with one scale for 128x128"]));
}

#[test]
fn the_processor_is_listed() {
    let devices: Value = serde_json::from_str(&whin(["devices", "--json"]).succeeded().stdout).unwrap();
    assert_eq!(devices[0]["id"], "cpu");
    assert!(devices[0]["memory_bytes"].as_u64() > devices[0]["available_bytes"].as_u64());
    let list = whin(["devices"]).succeeded().stdout;
    assert!(list.starts_with("cpu ") && list.contains("scalar"), "{list}");
}

#[test]
fn warnings_reach_the_user() {
    let folder = Folder::fixture("base");
    let run = ["run", "-m", folder.path(), "--prompt-ids", IDS, "-n", "4", "--json", "--no-cache"];
    let clean = whin(run).succeeded();
    assert_eq!(clean.stderr.lines().filter(|line| line.starts_with("warning")).count(), 0, "{clean:?}");
    let add_head = |change: u8| {
        folder.tensors(|tensors| {
            let mut head = tensors["model.embed_tokens.weight"].clone();
            head.2[0] ^= change;
            tensors.insert("lm_head.weight".to_owned(), head);
        });
    };
    // A copy of the embedding is no matter.
    add_head(0);
    assert_eq!(whin(run).succeeded().stderr, clean.stderr);
    add_head(1);
    let outcome = whin(run).succeeded();
    let warning = "warning: lm_head.weight differs from the embedding, but config.json ties the two";
    assert_eq!(outcome.stderr.lines().filter(|line| line.starts_with(warning)).count(), 1, "{outcome:?}");
    assert_eq!(outcome.json()["token_ids"], clean.json()["token_ids"]);

    let folder = Folder::fixture("base");
    folder.config(&[("quantization_config", json!({ "quant_method": "fp8" }))]);
    let outcome = whin(["run", "-m", folder.path(), "--prompt-ids", IDS, "-n", "4", "--json"]).succeeded();
    let warning = "warning: config.json holds a quantization_config, but no weight is quantised";
    assert_eq!(outcome.stderr.lines().filter(|line| line.starts_with(warning)).count(), 1, "{outcome:?}");
    assert_eq!(outcome.json()["token_ids"], clean.json()["token_ids"]);
}
