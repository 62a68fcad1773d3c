//! Tokenizers out of the metadata of GGUF files: a real one, and small ones of each kind.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

#[allow(dead_code)]
#[path = "gguf/build.rs"]
mod build;

use std::path::PathBuf;

use build::{File, Value, flag, list, text, texts, uint};
use serde_json::json;
use whin::chat::messages::Conversation;
use whin::chat::template::Template;
use whin::checkpoint::gguf::Gguf;
use whin::checkpoint::{Source, end_tokens};
use whin::model::{Spec, config};
use whin::tokenizer::{TextStream, Tokenizer};
use whin::{Chat, Checkpoint, ErrorKind};

type Keys = Vec<(&'static str, Value)>;

fn source(keys: &[(&str, Value)]) -> Source {
    let files = [("m.gguf".to_owned(), File::new(keys, &[], &[]).bytes())];
    let place = Source::Memory(std::collections::BTreeMap::from(files).into());
    Source::Gguf(Gguf::open(place, "m.gguf").unwrap().into())
}

/// How many tokens the file has.
fn rows(source: &Source) -> usize {
    source.metadata().unwrap().texts("tokenizer.ggml.tokens").unwrap().map_or(0, |tokens| tokens.len())
}

fn tokenizer(source: &Source) -> Tokenizer {
    Tokenizer::from_gguf(source.metadata().unwrap(), rows(source)).unwrap()
}

/// A model of so many tokens whose config names no ends.
fn spec(vocab: usize) -> Spec {
    let demo = Source::open(None).unwrap();
    let mut spec = config::read(&demo.read("config.json").unwrap().unwrap()).unwrap();
    spec.eos.clear();
    spec.vocab = vocab;
    spec
}

fn ends(source: &Source) -> Vec<u32> {
    end_tokens(source, &spec(rows(source))).unwrap()
}

fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut stream = TextStream::new(tokenizer, false);
    let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
    text.push_str(&stream.finish());
    text
}

fn int_list(numbers: impl IntoIterator<Item = i32>) -> Value {
    let bytes: Vec<[u8; 4]> = numbers.into_iter().map(i32::to_le_bytes).collect();
    list(build::I32, bytes.len() as u64, &bytes.concat())
}

fn float_list(numbers: impl IntoIterator<Item = f32>) -> Value {
    let bytes: Vec<[u8; 4]> = numbers.into_iter().map(f32::to_le_bytes).collect();
    list(build::F32, bytes.len() as u64, &bytes.concat())
}

/// The same keys with another value for one, or without it.
fn with(keys: &Keys, key: &'static str, value: Option<Value>) -> Keys {
    let others = keys.iter().filter(|(other, _)| *other != key).cloned();
    others.chain(value.map(|value| (key, value))).collect()
}

/// Where the vocabulary of SmolLM2's GGUF file lies, beside the tokenizer.json that says the same.
fn smollm2() -> Option<PathBuf> {
    let folder = std::env::var_os("WHIN_CHAT_TOKENIZERS").map(PathBuf::from);
    if folder.is_none() {
        let why =
            "not run: WHIN_CHAT_TOKENIZERS names no folder with the models' tokenizers; tools/test sets it";
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("{why}");
    }
    folder.map(|folder| folder.join("smollm2"))
}

