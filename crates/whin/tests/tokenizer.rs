//! Tokenizer files of every kind: the demo model's, Qwen3's against the reference, SentencePiece-like
//! ones, and hostile ones.

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use whin::ErrorKind;
use whin::tokenizer::{TextStream, Tokenizer};

const SEEDLING: &[u8] = include_bytes!("../../../models/seedling/tokenizer.json");
const METASPACE: &[u8] = include_bytes!("fixtures/metaspace-tokenizer.json");

fn seedling() -> Tokenizer {
    Tokenizer::from_bytes(SEEDLING, "tokenizer.json").expect("the demo tokenizer")
}

fn from_json(json: &Value) -> whin::Result<Tokenizer> {
    Tokenizer::from_bytes(json.to_string().as_bytes(), "tokenizer.json")
}

fn streamed(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool) -> String {
    let mut stream = TextStream::new(tokenizer, skip_special);
    let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
    text.push_str(&stream.finish());
    text
}

#[test]
fn seedling_ids() {
    let tokenizer = seedling();
    assert_eq!(tokenizer.encode("The capital of France is").unwrap(), [313, 410, 354, 1922, 310]);
    assert_eq!(tokenizer.decode(&[313, 410, 354, 1922, 310], true), "The capital of France is");
    assert!(tokenizer.encode("").unwrap().is_empty());

    let end = tokenizer.token_to_id("<|im_end|>").unwrap();
    assert_eq!(tokenizer.encode("<|im_end|>").unwrap(), [end]);
    assert!(tokenizer.is_special(end));
    let think = tokenizer.token_to_id("<think>").unwrap();
    assert!(!tokenizer.is_special(think));
    assert_eq!(tokenizer.token_bytes(think), b"<think>");
    assert_eq!(tokenizer.token_bytes(410), b" capital");
    assert_eq!(tokenizer.id_to_token(410).as_deref(), Some("\u{120}capital"));
}

#[test]
fn ids_without_a_token_are_no_text() {
    let tokenizer = seedling();
    let past = tokenizer.vocab_size() as u32;
    assert_eq!(tokenizer.id_to_token(past), None);
    assert!(tokenizer.id_to_token(past - 1).is_some());
    for id in [past, past + 1, u32::MAX] {
        assert_eq!(tokenizer.token_bytes(id), b"");
        assert_eq!(tokenizer.decode(&[313, id, 410], true), "The capital");
        assert!(!tokenizer.is_special(id));
    }
}

/// The cases were written by the reference implementation; the tokenizer itself is too large for a
/// repository, and lies in the folder that the environment names.
#[test]
fn qwen3_as_the_reference() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3-tokenizer.json");
    let folder = std::env::var_os("WHIN_QWEN3_TOKENIZER");
    let Some(folder) = folder else {
        let why =
            "not run: WHIN_QWEN3_TOKENIZER names no folder with Qwen3's tokenizer.json; tools/test sets it";
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("qwen3_as_the_reference: {why}");
        return;
    };
    let json = std::fs::read(Path::new(&folder).join("tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_bytes(&json, "tokenizer.json").unwrap();
    let cases: Value = serde_json::from_slice(&std::fs::read(fixture).unwrap()).unwrap();
    let [encode, decode] = ["encode", "decode"].map(|key| cases[key].as_array().unwrap());
    assert!(encode.len() > 200 && decode.len() > 30);
    for case in encode.iter().chain(decode) {
        let ids = case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32);
        let ids: Vec<u32> = ids.collect();
        if let Some(text) = case["text"].as_str() {
            assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        }
        let kept = case["kept"].as_str().unwrap();
        for (skip_special, right) in [(false, kept), (true, case["skipped"].as_str().unwrap_or(kept))] {
            assert_eq!(tokenizer.decode(&ids, skip_special), right, "{ids:?}");
            assert_eq!(streamed(&tokenizer, &ids, skip_special), right, "{ids:?}");
        }
    }
    // The checkpoint's table has rows up to 151,936.
    assert_eq!(tokenizer.vocab_size(), 151_669);
    assert_eq!(tokenizer.decode(&[151_669, 151_935], false), "");
}

