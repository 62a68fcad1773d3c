//! `whin run`: what goes in, what comes out.

use serde_json::{Value, json};

use crate::checkpoints::{Folder, IDS, seedling};
use crate::process::{self, misused, whin, whin_reading};

const FRANCE: &str = "The capital of France is";

/// The generated tokens of a result.
pub fn answer(result: &Value) -> &[Value] {
    let n_prompt = result["n_prompt"].as_u64().unwrap() as usize;
    &result["token_ids"].as_array().unwrap()[n_prompt..]
}

fn run(args: &[&str]) -> Value {
    process::json([&["run"], args].concat())
}

#[test]
fn text_goes_to_stdout_and_figures_to_stderr() {
    let outcome = whin(["run", FRANCE]).succeeded();
    assert_eq!(outcome.stdout, " Paris.");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    assert!(outcome.stderr.starts_with("[prompt 5 tokens, "), "{outcome:?}");
    for part in [" · answer ", " · eos · ", ", int8 · loaded in "] {
        assert!(outcome.stderr.contains(part), "{outcome:?}");
    }
}

#[test]
fn a_story_of_120_tokens() {
    let outcome = whin(["run", "Once upon a time", "-n", "120"]).succeeded();
    assert!(outcome.stderr.contains("answer 120 tokens") && outcome.stderr.contains("length"), "{outcome:?}");
    assert!(outcome.stdout.split_whitespace().count() > 60, "{outcome:?}");
    let result = run(&["Once upon a time", "--max-new-tokens", "120"]);
    assert_eq!(answer(&result).len(), 120);
    assert_eq!(result["finish_reason"], "length");
    assert_eq!(result["generated_text"], outcome.stdout);
}

#[test]
fn the_prompt_comes_from_stdin_as_it_stands() {
    assert_eq!(whin_reading(["run", "-"], FRANCE.as_bytes()).succeeded().stdout, " Paris.");
    let with_newline = whin_reading(["tokenize", "-"], b"France\n").succeeded().stdout;
    let without = whin_reading(["tokenize", "-"], b"France").succeeded().stdout;
    assert_ne!(with_newline, without);
}

#[test]
fn token_ids_are_a_prompt_too() {
    let of_text = run(&[FRANCE]);
    let ids: Vec<String> =
        of_text["token_ids"].as_array().unwrap()[..5].iter().map(Value::to_string).collect();
    for separator in [",", " ", ", "] {
        let of_ids = run(&["--prompt-ids", &ids.join(separator)]);
        for field in ["token_ids", "n_prompt", "generated_text", "finish_reason"] {
            assert_eq!(of_ids[field], of_text[field]);
        }
    }
}

#[test]
fn a_folder_gives_what_the_built_in_model_gives() {
    let folder = seedling();
    let outcome = whin(["run", "--no-cache", "-m", folder.to_str().unwrap(), FRANCE]).succeeded();
    assert_eq!(outcome.stdout, " Paris.");
}

#[test]
fn json_has_every_field() {
    let result = run(&[FRANCE]);
    let keys: Vec<&str> = result.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "token_ids",
        "n_prompt",
        "generated_text",
        "finish_reason",
        "stop",
        "answer",
        "n_reasoning",
        "stopped_on_eos",
        "seed",
        "device",
        "weights",
        "kv",
        "loaded_from_cache",
        "load_seconds",
        "prefill_seconds",
        "decode_seconds",
        "prefill_tokens_per_sec",
        "decode_tokens_per_sec",
    ];
    assert_eq!(keys, expected);
    assert_eq!(result["n_prompt"], 5);
    assert_eq!(result["generated_text"], " Paris.");
    assert_eq!(result["finish_reason"], "eos");
    assert_eq!(result["stop"], Value::Null);
    assert_eq!((&result["answer"], &result["n_reasoning"]), (&Value::Null, &Value::from(0)));
    assert_eq!(result["stopped_on_eos"], true);
    assert_eq!(result["weights"], "int8");
    assert_eq!(result["kv"], "bf16");
    assert!(result["seed"].is_u64() && result["device"].is_string());
    for figure in &expected[13..] {
        assert!(result[*figure].as_f64().unwrap() > 0.0, "{figure} in {result}");
    }
}

