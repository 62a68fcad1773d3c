//! What a line of a conversation asks for.

use std::path::PathBuf;

/// The list for the user.
pub const HELP: &str = "\
/system [TEXT]     show or set the system message
/clear             begin a new conversation; the system message and the tools stay
/save FILE         write the conversation as JSON, as whin run --messages reads it
/load FILE         go on with such a conversation
/tools [FILE|off]  show the tools, read them from a file, or have none
/thinking on|off   have a model that can think do so, or not
/stats on|off      show figures after each answer
/help              this list
/exit              end, as does Ctrl-D
//TEXT             a message that begins with a slash
\"\"\"TEXT\"\"\"         a message of several lines
Ctrl-C stops an answer; the part of it that was shown as said stays.";

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// A message to the model.
    Say(String),
    Help,
    Exit,
    Clear,
    System(Option<String>),
    Save(PathBuf),
    Load(PathBuf),
    Tools(Option<PathBuf>),
    NoTools,
    Thinking(bool),
    Stats(bool),
}

impl Command {
    /// Reads a line: none where it is blank; else what is wrong with it.
    pub fn parse(line: &str) -> Result<Option<Self>, String> {
        let text = line.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let Some(command) = text.strip_prefix('/') else { return Ok(Some(Self::Say(said(line)))) };
        if command.starts_with('/') {
            return Ok(Some(Self::Say(command.to_owned())));
        }
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        let argument = (!rest.is_empty()).then_some(rest);
        let nothing = |command| match argument {
            None => Ok(command),
            Some(_) => Err(format!("/{name} stands alone")),
        };
        let file = || argument.map(PathBuf::from).ok_or_else(|| format!("/{name} needs the name of a file"));
        let switch = || match rest {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(format!("/{name} is on or off")),
        };
        let command = match name {
            "help" | "?" => nothing(Self::Help)?,
            "exit" | "quit" | "bye" => nothing(Self::Exit)?,
            "clear" => nothing(Self::Clear)?,
            "system" => Self::System(argument.map(said)),
            "save" => Self::Save(file()?),
            "load" => Self::Load(file()?),
            "tools" if rest == "off" => Self::NoTools,
            "tools" => Self::Tools(argument.map(PathBuf::from)),
            "thinking" => Self::Thinking(switch()?),
            "stats" => Self::Stats(switch()?),
            _ => {
                return Err(format!(
                    "there is no command /{name}; /help lists them, //{name} sends it as a message"
                ));
            }
        };
        Ok(Some(command))
    }
}

/// A text without the quotes that let it have several lines.
pub fn said(text: &str) -> String {
    let inner = text.trim().strip_prefix("\"\"\"").and_then(|rest| rest.strip_suffix("\"\"\""));
    inner.unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        let say = |text: &str| Ok(Some(Command::Say(text.to_owned())));
        assert_eq!(Command::parse("  \t"), Ok(None));
        assert_eq!(Command::parse("hello /clear"), say("hello /clear"));
        assert_eq!(Command::parse("//etc is a folder"), say("/etc is a folder"));
        assert_eq!(Command::parse("\"\"\"a\n b\"\"\""), say("a\n b"));
        assert_eq!(Command::parse("\"\"\""), say("\"\"\""));
        assert_eq!(Command::parse(" /clear "), Ok(Some(Command::Clear)));
        assert_eq!(Command::parse("/system"), Ok(Some(Command::System(None))));
        assert_eq!(
            Command::parse("/system Be  brief."),
            Ok(Some(Command::System(Some("Be  brief.".to_owned()))))
        );
        assert_eq!(Command::parse("/save a b.json"), Ok(Some(Command::Save("a b.json".into()))));
        assert_eq!(Command::parse("/tools off"), Ok(Some(Command::NoTools)));
        assert_eq!(Command::parse("/thinking on"), Ok(Some(Command::Thinking(true))));
    }

    #[test]
    fn wrong_commands_are_named() {
        for (line, part) in [
            ("/nonsense", "/nonsense"),
            ("/save", "file"),
            ("/clear everything", "alone"),
            ("/stats maybe", "on or off"),
            ("/", "/help"),
        ] {
            let why = Command::parse(line).unwrap_err();
            assert!(why.contains(part), "{line}: {why}");
        }
    }
}