#[test]
fn smollm2_as_llama_cpp() {
    let Some(folder) = smollm2() else { return };
    let source = Source::open(Some(&folder.join("vocabulary.gguf"))).unwrap();
    let tokenizer = tokenizer(&source);
    let fixture = include_str!("fixtures/smollm2-tokens.json");
    let cases: Vec<(String, Vec<u32>)> = serde_json::from_str(fixture).unwrap();
    assert_eq!(cases.len(), 1000);
    for (text, ids) in &cases {
        assert_eq!(&tokenizer.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(&tokenizer.decode(ids, false), text);
        assert_eq!(&streamed(&tokenizer, ids), text);
    }
    let json = std::fs::read(folder.join("tokenizer.json")).unwrap();
    let of_json = Tokenizer::from_bytes(&json, "tokenizer.json").unwrap();
    assert_eq!(tokenizer.vocab_size(), of_json.vocab_size());
    for id in 0..tokenizer.vocab_size() as u32 {
        assert_eq!(tokenizer.id_to_token(id), of_json.id_to_token(id));
        assert_eq!(tokenizer.token_bytes(id), of_json.token_bytes(id));
        assert_eq!(tokenizer.is_special(id), of_json.is_special(id));
    }
    // Those that llama.cpp has.
    assert_eq!(ends(&source), [2, 0, 4]);
}

#[test]
fn smollm2_has_its_template() {
    let Some(folder) = smollm2() else { return };
    let conversation = Conversation {
        messages: vec![json!({"role": "user", "content": "Hello"})],
        ..Conversation::default()
    };
    let [of_gguf, of_json] = [folder.join("vocabulary.gguf"), folder].map(|path| {
        let source = if path.is_dir() { Source::Folder(path) } else { Source::open(Some(&path)).unwrap() };
        Template::open(&source).unwrap().apply(&conversation).unwrap()
    });
    assert_eq!(of_gguf, of_json);
    assert!(of_gguf.contains("<|im_start|>user\nHello<|im_end|>\n"), "{of_gguf}");
}

/// A vocabulary with scores: (text, type, score).
fn scored() -> Keys {
    let mut tokens =
        vec![("<unk>".to_owned(), 2, 0.0), ("<s>".to_owned(), 3, 0.0), ("</s>".to_owned(), 3, 0.0)];
    tokens.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), 6, 0.0)));
    for (text, score) in [
        ("▁", -9.0),
        ("a", -10.0),
        ("b", -11.0),
        ("c", -12.0),
        ("▁a", -1.0),
        ("ab", -2.0),
        ("ba", -2.0),
        ("aab", -1.5),
        ("▁ab", -3.0),
        ("é", -13.0),
        ("▁▁", -4.0),
        ("abab", -2.0),
        ("bc", -0.5),
    ] {
        tokens.push((text.to_owned(), 1, score));
    }
    for (text, kind) in [("<user>", 4), ("  ", 4), ("<|end|>", 3), ("[PAD]", 5), ("[PAD277]", 5)] {
        tokens.push((text.to_owned(), kind, 0.0));
    }
    let spelt: Vec<&[u8]> = tokens.iter().map(|(text, ..)| text.as_bytes()).collect();
    vec![
        ("general.architecture", text("llama")),
        ("tokenizer.ggml.model", text("llama")),
        ("tokenizer.ggml.tokens", texts(&spelt)),
        ("tokenizer.ggml.token_type", int_list(tokens.iter().map(|(_, kind, _)| *kind))),
        ("tokenizer.ggml.scores", float_list(tokens.iter().map(|(.., score)| *score))),
        ("tokenizer.ggml.bos_token_id", uint(1)),
        ("tokenizer.ggml.eos_token_id", uint(2)),
    ]
}

/// The ids are llama.cpp's.
#[test]
fn pairs_merge_by_score() {
    let source = source(&scored());
    let tokenizer = tokenizer(&source);
    let cases: [(&str, &[u32], &str); 16] = [
        ("ab aab", &[267, 263, 264], "ab aab"),
        ("", &[], ""),
        (" ", &[269], " "),
        ("   a", &[273, 259, 263], "   a"),
        ("aababab", &[263, 270, 264], "aababab"),
        ("abcabc", &[263, 271, 260, 271], "abcabc"),
        ("é🙂", &[259, 268, 243, 162, 156, 133], "é🙂"),
        ("a\nb", &[263, 13, 261], "a\nb"),
        ("<s>ab</s> ab", &[1, 267, 2, 259, 267], "<s> ab</s>  ab"),
        ("<user>ab", &[272, 267], "<user> ab"),
        ("a  b    c", &[263, 273, 259, 261, 273, 273, 259, 262], "a   b     c"),
        ("<|end|>  ab", &[274, 273, 267], "<|end|>   ab"),
        ("<unk>", &[0], "<unk>"),
        ("<0x41>", &[259, 63, 51, 123, 55, 52, 65], "<0x41>"),
        ("[PAD]", &[275], "[PAD]"),
        ("bab ba", &[259, 265, 261, 259, 265], "bab ba"),
    ];
    for (text, ids, decoded) in cases {
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        // The first blank of a text goes; llama.cpp leaves no more out either.
        assert_eq!(tokenizer.decode(ids, false), decoded, "{text:?}");
        assert_eq!(streamed(&tokenizer, ids), decoded, "{text:?}");
    }
    assert_eq!(ends(&source), [2, 274, 275]);
    assert!([0, 1, 2, 274, 275].iter().all(|id| tokenizer.is_special(*id)) && !tokenizer.is_special(272));
    // What the file calls unused is no token.
    assert_eq!((tokenizer.id_to_token(276), tokenizer.decode(&[276], false)), (None, String::new()));
    assert!(!tokenizer.encode("[PAD277]").unwrap().contains(&276));
    assert_eq!(tokenizer.vocab_size(), 276);
}

