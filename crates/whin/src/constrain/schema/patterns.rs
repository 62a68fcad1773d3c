//! Patterns of JSON Schema, which are JavaScript's, in the syntax of the compiler: what both spell alike but mean
//! differently is spelt out, and what only one of them knows is refused.

use std::iter::Peekable;
use std::str::Chars;

/// JavaScript's blanks, as members of a class.
const BLANKS: &str =
    r"\t\n\x0B\x0C\r\x20\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}";

/// What ends a line, which a point does not match.
const LINE_ENDS: &str = r"\n\r\x{2028}\x{2029}";

const DIGITS: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";

/// `pattern` as the compiler wants it.
///
/// # Errors
/// What of it cannot be enforced.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    let mut reader = Reader { chars: pattern.chars().peekable(), out: String::with_capacity(pattern.len()) };
    while let Some(char) = reader.chars.next() {
        match char {
            '\\' => match reader.escape(false)? {
                Item::Char(char) => push_char(&mut reader.out, char),
                Item::Class(class) => reader.out += &class,
            },
            '[' => reader.class()?,
            '(' => reader.group()?,
            '{' => reader.counts()?,
            '.' => reader.out += &format!("[^{LINE_ENDS}]"),
            _ => reader.out.push(char),
        }
    }
    super::values::pattern(&reader.out)?;
    Ok(reader.out)
}

/// One member of a class, or what an escape stands for.
enum Item {
    Char(char),
    /// A class with its brackets.
    Class(String),
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
    out: String,
}