/// The ids and texts are those of Python's `tokenizers` 0.23.3. The file also asks for truncation to four
/// tokens, padding to sixteen and a beginning-of-text token, and gets none of them.
#[test]
fn sentencepiece_with_byte_fallback() {
    let tokenizer = Tokenizer::from_bytes(METASPACE, "tokenizer.json").unwrap();
    let cases: [(&str, &[u32], &str); 7] = [
        ("the capital of Paris is", &[294, 301, 303, 310, 305], "the capital of Paris is"),
        (" the", &[259, 294], " the"),
        ("    the é", &[311, 311, 294, 259, 291], "    the é"),
        ("🙂 no", &[259, 243, 162, 156, 133, 259, 273, 274], "🙂 no"),
        ("a\nb", &[259, 260, 13, 261], "a\nb"),
        ("the<s>the", &[294, 1, 294], "the the"),
        ("", &[], ""),
    ];
    for (text, ids, decoded) in cases {
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.decode(ids, true), decoded, "{text:?}");
        assert_eq!(streamed(&tokenizer, ids, true), decoded, "{text:?}");
    }
    assert_eq!(tokenizer.token_bytes(294), b" the");
    assert_eq!(tokenizer.token_bytes(13), b"\n");

    // Only the first space of the text goes, also where the first token is no more than that space.
    let mut stream = TextStream::new(&tokenizer, true);
    let pieces: Vec<String> = [1, 259, 294, 243, 162, 156, 133, 162, 260].map(|id| stream.push(id)).into();
    assert_eq!(pieces, ["", "", " the", "", "", "", "🙂", "\u{fffd}", "a"]);
    // A cut character at the end, after a whole one: the crate would lose the whole one.
    assert_eq!(tokenizer.decode(&[294, 243, 162, 156, 133, 243, 162], true), "the🙂\u{fffd}");
}

/// Decoders over the words "un", "##do", "a</w>" and ",".
fn with_decoder(decoder: Value) -> Tokenizer {
    let vocab = json!({"[UNK]": 0, "un": 1, "##do": 2, "a</w>": 3, ",": 4, "▁▁b": 5, "c▁": 6, "[PAD]": 7});
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let model = json!({"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"});
    let added = [special(0, "[UNK]"), special(7, "[PAD]")];
    from_json(&json!({"version": "1.0", "added_tokens": added, "decoder": decoder, "model": model}))
        .expect("a tokenizer")
}

/// Each decoder against the `tokenizers` crate itself, over every list of up to four ids.
#[test]
fn decoders_that_are_not_byte_level() {
    let metaspace = |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme});
    let decoders = [
        Value::Null,
        json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        json!({"type": "BPEDecoder", "suffix": "</w>"}),
        metaspace("always"),
        metaspace("never"),
        json!({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, metaspace("first")]}),
        json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"Regex": "▁+"}, "content": " "},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}),
    ];
    for decoder in decoders {
        let tokenizer = with_decoder(decoder.clone());
        let vocab =
            json!({"[UNK]": 0, "un": 1, "##do": 2, "a</w>": 3, ",": 4, "▁▁b": 5, "c▁": 6, "[PAD]": 7});
        let reference = json!({"version": "1.0", "decoder": decoder,
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}});
        let reference = tokenizers::Tokenizer::from_bytes(reference.to_string()).unwrap();
        for list in 0..9_u32.pow(4) {
            let ids: Vec<u32> =
                (0..4).map(|place| list / 9_u32.pow(place) % 9).filter(|&id| id != 8).collect();
            let visible: Vec<u32> = ids.iter().copied().filter(|id| ![0, 7].contains(id)).collect();
            // The crate's BPE decoder panics on an empty list.
            let expected =
                if visible.is_empty() { String::new() } else { reference.decode(&visible, false).unwrap() };
            assert_eq!(tokenizer.decode(&ids, true), expected, "{decoder} {ids:?}");
            assert_eq!(streamed(&tokenizer, &ids, true), expected, "{decoder} {ids:?}");
        }
    }
}

#[test]
fn unigram_scores_survive_the_json_reader() {
    let tokenizer = from_json(&json!({"version": "1.0", "added_tokens": [],
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": [
            ["<unk>", 0.0], ["▁", -2.5], ["▁a", -1.25], ["b", -3e0], ["▁ab", -9.75]]}}))
    .unwrap();
    assert_eq!(tokenizer.encode("ab a").unwrap(), [2, 3, 2]);
    assert_eq!(tokenizer.decode(&[2, 3, 2], true), "ab a");
}