/// The ids are llama.cpp's.
#[test]
fn the_blank_before_a_text_can_be_left_out() {
    let tokenizer = tokenizer(&source(&with(&scored(), "tokenizer.ggml.add_space_prefix", Some(flag(0)))));
    let cases: [(&str, &[u32]); 6] = [
        ("ab aab", &[264, 263, 264]),
        (" ", &[259]),
        ("aababab", &[266, 270]),
        ("<s>ab</s> ab", &[1, 264, 2, 267]),
        ("▁a", &[263]),
        ("bab ba", &[265, 261, 259, 265]),
    ];
    for (text, ids) in cases {
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.decode(ids, false), text.replace('▁', " "), "{text:?}");
    }
}

#[test]
fn blanks_behind_control_tokens_can_belong_to_them() {
    let keys = with(&scored(), "general.architecture", Some(text("phi3")));
    let tokenizer = tokenizer(&source(&keys));
    assert_eq!(tokenizer.encode("<|end|> \nab").unwrap(), [274, 267]);
    // Not behind these.
    assert_eq!(tokenizer.encode("<s> ab").unwrap(), [1, 259, 267]);
}

/// A vocabulary of bytes in the alphabet of GPT-2, and pairs with ranks.
fn ranked() -> Keys {
    let letters = (0x21..0x7f).chain(0xa1..0xad).chain(0xae..0x100).chain(0x100..0x144);
    let mut tokens: Vec<String> = letters.filter_map(char::from_u32).map(String::from).collect();
    assert_eq!(tokens.len(), 256);
    tokens.extend(
        ["ab", "Ġab", "abc", "Ã©", "<|im_end|>", "<user>", "left over", "</s>", "</"].map(String::from),
    );
    let kinds = [1, 1, 1, 5, 1, 4, 5, 1, 1];
    let spelt: Vec<&[u8]> = tokens.iter().map(|token| token.as_bytes()).collect();
    let merges: [&[u8]; 5] = ["a b", "Ġ ab", "ab c", "Ã ©", "< /"].map(str::as_bytes);
    vec![
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("gpt-2")),
        ("tokenizer.ggml.tokens", texts(&spelt)),
        ("tokenizer.ggml.token_type", int_list([1; 256].into_iter().chain(kinds))),
        ("tokenizer.ggml.merges", texts(&merges)),
    ]
}

#[test]
fn pairs_merge_by_rank() {
    let source = source(&ranked());
    let tokenizer = tokenizer(&source);
    assert_eq!(tokenizer.encode("abc ab").unwrap(), [258, 257]);
    // Called unused, and needed: merges make it.
    assert_eq!(tokenizer.encode("é").unwrap(), [259]);
    assert_eq!(tokenizer.decode(&[259], false), "é");
    // Called text, but it steers the model whatever it is called.
    assert_eq!(tokenizer.encode("a<|im_end|>").unwrap()[1..], [260]);
    assert!(tokenizer.is_special(260));
    assert_eq!(tokenizer.encode("<user>").unwrap(), [261]);
    assert!(!tokenizer.is_special(261));
    assert_eq!(tokenizer.id_to_token(262), None);
    // Text, where the file says so, although it ends texts elsewhere.
    assert_eq!(tokenizer.encode("</s>").unwrap(), [264, 82, 29]);
    assert!(!tokenizer.is_special(263));
    assert_eq!(ends(&source), [260]);
    assert_eq!(tokenizer.decode(&[258, 257, 260], true), "abc ab");
}

#[test]
fn texts_are_composed_where_models_were_trained_so() {
    let encode = |name: &str| {
        let keys = with(&ranked(), "tokenizer.ggml.pre", Some(text(name)));
        tokenizer(&source(&keys)).encode("e\u{301}").unwrap()
    };
    assert_eq!(encode("qwen2"), [259]);
    assert_eq!(encode("gpt-2").len(), 3);
}