impl Reader<'_> {
    /// What stands behind a backslash, which may be within a class.
    fn escape(&mut self, in_class: bool) -> Result<Item, String> {
        let Some(char) = self.chars.next() else { return Err("it ends with a backslash".into()) };
        let class = |negated: &str, members: &str| Ok(Item::Class(format!("[{negated}{members}]")));
        match char {
            'd' => class("", DIGITS),
            'D' => class("^", DIGITS),
            'w' => class("", WORD),
            'W' => class("^", WORD),
            's' => class("", BLANKS),
            'S' => class("^", BLANKS),
            't' => Ok(Item::Char('\t')),
            'n' => Ok(Item::Char('\n')),
            'r' => Ok(Item::Char('\r')),
            'f' => Ok(Item::Char('\x0c')),
            'v' => Ok(Item::Char('\x0b')),
            'b' if in_class => Ok(Item::Char('\x08')),
            'b' | 'B' => Err(format!("word boundaries (\\{char}) are not supported")),
            'x' => self.code(2).and_then(one),
            'u' => self.unicode().and_then(one),
            'p' | 'P' => self.property(char),
            '0' if !self.chars.peek().is_some_and(char::is_ascii_digit) => Ok(Item::Char('\0')),
            '0'..='9' | 'k' => Err("backreferences are not supported".into()),
            _ if char.is_alphanumeric() => Err(format!("JavaScript has no escape \\{char}")),
            _ => Ok(Item::Char(char)),
        }
    }

    /// So many hexadecimal digits.
    fn code(&mut self, digits: usize) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..digits {
            let digit = self.chars.next().and_then(|char| char.to_digit(16));
            code = code * 16 + digit.ok_or_else(|| format!("an escape needs {digits} hexadecimal digits"))?;
        }
        Ok(code)
    }

    /// What stands behind `\u`: a code in braces, four digits, or a pair of surrogates.
    fn unicode(&mut self) -> Result<u32, String> {
        if self.chars.next_if_eq(&'{').is_some() {
            let mut code = 0_u32;
            loop {
                match self.chars.next() {
                    Some('}') => return Ok(code),
                    Some(char) if char.is_ascii_hexdigit() && code <= 0x0FFF_FFFF => {
                        code = code * 16 + char.to_digit(16).unwrap_or(0);
                    }
                    _ => return Err("an escape \\u{…} holds hexadecimal digits".into()),
                }
            }
        }
        let high = self.code(4)?;
        if !(0xD800..0xDC00).contains(&high) {
            return Ok(high);
        }
        let follows = self.chars.next() == Some('\\') && self.chars.next() == Some('u');
        let low = if follows { self.code(4)? } else { 0 };
        if !(0xDC00..0xE000).contains(&low) {
            return Err("half a surrogate pair is no character".into());
        }
        Ok(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    }

    /// `\p{…}`, whose names both know.
    fn property(&mut self, kind: char) -> Result<Item, String> {
        let name: String = match self.chars.next_if_eq(&'{') {
            Some(_) => self.chars.by_ref().take_while(|&char| char != '}').collect(),
            None => String::new(),
        };
        let fine = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '=';
        if name.is_empty() || !name.chars().all(fine) {
            return Err(format!("\\{kind} needs the name of a property in braces"));
        }
        Ok(Item::Class(format!("[\\{kind}{{{name}}}]")))
    }

    /// A class, whose opening bracket has been read.
    fn class(&mut self) -> Result<(), String> {
        let negated = self.chars.next_if_eq(&'^').is_some();
        let mut items: Vec<(Item, bool)> = Vec::new(); // and whether it is a dash that stands by itself
        loop {
            match self.chars.next() {
                None => return Err("unclosed character class".into()),
                Some(']') => break,
                Some('\\') => items.push((self.escape(true)?, false)),
                Some(char) => items.push((Item::Char(char), char == '-')),
            }
        }
        if items.is_empty() {
            self.out += match negated {
                true => "(?s:.)",
                false => return Err("an empty class matches nothing".into()),
            };
            return Ok(());
        }
        self.out += if negated { "[^" } else { "[" };
        let mut items = items.into_iter().peekable();
        while let Some((item, _)) = items.next() {
            let dash = items.next_if(|(_, is_dash)| *is_dash);
            let end = dash.as_ref().and_then(|_| items.next());
            match (item, dash, end) {
                (Item::Char(from), Some(_), Some((Item::Char(to), _))) => {
                    if from > to {
                        return Err("a range of a class ends before it begins".into());
                    }
                    push_member(&mut self.out, Item::Char(from));
                    self.out.push('-');
                    push_member(&mut self.out, Item::Char(to));
                }
                (item, dash, end) => {
                    push_member(&mut self.out, item);
                    dash.into_iter().chain(end).for_each(|(item, _)| push_member(&mut self.out, item));
                }
            }
        }
        self.out.push(']');
        Ok(())
    }

    /// A group, whose opening parenthesis has been read.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        if self.chars.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        match self.chars.next() {
            Some(':') => self.out += "?:",
            Some('=' | '!') => return Err("look-around is not supported".into()),
            Some('<') if matches!(self.chars.peek(), Some('=' | '!')) => {
                return Err("look-around is not supported".into());
            }
            Some('<') => {
                let name: String = self.chars.by_ref().take_while(|&char| char != '>').collect();
                let fine = |char: char| char.is_alphanumeric() || char == '_' || char == '$';
                if name.is_empty() || !name.chars().all(fine) {
                    return Err("a group has no name that is one in JavaScript".into());
                }
                self.out += "?:"; // names are of no use here
            }
            _ => return Err("flags within a pattern, as (?i), are not JavaScript's".into()),
        }
        Ok(())
    }

    /// The counts of a repetition, whose opening brace has been read.
    fn counts(&mut self) -> Result<(), String> {
        let counts: String = self.chars.by_ref().take_while(|&char| char != '}').collect();
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (least, most) = counts.split_once(',').unwrap_or((&counts, "0"));
        if !digits(least) || !(most.is_empty() || digits(most)) {
            return Err("a brace stands for itself only as \\{; else it holds counts, as in {2,3}".into());
        }
        self.out += &format!("{{{counts}}}");
        Ok(())
    }
}

fn one(code: u32) -> Result<Item, String> {
    let char = char::from_u32(code).ok_or_else(|| format!("U+{code:X} is no character"))?;
    Ok(Item::Char(char))
}

