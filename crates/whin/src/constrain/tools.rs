//! Grammars of answers that consist of calls of tools, in the syntax that a checkpoint writes them in.
//!
//! What these grammars allow is what the readers in [`chat::tools`](crate::chat::tools) take for calls.

mod bare;

use serde_json::{Map, Value, json};

use super::Strictness;
use super::grammar::{Grammar, with_options};
use super::lark::literal;
use super::schema::prepare;
use crate::chat::{Syntax, tool_name};
use crate::tokenizer::Tokenizer;
use crate::{Error, ErrorKind, Result};

/// Calls in one answer: without a bound, a model could go on for ever.
const MAX_CALLS: usize = 32;

/// Tools that a request may offer where calls are enforced.
const MAX_TOOLS: usize = 512;

/// Characters of the longest name.
const LONGEST_NAME: usize = 64;

/// Which calls an answer must consist of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Calls {
    /// One call of any tool; with `parallel`, several.
    Required {
        /// Whether there may be more than one.
        parallel: bool,
    },
    /// One call of the tool with this name.
    Named(String),
}

/// A tool that may be called.
struct Tool {
    name: String,
    /// Its parameters, prepared.
    parameters: Map<String, Value>,
    strictness: Strictness,
    /// Where they have a `oneOf`.
    exclusive: Vec<String>,
}

/// The grammar of an answer that consists of calls of `tools`, which are in OpenAI's shape. `tokenizer` tells which parts of
/// the syntax are tokens of their own.
///
/// Where a tool declares properties and says nothing of others, there are no others. Without `parameters` its arguments are
/// `{}`.
///
/// # Errors
/// [`InvalidArguments`](ErrorKind::InvalidArguments) that names the tool, and what of its parameters cannot be enforced.
pub fn tool_grammar(
    tokenizer: &Tokenizer,
    syntax: Syntax,
    tools: &[Value],
    calls: &Calls,
) -> Result<Grammar> {
    let refuse = |why: String| Error::new(ErrorKind::InvalidArguments, why);
    if tools.len() > MAX_TOOLS {
        return Err(refuse(format!(
            "{} tools, and {MAX_TOOLS} are the most of which calls can be enforced",
            tools.len()
        )));
    }
    let wanted = |tool: &&Value| match calls {
        Calls::Required { .. } => true,
        Calls::Named(name) => tool_name(tool) == Some(name),
    };
    let tools: Vec<Tool> = tools.iter().filter(wanted).map(Tool::read).collect::<Result<_>>()?;
    if tools.is_empty() {
        return Err(refuse("a tool call is required, but no such tool is offered".into()));
    }
    let parallel = matches!(calls, Calls::Required { parallel: true }) && syntax != Syntax::Harmony;
    let mut writer = Writer::new(tokenizer, syntax);
    let form = writer.form();
    let mut names = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let body = writer.call(index, tool, &form)?;
        writer.rules += &format!("call{index}: {body}\n");
        names.push(format!("call{index}"));
    }
    let Form { open, between, close, .. } = form;
    let more = if parallel { format!("({between} call){{0,{}}}", MAX_CALLS - 1) } else { String::new() };
    let text = format!("start: {open} call {more} {close}\ncall: {}\n{}", names.join(" | "), writer.rules);
    Ok(Grammar::lark(text, writer.schemas, Vec::new()).with_exclusive(writer.exclusive))
}

