//! One function for each kind of file: it gives the bytes to what loading gives them to, and looks at what comes out.
//! Bad files are errors with messages of bearable length; anything else is a panic.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use whin::chat::template::Template;
use whin::checkpoint::gguf::Gguf;
use whin::checkpoint::{Source, Tensors, end_tokens};
pub use whin::fuzzing::answer;
use whin::fuzzing::{CacheReader, source};
use whin::model::{Plan, Spec, config};
use whin::tokenizer::Tokenizer;
use whin::{CacheMode, Checkpoint, Conversation, Engine, Error, KvKind, Options, Weights};
use xxhash_rust::xxh3::xxh3_64;

/// What is done with an input; says whether loading would go on with it.
pub type Target = fn(&[u8]) -> bool;

/// Every target by the name of the folder of its corpus.
pub const TARGETS: [(&str, Target); 9] = [
    ("answer", answer),
    ("cache", cache),
    ("config", config),
    ("generation", generation),
    ("gguf", gguf),
    ("header", header),
    ("index", index),
    ("template", template),
    ("tokenizer", tokenizer),
];

/// What stands between the files of an input that has several.
pub const SEPARATOR: &[u8] = b"\n---\n";

/// More than all problems that a message lists, with the longest names.
const LONGEST_MESSAGE: usize = 1 << 20;

/// A model that an input of a few kilobytes can hold whole.
const TINY: &str = r#"{"model_type": "qwen3", "vocab_size": 4, "hidden_size": 4, "intermediate_size": 4,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2,
    "max_position_embeddings": 64, "tie_word_embeddings": true"#;

/// The same one, with matrices in FP8.
const BLOCKS: &str = r#", "quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 2], "activation_scheme": "static"}"#;

fn tiny(more: &str) -> Spec {
    config::read(format!("{TINY}{more}}}").as_bytes()).expect("a config without faults")
}

/// What came out, where it is no error. Looks at the error.
fn sound<T>(result: Result<T, Error>) -> Option<T> {
    result.inspect_err(|error| check_message(&error.to_string())).ok()
}

fn check_message(message: &str) {
    assert!(!message.is_empty() && message.len() <= LONGEST_MESSAGE, "a message of {} bytes", message.len());
}

/// `model.safetensors`.
pub fn header(data: &[u8]) -> bool {
    let source = source([("model.safetensors", data)]);
    let Some(mut tensors) = sound(Tensors::open(&source)) else { return false };
    let names: Vec<String> = tensors.names().map(str::to_owned).collect();
    for name in &names {
        let Some(tensor) = tensors.take(name) else { continue };
        let (view, (rows, cols)) = (tensor.view(), tensor.shape());
        assert_eq!((view.rows(), view.cols()), (rows, cols), "{name}");
        assert_eq!(view.to_vec().len(), rows * cols, "{name}");
        assert!(tensor.same_bytes(&tensor.clone()) && !tensor.storage().is_empty(), "{name}");
    }
    let is_model = |spec: Spec| {
        let Some(tensors) = sound(Tensors::open(&source)) else { panic!("the same bytes, another end") };
        let Some(loads) = sound(Plan::new(&spec).claim(tensors)) else { return false };
        loads.iter().flat_map(|load| &load.parts).for_each(|part| drop(part.view().to_vec()));
        true
    };
    [tiny(""), tiny(BLOCKS)].map(is_model).contains(&true)
}