fn push_member(out: &mut String, item: Item) {
    match item {
        Item::Char(char) => push_char(out, char),
        Item::Class(class) => *out += &class,
    }
}

/// A character that stands for itself, within classes and without.
fn push_char(out: &mut String, char: char) {
    match char {
        _ if char.is_ascii_alphanumeric() || char == '_' || char > '\x7f' && !char.is_control() => {
            out.push(char)
        }
        _ => *out += &format!("\\x{{{:X}}}", char as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        let translated = translate(pattern).unwrap_or_else(|why| panic!("{pattern}: {why}"));
        regex::Regex::new(&translated).unwrap().is_match(text)
    }

    /// Patterns, texts that they match, and texts that they do not, as JavaScript has it.
    #[test]
    fn patterns_mean_what_they_mean_in_javascript() {
        let table: [(&str, &[&str], &[&str]); 22] = [
            (r"^\d\w$", &["1a", "0_"], &["٣a", "1é"]),
            (r"^\s$", &[" ", "\u{feff}", "\u{a0}", "\u{b}", "\u{3000}"], &["\u{85}", "a", "\u{180e}"]),
            (r"^\S$", &["\u{85}", "a"], &["\u{feff}", " "]),
            (r"^[^\S\n]$", &[" ", "\u{feff}"], &["\n", "a"]),
            ("^.$", &["a", "é", "\u{85}"], &["\n", "\r", "\u{2028}"]),
            ("^[^]$", &["\n", "a"], &["", "ab"]),
            ("^[[a]$", &["[", "a"], &["b", "]"]),
            (r"^[\w&&x]$", &["a", "&", "x"], &["-"]),
            ("^[a~~b]$", &["a", "~", "b"], &["c"]),
            (r"^[\w-.]$", &["a", "-", "."], &["+", "`"]),
            (r"^[+-\d]$", &["+", "-", "3"], &[",", "."]),
            ("^[--/]$", &["-", ".", "/"], &["0"]),
            ("^[a-]$", &["a", "-"], &["b"]),
            (r"^[\b]$", &["\u{8}"], &["b"]),
            (r"^\-\/\_\$\{\}$", &["-/_${}"], &["a"]),
            (r"^\x41\u0042\u{43}$", &["ABC"], &["abc"]),
            (r"^\uD83D\uDE00$", &["😀"], &["a"]),
            (r"^[a.]$", &["a", "."], &["b", "\n"]),
            ("^(?<year>[0-9]{4})-(?:a|b){1,}$", &["2024-ab"], &["2024-"]),
            (r"^\p{L}\P{Lu}$", &["éa"], &["1a", "éA"]),
            ("a b#c", &["a b#c"], &["abc", "ab"]),
            ("^a*?b+?$", &["aab"], &["a"]),
        ];
        for (pattern, good, bad) in table {
            good.iter().for_each(|text| assert!(matches(pattern, text), "{pattern} {text:?}"));
            bad.iter().for_each(|text| assert!(!matches(pattern, text), "{pattern} {text:?}"));
        }
    }

    #[test]
    fn what_only_one_of_the_two_knows_is_refused() {
        let table = [
            ("(?i)a", "flags"),
            ("(?x: a )", "flags"),
            ("(?P<a>b)", "flags"),
            (r"\Aa\z", r"\A"),
            (r"\a", r"\a"),
            (r"\x{41}", "hexadecimal"),
            (r"\pL", "in braces"),
            (r"\p{^L}", "in braces"),
            (r"\bword", "word boundaries"),
            ("[]a]", "empty class"),
            ("[z-a]", "ends before"),
            ("a{,3}", "brace"),
            ("a{b}", "brace"),
            ("a{ 2 }", "brace"),
            (r"\uD83D", "surrogate"),
            (r"(a)\1", "backreferences"),
            ("(?<=a)b", "look-around"),
            ("[a", "unclosed"),
            ("a\\", "backslash"),
        ];
        for (pattern, part) in table {
            let why = translate(pattern).expect_err(pattern);
            assert!(why.contains(part), "{pattern}: {why}");
        }
    }
}
