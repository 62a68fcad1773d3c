//! What the settings of a tokenizer say about templates and special tokens, read without keeping anything else. Knows
//! nothing of files.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The special tokens that every tokenizer may name.
const NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Of a JSON object, the parts that matter for prompts.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) template: Option<Templates>,
    /// The special tokens among its keys, each with its text.
    pub(super) tokens: Vec<(String, String)>,
    /// Those of `extra_special_tokens` and `model_specific_special_tokens`.
    pub(super) extra: [Vec<(String, String)>; 2],
    /// Whether there is an `added_tokens_decoder`.
    pub(super) lists_added: bool,
}

/// What `chat_template` may be.
#[derive(Debug)]
pub(super) enum Templates {
    None,
    One(String),
    Named(Vec<Entry>),
    Other,
}

/// One of several templates.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) name: Option<String>,
    pub(super) template: Option<String>,
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Settings;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Settings, A::Error> {
                let mut settings = Settings::default();
                while let Some(key) = map.next_key::<String>()? {
                    match &*key {
                        "chat_template" => settings.template = Some(map.next_value::<Any>()?.into()),
                        "extra_special_tokens" => settings.extra[0] = map.next_value::<Any>()?.tokens,
                        "model_specific_special_tokens" => {
                            settings.extra[1] = map.next_value::<Any>()?.tokens
                        }
                        "added_tokens_decoder" => {
                            map.next_value::<IgnoredAny>()?;
                            settings.lists_added = true;
                        }
                        name if is_token(name) => {
                            if let Some(text) = map.next_value::<Any>()?.content {
                                settings.tokens.push((key, text));
                            }
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(settings)
            }
        }
        from.deserialize_map(Read)
    }
}

fn is_token(name: &str) -> bool {
    NAMES.contains(&name) || name.ends_with("_token")
}

/// Any value, of which only what may be a token, tokens or templates is kept.
#[derive(Default)]
struct Any {
    is_null: bool,
    is_text: bool,
    /// The text that it is, or that of the key `content`, as tokens have it.
    content: Option<String>,
    entry: Entry,
    tokens: Vec<(String, String)>,
    list: Option<Vec<Entry>>,
}

impl From<Any> for Templates {
    fn from(any: Any) -> Self {
        match any {
            Any { is_null: true, .. } => Self::None,
            Any { is_text: true, content: Some(text), .. } => Self::One(text),
            Any { list: Some(list), .. } => Self::Named(list),
            _ => Self::Other,
        }
    }
}

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ReadAny { depth: 0 })
    }
}

struct ReadAny {
    depth: usize,
}

impl<'de> serde::de::DeserializeSeed<'de> for ReadAny {
    type Value = Any;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Any, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ReadAny {
    type Value = Any;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Any, E> {
        Ok(Any { is_null: true, ..Any::default() })
    }

    fn visit_bool<E>(self, _: bool) -> Result<Any, E> {
        Ok(Any::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Any, E> {
        Ok(Any::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Any, E> {
        Ok(Any::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Any, E> {
        Ok(Any::default())
    }

    fn visit_str<E>(self, text: &str) -> Result<Any, E> {
        Ok(Any { is_text: true, content: Some(text.to_owned()), ..Any::default() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Any, A::Error> {
        let mut entries = Vec::new();
        if self.depth > 0 {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Any::default());
        }
        // More than are allowed need not be kept to be counted.
        while let Some(any) = list.next_element_seed(ReadAny { depth: 1 })? {
            if entries.len() <= super::find::MAX_NAMED {
                entries.push(any.entry);
            }
        }
        Ok(Any { list: Some(entries), ..Any::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Any, A::Error> {
        let mut any = Any::default();
        while let Some(key) = map.next_key::<String>()? {
            if self.depth > 1 || !(matches!(&*key, "content" | "name" | "template") || is_token(&key)) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value_seed(ReadAny { depth: self.depth + 1 })?;
            match &*key {
                "name" => any.entry.name = value.content.filter(|_| value.is_text),
                "template" => any.entry.template = value.content.filter(|_| value.is_text),
                "content" => any.content = value.content.filter(|_| value.is_text),
                _ => any.tokens.extend(value.content.map(|text| (key, text))),
            }
        }
        Ok(any)
    }
}
