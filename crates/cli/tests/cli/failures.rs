//! What cannot work: each ends with exit code 1, or 2 for wrong usage, a code, and what is at fault.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::checkpoints::{Folder, IDS, seedling};
use crate::process::{self, misused, refused, whin, whin_reading};

/// Runs the checkpoint, which must be refused; `inspect` must say the same.
#[track_caller]
fn broken(folder: &Folder, code: &str, parts: &[&str]) {
    refused(["run", "-m", folder.path(), "--prompt-ids", IDS, "-n", "4"], code, parts);
    refused(["inspect", folder.path()], code, parts);
}

#[test]
fn places_without_a_checkpoint() {
    let folder = Folder::empty();
    broken(&folder, "checkpoint_not_found", &[folder.path(), "config.json"]);
    folder.write("file", "");
    let missing = folder.file("missing");
    let missing = missing.to_str().unwrap();
    let file = folder.file("file");
    let file = file.to_str().unwrap();
    for command in ["run", "score", "tokenize"] {
        refused([command, "-m", missing, "x"], "checkpoint_not_found", &[missing, "give the folder"]);
        refused([command, "-m", file, "x"], "checkpoint_not_found", &[file, "is a file"]);
    }
    let without = Folder::fixture("base");
    without.remove("config.json");
    broken(&without, "invalid_checkpoint", &["config.json"]);
    folder.write("model.gguf", "GGUF");
    let gguf = folder.file("model.gguf");
    refused(["inspect", gguf.to_str().unwrap()], "invalid_checkpoint", &["model.gguf", "cut off"]);
}

#[test]
fn configs_that_are_broken_or_unsupported() {
    let folder = Folder::fixture("base");
    for text in ["", "{", "[]", "{\"model_type\": \"qwen3\",}", "\u{feff}\0"] {
        folder.write("config.json", text);
        broken(&folder, "invalid_checkpoint", &["config.json"]);
    }
    let folder = Folder::fixture("base");
    folder.config(&[
        ("num_key_value_heads", json!(3)),
        ("hidden_act", json!("swoosh")),
        ("clever_new_scale", json!(2.5)),
    ]);
    broken(
        &folder,
        "unsupported_architecture",
        &["num_key_value_heads", "hidden_act", "swoosh", "clever_new_scale", "2.5"],
    );
    folder.config(&[("model_type", json!("bert"))]);
    broken(&folder, "unsupported_architecture", &["bert", "qwen3"]);
}

#[test]
fn text_in_a_checkpoint_cannot_steer_the_terminal() {
    let folder = Folder::fixture("base");
    folder.config(&[("model_type", json!("a\u{1b}]0;owned\u{7}\u{1b}[2J\r"))]);
    let outcome = whin(["inspect", folder.path()]);
    outcome.failed("unsupported_architecture", &["owned"]);
    let folder = Folder::fixture("base");
    folder.tensors(|tensors| {
        let tensor = tensors["model.norm.weight"].clone();
        tensors.insert("evil\u{1b}[2J\r".to_owned(), tensor);
    });
    let other = whin(["inspect", folder.path()]);
    other.failed("invalid_checkpoint", &["evil"]);
    let hub = whin(["inspect", "\u{1b}[2J/x"]);
    for outcome in [outcome, other, hub] {
        assert!(!outcome.stderr.contains(|c: char| c.is_control() && c != '\n'), "{outcome:?}");
    }
}

#[test]
fn tensors_that_do_not_fit_the_config() {
    let folder = Folder::fixture("base");
    folder.tensors(|tensors| {
        tensors.remove("model.layers.1.mlp.up_proj.weight");
        tensors.remove("model.norm.weight");
        let extra = tensors["model.layers.0.input_layernorm.weight"].clone();
        tensors.insert("model.layers.7.input_layernorm.weight".to_owned(), extra);
        tensors.get_mut("model.layers.0.mlp.down_proj.weight").unwrap().1 = vec![40, 24];
    });
    broken(
        &folder,
        "invalid_checkpoint",
        &[
            "model.layers.1.mlp.up_proj.weight",
            "model.norm.weight",
            "model.layers.7.input_layernorm.weight",
            "model.layers.0.mlp.down_proj.weight",
            "[24, 40]",
            "[40, 24]",
        ],
    );
}