/// A GGUF file, or its parts: what they hold, the config that their metadata stands for, and every number.
pub fn gguf(data: &[u8]) -> bool {
    let parts = split(data);
    let name = |index: usize| match parts.len() {
        1 => "m.gguf".to_owned(),
        count => format!("m-{:05}-of-{count:05}.gguf", index + 1),
    };
    let files = parts.iter().enumerate().map(|(index, bytes)| (name(index), bytes.to_vec()));
    let place = Source::Memory(Arc::new(files.collect()));
    let Some(gguf) = sound(Gguf::open(place, &name(0))) else { return false };
    let gguf = Arc::new(gguf);
    let source = Source::Gguf(gguf.clone());
    let metadata = gguf.metadata();
    for key in metadata.keys() {
        let found = [
            sound(metadata.text(key)).flatten().is_some(),
            sound(metadata.number(key)).flatten().is_some(),
            sound(metadata.flag(key)).flatten().is_some(),
            sound(metadata.texts(key)).flatten().is_some_and(|texts| texts.len() == texts.count()),
            sound(metadata.numbers(key)).flatten().is_some_and(|numbers| numbers.len() == numbers.count()),
            sound(metadata.flags(key)).flatten().is_some_and(|flags| flags.len() == flags.count()),
        ];
        assert!(found.into_iter().filter(|found| *found).count() <= 1, "{key:?} is of several types");
        let _ = (sound(metadata.integer(key)), sound(metadata.integers(key)));
        check_message(&metadata.found(key));
    }
    let Some(mut tensors) = sound(Tensors::open(&source)) else { return false };
    let names: Vec<String> = tensors.names().map(str::to_owned).collect();
    for name in &names {
        let Some(tensor) = tensors.take(name) else { continue };
        assert_eq!(tensor.view().to_vec().len(), tensor.shape().0 * tensor.shape().1, "{name}");
    }
    let Some(spec) = sound(config::read_gguf(&gguf)) else { return false };
    let Some(tensors) = sound(Tensors::open(&source)) else { panic!("the same bytes, another end") };
    let Some(loads) = sound(Plan::new(&spec).claim(tensors)) else { return false };
    loads.iter().flat_map(|load| &load.parts).for_each(|part| drop(part.view().to_vec()));
    true
}

/// `model.safetensors.index.json`, beside two files with a tensor each.
pub fn index(data: &[u8]) -> bool {
    let file = |name: &str| {
        let header = format!(r#"{{"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#);
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), b"x"].concat()
    };
    let (one, two) = (file("a"), file("b"));
    let files = [("model.safetensors.index.json", data), ("1.safetensors", &one), ("2.safetensors", &two)];
    let Some(tensors) = sound(Tensors::open(&source(files))) else { return false };
    assert!(tensors.files().iter().all(|file| ["1.safetensors", "2.safetensors"].contains(&file.as_str())));
    assert!(tensors.names().all(|name| name == "a" || name == "b"));
    true
}

/// `config.json`.
pub fn config(data: &[u8]) -> bool {
    let Some(spec) = sound(config::read(data)) else { return false };
    let plan = Plan::new(&spec);
    assert!(plan.weights.len() > spec.layers.len());
    let parameters = spec.parameters();
    for form in Weights::ALL {
        assert!(spec.weight_bytes(form) >= parameters / 2 && spec.step_bytes(form) >= spec.head_bytes(form));
    }
    let last = spec.max_positions - 1;
    for kind in [KvKind::F32, KvKind::Bf16, KvKind::Int8] {
        assert!(spec.cache_shape(kind).bytes_per_position() as u64 <= spec.attention_bytes(last, kind));
    }
    assert!(spec.scratch_bytes(512, 64) > 0 && spec.token_flops(last) >= spec.token_flops(0));
    assert!(spec.head_flops() > 0);
    assert!(spec.eos.iter().chain(&spec.bos).all(|id| (*id as usize) < spec.vocab));
    for rope in &spec.ropes {
        let last = last as u32;
        let rotation = rope.rotation(&[0, 1, last], &[1, 2, last + 1]);
        assert_eq!((rotation.cos.len(), rotation.sin.len()), (3 * rope.pairs, 3 * rope.pairs));
        let all = rotation.cos.iter().chain(&rotation.sin);
        assert!(all.clone().all(|number| number.is_finite()), "a rotation that is no number: {rope:?}");
    }
    true
}

/// `generation_config.json`, `tokenizer_config.json` and `tokenizer.json`, of which the last ones may be missing.
pub fn generation(data: &[u8]) -> bool {
    let mut files = split(data).into_iter();
    let names = ["generation_config.json", "tokenizer_config.json", "tokenizer.json"];
    let files = names.iter().zip(files.by_ref()).map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec()));
    let source = Source::Memory(Arc::new(files.collect()));
    let spec = tiny("");
    let Some(ends) = sound(end_tokens(&source, &spec)) else { return false };
    assert!(ends.iter().all(|id| (*id as usize) < spec.vocab));
    true
}