#[test]
fn merge_dropout_is_switched_off() {
    let mut file: Value = serde_json::from_slice(SEEDLING).unwrap();
    file["model"]["dropout"] = json!(0.9);
    let tokenizer = from_json(&file).unwrap();
    assert_eq!(tokenizer.encode("The capital of France is").unwrap(), [313, 410, 354, 1922, 310]);
}

#[test]
fn added_tokens_keep_their_characters() {
    let mut file: Value = serde_json::from_slice(SEEDLING).unwrap();
    let id = seedling().vocab_size();
    let added = json!({"id": id, "content": "<café>", "single_word": false, "lstrip": false,
                       "rstrip": false, "normalized": false, "special": false});
    file["added_tokens"].as_array_mut().unwrap().push(added);
    let tokenizer = from_json(&file).unwrap();
    assert_eq!(tokenizer.encode("<café>").unwrap(), [id as u32]);
    assert_eq!(tokenizer.decode(&[id as u32], true), "<café>");
}

fn refused(json: &[u8]) -> String {
    match Tokenizer::from_bytes(json, "folder/tokenizer.json") {
        Ok(_) => panic!("accepted: {}", String::from_utf8_lossy(&json[..json.len().min(200)])),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidCheckpoint);
            assert!(error.to_string().starts_with("folder/tokenizer.json: "), "{error}");
            error.to_string()
        }
    }
}

