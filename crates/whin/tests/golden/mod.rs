//! The conversations of `tools/goldens/chat.py`, and the models whose templates they are rendered with.

use std::path::{Path, PathBuf};

use serde_json::Value;
use whin::Conversation;

/// The whole table.
pub fn table() -> Value {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chat-golden.json");
    serde_json::from_slice(&std::fs::read(fixture).unwrap()).unwrap()
}

/// An entry of the list of conversations.
pub fn conversation(entry: &Value) -> Conversation {
    let list = |key: &str| entry[key].as_array().cloned();
    Conversation {
        messages: list("messages").unwrap(),
        tools: list("tools").unwrap_or_default(),
        template_kwargs: entry["template_kwargs"].as_object().cloned().unwrap_or_default(),
        documents: list("documents"),
        continue_final_message: entry["continue_final_message"].as_bool().unwrap_or(false),
    }
}

/// The folder of the models' files, which are too large for a repository: the environment names it. Where it does not, a
/// test can only say so.
pub fn models() -> Option<PathBuf> {
    let folder = std::env::var_os("WHIN_CHAT_TOKENIZERS").map(PathBuf::from);
    if folder.is_none() {
        let why =
            "not run: WHIN_CHAT_TOKENIZERS names no folder with the models' tokenizers; tools/test sets it";
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("{why}");
    }
    folder
}