/// Texts with what tokenizers treat apart: blanks, digits, accents, several scripts, control characters, tokens.
const TEXTS: [&str; 4] = [
    "",
    "Hello, world! It's 12345  years\n\n later.",
    "a<s>e\u{301} é 中文 नमस्ते 🙂\u{200d} \u{fdfa}\0\u{85}",
    "          aaaaaaaaaaaaaaaaaaaaaaaa",
];

/// `tokenizer.json`.
pub fn tokenizer(data: &[u8]) -> bool {
    let Some(tokenizer) = sound(Tokenizer::from_bytes(data, "tokenizer.json")) else { return false };
    let size = tokenizer.vocab_size() as u32;
    let some: Vec<u32> = (0..size.min(40)).chain([size, u32::MAX]).collect();
    let spelt: String = some.iter().filter_map(|id| tokenizer.id_to_token(*id)).take(20).collect();
    for text in TEXTS.iter().copied().chain([spelt.get(..200).unwrap_or(&spelt)]) {
        let Some(ids) = sound(tokenizer.encode(text)) else { continue };
        let _ = (tokenizer.decode(&ids, false), tokenizer.decode(&ids, true));
    }
    let _ = (tokenizer.decode(&some, false), tokenizer.decode(&some, true));
    for id in some {
        let _ = (tokenizer.token_bytes(id), tokenizer.is_special(id));
    }
    true
}

/// `manifest.json` of the load cache, the file with its weights, and `witness.json`.
///
/// In the manifest `"right"` stands for what is right: the subject, the sources, the size, and each checksum; and in the
/// weights a first `H` for the head that belongs to this manifest. So inputs get past the checks that exist to stop them.
pub fn cache(data: &[u8]) -> bool {
    thread_local! {
        static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
    }
    BENCH.with_borrow_mut(|bench| bench.get_or_insert_with(Bench::new).run(data))
}

/// `chat_template.jinja`, and a conversation for it, which may be missing.
pub fn template(data: &[u8]) -> bool {
    let parts = split(data);
    let Some(template) = sound(Template::open(&source([("chat_template.jinja", parts[0])]))) else {
        return false;
    };
    let call = json!({"type": "function", "function": {"name": "f", "arguments": "{\"x\": 1.0}"}});
    let usual = json!({
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "é <|im_end|> {{ 1 }}"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "content": "[1]"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    });
    let given = parts.get(1).map(|json| serde_json::from_slice(json).unwrap_or_default());
    let given = given.unwrap_or(usual);
    let list = |key: &str| given[key].as_array().cloned().unwrap_or_default();
    let conversation = Conversation {
        messages: list("messages"),
        tools: list("tools"),
        template_kwargs: given["kwargs"].as_object().cloned().unwrap_or_default(),
        documents: given["documents"].as_array().cloned(),
        continue_final_message: given["continue"] == true,
    };
    sound(template.apply(&conversation)).is_some()
}

/// A checkpoint, and the folder of its cache.
struct Bench {
    reader: CacheReader,
    folder: PathBuf,
    caches: TempDir,
    _checkpoint: TempDir,
    /// The manifest that the library has written.
    right: Value,
}

/// The file with the weights where the manifest names none.
const DATA: &str = "weights-0123456789abcdef.bin";

impl Bench {
    fn new() -> Self {
        let (checkpoint, caches) = (folder(), folder());
        fs::write(checkpoint.path().join("config.json"), format!("{TINY}}}")).expect("a file");
        fs::write(checkpoint.path().join("model.safetensors"), tiny_weights()).expect("a file");
        let cache = CacheMode::Folder(caches.path().to_owned());
        let options = Options { weights: Weights::Int4, cache, threads: Some(1), ..Options::default() };
        let opened = Checkpoint::open(Some(checkpoint.path())).expect("a checkpoint without faults");
        let prepared = Engine::prepare(&opened, &options, &mut |_, _| {}).expect("a cache can be written");
        let folder = prepared.folder;
        let manifest = fs::read(folder.join("manifest.json")).expect("the cache has a manifest");
        let right = serde_json::from_slice(&manifest).expect("the manifest is JSON");
        let mut reader = CacheReader::new(checkpoint.path(), caches.path()).expect("as before");
        assert!(reader.is_whole(Weights::Int4), "a cache that was just written");
        Self { reader, folder, caches, _checkpoint: checkpoint, right }
    }