#[test]
fn weight_files_that_are_missing_or_cut_off() {
    let folder = Folder::fixture("sharded");
    folder.truncate("model-00002-of-00003.safetensors");
    broken(&folder, "invalid_checkpoint", &["model-00002-of-00003.safetensors"]);
    folder.remove("model-00002-of-00003.safetensors");
    broken(&folder, "invalid_checkpoint", &["model-00002-of-00003.safetensors", "missing"]);
    let folder = Folder::fixture("base");
    folder.remove("model.safetensors");
    broken(&folder, "invalid_checkpoint", &["safetensors"]);
    folder.write("model.safetensors", "");
    broken(&folder, "invalid_checkpoint", &["model.safetensors"]);
}

#[test]
fn text_needs_a_tokenizer() {
    let folder = Folder::fixture("base");
    for broken in [false, true] {
        if broken {
            folder.write("tokenizer.json", "{\"model\": ");
        }
        for command in ["run", "score", "tokenize"] {
            refused([command, "-m", folder.path(), "x"], "invalid_checkpoint", &["tokenizer.json"]);
        }
        let stop = ["run", "-m", folder.path(), "--prompt-ids", IDS, "--stop", "x"];
        refused(stop, "invalid_checkpoint", &["tokenizer.json"]);
        refused(
            ["tokenize", "-m", folder.path(), "--prompt-ids", "1"],
            "invalid_checkpoint",
            &["tokenizer.json"],
        );
        // Nothing else does.
        process::json(["score", "-m", folder.path(), "--prompt-ids", IDS]);
    }
}

#[test]
fn tokenizers_that_make_their_reader_panic() {
    let folder = Folder::fixture("base");
    let mut tokenizer: Value =
        serde_json::from_slice(&fs::read(seedling().join("tokenizer.json")).unwrap()).unwrap();
    // Merges are cut by the length of the prefix, however short they are.
    tokenizer["model"]["continuing_subword_prefix"] =
        json!("a prefix that is longer than any token of this model");
    folder.write("tokenizer.json", tokenizer.to_string());
    refused(
        ["tokenize", "-m", folder.path(), "x"],
        "invalid_checkpoint",
        &["tokenizer.json", "note: fault at"],
    );
    let ids = whin(["run", "-m", folder.path(), "--prompt-ids", IDS, "-n", "2"]).succeeded();
    assert!(ids.stderr.starts_with("note: tokens are shown as ids: "), "{ids:?}");
    tokenizer["model"]["continuing_subword_prefix"] = Value::Null;
    tokenizer["normalizer"] = json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "x"});
    folder.write("tokenizer.json", tokenizer.to_string());
    refused(["tokenize", "-m", folder.path(), "x"], "invalid_checkpoint", &["tokenizer.json"]);
}

