//! The files in which a checkpoint may keep its chat template, and the special tokens that templates name. Knows nothing
//! of Jinja.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::settings::{Entry, Settings, Templates};
use super::{MAX_SOURCE, unsupported};
use crate::checkpoint::Source;
use crate::checkpoint::gguf::Metadata;
use crate::checkpoint::source::read_short;
use crate::tokenizer;
use crate::{Error, ErrorKind, Result};

/// The longest `tokenizer_config.json`, in bytes: some list thousands of tokens.
const MAX_CONFIG: usize = 64 << 20;

/// The longest of the others, in bytes.
const MAX_OTHER: usize = 1 << 20;

/// The most named templates, and the most special tokens.
pub(super) const MAX_NAMED: usize = 1000;

/// Templates and where each is from, by name.
pub(super) type Found = BTreeMap<String, (String, String)>;

const JINJA: &str = "chat_template.jinja";
const CONFIG: &str = "tokenizer_config.json";
const LEGACY: &str = "chat_template.json";
const SPECIAL: &str = "special_tokens_map.json";
const TOOL_USE: &str = "additional_chat_templates/tool_use.jinja";

/// The key of a GGUF file's chat template; of further ones, with a dot and their names behind it.
const KEY: &str = "tokenizer.chat_template";

/// The chat templates of a checkpoint, from the first place that has any.
pub(super) fn templates(source: &Source) -> Result<Option<Found>> {
    let mut found = Found::new();
    if let Some(metadata) = source.metadata() {
        in_metadata(&mut found, metadata)?;
    }
    if let Some(bytes) = read(source, JINJA, MAX_SOURCE)? {
        let text = std::str::from_utf8(&bytes);
        let text = text.map_err(|_| unsupported(format!("{} is not in UTF-8", source.describe(JINJA))))?;
        found.insert("default".to_owned(), (text.to_owned(), source.describe(JINJA)));
    }
    if let Source::Folder(folder) = source
        && let Some(text) = additional(&folder.join(TOOL_USE))?
    {
        found.insert("tool_use".to_owned(), (text, folder.join(TOOL_USE).display().to_string()));
    }
    for name in [CONFIG, LEGACY] {
        if !found.is_empty() {
            break;
        }
        if let Some(template) = object(source, name)?.and_then(|settings| settings.template) {
            named(&mut found, template, &source.describe(name))?;
        }
    }
    Ok((!found.is_empty()).then_some(found))
}

/// Enters the templates of a GGUF file.
fn in_metadata(found: &mut Found, metadata: &Metadata) -> Result<()> {
    for key in metadata.keys() {
        let Some(name) = key.strip_prefix(KEY) else { continue };
        let name = match name.strip_prefix('.') {
            Some(name) => name,
            None if name.is_empty() => "default",
            None => continue,
        };
        let Some(text) = metadata.text(key)? else { continue };
        let place = format!("{} ({})", metadata.file(), crate::error::shortened(key.to_owned(), 80));
        if text.len() > MAX_SOURCE {
            let size = text.len();
            return Err(unsupported(format!(
                "{place} has {size} bytes, more than the {MAX_SOURCE} that are allowed"
            )));
        }
        if found.len() == MAX_NAMED {
            return Err(unsupported(format!("{place} is one of more than {MAX_NAMED} chat templates")));
        }
        found.insert(name.to_owned(), (text.to_owned(), place));
    }
    Ok(())
}

/// Enters one template, or a list of named ones.
fn named(found: &mut Found, template: Templates, place: &str) -> Result<()> {
    match template {
        Templates::None => {}
        Templates::One(text) => {
            found.insert("default".to_owned(), (text, place.to_owned()));
        }
        Templates::Named(list) => {
            if list.len() > MAX_NAMED {
                return Err(unsupported(format!("{place} has more than {MAX_NAMED} chat templates")));
            }
            for entry in list {
                let Entry { name: Some(name), template: Some(text) } = entry else {
                    return Err(unsupported(format!(
                        "{place}: an entry of chat_template has no name or no template that is a text"
                    )));
                };
                let place = format!("{place} ({})", crate::error::shortened(name.clone(), 40));
                found.insert(name, (text, place));
            }
        }
        Templates::Other => {
            return Err(unsupported(format!(
                "{place}: chat_template is neither a text nor a list of named ones"
            )));
        }
    }
    Ok(())
}