    fn run(&mut self, data: &[u8]) -> bool {
        let parts = split(data);
        let (manifest, weights) = (parts[0], parts.get(1).copied().unwrap_or_default());
        let value = serde_json::from_slice::<Value>(manifest).ok();
        let name = value.as_ref().and_then(|value| value["data"].as_str()).unwrap_or(DATA).to_owned();
        let mut weights = weights.to_vec();
        let is_headed = weights.first() == Some(&b'H');
        if is_headed {
            weights.splice(..1, [0; 4096]);
        }
        let manifest = value.map_or(manifest.to_vec(), |value| self.forge(value, &weights));
        if is_headed {
            let head = head(&manifest, weights.len() as u64);
            weights[..4096].copy_from_slice(&head);
        }
        fs::write(self.folder.join("manifest.json"), manifest).expect("a file");
        let is_plain =
            name.len() < 100 && !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.');
        let path = self.folder.join(if is_plain && name != "manifest.json" { &name } else { DATA });
        fs::write(&path, weights).expect("a file");
        if let Some(witness) = parts.get(2) {
            fs::write(self.folder.join("witness.json"), witness).expect("a file");
        }
        let is_whole = self.reader.is_whole(Weights::Int4);
        whin::cache::list(Some(self.caches.path()), &[]).expect("a folder that can be read");
        fs::remove_file(path).expect("the file that was written");
        let _ = fs::remove_file(self.folder.join("witness.json"));
        is_whole
    }

    /// The manifest with what is right in the places that ask for it.
    fn forge(&self, mut value: Value, weights: &[u8]) -> Vec<u8> {
        if let Value::Object(map) = &mut value {
            for key in ["format", "subject", "checkpoint", "sources"] {
                if map.get(key) == Some(&json!("right")) {
                    map.insert(key.to_owned(), self.right[key].clone());
                }
            }
            if map.get("size") == Some(&json!("right")) {
                map.insert("size".to_owned(), json!(weights.len()));
            }
        }
        for entry in value.get_mut("weights").and_then(Value::as_array_mut).into_iter().flatten() {
            let number = |key: &str| usize::try_from(entry[key].as_u64()?).ok();
            let range = number("offset").and_then(|start| Some(start..start.checked_add(number("size")?)?));
            let bytes = range.and_then(|range| weights.get(range)).unwrap_or_default();
            let sum = json!(format!("{:016x}", xxh3_64(bytes)));
            if let Some(xxh3) = entry.get_mut("xxh3").filter(|xxh3| **xxh3 == "right") {
                *xxh3 = sum;
            }
        }
        serde_json::to_vec(&value).expect("a value is JSON")
    }
}

/// The head of the weights that belong to `manifest`.
fn head(manifest: &[u8], size: u64) -> Vec<u8> {
    let mut head = b"whin weights\r\n\x1a\n".to_vec();
    head.extend(2u32.to_le_bytes());
    head.extend(size.to_le_bytes());
    head.extend(Sha256::digest(manifest));
    head.resize(4096, 0);
    head
}

/// A safetensors file with all tensors of the tiny model.
fn tiny_weights() -> Vec<u8> {
    let spec = tiny("");
    let plan = Plan::new(&spec);
    let (mut entries, mut end) = (serde_json::Map::new(), 0);
    for (name, shape) in plan.tensors() {
        let start = end;
        end += 2 * shape.iter().product::<usize>();
        let entry = json!({ "dtype": "BF16", "shape": shape, "data_offsets": [start, end] });
        entries.insert(name, entry);
    }
    let header = Value::Object(entries).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; end]].concat()
}

/// A folder in memory, where there is such.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    folder.expect("a temporary folder")
}

/// The files of an input, at least one.
pub fn split(mut data: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some(at) = data.windows(SEPARATOR.len()).position(|window| window == SEPARATOR) {
        parts.push(&data[..at]);
        data = &data[at + SEPARATOR.len()..];
    }
    parts.push(data);
    parts
}