#[test]
fn ends_are_found_by_keys_and_by_names() {
    let named = |names: &[&str], keys: &[(&'static str, u32)]| {
        let spelt: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let mut all: Keys = vec![("tokenizer.ggml.tokens", texts(&spelt))];
        all.extend(keys.iter().map(|(key, id)| (*key, uint(*id))));
        ends(&source(&all))
    };
    assert_eq!(named(&["x", "<|eot_id|>", "<|eom_id|>", "y"], &[]), [1, 2]);
    assert_eq!(named(&["x", "<|eot_id|>", "y"], &[("tokenizer.ggml.eos_token_id", 2)]), [2, 1]);
    assert_eq!(
        named(&["x", "y", "z"], &[("tokenizer.ggml.eom_token_id", 1), ("tokenizer.ggml.eot_token_id", 0)]),
        [0, 1]
    );
    // The end of a message is none of an answer where answers have their own.
    assert_eq!(named(&["<|end|>", "<|return|>", "<|call|>"], &[]), [1, 2]);
    assert_eq!(named(&["<|end|>", "<|return|>"], &[]), [0, 1]);
    // Without types, all are what they are called.
    assert_eq!(named(&["</s>", "<|fim_pad|>", "<|file_sep|>", "<fim_pad>"], &[]), [0, 1, 2]);
    assert_eq!(named(&["a", "b"], &[]), [0; 0]);

    let past: Keys =
        vec![("tokenizer.ggml.tokens", texts(&[b"a"])), ("tokenizer.ggml.eos_token_id", uint(1))];
    let error = end_tokens(&source(&past), &spec(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidCheckpoint);
    let message = error.to_string();
    assert!(message.contains("tokenizer.ggml.eos_token_id") && message.contains("below 1"), "{message}");
}

#[test]
fn templates_and_the_tokens_that_they_name_are_found() {
    let keys = with(
        &scored(),
        "tokenizer.chat_template",
        Some(text("{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}")),
    );
    let keys = with(&keys, "tokenizer.chat_template.tool_use", Some(text("with tools")));
    let conversation = Conversation {
        messages: vec![json!({"role": "user", "content": "Hello"})],
        ..Conversation::default()
    };
    let template = Template::open(&source(&keys)).unwrap();
    assert_eq!(template.apply(&conversation).unwrap(), "<s></s>False");
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let with_tools = Conversation { tools: vec![tool], ..conversation };
    assert_eq!(template.apply(&with_tools).unwrap(), "with tools");

    assert!(Template::find(&source(&scored())).unwrap().is_none());
    for (value, part) in [
        (uint(3), "tokenizer.chat_template"),
        (text("{% if %}"), "line 1"),
        (text("x".repeat(1 << 20)), "bytes, more than the"),
    ] {
        let error = Template::open(&source(&with(&scored(), "tokenizer.chat_template", Some(value)))).err();
        let error = error.unwrap().to_string();
        assert!(error.contains(part) && error.contains("m.gguf"), "{error}");
    }
}

#[test]
fn an_opened_file_has_its_tokenizer_ends_and_template() {
    let mut keys = with(&ranked(), "general.architecture", Some(text("qwen3")));
    for (key, number) in [
        ("qwen3.block_count", 1),
        ("qwen3.embedding_length", 8),
        ("qwen3.feed_forward_length", 8),
        ("qwen3.attention.head_count", 2),
        ("qwen3.context_length", 64),
    ] {
        keys.push((key, uint(number)));
    }
    keys.push(("qwen3.attention.layer_norm_rms_epsilon", build::float(1e-6)));
    let template = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}";
    keys.push(("tokenizer.chat_template", text(template)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let opened = |keys: &Keys| {
        std::fs::write(&path, File::new(keys, &[], &[]).bytes()).unwrap();
        Checkpoint::open(Some(&path)).unwrap()
    };
    let checkpoint = opened(&keys);
    assert!(checkpoint.has_tokenizer());
    assert_eq!(checkpoint.end_tokens()[..], [260]);
    assert_eq!(checkpoint.tokenizer().unwrap().encode("abc ab").unwrap(), [258, 257]);
    // What a user writes is no control token here either.
    let chat = Chat::new([json!({"role": "user", "content": "ab<|im_end|>"})]);
    let prompt = checkpoint.chat_prompt(&chat).unwrap();
    assert_eq!(prompt.text, "ab<|im_end|><|im_end|>");
    assert_eq!((prompt.token_ids[0], prompt.token_ids.last()), (256, Some(&260)));
    assert_eq!(prompt.token_ids.iter().filter(|id| **id == 260).count(), 1);

    let checkpoint = opened(&with(&keys, "tokenizer.ggml.model", Some(text("none"))));
    assert!(!checkpoint.has_tokenizer() && checkpoint.tokenizer().is_err());
}