#[test]
fn end_tokens_that_are_only_named() {
    let folder = Folder::fixture("base");
    let inspect = |folder: &Folder| whin(["inspect", folder.path(), "--json"]).succeeded();
    let named = r#"{"eos_token": "<end>", "added_tokens_decoder": {"77": {"content": "<end>"}}}"#;
    folder.write("tokenizer_config.json", named);
    folder.write("tokenizer.json", "{");
    let clean = inspect(&folder);
    assert_eq!(clean.json()["end_tokens"], json!([77]));
    assert!(!clean.stderr.contains("warning"), "{clean:?}");
    // Without the list the broken tokenizer is asked, and cannot say; ids run all the same.
    folder.write("tokenizer_config.json", r#"{"eos_token": "<end>"}"#);
    for broken in [true, false] {
        if !broken {
            folder.remove("tokenizer.json");
        }
        let run = whin(["run", "-m", folder.path(), "--prompt-ids", IDS, "-n", "2"]);
        for outcome in [inspect(&folder), run] {
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            let warned =
                outcome.stderr.lines().filter(|line| line.starts_with("warning: tokenizer_config.json"));
            assert_eq!(warned.filter(|line| line.contains("<end>")).count(), 1, "{outcome:?}");
        }
        assert_eq!(inspect(&folder).json()["end_tokens"], json!([]));
    }
    for (text, part) in [("{", "broken"), (r#"{"eos_token": 3}"#, "eos_token 3")] {
        folder.write("tokenizer_config.json", text);
        broken_file(&folder, "tokenizer_config.json", part);
    }
    for (name, length) in [("config.json", 1), ("tokenizer_config.json", 16), ("generation_config.json", 1)] {
        let folder = Folder::fixture("base");
        folder.write(name, " ".repeat((length << 20) + 1));
        broken_file(&folder, name, "longer than");
    }
    folder.remove("tokenizer_config.json");
    fs::create_dir(folder.file("tokenizer_config.json")).unwrap();
    broken_file(&folder, "tokenizer_config.json", "is a folder");
}

#[track_caller]
fn broken_file(folder: &Folder, name: &str, part: &str) {
    broken(folder, "invalid_checkpoint", &[name, part]);
}

#[test]
fn weights_that_are_no_numbers() {
    let name = "model.layers.1.mlp.down_proj.weight";
    let folder = Folder::fixture("base");
    folder.tensors(|tensors| {
        tensors.get_mut(name).unwrap().2[10..12].copy_from_slice(&half_nan());
    });
    let run = ["run", "-m", folder.path(), "--prompt-ids", IDS, "-n", "4"];
    for weights in ["int8", "int8-groups", "int4", "int4-all"] {
        refused([&run[..], &["--weights", weights]].concat(), "invalid_checkpoint", &[name]);
    }
    for device in ["cpu", "cpu:scalar", "reference"] {
        for weights in ["bf16", "f32"] {
            let more = ["--weights", weights, "--device", device];
            for args in [&[][..], &["--temperature", "1"], &["--json", "--logprobs", "2"]] {
                refused([&run[..], &more, args].concat(), "device_failed", &["NaN"]);
            }
            let score = ["score", "-m", folder.path(), "--prompt-ids", IDS];
            refused([&score[..], &more].concat(), "device_failed", &["NaN"]);
        }
    }
}

#[test]
fn a_single_logit_that_is_no_number() {
    // The embedding of a token that does not stand in the prompt spoils its own logit only.
    let folder = Folder::fixture("base");
    folder.tensors(|tensors| {
        let (_, shape, bytes) = tensors.get_mut("model.embed_tokens.weight").unwrap();
        let start = 50 * shape[1] * 2;
        bytes[start..start + 2].copy_from_slice(&half_nan());
    });
    for device in ["cpu", "cpu:scalar", "reference"] {
        let run = ["run", "-m", folder.path(), "--prompt-ids", IDS, "--weights", "bf16", "--device", device];
        refused(run, "device_failed", &["NaN"]);
        refused(
            [&run[..], &["--temperature", "1"]].concat(),
            "device_failed",
            &["position 6", "token 50 is NaN", "--device reference"],
        );
    }
}

/// NaN in bf16.
fn half_nan() -> [u8; 2] {
    0x7fc0_u16.to_le_bytes()
}

#[test]
fn prompts_that_are_none() {
    for command in ["run", "score"] {
        refused([command, ""], "invalid_arguments", &["prompt is empty"]);
        for ids in ["", ",,", " "] {
            refused([command, "--prompt-ids", ids], "invalid_arguments", &["prompt is empty"]);
        }
        whin([command, "-"]).failed("invalid_arguments", &["prompt is empty"]);
        refused(
            [command, "--prompt-ids", "3,6144"],
            "invalid_arguments",
            &["6144", "position 1", "0 to 6143"],
        );
    }
    for command in ["run", "score", "tokenize"] {
        refused([command], "invalid_arguments", &["no prompt", "--prompt-ids"]);
        refused([command, "x", "--prompt-ids", "1"], "invalid_arguments", &["both"]);
        for id in ["-1", "x", "1.5", "4294967296", "1;2", "0x10", "１"] {
            refused([command, "--prompt-ids", id], "invalid_arguments", &["no token id"]);
        }
        whin_reading([command, "-"], b"caf\xe9 au lait").failed("invalid_arguments", &["UTF-8", "index 3"]);
    }
    refused(["tokenize", "--prompt-ids", "6144"], "invalid_arguments", &["0 to 6143"]);
}

#[test]
fn more_than_the_context_holds() {
    let long = "word ".repeat(200_000);
    whin_reading(["run", "-"], long.as_bytes()).failed("context_exceeded", &["4096", "prompt has"]);
    whin_reading(["score", "-"], long.as_bytes()).failed("context_exceeded", &["4096"]);
    let text = "The capital of France is";
    for n in ["4092", "18446744073709551615"] {
        refused(["run", text, "-n", n], "context_exceeded", &["5 prompt tokens", n, "4096"]);
    }
    refused(["run", text, "-n", "8", "--context", "12"], "context_exceeded", &["12", "4096"]);
    refused(["run", text, "-n", "8", "--max-ctx", "12"], "context_exceeded", &["max_ctx (12)"]);
    for max_ctx in ["0", "5"] {
        refused(["run", text, "--max-ctx", max_ctx], "context_exceeded", &["max_ctx", "no room"]);
    }
    refused(["score", text, "--context", "4"], "context_exceeded", &["5 tokens"]);
    for context in ["0", "1", "4097", "18446744073709551615"] {
        refused(["run", text, "--context", context], "invalid_arguments", &["context"]);
    }
    for context in ["0", "4097", "18446744073709551615"] {
        refused(["inspect", "--context", context], "invalid_arguments", &["context", "4096"]);
    }
    refused(["run", text, "-n", "0"], "invalid_arguments", &["max_new_tokens is 0"]);
}

#[test]
fn machines_that_are_not_there() {
    for device in ["cuda", "cuda:0", "metal", "vulkan", "cpu:mmx"] {
        for command in ["run", "score"] {
            refused([command, "x", "--device", device], "device_unavailable", &[device, "--device cpu"]);
        }
    }
    for device in ["", "gpu", "tpu:0", "CPU"] {
        refused(["run", "x", "--device", device], "invalid_arguments", &["device", "auto"]);
    }
    for device in ["cpu", "reference"] {
        refused(["run", "x", "--threads", "0", "--device", device], "invalid_arguments", &["threads"]);
        refused(
            ["run", "x", "--prefill-chunk", "0", "--device", device],
            "invalid_arguments",
            &["prefill_chunk"],
        );
    }
    for threads in ["1025", "18446744073709551615"] {
        refused(["run", "x", "--threads", threads], "invalid_arguments", &[threads, "1024"]);
    }
}

#[test]
fn sampling_values_that_mean_nothing() {
    for (option, values) in [
        ("--temperature", &["NaN", "-1", "-0.5", "inf", "1e39"][..]),
        ("--top-k", &["-2", "-9223372036854775808"]),
        ("--top-p", &["2", "-0.1", "nan"]),
        ("--min-p", &["1.01", "-1", "nan"]),
        ("--repeat-penalty", &["0", "-1", "nan", "inf"]),
        ("--presence-penalty", &["2.1", "-3", "nan"]),
        ("--frequency-penalty", &["2.1", "-3", "nan"]),
        ("--logit-bias", &["6144=1", "3=nan", "3=-inf"]),
    ] {
        for value in values {
            let name = option.trim_start_matches("--").replace('-', "_").replace("repeat_", "repetition_");
            refused(["run", "x", "-n", "1", option, value], "invalid_arguments", &[&name]);
        }
    }
    refused(["run", "x", "--top-p", "2", "--min-p", "3"], "invalid_arguments", &["top_p", "min_p"]);
    let twice = ["run", "x", "--logit-bias", "3=1", "--logit-bias", "3=2"];
    refused(twice, "invalid_arguments", &["token 3 twice"]);
    refused(["run", "x", "--stop", ""], "invalid_arguments", &["stop string", "empty"]);
}

#[test]
fn requests_are_checked_before_the_weights_are_read() {
    let folder = Folder::fixture("base");
    folder.remove("model.safetensors");
    let run = ["run", "-m", folder.path()];
    for (args, part) in [
        (["--prompt-ids", "1", "-n", "0"], "max_new_tokens"),
        (["--prompt-ids", "1", "--top-p", "2"], "top_p"),
        (["--prompt-ids", "1", "--stop", ""], "stop string"),
        (["--prompt-ids", "1", "--threads", "0"], "threads"),
        (["--prompt-ids", "1", "--context", "0"], "context"),
        (["--prompt-ids", "96", "-n", "1"], "token 96"),
    ] {
        refused([&run[..], &args].concat(), "invalid_arguments", &[part]);
    }
    refused(["score", "-m", folder.path(), "--prompt-ids", "96"], "invalid_arguments", &["token 96"]);
}

#[test]
fn usage() {
    for args in [
        &["run", "x", "-n", "-1"][..],
        &["run", "x", "-n", "18446744073709551616"],
        &["run", "x", "-n", "many"],
        &["run", "x", "--seed", "18446744073709551616"],
        &["run", "x", "--seed", "-1"],
        &["run", "x", "--top-k", "1.5"],
        &["run", "x", "--temperature", "hot"],
        &["run", "x", "--logit-bias", "3"],
        &["run", "x", "--logit-bias", "-3=1"],
        &["run", "x", "--weights", "int2"],
        &["run", "x", "--kv", "int2"],
        &["run", "x", "--threads", "-1"],
        &["run", "x", "y"],
        &["run", "x", "-m", ""],
        &["run", "--no-such-option"],
        &["walk"],
    ] {
        misused(args, &["--help"]);
    }
    misused::<&str>([], &["Usage:", "Commands:"]);
    refused(["inspect", "x", "-m", "y"], "invalid_arguments", &["twice"]);
    assert!(whin(["--help"]).succeeded().stdout.contains("Usage:"));
    assert!(whin(["--version"]).succeeded().stdout.starts_with("whin "));
}

#[test]
#[cfg(unix)]
fn arguments_that_are_not_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let bytes = OsStr::from_bytes(b"caf\xe9");
    misused([OsStr::new("run"), bytes], &["invalid UTF-8"]);
    refused([OsStr::new("run"), OsStr::new("x"), OsStr::new("-m"), bytes], "checkpoint_not_found", &["caf"]);
}

#[test]
#[cfg(unix)]
fn files_that_cannot_be_read() {
    use std::os::unix::fs::PermissionsExt;
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let folder = Folder::fixture("base");
        folder.write("tokenizer.json", "{}");
        let file = folder.file(name);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
        if fs::read(&file).is_ok() {
            return; // This user may read everything.
        }
        refused(["run", "-m", folder.path(), "x"], "io", &["cannot read", name, "denied"]);
    }
}

