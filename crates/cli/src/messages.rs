//! Messages as a prompt, and how they are to be answered.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use whin::{Chat, Conversation, Prompt, ToolChoice};

use crate::model::{PromptArgs, invalid, read_stdin};

/// Longer files of messages, tools or schemas are taken for a mistake.
const LONGEST_FILE: u64 = 64 << 20;

/// What is answered instead of a bare text.
#[derive(clap::Args)]
#[command(next_help_heading = "Messages")]
pub struct MessageArgs {
    /// TEXT is a user's message, which the checkpoint's chat template turns into a prompt
    #[arg(long)]
    chat: bool,
    /// Messages to answer, as JSON in OpenAI's form: a list, or an object with messages and perhaps tools; - reads stdin
    #[arg(long, value_name = "FILE")]
    messages: Option<PathBuf>,
    /// Go on with the last message of the file, which is the assistant's, instead of answering it
    #[arg(long)]
    continue_final_message: bool,
    #[command(flatten)]
    pub how: ChatArgs,
}

/// How messages are answered.
#[derive(clap::Args)]
#[command(next_help_heading = "Messages")]
pub struct ChatArgs {
    /// A system message before all others
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Tools that the model may call, as JSON in OpenAI's form: a list
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
    /// Whether tools are called: auto, none, required, or the name of the one to call. The last two are enforced
    #[arg(long, value_name = "CHOICE", default_value = "auto")]
    tool_choice: String,
    /// End the answer after its first tool call
    #[arg(long)]
    single_tool_call: bool,
    /// Whether a model that can think first does so (the template's enable_thinking) [default: as the template says]
    #[arg(long, value_enum, value_name = "WHETHER")]
    thinking: Option<Switch>,
    /// More values for the template, as a JSON object
    #[arg(long, value_name = "JSON", hide_short_help = true)]
    chat_template_kwargs: Option<String>,
    /// Control tokens in what users and tools wrote: safe takes them for text, parity for the tokens, as transformers does
    #[arg(long, value_enum, default_value_t = Encoding::Safe, hide_short_help = true)]
    encoding: Encoding,
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Names of [`whin::Encoding`].
#[derive(Clone, Copy, ValueEnum)]
enum Encoding {
    /// They are text
    Safe,
    /// They are control tokens
    Parity,
}

impl MessageArgs {
    /// The prompt: messages where these options ask for them, else what `prompt` says.
    pub fn prompt(&self, prompt: &PromptArgs) -> Result<Prompt> {
        let mut conversation = match (&self.messages, self.chat) {
            (Some(_), true) => {
                return Err(
                    invalid("both --chat and --messages are given: put the message in the file").into()
                );
            }
            (Some(_), false) if prompt.text.is_some() || prompt.prompt_ids.is_some() => {
                let message =
                    "both --messages and another prompt are given: put the text in the file as a message";
                return Err(invalid(message).into());
            }
            (Some(path), false) => read_conversation(path)?,
            (None, true) => match prompt.prompt()? {
                Prompt::Text(text) => Conversation {
                    messages: vec![json!({"role": "user", "content": text})],
                    ..Conversation::default()
                },
                _ => return Err(invalid("--chat answers a text: give one instead of --prompt-ids").into()),
            },
            (None, false) => {
                self.refuse_without_messages()?;
                return prompt.prompt();
            }
        };
        conversation.continue_final_message = self.continue_final_message;
        Ok(Prompt::Chat(Box::new(self.how.chat(conversation)?)))
    }

    fn refuse_without_messages(&self) -> Result<()> {
        let how = &self.how;
        let given = [
            ("--tools", how.tools.is_some()),
            ("--tool-choice", how.tool_choice != "auto"),
            ("--single-tool-call", how.single_tool_call),
            ("--system", how.system.is_some()),
            ("--thinking", how.thinking.is_some()),
            ("--chat-template-kwargs", how.chat_template_kwargs.is_some()),
            ("--continue-final-message", self.continue_final_message),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(invalid(format!(
                "{option} belongs to messages: add --chat, to send the text as one, or --messages FILE"
            ))
            .into()),
            None => Ok(()),
        }
    }
}

impl ChatArgs {
    /// These messages, with what the options add to them.
    pub fn chat(&self, mut conversation: Conversation) -> Result<Chat> {
        if let Some(system) = &self.system {
            if conversation.messages.first().is_some_and(|first| first["role"] == "system") {
                return Err(invalid(
                    "the messages begin with a system message, and --system is given: keep one",
                )
                .into());
            }
            conversation.messages.insert(0, json!({"role": "system", "content": system}));
        }
        if let Some(path) = &self.tools {
            if !conversation.tools.is_empty() {
                return Err(invalid("tools stand in the file of messages and in --tools: keep one").into());
            }
            conversation.tools = read_tools(path)?;
        }
        conversation.template_kwargs.extend(self.template_kwargs()?);
        let tool_choice = match self.tool_choice.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            name => ToolChoice::Function(name.to_owned()),
        };
        let encoding = match self.encoding {
            Encoding::Safe => whin::Encoding::Safe,
            Encoding::Parity => whin::Encoding::Parity,
        };
        let parallel_tool_calls = !self.single_tool_call;
        Ok(Chat { conversation, encoding, tool_choice, parallel_tool_calls, split_reasoning: true })
    }

