//! `whin chat`: a conversation in the terminal.

mod commands;
mod lines;
mod session;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use whin::{
    Answer, Chat, Completion, Engine, ErrorKind, FinishReason, Request, Sampling, ToolCall, ToolChoice,
};

use crate::answer::Printer;
use crate::interrupt::Interrupt;
use crate::messages::{ChatArgs, read_conversation, read_tools};
use crate::model::EngineArgs;
use crate::out;
use crate::sampling::SamplingArgs;
use commands::Command;
use lines::{Line, Lines};
use session::Session;

/// Talks with a model
///
/// Each line is a message; """ begins and ends one of several lines. Ctrl-C stops an answer, Ctrl-D ends the
/// conversation. /help lists the commands.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    how: ChatArgs,

    /// At most this many new tokens an answer [default: up to the end of the context]
    #[arg(short = 'n', long, value_name = "N")]
    max_new_tokens: Option<usize>,

    #[command(flatten)]
    sampling: SamplingArgs,

    /// Show figures after each answer
    #[arg(long)]
    stats: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut how = args.how.chat(whin::Conversation::default())?;
    let system = args.how.system.clone();
    how.conversation.messages.clear();
    let mut session = Session::new(system, std::mem::take(&mut how.conversation.tools));
    let interrupt = Interrupt::watch()?;
    let checkpoint = args.engine.model.open()?;
    let engine = args.engine.load(&checkpoint, true)?;
    // A checkpoint without a template cannot talk at all, and one with a template may refuse these words.
    let hello = Chat::new([json!({"role": "user", "content": "Hello"})]);
    if let Err(error) = checkpoint.chat_prompt(&hello)
        && error.kind() != ErrorKind::InvalidArguments
    {
        return Err(error.into());
    }
    let mut talk = Talk {
        how,
        sampling: args.sampling.sampling(),
        max_new_tokens: args.max_new_tokens,
        stats: args.stats,
        engine,
        interrupt,
        lines: Lines::new()?,
    };
    if talk.lines.is_terminal() {
        out::note(&format!("{}; /help lists the commands, Ctrl-D ends", talk.engine.device()));
    }
    while let Some(line) = talk.lines.next("> ")? {
        let Line::Text(line) = line else { continue };
        match Command::parse(&line) {
            Ok(None) => {}
            Ok(Some(Command::Exit)) => break,
            Ok(Some(Command::Say(text))) => {
                talk.interrupt.prepare();
                talk.say(&mut session, &text)?;
            }
            Ok(Some(command)) => talk.obey(&mut session, command)?,
            Err(why) => out::note(&why),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What does not change from answer to answer, but by a command.
struct Talk {
    how: Chat,
    sampling: Sampling,
    max_new_tokens: Option<usize>,
    stats: bool,
    engine: Engine,
    interrupt: Interrupt,
    lines: Lines,
}

impl Talk {
    /// Sends a message, and whatever tools are said to give, until the model has answered.
    fn say(&mut self, session: &mut Session, text: &str) -> Result<()> {
        let before = session.len();
        session.push(json!({"role": "user", "content": text}));
        // A call that is required is made once: its result is there to be answered.
        let mut tool_choice = self.how.tool_choice.clone();
        loop {
            let completion = match self.answer(session, &tool_choice) {
                Ok(completion) => completion,
                Err(error) if error.downcast_ref::<whin::Error>().is_some() => {
                    out::failure(&error);
                    out::note("[the message is forgotten]");
                    session.truncate(before);
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let answer = completion.answer.clone().unwrap_or_default();
            if answer.content.is_none() && answer.tool_calls.is_empty() {
                out::note(&format!("[no answer ({}): the message is forgotten]", why(&completion)));
                session.truncate(before);
                return Ok(());
            }
            let ids = session.push_answer(&answer);
            if completion.finish_reason == FinishReason::Length {
                out::note("[cut off: the answer reached its limit of tokens, or the end of the context]");
            }
            if answer.tool_calls.is_empty() {
                return Ok(());
            }
            tool_choice = if tool_choice.is_enforced() { ToolChoice::Auto } else { tool_choice };
            if !self.ask_for_results(session, &answer, &ids)? {
                out::note("[the message and the calls are forgotten]");
                session.truncate(before);
                return Ok(());
            }
        }
    }

    /// Shows an answer while it comes.
    fn answer(&mut self, session: &Session, tool_choice: &ToolChoice) -> Result<Completion> {
        self.interrupt.prepare();
        let mut chat = Chat { tool_choice: tool_choice.clone(), ..self.how.clone() };
        chat.conversation.messages = session.messages();
        chat.conversation.tools = session.tools().to_vec();
        let request = Request {
            max_new_tokens: self.max_new_tokens,
            sampling: self.sampling.clone(),
            ..Request::chat(chat)
        };
        let mut generation = self.engine.generate(&request)?;
        self.interrupt.cancels(generation.canceller());
        let mut printer = Printer::new(io::stdout().is_terminal());
        for token in generation.by_ref() {
            token?.deltas.iter().try_for_each(|delta| printer.show(delta))?;
        }
        let completion = generation.finish()?;
        printer.end_reasoning();
        if !printer.ends_line {
            out::text("\n")?;
        }
        if self.interrupt.take() {
            out::note("[stopped]");
        }
        if self.stats {
            out::note(&out::figures(&self.engine, &completion, self.sampling.temperature > 0.0));
        }
        Ok(completion)
    }

    /// Asks what each call gave. False where the user would rather not say.
    fn ask_for_results(&mut self, session: &mut Session, answer: &Answer, ids: &[String]) -> Result<bool> {
        for (ToolCall { name, .. }, id) in answer.tool_calls.iter().zip(ids) {
            match self.lines.next(&format!("{} = ", out::harmless(name)))? {
                Some(Line::Text(result)) => session.push_result(name, id, &commands::said(&result)),
                Some(Line::Interrupted) | None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Goes on with the conversation of a file, if the checkpoint's template takes it.
    fn load(&mut self, session: &mut Session, path: &Path) -> Result<String> {
        let mut conversation = read_conversation(path)?;
        if conversation.tools.is_empty() {
            conversation.tools = session.tools().to_vec();
        }
        let kwargs = self.how.conversation.template_kwargs.clone();
        conversation.template_kwargs = kwargs.into_iter().chain(conversation.template_kwargs).collect();
        let chat = Chat { conversation, ..self.how.clone() };
        self.engine.checkpoint().chat_prompt(&chat)?;
        let whin::Conversation { messages, tools, template_kwargs, .. } = chat.conversation;
        self.how.conversation.template_kwargs = template_kwargs;
        session.replace(messages, tools);
        let system = if session.system().is_some() { ", and a system message" } else { "" };
        Ok(format!("[{} messages{system}] {}", session.len(), session.tool_names()))
    }

    fn obey(&mut self, session: &mut Session, command: Command) -> Result<()> {
        let done = match command {
            Command::Help => Ok(commands::HELP.to_owned()),
            Command::Clear => {
                session.clear();
                Ok("[a new conversation]".to_owned())
            }
            Command::System(None) => Ok(session.system().unwrap_or_else(|| "[no system message]".to_owned())),
            Command::System(Some(text)) => {
                session.set_system(text);
                Ok("[the system message is set]".to_owned())
            }
            Command::Save(path) => {
                let kwargs = &self.how.conversation.template_kwargs;
                session.save(&path, kwargs).map(|()| format!("[saved to {}]", path.display()))
            }
            Command::Load(path) => self.load(session, &path),
            Command::Tools(None) => Ok(session.tool_names()),
            Command::Tools(Some(path)) => read_tools(&path).map(|tools| {
                session.set_tools(tools);
                session.tool_names()
            }),
            Command::NoTools => {
                session.set_tools(Vec::new());
                Ok("[no tools]".to_owned())
            }
            Command::Thinking(on) => {
                let kwargs = &mut self.how.conversation.template_kwargs;
                kwargs.insert("enable_thinking".to_owned(), on.into());
                Ok(format!("[thinking is {}]", if on { "on" } else { "off" }))
            }
            Command::Stats(on) => {
                self.stats = on;
                Ok(format!("[figures are {}]", if on { "shown" } else { "hidden" }))
            }
            Command::Say(_) | Command::Exit => Ok(String::new()),
        };
        match done {
            Ok(said) => out::note(&said),
            Err(error) => drop(out::failure(&error)),
        }
        Ok(())
    }
}

/// Why there is no answer.
fn why(completion: &Completion) -> &'static str {
    match completion.finish_reason {
        FinishReason::Length => "the limit of tokens was reached before it",
        FinishReason::Cancelled => "it was stopped",
        FinishReason::Eos | FinishReason::Stop => "the model had nothing to say",
    }
}
