//! No code but the readers of families knows which families there are.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::fs;
use std::path::{Path, PathBuf};

/// Words in the names of families, without numbers behind them.
const NAMES: [&str; 26] = [
    "aya",
    "cohere",
    "command",
    "deepseek",
    "falcon",
    "gemma",
    "glm",
    "gpt",
    "granite",
    "idefics",
    "internvl",
    "lfm",
    "llama",
    "llava",
    "mistral",
    "mixtral",
    "moonlight",
    "nemotron",
    "olmo",
    "oss",
    "phi",
    "qwen",
    "smollm",
    "smolvlm",
    "starcoder",
    "yi",
];

/// A kind of rope, which config files of every family call so.
const ROPE: (&str, &[&str]) = ("llama", &["model/rope.rs", "model/rope_parameters.rs"]);

/// What is named after the formats of others, of which families are a part: tokenizers, call syntaxes, templates.
const FORMATS: [&str; 3] = ["whin/src/chat/", "whin/src/constrain/", "whin/src/tokenizer/"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The words of a line, those within identifiers too: `MistralNorm` and `mistral_norm` both have two.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in line.chars() {
        if !c.is_ascii_alphabetic() || (c.is_ascii_uppercase() && was_lower) {
            words.push(String::new());
        }
        if c.is_ascii_alphabetic() {
            words.last_mut().unwrap().push(c.to_ascii_lowercase());
        }
        was_lower = c.is_ascii_lowercase();
    }
    words
}

/// The families that a file names, with the lines. Tests at its end do not count.
fn named(path: &str, text: &str) -> Vec<(String, String)> {
    let allowed = |word: &str| word == ROPE.0 && ROPE.1.iter().any(|file| path.ends_with(file));
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap();
    let named = |line: &str| -> Vec<_> {
        let known = words(line).into_iter().filter(|word| NAMES.contains(&word.as_str()) && !allowed(word));
        known.map(|word| (word, line.trim().to_owned())).collect()
    };
    code.lines().flat_map(named).collect()
}

#[test]
fn nothing_outside_the_readers_names_a_family() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    sources(&crates.join("kernels/src"), &mut files);
    sources(&crates.join("whin/src"), &mut files);
    let mut looked_at = 0;
    for file in files {
        let path = file.strip_prefix(crates).unwrap().to_str().unwrap().replace('\\', "/");
        let is_reader = path.starts_with("whin/src/model/families/");
        let text = fs::read_to_string(&file).unwrap();
        if is_reader || FORMATS.iter().any(|formats| path.starts_with(formats)) {
            continue;
        }
        looked_at += 1;
        assert_eq!(
            named(&path, &text),
            [],
            "{path} names families; readers in model/families say what they need"
        );
    }
    assert!(looked_at > 60, "only {looked_at} files");
}

#[test]
fn a_name_is_found_wherever_it_stands() {
    for line in [
        "if spec.family == \"gemma3_text\" {",
        "fn mistral_norm() {",
        "struct Qwen2Norm;",
        "// As Phi-3 does it.",
        "const GLM4: u8 = 1;",
        "use super::smollm3::X;",
        "enum A { GptOss }",
    ] {
        assert_ne!(named("whin/src/model/forward.rs", line), [], "{line}");
    }
    for line in
        ["let phase = sigma;", "Scaling::Default", "// a gemstone, philosophy", "let alpha = granites;"]
    {
        assert_eq!(named("whin/src/model/forward.rs", line), [], "{line}");
    }
    assert_eq!(named("whin/src/model/rope.rs", "Scaling::Llama3 { .. }"), []);
    assert_ne!(named("whin/src/model/plan.rs", "Scaling::Llama3 { .. }"), []);
    assert_eq!(named("x.rs", "a\n#[cfg(test)]\nmod tests {\nllama"), []);
}
