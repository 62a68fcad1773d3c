//! A conversation so far.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;
use whin::Answer;

use crate::messages::read_conversation;
use crate::model::invalid;

/// The system message, the other messages, and the tools.
pub struct Session {
    system: Option<Value>,
    messages: Vec<Value>,
    tools: Vec<Value>,
}

impl Session {
    /// A conversation that has yet to begin.
    pub fn new(system: Option<String>, tools: Vec<Value>) -> Self {
        Self { system: system.map(as_system), messages: Vec::new(), tools }
    }

    /// How many messages there are beside the system message.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Forgets all messages but the first ones.
    pub fn truncate(&mut self, len: usize) {
        self.messages.truncate(len);
    }

    /// Forgets all messages but the system message.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// The system message.
    pub fn system(&self) -> Option<String> {
        let content = &self.system.as_ref()?["content"];
        Some(content.as_str().map_or_else(|| content.to_string(), str::to_owned))
    }

    /// Sets it; an empty one is none.
    pub fn set_system(&mut self, text: String) {
        self.system = (!text.is_empty()).then(|| as_system(text));
    }

    /// The tools that the model may call.
    pub fn tools(&self) -> &[Value] {
        &self.tools
    }

    /// Replaces them.
    pub fn set_tools(&mut self, tools: Vec<Value>) {
        self.tools = tools;
    }

    /// Their names, for people.
    pub fn tool_names(&self) -> String {
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap_or("(without a name)").to_owned();
        match self.tools.as_slice() {
            [] => "[no tools]".to_owned(),
            tools => format!("[tools: {}]", tools.iter().map(name).collect::<Vec<_>>().join(", ")),
        }
    }

    /// All messages, the system message first.
    pub fn messages(&self) -> Vec<Value> {
        self.system.iter().chain(&self.messages).cloned().collect()
    }

    /// Adds a message.
    pub fn push(&mut self, message: Value) {
        self.messages.push(message);
    }

    /// Adds an answer, and returns the ids that its calls are given.
    pub fn push_answer(&mut self, answer: &Answer) -> Vec<String> {
        let mut message = answer.message();
        let mut ids = Vec::new();
        let taken = self.messages.iter().flat_map(|message| message["tool_calls"].as_array()).flatten();
        let taken: HashSet<String> = taken.filter_map(|call| Some(call["id"].as_str()?.to_owned())).collect();
        // Nine letters or digits: what the templates of Mistral ask for.
        let mut free = (1..).map(|number: u64| format!("call{number:05}")).filter(|id| !taken.contains(id));
        for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
            let id = free.next().unwrap_or_default();
            if let Some(call) = call.as_object_mut() {
                call.shift_insert(0, "id".to_owned(), Value::from(id.as_str()));
            }
            ids.push(id);
        }
        self.push(message);
        ids
    }

    /// Adds what a call gave.
    pub fn push_result(&mut self, name: &str, id: &str, result: &str) {
        self.push(json!({"role": "tool", "tool_call_id": id, "name": name, "content": result}));
    }

    /// Writes the conversation as `whin run --messages` reads it. A file that cannot be written whole stays as it was, and
    /// so does one that holds something else.
    pub fn save(&self, path: &Path, kwargs: &Map<String, Value>) -> Result<()> {
        let mut whole = json!({ "messages": self.messages() });
        if !self.tools.is_empty() {
            whole["tools"] = Value::from(self.tools.clone());
        }
        if !kwargs.is_empty() {
            whole["chat_template_kwargs"] = Value::from(kwargs.clone());
        }
        let cannot = || format!("cannot write {}", path.display());
        // A link stays one: what it leads to is written.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let before = fs::metadata(&target).ok();
        if let Some(before) = &before
            && (!before.is_file() || before.len() > 0 && !is_conversation(&target))
        {
            let message = format!("{} is there and is no conversation: choose another name", path.display());
            return Err(invalid(message).into());
        }
        let folder =
            target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = new_file(folder).with_context(cannot)?;
        file.write_all(format!("{whole:#}\n").as_bytes()).with_context(cannot)?;
        if let Some(before) = before {
            file.as_file().set_permissions(before.permissions()).with_context(cannot)?;
        }
        file.as_file().sync_all().with_context(cannot)?;
        file.persist(&target).map_err(|error| error.error).with_context(cannot)?;
        Ok(())
    }

    /// Goes on with these messages, of which the first may be the system's, and with these tools.
    pub fn replace(&mut self, mut messages: Vec<Value>, tools: Vec<Value>) {
        let has_system = messages.first().is_some_and(|first| first["role"] == "system");
        self.system = has_system.then(|| messages.remove(0));
        (self.messages, self.tools) = (messages, tools);
    }
}