#[test]
#[cfg(unix)]
fn paths_that_lead_nowhere() {
    let folder = Folder::fixture("base");
    let through_a_file = folder.file("config.json/x");
    refused(["inspect", through_a_file.to_str().unwrap()], "io", &["cannot read", "config.json/x"]);
    refused(["inspect", &"x".repeat(5000)], "io", &["cannot read", "too long"]);
    folder.remove("config.json");
    std::os::unix::fs::symlink("config.json", folder.file("config.json")).unwrap();
    let outcome = whin(["inspect", folder.path()]);
    outcome.failed("io", &["cannot read", "config.json"]);
    // The cause is told once.
    assert_eq!(outcome.stderr.matches("os error").count(), 1, "{outcome:?}");
}

#[test]
#[cfg(unix)]
fn things_that_are_no_files() {
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let folder = Folder::fixture("base");
        let _ = fs::remove_file(folder.file(name));
        fs::create_dir(folder.file(name)).unwrap();
        refused(["run", "-m", folder.path(), "x"], "invalid_checkpoint", &[name]);
        fs::remove_dir(folder.file(name)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.file(name)).unwrap();
        refused(["run", "-m", folder.path(), "x"], "invalid_checkpoint", &[name]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_the_process_counts_as_the_end_of_memory() {
    let folder = Folder::copy(&seedling());
    folder.config(&[("max_position_embeddings", json!(200_000))]);
    let limited = |limit: &str, args: &[&str]| {
        let script = format!("ulimit -v {limit}; exec \"$0\" \"$@\"");
        let whin = process::command(args);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).arg(whin.get_program()).args(whin.get_args()).stdin(Stdio::null());
        process::finish(shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let run = ["run", "-m", folder.path(), "--no-cache", "--threads", "2", "--prompt-ids", IDS, "-n", "1"];
    let long = [&run[..], &["--context", "200000"]].concat();
    limited("unlimited", &long).succeeded();
    let one_gib = "1048576";
    limited(one_gib, &run).succeeded();
    let refused = limited(one_gib, &long);
    refused.failed(
        "out_of_memory",
        &["GiB are needed", "for weights", "200000 tokens", "MiB of memory are free"],
    );
    // What the command would do is what is told of the checkpoint.
    let inspect = ["inspect", folder.path(), "--json"];
    let told = limited(one_gib, &inspect).succeeded().json();
    let longest = told["longest_context"]["int8"].as_u64().unwrap();
    assert_eq!((&told["runs"], &told["fits"]["int8"]), (&json!(true), &json!(false)), "{told}");
    assert!((512..200_000).contains(&longest), "{longest}");
    let told = limited(one_gib, &inspect[..2]).succeeded().stdout;
    assert!(told.contains("runs         yes, texts of up to") && told.contains("room for"), "{told}");
    let told = limited(one_gib, &[&inspect[..], &["--context", "200000"]].concat()).succeeded().json();
    assert_eq!((&told["runs"], &told["longest_context"]["int8"]), (&json!(false), &Value::Null), "{told}");
    let told = limited(one_gib, &[&inspect[..2], &["--context", "200000"]].concat()).succeeded().stdout;
    assert!(
        told.contains("runs         no, since too little memory") && told.contains("too little for"),
        "{told}"
    );
    let devices = limited(one_gib, &["devices", "--json"]).succeeded();
    let devices: Value = serde_json::from_str(&devices.stdout).unwrap();
    assert_eq!(devices[0]["memory_bytes"], 1_u64 << 30, "{devices}");
}