#[test]
fn log_probabilities_of_each_token_and_the_likeliest() {
    let plain = run(&["Once upon a time", "-n", "8"]);
    assert!(plain.get("logprobs").is_none());
    let result = run(&["Once upon a time", "-n", "8", "--logprobs", "3"]);
    assert_eq!(result["token_ids"], plain["token_ids"]);
    let logprobs = result["logprobs"].as_array().unwrap();
    assert_eq!(logprobs.len(), 8);
    for (entry, id) in logprobs.iter().zip(answer(&result)) {
        assert_eq!(&entry["token_id"], id);
        let top = entry["top"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        // Greedy: the chosen one is the likeliest.
        assert_eq!(top[0], json!([id, entry["logprob"]]));
        let chances: Vec<f64> = top.iter().map(|pair| pair[1].as_f64().unwrap()).collect();
        assert!(chances.is_sorted_by(|a, b| a >= b) && chances[0] <= 0.0, "{chances:?}");
    }
    // None beside it, and more than there are.
    let none = run(&["Once", "-n", "1", "--logprobs", "0"]);
    assert_eq!(none["logprobs"][0]["top"], json!([]));
    let all = run(&["Once", "-n", "1", "--logprobs", "18446744073709551615"]);
    assert_eq!(all["logprobs"][0]["top"].as_array().unwrap().len(), 6144);
    misused(["run", "Once", "--logprobs", "3"], &["--json"]);
}

#[test]
fn stop_strings_cut_the_text_wherever_they_fall() {
    let story = run(&["Once upon a time", "-n", "60"]);
    let story = story["generated_text"].as_str().unwrap();
    // Over many tokens; inside of a token; from the middle of one to the middle of another.
    let middle = story.char_indices().map(|(at, _)| at).nth(40).unwrap();
    for stop in [&story[middle..middle + 17], &story[middle..=middle], &story[middle + 3..middle + 9]] {
        let at = story.find(stop).unwrap();
        let result = run(&["Once upon a time", "-n", "60", "--stop", stop]);
        assert_eq!(result["generated_text"], story[..at], "{stop:?}");
        assert_eq!(result["finish_reason"], "stop");
        assert_eq!(result["stopped_on_eos"], false);
        assert_eq!(result["stop"], stop);
        let streamed = whin(["run", "Once upon a time", "-n", "60", "--stop", stop]).succeeded();
        assert_eq!(streamed.stdout, story[..at]);
        assert!(streamed.stderr.contains(&format!(" · stop {stop:?} · ")), "{streamed:?}");
    }
    // Several: the first to be complete. One that never comes holds nothing back for good.
    let (late, early) = (&story[60..66], &story[20..26]);
    let result = run(&["Once upon a time", "-n", "60", "--stop", "\u{1}", "--stop", late, "--stop", early]);
    assert_eq!(result["generated_text"], story[..story.find(early).unwrap()]);
    let start = format!("{}\u{1}", &story[story.len() - 5..]);
    let result = run(&["Once upon a time", "-n", "60", "--stop", &start]);
    assert_eq!(result["generated_text"], story);
    assert_eq!((&result["finish_reason"], &result["stop"]), (&json!("length"), &Value::Null));
}

#[test]
fn the_end_token_can_be_ignored() {
    let result = run(&[FRANCE, "--ignore-eos", "-n", "20"]);
    assert_eq!(answer(&result).len(), 20);
    assert_eq!(result["finish_reason"], "length");
    assert!(result["generated_text"].as_str().unwrap().starts_with(" Paris."));
    assert_eq!(answer(&run(&[FRANCE, "-n", "1"])).len(), 1);
}

#[test]
fn weights_and_devices_agree_on_the_answer() {
    for weights in ["f32", "bf16", "int8", "int8-groups", "int4", "int4-all"] {
        let result = run(&[FRANCE, "--weights", weights]);
        assert_eq!((&result["generated_text"], &result["weights"]), (&json!(" Paris."), &json!(weights)));
    }
    for device in ["auto", "cpu", "cpu:scalar"] {
        let result = run(&[FRANCE, "--device", device]);
        assert_eq!(result["generated_text"], " Paris.", "{device}");
    }
    let folder = Folder::fixture("base");
    let tokens = |args: &[&str]| {
        let common = ["-m", folder.path(), "--prompt-ids", IDS, "-n", "12", "--weights", "f32"];
        let result = run(&[&common, args].concat());
        (result["token_ids"].clone(), result["device"].as_str().unwrap().to_owned())
    };
    let (expected, name) = tokens(&["--device", "reference"]);
    assert_eq!(name, "reference");
    for device in ["cpu", "cpu:scalar"] {
        let (ids, name) = tokens(&["--device", device]);
        assert_eq!(ids, expected, "{device}");
        assert!(name.starts_with("cpu"), "{name}");
    }
}

#[test]
fn threads_and_chunks_change_no_token() {
    // Longer than a step of the least size.
    let prompt = "Once upon a time there was a little girl who had a red ball. ".repeat(12);
    let tokens = |args: &[&str]| {
        let result = run(&[&[prompt.as_str(), "-n", "24"], args].concat());
        assert!(result["n_prompt"].as_u64().unwrap() > 128);
        result["token_ids"].clone()
    };
    let expected = tokens(&["--threads", "1"]);
    assert_eq!(tokens(&["--threads", "2"]), expected);
    assert_eq!(tokens(&["--prefill-chunk", "1"]), expected);
    assert_eq!(tokens(&["--prefill-chunk", "100"]), expected);
    assert_eq!(tokens(&["--prefill-chunk", "512"]), expected);
    assert_eq!(tokens(&["--prefill-chunk", "18446744073709551615"]), expected);
}

#[test]
fn the_context_ends_an_answer() {
    let result = run(&[FRANCE, "--ignore-eos", "--context", "16"]);
    assert_eq!(result["token_ids"].as_array().unwrap().len(), 16);
    assert_eq!(result["finish_reason"], "length");
    let result = run(&[FRANCE, "--ignore-eos", "--max-ctx", "12"]);
    assert_eq!(result["token_ids"].as_array().unwrap().len(), 12);
    let result = run(&[FRANCE, "--ignore-eos", "-n", "7", "--max-ctx", "12"]);
    assert_eq!(answer(&result).len(), 7);
}

#[test]
fn without_a_tokenizer_ids_run_and_ids_come_out() {
    let folder = Folder::fixture("base");
    for broken in [false, true] {
        if broken {
            folder.write("tokenizer.json", "{\"model\": ");
        }
        let outcome = whin(["run", "-m", folder.path(), "--prompt-ids", IDS, "-n", "5"]).succeeded();
        let shown: Vec<Value> = outcome.stdout.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let mut notes =
            outcome.stderr.lines().filter(|line| line.starts_with("note: tokens are shown as ids: "));
        assert!(notes.next().unwrap().contains("tokenizer.json"), "{outcome:?}");
        let result = run(&["-m", folder.path(), "--prompt-ids", IDS, "-n", "5"]);
        assert_eq!(answer(&result), shown);
        assert_eq!(result["generated_text"], Value::Null);
    }
}

#[test]
fn ids_come_from_stdin_too_where_no_argument_could_hold_them() {
    let given = process::json(["score", "--prompt-ids", "313,410,354"]);
    let read = whin_reading(["score", "--prompt-ids", "-", "--json"], b"313 410\n354\n").succeeded().json();
    assert_eq!(read, given);
    let many = "313,".repeat(100_000);
    let outcome = whin_reading(["run", "--prompt-ids", "-", "-n", "1"], many.as_bytes());
    outcome.failed("context_exceeded", &["100000", "4096"]);
}
