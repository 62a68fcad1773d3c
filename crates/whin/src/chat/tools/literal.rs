//! Python's literals and calls with named arguments, turned into JSON.

use std::collections::HashSet;

use serde_json::Value;

use crate::chat::ToolCall;

/// Deeper values are refused.
const MAX_DEPTH: usize = 100;

/// The JSON text of a literal: strings, numbers, `True`, `False`, `None` (or as JSON spells them), lists, tuples and
/// dictionaries with strings as keys. The digits of numbers stay as they are.
pub(super) fn json(text: &str) -> Option<String> {
    let mut parser = Parser { rest: text, json: String::new() };
    parser.blanks();
    parser.value(MAX_DEPTH)?;
    parser.blanks();
    parser.rest.is_empty().then_some(parser.json)
}

/// The call that a text is: `NAME(KEY=VALUE, …)`.
pub(super) fn call(text: &str) -> Option<ToolCall> {
    let (name, arguments) = text.split_once('(')?;
    if !is_name(name) {
        return None;
    }
    let mut parser = Parser { rest: arguments, json: String::new() };
    parser.arguments()?;
    parser.rest.is_empty().then_some(ToolCall { name: name.to_owned(), arguments: parser.json })
}

/// Whether a text is a name, or several with dots between them.
fn is_name(text: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c == '_' || c.is_alphabetic())
            && part.chars().all(|c| c == '_' || c.is_alphanumeric() || c == '-')
    };
    text.split('.').all(part)
}

struct Parser<'a> {
    rest: &'a str,
    json: String,
}