fn additional(path: &Path) -> Result<Option<String>> {
    let failed = |kind, what: String| Err(Error::new(kind, format!("{}: {what}", path.display())));
    match read_short(path, MAX_SOURCE as u64) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => failed(ErrorKind::UnsupportedChatTemplate, "it is not in UTF-8".to_owned()),
        },
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                failed(ErrorKind::UnsupportedChatTemplate, error.to_string())
            }
            _ => failed(ErrorKind::Io, format!("it cannot be read: {error}")),
        },
    }
}

/// The special tokens for the template's eyes, as transformers gives them: those of `tokenizer_config.json`, and where that
/// lists no added tokens, those of `special_tokens_map.json` before them.
pub(super) fn special_tokens(source: &Source) -> Result<Map<String, Value>> {
    if let Some(metadata) = source.metadata() {
        let tokens = tokenizer::special_tokens(metadata)?;
        return Ok(tokens.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect());
    }
    let config = object(source, CONFIG)?.unwrap_or_default();
    let special = if config.lists_added { None } else { object(source, SPECIAL)? };
    let [extra, specific] = config.extra;
    let all = [extra, specific, config.tokens, special.map(|special| special.tokens).unwrap_or_default()];
    if all.iter().map(Vec::len).sum::<usize>() > MAX_NAMED {
        return Err(unsupported(format!(
            "{} has more than {MAX_NAMED} special tokens",
            source.describe(CONFIG)
        )));
    }
    Ok(all.into_iter().flatten().map(|(name, text)| (name, text.into())).collect())
}

fn read(source: &Source, name: &str, most: usize) -> Result<Option<whin_kernels::bytes::Bytes>> {
    let bytes = source.read(name)?;
    match &bytes {
        Some(bytes) if bytes.len() > most => {
            let (place, size) = (source.describe(name), bytes.len());
            Err(unsupported(format!("{place} has {size} bytes, more than the {most} that are allowed")))
        }
        _ => Ok(bytes),
    }
}