/// The grammars of calls from behind each of their start markers on, and these markers, for models that call as they like.
/// There are none where no tool is `strict`. Tools that are not strict may be called with anything.
///
/// Where the syntax is not known, where calls cannot be told before their names are (`Llama3Json`, `Pythonic`, `Harmony`), with more than [`MAX_TOOLS`]
/// tools, and where something that is not strict cannot be written in the syntax, strict tools are called as others are;
/// a warning in the log says so.
///
/// # Errors
/// As [`tool_grammar`], for strict tools.
pub(crate) fn strict_grammar(
    tokenizer: &Tokenizer,
    syntax: Option<Syntax>,
    tools: &[Value],
) -> Result<Vec<(Grammar, &'static str)>> {
    let Some(first) = tools.iter().find(|tool| is_strict(tool)) else { return Ok(Vec::new()) };
    let name = tool_name(first).unwrap_or_default();
    let Some(syntax) = syntax else {
        not_enforced(name, "how this checkpoint writes calls is not known");
        return Ok(Vec::new());
    };
    // Behind a header, or without a marker, a call is not known before its name is.
    let unmarked = matches!(syntax, Syntax::Llama3Json | Syntax::Pythonic | Syntax::Harmony);
    if unmarked || syntax.starts().is_empty() {
        not_enforced(name, "calls in the syntax of this checkpoint cannot be told before their names");
        return Ok(Vec::new());
    }
    if tools.len() > MAX_TOOLS {
        not_enforced(name, "there are more tools than calls can be enforced of");
        return Ok(Vec::new());
    }
    let mut grammars = Vec::new();
    for (place, marker) in syntax.starts().iter().enumerate() {
        let writer = Writer { skipped: Some(marker), ..Writer::new(tokenizer, syntax) };
        match writer.strict(tools, place == 0)? {
            Ok(grammar) => grammars.push((grammar, *marker)),
            Err(why) => {
                not_enforced(name, &why);
                return Ok(Vec::new());
            }
        }
    }
    Ok(grammars)
}

/// Says in the log that `strict` means nothing for this tool.
fn not_enforced(tool: &str, why: &str) {
    tracing::warn!("the tool {tool:?} is strict, but its calls are not enforced: {why}");
}

fn is_strict(tool: &Value) -> bool {
    tool["function"].get("strict") == Some(&Value::Bool(true))
}

/// The grammar of an answer that speaks in the final channel, as gpt-oss writes it.
pub(crate) fn final_channel(content: &Grammar, tokenizer: &Tokenizer) -> Grammar {
    let writer = Writer::new(tokenizer, Syntax::Harmony);
    let tag = |text: &str| writer.tag(text);
    let preface = format!("({} \"assistant\")?", tag("<|start|>"));
    content.behind(&format!("{preface} {} \"final\" {}", tag("<|channel|>"), tag("<|message|>")))
}

impl Tool {
    /// A tool with arguments of any kind.
    fn anything(tool: &Value) -> Result<Self> {
        let name = tool_name(tool).unwrap_or_default();
        Self::read(&json!({ "function": { "name": name, "parameters": { "type": "object" } } }))
    }

    fn read(tool: &Value) -> Result<Self> {
        let name = tool_name(tool).filter(|name| !name.is_empty() && name.chars().count() <= LONGEST_NAME);
        let Some(name) = name else {
            let message = format!("a tool has no name, or one of more than {LONGEST_NAME} characters");
            return Err(Error::new(ErrorKind::InvalidArguments, message));
        };
        let function = &tool["function"];
        let strictness = if is_strict(tool) { Strictness::Strict } else { Strictness::Enforced };
        let none = json!({ "type": "object", "properties": {} });
        let declared = function.get("parameters").filter(|declared| !declared.is_null()).unwrap_or(&none);
        let origin = format!("the parameters of the tool {name:?}");
        let refuse = || {
            let message = format!("{origin}: must be the schema of an object");
            Error::new(ErrorKind::InvalidArguments, message)
        };
        let mut declared = declared.as_object().cloned().ok_or_else(refuse)?;
        declared.entry("type").or_insert_with(|| json!("object"));
        if declared["type"] != "object" {
            return Err(refuse());
        }
        // Other names are no parameters of the function.
        let says_more = ["additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"];
        if declared.contains_key("properties") && !says_more.iter().any(|key| declared.contains_key(*key)) {
            declared.insert("additionalProperties".into(), Value::Bool(false));
        }
        let prepared = prepare(&Value::Object(declared), strictness, &origin)?;
        let Value::Object(parameters) = prepared.schema else { return Err(refuse()) };
        let exclusive = prepared.exclusive.iter().map(|place| format!("{place} of {origin}")).collect();
        Ok(Self { name: name.to_owned(), parameters, strictness, exclusive })
    }
}

/// How calls are written: pieces of Lark.
struct Form {
    open: String,
    between: String,
    close: String,
    /// What stands before and behind the arguments of a call of the tool whose name is given as it is to be written.
    before: Box<dyn Fn(&str) -> String>,
    after: String,
    arguments: Arguments,
}