impl Parser<'_> {
    fn blanks(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn name(&mut self) -> Option<&str> {
        let end = self.rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        name.starts_with(|c: char| c == '_' || c.is_alphabetic()).then_some(name)
    }

    /// Named arguments up to the closing bracket.
    fn arguments(&mut self) -> Option<()> {
        let mut names = HashSet::new();
        self.json.push('{');
        loop {
            self.blanks();
            if self.take(")") {
                self.json.push('}');
                return Some(());
            }
            let name = self.name()?.to_owned();
            self.blanks();
            if !self.take("=") {
                return None;
            }
            self.blanks();
            let comma = if names.is_empty() { "" } else { ", " };
            self.json.push_str(&format!("{comma}{}: ", Value::from(name.as_str())));
            if !names.insert(name) {
                return None;
            }
            self.value(MAX_DEPTH)?;
            self.blanks();
            if !self.take(",") && !self.rest.starts_with(')') {
                return None;
            }
        }
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match self.rest.bytes().next()? {
            b'\'' | b'"' => {
                let text = self.texts()?;
                self.json.push_str(&Value::String(text).to_string());
                Some(())
            }
            b'[' => self.list(']', depth),
            b'(' => self.list(')', depth),
            b'{' => self.dictionary(depth),
            b'0'..=b'9' | b'-' | b'+' | b'.' => self.number(),
            _ => {
                let word = match self.name()? {
                    "True" | "true" => "true",
                    "False" | "false" => "false",
                    "None" | "null" => "null",
                    _ => return None,
                };
                self.json.push_str(word);
                Some(())
            }
        }
    }

    /// A list or a tuple. A value in round brackets without a comma is that value.
    fn list(&mut self, close: char, depth: usize) -> Option<()> {
        let (start, mut count, mut comma) = (self.json.len(), 0, false);
        self.rest = &self.rest[1..];
        self.json.push('[');
        loop {
            self.blanks();
            if self.rest.starts_with(close) {
                self.rest = &self.rest[1..];
                break;
            }
            if count > 0 {
                if !comma {
                    return None;
                }
                self.json.push_str(", ");
            }
            self.value(depth)?;
            count += 1;
            self.blanks();
            comma = self.take(",");
        }
        if close == ')' && count == 1 && !comma {
            self.json.remove(start);
        } else {
            self.json.push(']');
        }
        Some(())
    }

    fn dictionary(&mut self, depth: usize) -> Option<()> {
        let (mut first, mut comma) = (true, true);
        self.rest = &self.rest[1..];
        self.json.push('{');
        loop {
            self.blanks();
            if self.take("}") {
                self.json.push('}');
                return Some(());
            }
            if !comma {
                return None;
            }
            if !std::mem::take(&mut first) {
                self.json.push_str(", ");
            }
            let key = self.texts()?;
            self.json.push_str(&Value::String(key).to_string());
            self.blanks();
            if !self.take(":") {
                return None;
            }
            self.json.push_str(": ");
            self.blanks();
            self.value(depth)?;
            self.blanks();
            comma = self.take(",");
        }
    }

    /// A number in base ten, spelled as JSON wants it.
    fn number(&mut self) -> Option<()> {
        let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        // JSON has no plus sign before a number.
        let sign = if text.starts_with('-') { "-" } else { "" };
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (mantissa, exponent) = match digits.find(['e', 'E']) {
            Some(place) => digits.split_at(place),
            None => (digits, ""),
        };
        let mut mantissa = mantissa.to_owned();
        if mantissa.starts_with('.') {
            mantissa.insert(0, '0');
        }
        if mantissa.ends_with('.') {
            mantissa.push('0');
        }
        let underscore = |(place, byte): (usize, u8)| {
            let digit = |place: usize| mantissa.as_bytes().get(place).is_some_and(u8::is_ascii_digit);
            byte != b'_' || place > 0 && digit(place - 1) && digit(place + 1)
        };
        if !mantissa.bytes().enumerate().all(underscore) {
            return None;
        }
        let number = format!("{sign}{}{exponent}", mantissa.replace('_', ""));
        serde_json::from_str::<serde_json::Number>(&number).ok()?;
        self.json.push_str(&number);
        self.rest = rest;
        Some(())
    }

    /// A string, or several one after the other.
    fn texts(&mut self) -> Option<String> {
        let mut text = String::new();
        self.text(&mut text)?;
        loop {
            self.blanks();
            if !self.rest.starts_with(['\'', '"']) {
                return Some(text);
            }
            self.text(&mut text)?;
        }
    }

    fn text(&mut self, text: &mut String) -> Option<()> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let three = [quote; 3].iter().collect::<String>();
        let close = if self.rest.starts_with(&three) { &three[..] } else { &three[..1] };
        self.rest = &self.rest[close.len()..];
        loop {
            if self.take(close) {
                return Some(());
            }
            let mut chars = self.rest.chars();
            let next = chars.next()?;
            self.rest = chars.as_str();
            match next {
                '\\' => self.escape(text)?,
                '\n' if close.len() == 1 => return None,
                _ => text.push(next),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Option<()> {
        let mut chars = self.rest.chars();
        let next = chars.next()?;
        let plain = match next {
            '\n' => {
                self.rest = chars.as_str();
                return Some(());
            }
            '\\' | '\'' | '"' => next,
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            'x' | 'u' | 'U' => {
                self.rest = chars.as_str();
                text.push(self.unicode(match next {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                })?);
                return Some(());
            }
            '0'..='7' => {
                let end = self.rest.bytes().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
                let (digits, rest) = self.rest.split_at(end);
                self.rest = rest;
                text.push(char::from_u32(u32::from_str_radix(digits, 8).ok()?)?);
                return Some(());
            }
            // Python keeps the backslash of what is no escape.
            _ => {
                text.push('\\');
                next
            }
        };
        text.push(plain);
        self.rest = chars.as_str();
        Some(())
    }

    /// A character by so many digits; two surrogates, as JSON has them, are one.
    fn unicode(&mut self, digits: usize) -> Option<char> {
        let mut code = self.digits(digits)?;
        if (0xd800..0xdc00).contains(&code) && self.take("\\u") {
            let low = self.digits(4)?;
            if !(0xdc00..0xe000).contains(&low) {
                return None;
            }
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        char::from_u32(code)
    }

    fn digits(&mut self, count: usize) -> Option<u32> {
        let digits =
            self.rest.get(..count).filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        self.rest = &self.rest[count..];
        u32::from_str_radix(digits, 16).ok()
    }
}