/// What this needs of the JSON object in a file; none where there is no such file.
fn object(source: &Source, name: &str) -> Result<Option<Settings>> {
    let most = if name == CONFIG { MAX_CONFIG } else { MAX_OTHER };
    let Some(bytes) = read(source, name, most)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        let error = crate::error::shortened(error.to_string(), 200);
        let message = format!("{} is broken: {error}; download it again", source.describe(name));
        Error::new(ErrorKind::InvalidCheckpoint, message)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Conversation, Template};
    use super::*;

    fn source(files: &[(&str, &str)]) -> Source {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
        Source::Memory(BTreeMap::from_iter(files).into())
    }

    /// What the template of these files renders, without tools and with them.
    fn rendered(source: &Source) -> [Result<String>; 2] {
        let plain = Conversation::of_user("x");
        let tool = json!({"type": "function", "function": {"name": "f"}});
        let with_tools = Conversation { tools: vec![tool], ..plain.clone() };
        [plain, with_tools].map(|conversation| Template::open(source)?.apply(&conversation))
    }

    fn texts(source: &Source) -> [String; 2] {
        rendered(source).map(|rendered| rendered.unwrap_or_else(|error| error.to_string()))
    }

    #[test]
    fn the_first_place_wins() {
        let jinja = ("chat_template.jinja", "file");
        let config = (CONFIG, r#"{"chat_template": "config"}"#);
        let legacy = (LEGACY, r#"{"chat_template": "legacy"}"#);
        assert_eq!(texts(&source(&[jinja, config, legacy])), ["file", "file"]);
        assert_eq!(texts(&source(&[config, legacy])), ["config", "config"]);
        assert_eq!(texts(&source(&[(CONFIG, r#"{"chat_template": null}"#), legacy])), ["legacy", "legacy"]);
        let none = source(&[(CONFIG, "{}")]);
        assert!(Template::find(&none).unwrap().is_none());
        let error = Template::open(&none).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedChatTemplate);
        assert!(error.to_string().contains("no chat template"), "{error}");
    }

    #[test]
    fn named_templates_are_chosen_as_transformers_does() {
        let named = |names: &[&str]| {
            let list: Vec<_> =
                names.iter().map(|name| json!({"name": name, "template": format!("is {name}")})).collect();
            texts(&source(&[(CONFIG, &json!({"chat_template": list}).to_string())]))
        };
        assert_eq!(named(&["default", "tool_use", "rag"]), ["is default", "is tool_use"]);
        assert_eq!(named(&["rag", "default"]), ["is default", "is default"]);
        let [plain, with_tools] = named(&["tool_use", "rag"]);
        assert!(plain.contains("rag, tool_use") && plain.contains("default"), "{plain}");
        assert_eq!(with_tools, "is tool_use");
    }

    #[test]
    fn a_folder_may_hold_a_template_for_tools() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write(JINJA, "plain");
        std::fs::create_dir(folder.path().join("additional_chat_templates")).unwrap();
        write(TOOL_USE, "with tools");
        assert_eq!(texts(&Source::Folder(folder.path().to_owned())), ["plain", "with tools"]);
    }

    #[test]
    fn special_tokens_are_texts() {
        let config = json!({"bos_token": {"__type": "AddedToken", "content": "<b>"}, "eos_token": "<e>", "unk_token": null,
            "image_token": "<i>", "extra_special_tokens": {"boi_token": "<o>"}, "add_bos_token": true, "added_tokens_decoder": {}});
        let template = "{{ bos_token }}{{ eos_token }}{{ image_token }}{{ boi_token }}{{ unk_token is defined }}{{ add_bos_token is defined }}";
        let mut files = vec![(JINJA, template.to_owned()), (CONFIG, config.to_string())];
        let special = json!({"bos_token": "<s>", "unk_token": {"content": "<u>"}}).to_string();
        files.push((SPECIAL, special));
        let files_of = |files: &[(&str, String)]| {
            texts(&source(&files.iter().map(|(name, text)| (*name, &**text)).collect::<Vec<_>>()))
        };
        assert_eq!(files_of(&files)[0], "<b><e><i><o>FalseFalse");
        let mut config = config;
        config.as_object_mut().unwrap().remove("added_tokens_decoder");
        files[1].1 = config.to_string();
        assert_eq!(files_of(&files)[0], "<s><e><i><o>TrueFalse");
    }

    #[test]
    fn the_last_of_several_values_counts_and_other_kinds_are_no_tokens() {
        let config = r#"{"bos_token": "<a>", "bos_token": "<b>", "eos_token": [1], "pad_token": 1.5e3, "x_token": {"content": 1},
            "extra_special_tokens": ["<i>"], "y": [[], {}], "chat_template": "no", "chat_template": "{{ bos_token }}{{ eos_token is
            defined }}{{ pad_token is defined }}{{ x_token is defined }}"}"#;
        assert_eq!(texts(&source(&[(CONFIG, &config.replace('\n', " "))]))[0], "<b>FalseFalseFalse");
    }

    #[test]
    fn long_files_take_little_and_are_refused_where_they_need_not_be_long() {
        let arrays = format!("{{\"x\": [{}1], \"chat_template\": \"y\"}}", "[],".repeat(400_000));
        assert_eq!(texts(&source(&[(CONFIG, &arrays)]))[0], "y");
        for name in [LEGACY, SPECIAL] {
            let found = &texts(&source(&[(name, &arrays), (CONFIG, "{}")]))[0];
            let jinja = &texts(&source(&[(name, &arrays), (JINJA, "y")]))[0];
            let found = if name == LEGACY { found } else { jinja };
            assert!(found.contains(name) && found.contains("more than the 1048576"), "{found}");
        }
        let tokens: Vec<_> = (0..2000).map(|index| format!("\"t{index}_token\": \"x\"")).collect();
        let tokens = format!("{{{}}}", tokens.join(","));
        assert!(
            texts(&source(&[(CONFIG, &tokens), (JINJA, "y")]))[0].contains("more than 1000 special tokens")
        );
    }

    #[test]
    fn broken_files_are_named() {
        for (files, kind, part) in [
            ([(CONFIG, "{")], ErrorKind::InvalidCheckpoint, CONFIG),
            ([(CONFIG, r#"{"chat_template": 1}"#)], ErrorKind::UnsupportedChatTemplate, "neither a text"),
            (
                [(CONFIG, r#"{"chat_template": [{"name": "x"}]}"#)],
                ErrorKind::UnsupportedChatTemplate,
                "no template",
            ),
            ([(LEGACY, "[]")], ErrorKind::InvalidCheckpoint, LEGACY),
            ([(JINJA, "{% if %}")], ErrorKind::UnsupportedChatTemplate, "line 1"),
            ([(JINJA, "{{ x | nothing }}")], ErrorKind::UnsupportedChatTemplate, "nothing"),
        ] {
            for rendered in rendered(&source(&files)) {
                let error = rendered.unwrap_err();
                assert_eq!(error.kind(), kind, "{error}");
                assert!(error.to_string().contains(part), "{error}");
            }
        }
    }

    #[test]
    fn a_template_says_why_it_refuses() {
        let raising = source(&[(JINJA, "{{ raise_exception('Only \"users\" may speak') }}")]);
        let error = rendered(&raising)[0].as_ref().unwrap_err().to_string();
        assert_eq!(error, "chat_template.jinja refuses this conversation: Only \"users\" may speak");
    }
}