#[test]
fn hostile_files_are_errors() {
    for json in ["", "{", "[]", "null", "{}", "{\"model\":{}}", "{\"decoder\":", "{\"decoder\":{\"type\":1"] {
        refused(json.as_bytes());
    }
    refused(b"\xff\xfe\x00");
    refused(&SEEDLING[..SEEDLING.len() / 2]);
    for part in ["model", "decoder", "normalizer", "pre_tokenizer", "post_processor"] {
        let deep = format!("{{\"{part}\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
        refused(deep.as_bytes());
        let wrong = json!({"version": "1.0", part: {"type": "Sequence", "decoders": [7]}});
        refused(wrong.to_string().as_bytes());
    }
}

#[test]
fn ids_that_cannot_be_kept_are_errors() {
    let mut file: Value = serde_json::from_slice(SEEDLING).unwrap();
    file["added_tokens"][0]["id"] = json!(6_200);
    assert!(refused(file.to_string().as_bytes()).contains("<|endoftext|>"));

    for id in [1_u32 << 21, u32::MAX] {
        let model = json!({"type": "WordLevel", "vocab": {"absurd": id, "u": 0}, "unk_token": "u"});
        let file = json!({"version": "1.0", "model": model}).to_string();
        assert!(refused(file.as_bytes()).contains(&id.to_string()));
    }
}

#[test]
fn parts_that_no_tokenizer_needs_are_refused_unread() {
    let zeros = |count: usize| "0,".repeat(count) + "0";
    let some = zeros(20_000);
    for part in ["normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding"] {
        let json =
            format!(r#"{{"version":"1.0","{part}":{{"type":"ByteLevel","x":[{some}]}},"model":{{}}}}"#);
        assert!(refused(json.as_bytes()).contains(&format!("{part}: more than 16384 values")));
        let json = format!(r#"{{"{part}":{{"type":"{}"}}}}"#, "x".repeat(2 << 20));
        assert!(refused(json.as_bytes()).contains("at most 1048576 are read"));
    }
    let many = zeros(5 << 20);
    for model in ["\"vocab\":[", "\"vocab\":{},\"merges\":[", "\"x\":["] {
        let json = format!(r#"{{"version":"1.0","model":{{"type":"BPE",{model}{many}]}}}}"#);
        assert!(refused(json.as_bytes()).contains("model: more than 4194304 values"));
    }
    let json = format!(r#"{{"version":"1.0","added_tokens":[{{"id":0,"content":"","x":[{many}]}}]}}"#);
    assert!(refused(json.as_bytes()).contains("added_tokens: more than"));
    let long = "x".repeat(9 << 20);
    let json = format!(r#"{{"version":"1.0","added_tokens":[{{"id":0,"content":"{long}"}}]}}"#);
    assert!(refused(json.as_bytes()).contains("added tokens of"));
    let json = format!(r#"{{"version":"1.0","model":{{"type":"Unigram","vocab":[["{long}",0.0]]}}}}"#);
    assert!(refused(json.as_bytes()).contains("pieces of"));
    let deep = "x".repeat(1 << 20);
    let json = format!(r#"{{"version":"1.0","model":{{"type":"Unigram","vocab":[["{deep}",0.0]]}}}}"#);
    assert!(refused(json.as_bytes()).contains("a piece of 1048576 bytes"));
    let json = format!("{{{}\"version\":\"1.0\"}}", " ".repeat(64 << 20));
    assert!(refused(json.as_bytes()).contains("at most 67108864 are read"));
}

/// A file with a small model, and these parts.
fn with_parts(parts: &Value) -> Value {
    let mut file =
        json!({"version": "1.0", "model": {"type": "WordLevel", "vocab": {"u": 0}, "unk_token": "u"}});
    for (key, value) in parts.as_object().into_iter().flatten() {
        file[key] = value.clone();
    }
    file
}

#[test]
fn steps_that_multiply_a_text_or_are_too_many_are_refused() {
    let replace =
        |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let doubled = vec![replace(json!({"String": "a"}), "aa"); 11];
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false});
    let template = json!({"type": "TemplateProcessing", "special_tokens": {},
        "single": vec![json!({"Sequence": {"id": "A", "type_id": 0}}); 2000],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}]});
    let table = |tree: u32, string: &[u8]| {
        let bytes = [&tree.to_le_bytes()[..], &[0; 8], b"x", string, b"\0"].concat();
        json!({"type": "Precompiled", "precompiled_charsmap": BASE64_STANDARD.encode(bytes)})
    };
    let many = "x".repeat(2000);
    let lower = json!({"type": "Sequence", "normalizers": vec![json!({"type": "Lowercase"}); 16]});
    let strip = vec![json!({"type": "Strip", "content": "a", "start": 1, "stop": 0}); 16];
    for (parts, why) in [
        (
            json!({"normalizer": {"type": "Sequence", "normalizers": [lower, lower]}}),
            "normalizer of 35 steps",
        ),
        (json!({"decoder": {"type": "Sequence", "decoders": strip}}), "decoder of 17 steps"),
        (json!({"normalizer": {"type": "Sequence", "normalizers": doubled}}), "2048 times longer"),
        (json!({"normalizer": {"normalizers": doubled}}), "2048 times longer"),
        (json!({"normalizer": replace(json!({"String": "a"}), &many)}), "2000 times longer"),
        (json!({"normalizer": replace(json!({"Regex": ""}), &many)}), "2001 times longer"),
        (json!({"normalizer": {"type": "Prepend", "prepend": many}}), "2001 times longer"),
        (json!({"normalizer": table(8, many.as_bytes())}), "2001 times longer"),
        (json!({"normalizer": table(16, b"")}), "broken precompiled_charsmap"),
        (json!({"normalizer": table(u32::MAX, b"")}), "broken precompiled_charsmap"),
        (
            json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": vec![byte_level; 7]}}),
            "2187 times longer",
        ),
        (json!({"post_processor": template}), "2000 times longer"),
        (json!({"decoder": {"type": "Sequence", "decoders": doubled}}), "a token 2048 times longer"),
        (
            json!({"normalizer": replace(json!({"String": "b"}), &many[..1000]),
                "added_tokens": [{"id": 1, "content": "c".repeat(40_000), "single_word": false, "lstrip": false,
                                  "rstrip": false, "normalized": true, "special": false}]}),
            "40000 bytes of added tokens 1000 times longer",
        ),
        (
            json!({"normalizer": lower, "added_tokens": [{"id": 1, "content": "c".repeat(1_000_000), "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": true, "special": false}]}),
            "1000000 bytes of added tokens and a normalizer of 17 steps",
        ),
    ] {
        let message = refused(with_parts(&parts).to_string().as_bytes());
        assert!(message.contains(why), "{why:?} is not in: {message}");
    }
}

#[test]
fn steps_of_known_tokenizers_are_accepted() {
    let blanks = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let llama = json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, blanks]});
    // As in the tables of SentencePiece, whose longest string stands for U+FDFA.
    let string = "صلى الله عليه وسلم";
    let table = BASE64_STANDARD.encode([&4u32.to_le_bytes()[..], &[0; 4], string.as_bytes(), b"\0"].concat());
    let runs = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"});
    let nmt = json!({"type": "Sequence", "normalizers":
        [{"type": "Precompiled", "precompiled_charsmap": table}, runs]});
    let words = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    for parts in [json!({"normalizer": llama}), json!({"normalizer": nmt, "pre_tokenizer": words})] {
        from_json(&with_parts(&parts)).unwrap();
    }
}

#[test]
fn expressions_that_are_too_long_are_refused_unread() {
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let steps = |count: usize| {
        let half = split(&format!("(?i:{})", "ßſﬀK".repeat(count)));
        json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [half, half]}})
    };
    from_json(&with_parts(&steps(100))).unwrap();
    let start = Instant::now();
    let message = refused(with_parts(&steps(60_000)).to_string().as_bytes());
    assert!(message.contains("expressions of 960010 bytes"), "{message}");
    let find = json!({"type": "Replace", "pattern": {"String": "ab".repeat(400_000)}, "content": "x"});
    let message = refused(with_parts(&json!({ "normalizer": find })).to_string().as_bytes());
    assert!(message.contains("expressions of 800000 bytes"), "{message}");
    assert!(start.elapsed() < Duration::from_secs(2), "took {:?}", start.elapsed());
}