/// How the arguments of a call are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arguments {
    /// As a JSON object. The name may stand within JSON (`quoted`).
    Json { quoted: bool },
    /// Each between tags, strings as they are.
    Bare(bare::Tags),
    /// Each behind its name, with commas between them.
    Listed(bare::List),
}

impl Form {
    /// Calls one after the other.
    fn each(between: &str, before: impl Fn(&str) -> String + 'static, after: &str) -> Self {
        Self {
            open: String::new(),
            between: between.to_owned(),
            close: String::new(),
            before: Box::new(before),
            after: after.to_owned(),
            arguments: Arguments::Json { quoted: true },
        }
    }

    /// A JSON list of objects, with these names for tool and arguments, between tags.
    fn list(open: &str, [name, arguments]: [&'static str; 2], close: &str) -> Self {
        let before = move |tool: &str| literal(&format!("{{\"{name}\": \"{tool}\", \"{arguments}\": "));
        let (open, close) = (format!("{open} \"[\""), format!("\"]\" {close}"));
        Self { open, close, ..Self::each(&literal(", "), before, &literal("}")) }
    }

    /// The same with names that do not stand within JSON.
    fn raw(self) -> Self {
        Self { arguments: Arguments::Json { quoted: false }, ..self }
    }
}

struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    syntax: Syntax,
    rules: String,
    schemas: Vec<(String, Value)>,
    /// Where they have a `oneOf`.
    exclusive: Vec<String>,
    /// A tag that has come before.
    skipped: Option<&'static str>,
}

impl<'a> Writer<'a> {
    fn new(tokenizer: &'a Tokenizer, syntax: Syntax) -> Self {
        Self {
            tokenizer,
            syntax,
            rules: String::new(),
            schemas: Vec::new(),
            exclusive: Vec::new(),
            skipped: None,
        }
    }

    /// A tag: a token of its own where the tokenizer has one that is special, else text.
    fn tag(&self, text: &str) -> String {
        if self.skipped == Some(text) {
            return String::new();
        }
        match self.tokenizer.token_to_id(text).filter(|&id| self.tokenizer.is_special(id)) {
            Some(id) => format!("<[{id}]>"),
            None => literal(text),
        }
    }

