//! A conversation so far.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use whin::Answer;

use crate::messages::read_conversation;

/// The system message, the other messages, and the tools.
pub struct Session {
    system: Option<String>,
    messages: Vec<Value>,
    tools: Vec<Value>,
    /// Calls so far, which gives each its id.
    calls: usize,
}

impl Session {
    /// A conversation that has yet to begin.
    pub fn new(system: Option<String>, tools: Vec<Value>) -> Self {
        Self { system, messages: Vec::new(), tools, calls: 0 }
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
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Sets it; an empty one is none.
    pub fn set_system(&mut self, text: String) {
        self.system = (!text.is_empty()).then_some(text);
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
        let system = self.system.as_ref().map(|text| json!({"role": "system", "content": text}));
        system.into_iter().chain(self.messages.iter().cloned()).collect()
    }

    /// Adds a message.
    pub fn push(&mut self, message: Value) {
        self.messages.push(message);
    }

    /// Adds an answer, and returns the ids that its calls are given.
    pub fn push_answer(&mut self, answer: &Answer) -> Vec<String> {
        let mut message = answer.message();
        let mut ids = Vec::new();
        for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
            self.calls += 1;
            // Nine letters or digits: what the templates of Mistral ask for.
            let id = format!("call{:05}", self.calls);
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

    /// Writes the conversation as `whin run --messages` reads it. A file that cannot be written whole stays as it was.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut whole = json!({ "messages": self.messages() });
        if !self.tools.is_empty() {
            whole["tools"] = Value::from(self.tools.clone());
        }
        let write = || -> std::io::Result<()> {
            let folder =
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(format!("{whole:#}\n").as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Goes on with the conversation of a file. Where that cannot be read, this one stays.
    pub fn load(&mut self, path: &Path) -> Result<()> {
        let mut conversation = read_conversation(path)?;
        let first = conversation.messages.first();
        let system =
            first.filter(|first| first["role"] == "system").and_then(|first| first["content"].as_str());
        self.system = system.map(str::to_owned);
        if self.system.is_some() {
            conversation.messages.remove(0);
        }
        self.messages = conversation.messages;
        self.tools = conversation.tools;
        let calls = |message: &Value| message["tool_calls"].as_array().map_or(0, Vec::len);
        self.calls = self.messages.iter().map(calls).sum();
        Ok(())
    }
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
        session.save(&path).unwrap();

        let mut other = Session::new(None, Vec::new());
        other.load(&path).unwrap();
        assert_eq!((other.messages(), other.tools()), (session.messages(), session.tools()));
        assert_eq!((other.system(), other.len(), other.calls), (Some("Be brief."), 3, 1));
        assert_eq!(other.tool_names(), "[tools: f]");

        std::fs::write(&path, "{").unwrap();
        assert!(other.load(&path).unwrap_err().to_string().contains("talk.json"));
        assert_eq!(other.messages(), session.messages());
        other.clear();
        assert_eq!(other.messages(), [json!({"role": "system", "content": "Be brief."})]);
        assert!(other.save(folder.path()).is_err(), "a folder is no file");
    }
}