#[test]
fn messages_do_not_quote_whole_files() {
    let long = "x".repeat(500_000);
    let word = |id: Value| {
        json!([{"id": id, "content": long, "single_word": false, "lstrip": false,
                                   "rstrip": false, "normalized": false, "special": false}])
    };
    for parts in [
        json!({"version": long}),
        json!({"normalizer": {"type": long}}),
        json!({"decoder": {"type": "Strip", "content": long, "start": 1, "stop": 1}}),
        json!({"added_tokens": word(json!(long))}),
        json!({"added_tokens": word(json!(7))}),
        json!({"model": {"type": "BPE", "vocab": {}, "merges": [[long, long]]}}),
    ] {
        let message = refused(with_parts(&parts).to_string().as_bytes());
        assert!(message.len() < 2000, "{} bytes: {}", message.len(), &message[..300]);
    }
}

#[test]
fn words_and_affixes_that_cost_too_much_are_refused() {
    let long = "x".repeat(2000);
    for (model, why) in [
        (
            json!({"type": "WordPiece", "vocab": {"u": 0}, "unk_token": "u", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 257}),
            "words of 257 characters",
        ),
        (
            json!({"type": "WordPiece", "vocab": {"u": 0}, "unk_token": "u", "continuing_subword_prefix": long,
                "max_input_chars_per_word": 100}),
            "2000 bytes",
        ),
        (json!({"type": "BPE", "vocab": {"u": 0}, "merges": [], "end_of_word_suffix": long}), "2000 bytes"),
    ] {
        let message = refused(json!({"version": "1.0", "model": model}).to_string().as_bytes());
        assert!(message.contains(why), "{why:?} is not in: {message}");
    }
}

#[test]
fn a_text_that_the_pattern_gives_up_on_is_the_fault_of_the_text() {
    let mut file: Value = serde_json::from_slice(SEEDLING).unwrap();
    file["pre_tokenizer"] = json!({"type": "Split", "pattern": {"Regex": "(a*)*(a*)*(a*)*c"},
                                   "behavior": "Isolated", "invert": false});
    let tokenizer = from_json(&file).unwrap();
    assert_eq!(tokenizer.decode(&tokenizer.encode("aac").unwrap(), true), "aac");
    let blanks = format!("{}a", " ".repeat(12_000_000));
    for (tokenizer, text) in [(tokenizer, format!("{}bc", "a".repeat(1000))), (seedling(), blanks)] {
        let error = tokenizer.encode(&text).map(|ids| ids.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArguments, "{error}");
        for part in ["retry-limit-in-match", "tokenizer.json", "shorten the text"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