/// Whether a file holds messages. A list of something else is none.
fn is_conversation(path: &Path) -> bool {
    read_conversation(path)
        .is_ok_and(|found| found.messages.iter().all(|message| message["role"].is_string()))
}

fn as_system(text: String) -> Value {
    json!({"role": "system", "content": text})
}

/// A file without a lasting name yet, with the rights that new files have.
fn new_file(folder: &Path) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

#[cfg(test)]
mod tests {
    use whin::ToolCall;

    use super::*;

    #[test]
    fn what_is_saved_is_loaded_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk.json");
        let tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
        let mut session = Session::new(Some("Be brief.".to_owned()), vec![tool]);
        session.push(json!({"role": "user", "content": "é\n"}));
        let call = ToolCall { name: "f".to_owned(), arguments: "{\"x\": 1.0}".to_owned() };
        let ids = session.push_answer(&Answer { tool_calls: vec![call], ..Answer::default() });
        assert_eq!(ids, ["call00001"]);
        session.push_result("f", &ids[0], "2");
        let kwargs = Map::from_iter([("enable_thinking".to_owned(), Value::from(true))]);
        session.save(&path, &kwargs).unwrap();

        let saved = read_conversation(&path).unwrap();
        assert_eq!((&saved.template_kwargs, &saved.tools), (&kwargs, &session.tools().to_vec()));
        let mut other = Session::new(None, Vec::new());
        other.replace(saved.messages, saved.tools);
        assert_eq!((other.messages(), other.tools()), (session.messages(), session.tools()));
        assert_eq!((other.system().as_deref(), other.len()), (Some("Be brief."), 3));
        assert_eq!(other.tool_names(), "[tools: f]");
        let call = ToolCall { name: "f".to_owned(), arguments: "{}".to_owned() };
        let ids = other.push_answer(&Answer { tool_calls: vec![call], ..Answer::default() });
        assert_eq!(ids, ["call00002"], "no id is given twice");
        other.clear();
        assert_eq!(other.messages(), [json!({"role": "system", "content": "Be brief."})]);
        let parts = json!({"role": "system", "content": [{"type": "text", "text": "Be kind."}]});
        other.replace(vec![parts], Vec::new());
        assert!(other.system().is_some_and(|text| text.contains("Be kind.")) && other.len() == 0);
    }

    #[test]
    fn only_conversations_are_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let session = Session::new(Some("Be brief.".to_owned()), Vec::new());
        let (path, none) = (folder.path().join("talk.json"), Map::new());
        fs::write(&path, "a letter").unwrap();
        assert!(session.save(&path, &none).unwrap_err().to_string().contains("talk.json"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "a letter");
        assert!(session.save(folder.path(), &none).is_err(), "a folder is no file");
        fs::write(&path, "").unwrap();
        session.save(&path, &none).unwrap();
        session.save(&path, &none).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::{PermissionsExt, symlink};
            fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
            let link = folder.path().join("link.json");
            symlink(&path, &link).unwrap();
            session.save(&link, &none).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
            assert!(session.save(Path::new("/dev/null"), &none).is_err());
        }
    }
}