    /// The grammar of a call behind the marker that is skipped, which may be the one around all calls (`outer`) or that of
    /// one call; or why there is none, on account of a tool that is not strict.
    fn strict(mut self, tools: &[Value], outer: bool) -> Result<Result<Grammar, String>> {
        let mut form = self.form();
        if !outer {
            // Its calls end one by one, and what follows them is free again.
            form = Form { open: String::new(), close: String::new(), ..form };
        }
        let mut bodies = Vec::new();
        for (index, tool) in tools.iter().enumerate() {
            let strict = is_strict(tool);
            let read = match (Tool::read(tool), &form.arguments) {
                (Err(_), Arguments::Json { .. }) if !strict => Tool::anything(tool),
                (read, _) => read,
            };
            match read.and_then(|tool| self.call(index, &tool, &form)) {
                Ok(body) => bodies.push(body),
                Err(error) if strict => return Err(error),
                // Nothing can be said of this one, so nothing of any.
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        // Calls in a list have no markers of their own.
        let listed = matches!(
            self.syntax,
            Syntax::Mistral { named: false } | Syntax::Granite | Syntax::Nemotron | Syntax::Command
        );
        let Form { open, between, close, .. } = form;
        let more = if listed { format!("({between} call){{0,{}}}", MAX_CALLS - 1) } else { String::new() };
        let text = format!("start: {open} call {more} {close}\ncall: {}\n{}", bodies.join(" | "), self.rules);
        Ok(Ok(Grammar::lark(text, self.schemas, Vec::new()).with_exclusive(self.exclusive)))
    }

    fn form(&self) -> Form {
        let tag = |text: &str| self.tag(text);
        match self.syntax {
            Syntax::Hermes => {
                let (open, close) = (tag("<tool_call>"), tag("</tool_call>"));
                let before = move |tool: &str| {
                    format!("{open} {}", literal(&format!("\n{{\"name\": \"{tool}\", \"arguments\": ")))
                };
                Form::each(&literal("\n"), before, &format!("{} {close}", literal("}\n")))
            }
            Syntax::Llama3Json => {
                let before = |tool: &str| literal(&format!("{{\"name\": \"{tool}\", \"parameters\": "));
                Form::each(&literal("; "), before, &literal("}"))
            }
            Syntax::Mistral { named: false } => Form::list(&tag("[TOOL_CALLS]"), ["name", "arguments"], ""),
            Syntax::Granite => Form::list(&tag("<|tool_call|>"), ["name", "arguments"], ""),
            Syntax::Nemotron => Form::list(&tag("<TOOLCALL>"), ["name", "arguments"], &tag("</TOOLCALL>")),
            Syntax::Command => {
                Form::list(&tag("<|START_ACTION|>"), ["tool_name", "parameters"], &tag("<|END_ACTION|>"))
            }
            Syntax::Mistral { named: true } => {
                let (open, arguments) = (tag("[TOOL_CALLS]"), tag("[ARGS]"));
                Form::each("", move |tool| format!("{open} {} {arguments}", literal(tool)), "").raw()
            }
            Syntax::DeepSeekV3 | Syntax::DeepSeekV31 => self.deep_seek().raw(),
            Syntax::KimiK2 => self.kimi().raw(),
            Syntax::Harmony => self.harmony().raw(),
            Syntax::Qwen3Coder | Syntax::SeedOss | Syntax::Glm4 | Syntax::MiniMaxM2 => self.bare(),
            Syntax::Gemma4 => self.gemma(),
            Syntax::Pythonic => self.pythonic(),
        }
    }

    fn kimi(&self) -> Form {
        let (open, arguments) = (self.tag("<|tool_call_begin|>"), self.tag("<|tool_call_argument_begin|>"));
        let before = move |tool: &str| {
            format!("{open} {} /[0-9]{{1,2}}/ {arguments}", literal(&format!("functions.{tool}:")))
        };
        let form = Form::each("", before, &self.tag("<|tool_call_end|>"));
        let (open, close) =
            (self.tag("<|tool_calls_section_begin|>"), self.tag("<|tool_calls_section_end|>"));
        Form { open, close, ..form }
    }

    /// The end of the message is an end of the answer.
    fn harmony(&self) -> Form {
        let (channel, json) = (self.tag("<|channel|>"), self.tag("<|constrain|>"));
        let message = self.tag("<|message|>");
        let before = move |tool: &str| {
            let to = literal(&format!("commentary to=functions.{tool} "));
            format!("{channel} {to} {json} \"json\" {message}")
        };
        let open = format!("({} \"assistant\")?", self.tag("<|start|>"));
        Form { open, ..Form::each("", before, "") }
    }

    fn deep_seek(&self) -> Form {
        let tag = |text: &str| self.tag(text);
        let (begin, separator, end) =
            (tag("<｜tool▁call▁begin｜>"), tag("<｜tool▁sep｜>"), tag("<｜tool▁call▁end｜>"));
        let fenced = self.syntax == Syntax::DeepSeekV3;
        let before = move |tool: &str| match fenced {
            true => {
                let fence = literal(&format!("{tool}\n```json\n"));
                format!("{begin} {} {separator} {fence}", literal("function"))
            }
            false => format!("{begin} {} {separator}", literal(tool)),
        };
        Form {
            open: tag("<｜tool▁calls▁begin｜>"),
            between: if fenced { literal("\n") } else { String::new() },
            close: tag("<｜tool▁calls▁end｜>"),
            before: Box::new(before),
            after: if fenced { format!("{} {end}", literal("\n```")) } else { end },
            arguments: Arguments::Json { quoted: false },
        }
    }

    fn bare(&self) -> Form {
        let (open, close, tags) = match self.syntax {
            Syntax::Glm4 => ("<tool_call>", "</tool_call>", bare::Tags::Glm4),
            Syntax::MiniMaxM2 => ("<minimax:tool_call>", "</minimax:tool_call>", bare::Tags::MiniMaxM2),
            Syntax::SeedOss => ("<seed:tool_call>", "</seed:tool_call>", bare::Tags::Qwen3Coder),
            _ => ("<tool_call>", "</tool_call>", bare::Tags::Qwen3Coder),
        };
        let (open, close) = (self.tag(open), self.tag(close));
        if self.skipped == Some("<function=") {
            let before = |tool: &str| literal(&format!("{tool}>\n"));
            let after = format!("{} ({} {close})?", literal("</function>"), literal("\n"));
            return Form { arguments: Arguments::Bare(tags), ..Form::each("", before, &after) };
        }
        let before = move |tool: &str| match tags {
            bare::Tags::Glm4 => format!("{open} {}", literal(&format!("{tool}\n"))),
            bare::Tags::Qwen3Coder => format!("{open} {}", literal(&format!("\n<function={tool}>\n"))),
            bare::Tags::MiniMaxM2 => format!("{open} {}", literal(&format!("\n<invoke name=\"{tool}\">\n"))),
        };
        let after = match tags {
            bare::Tags::Glm4 => close,
            bare::Tags::Qwen3Coder => format!("{} {close}", literal("</function>\n")),
            bare::Tags::MiniMaxM2 => format!("{} {close}", literal("</invoke>\n")),
        };
        Form { arguments: Arguments::Bare(tags), ..Form::each(&literal("\n"), before, &after) }
    }

    fn gemma(&self) -> Form {
        let open = self.tag("<|tool_call>");
        let before = move |tool: &str| format!("{open} {}", literal(&format!("call:{tool}{{")));
        let after = format!("\"}}\" {}", self.tag("<tool_call|>"));
        let arguments = Arguments::Listed(bare::List::Gemma);
        Form { arguments, ..Form::each("", before, &after) }
    }

    fn pythonic(&self) -> Form {
        let tags = [("<|tool_call_start|>", "<|tool_call_end|>"), ("<|python_start|>", "<|python_end|>")];
        let known = tags.into_iter().find(|(open, _)| self.tokenizer.token_to_id(open).is_some());
        let (open, close) =
            known.map_or_else(Default::default, |(open, close)| (self.tag(open), self.tag(close)));
        Form {
            open: format!("{open} {}", literal("[")),
            between: literal(", "),
            close: format!("{} {close}", literal("]")),
            before: Box::new(|tool| literal(&format!("{tool}("))),
            after: literal(")"),
            arguments: Arguments::Listed(bare::List::Python),
        }
    }

    /// One call of a tool.
    fn call(&mut self, index: usize, tool: &Tool, form: &Form) -> Result<String> {
        self.exclusive.extend(tool.exclusive.iter().cloned());
        let name = match form.arguments {
            Arguments::Json { quoted: true } => {
                let quoted = Value::from(tool.name.as_str()).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
            _ => self.plain_name(&tool.name)?,
        };
        let arguments = match form.arguments {
            Arguments::Json { .. } => {
                self.schema(index.to_string(), tool.parameters.clone(), tool.strictness)
            }
            Arguments::Bare(tags) => self.bare_arguments(index, tool, tags)?,
            Arguments::Listed(list) => self.listed_arguments(index, tool, list)?,
        };
        Ok(format!("{} {arguments} {}", (form.before)(&name), form.after))
    }

    /// A reference to a schema.
    fn schema(&mut self, place: String, schema: Map<String, Value>, strictness: Strictness) -> String {
        let name = format!("json{}", place.replace('_', "-"));
        self.schemas.push((name.clone(), with_options(Value::Object(schema), strictness)));
        format!("@{name}")
    }

    /// A name that stands between tags as it is.
    fn plain_name(&self, name: &str) -> Result<String> {
        let python = self.syntax == Syntax::Pythonic;
        let fine = |char: char| char.is_ascii_alphanumeric() || "_.-".contains(char);
        let begins = name.starts_with(|char: char| char == '_' || char.is_ascii_alphabetic()) || !python;
        if name.chars().all(fine) && begins {
            return Ok(name.to_owned());
        }
        Err(Error::new(
            ErrorKind::InvalidArguments,
            format!(
                "the tool {name:?}: in the syntax of this checkpoint a name consists of letters, digits, _, - and ."
            ),
        ))
    }
}