    fn template_kwargs(&self) -> Result<Map<String, Value>> {
        let mut kwargs = match &self.chat_template_kwargs {
            Some(json) => object(parse(json, "--chat-template-kwargs")?, "--chat-template-kwargs")?,
            None => Map::new(),
        };
        if let Some(thinking) = self.thinking {
            if kwargs.contains_key("enable_thinking") {
                return Err(invalid("both --thinking and enable_thinking are given: keep one").into());
            }
            kwargs.insert("enable_thinking".to_owned(), Value::from(thinking == Switch::On));
        }
        Ok(kwargs)
    }
}

/// The messages of a file, and the tools that it may hold.
pub fn read_conversation(path: &Path) -> Result<Conversation> {
    let what = name(path);
    let mut conversation = Conversation::default();
    match parse(&read(path)?, &what)? {
        Value::Array(messages) => conversation.messages = messages,
        Value::Object(mut map) => {
            let messages = map.shift_remove("messages").unwrap_or_default();
            conversation.messages = list(messages, &format!("messages in {what}"))?;
            if let Some(tools) = map.shift_remove("tools") {
                conversation.tools = list(tools, &format!("tools in {what}"))?;
            }
            if let Some(documents) = map.shift_remove("documents") {
                conversation.documents = Some(list(documents, &format!("documents in {what}"))?);
            }
            if let Some(kwargs) = map.shift_remove("chat_template_kwargs") {
                conversation.template_kwargs = object(kwargs, &format!("chat_template_kwargs in {what}"))?;
            }
            if let Some(key) = map.keys().next() {
                let message = format!(
                    "{what} holds the key {key:?}; accepted: messages, tools, documents and chat_template_kwargs. All else \
                     is said by options"
                );
                return Err(invalid(message).into());
            }
        }
        _ => {
            return Err(
                invalid(format!("{what} holds neither a list of messages nor an object with one")).into()
            );
        }
    }
    Ok(conversation)
}

/// The tools in a file: a list, or an object with one.
pub fn read_tools(path: &Path) -> Result<Vec<Value>> {
    let what = name(path);
    let value = match parse(&read(path)?, &what)? {
        Value::Object(mut map) if map.len() == 1 => map.shift_remove("tools").unwrap_or(Value::Object(map)),
        other => other,
    };
    list(value, &what)
}

/// A file's name, for people.
fn name(path: &Path) -> String {
    if path.as_os_str() == "-" { "stdin".to_owned() } else { path.display().to_string() }
}

/// The text of a file, or of stdin where its name is a dash.
pub fn read(path: &Path) -> Result<String> {
    if path.as_os_str() == "-" {
        return read_stdin();
    }
    let shown = path.display();
    let unreadable = || format!("cannot read {shown}");
    if std::fs::metadata(path).with_context(unreadable)?.is_dir() {
        return Err(invalid(format!("{shown} is a folder: give a file")).into());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).with_context(unreadable)?;
    file.take(LONGEST_FILE + 1).read_to_end(&mut bytes).with_context(unreadable)?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(invalid(format!("{shown} is longer than {} MiB", LONGEST_FILE >> 20)).into());
    }
    let text = String::from_utf8(bytes);
    Ok(text.map_err(|error| invalid(format!("{shown} is not UTF-8 text: {}", error.utf8_error())))?)
}

/// A JSON value; `what` is named where it is none.
pub fn parse(json: &str, what: &str) -> Result<Value> {
    Ok(serde_json::from_str(json).map_err(|error| invalid(format!("{what} is not JSON: {error}")))?)
}

fn list(value: Value, what: &str) -> Result<Vec<Value>> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err(invalid(format!("{what}: expected a list")).into()),
    }
}

fn object(value: Value, what: &str) -> Result<Map<String, Value>> {
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(invalid(format!("{what}: expected an object")).into()),
    }
}
