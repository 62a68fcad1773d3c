//! Changes inputs as their files are built: JSON stays JSON most of the time, and the length before a safetensors header
//! right half of the time. The same seed makes the same change.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value};

use crate::targets::{SEPARATOR, split};

/// Inputs do not grow beyond this.
const LONGEST: usize = 1 << 16;

/// Values that files of every kind stumble over, one a line.
const VALUES: &str = include_str!("../words/values");

/// Keys and names that mean something to a target, one a line.
fn words(target: &str) -> &'static str {
    match target {
        "answer" => include_str!("../words/answer"),
        "cache" => include_str!("../words/cache"),
        "config" => include_str!("../words/config"),
        "generation" => include_str!("../words/generation"),
        "gguf" => include_str!("../words/gguf"),
        "header" => include_str!("../words/header"),
        "index" => include_str!("../words/index"),
        "template" => include_str!("../words/template"),
        _ => include_str!("../words/tokenizer"),
    }
}

/// `data` with one to four changes.
pub fn mutate(target: &str, data: &[u8], seed: u64) -> Vec<u8> {
    let mut mutation = Mutation {
        random: ChaCha8Rng::seed_from_u64(seed),
        words: words(target).lines().collect(),
        values: VALUES.lines().collect(),
    };
    let mut data = data.to_vec();
    for _ in 0..=mutation.below(4) {
        data = match target {
            "header" => mutation.safetensors(&data),
            "gguf" => mutation.gguf(&data),
            "answer" => mutation.text(&data),
            "template" => mutation.template(&data),
            _ => mutation.files(&data),
        };
        data.truncate(LONGEST);
    }
    data
}

struct Mutation {
    random: ChaCha8Rng,
    words: Vec<&'static str>,
    values: Vec<&'static str>,
}

impl Mutation {
    /// A number below `end`, which is not zero.
    fn below(&mut self, end: usize) -> usize {
        self.random.next_u32() as usize % end
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Changes the header or the numbers of a safetensors file.
    fn safetensors(&mut self, data: &[u8]) -> Vec<u8> {
        let Some((length, rest)) = data.split_first_chunk::<8>() else { return self.bytes(data) };
        let (before, length) = (*length, u64::from_le_bytes(*length));
        let (header, numbers) = rest.split_at(rest.len().min(usize::try_from(length).unwrap_or(rest.len())));
        let (mut header, mut numbers) = (header.to_vec(), numbers.to_vec());
        match self.below(4) {
            0 => numbers = self.bytes(&numbers),
            1 => header = self.bytes(&header),
            _ => header = self.json(&header),
        }
        let mut length = (header.len() as u64).to_le_bytes();
        match self.below(8) {
            0 => length = self.random.next_u64().to_le_bytes(),
            1 => length[self.below(8)] ^= 1 << self.below(8),
            2 | 3 => length = before,
            _ => {}
        }
        [&length[..], &header, &numbers].concat()
    }

    /// Changes a number or a name in the header of a GGUF file.
    fn gguf(&mut self, data: &[u8]) -> Vec<u8> {
        // Names stand behind their lengths, numbers mostly behind names.
        let words: Vec<&'static str> = self.words.clone();
        let found = words.iter().flat_map(|word| {
            let all = data.windows(8 + word.len()).enumerate();
            let is_word =
                |part: &[u8]| part[..8] == (word.len() as u64).to_le_bytes() && part[8..] == *word.as_bytes();
            all.filter(move |(_, part)| is_word(part)).map(|(at, _)| (at, word.len()))
        });
        let found: Vec<(usize, usize)> = found.collect();
        let mut data = data.to_vec();
        if found.is_empty() || self.below(4) == 0 {
            return self.bytes(&data);
        }
        let (at, length) = self.pick(&found);
        let end = at + 8 + length;
        match self.below(3) {
            0 => {
                let word = self.word();
                drop(
                    data.splice(at..end, [&(word.len() as u64).to_le_bytes()[..], word.as_bytes()].concat()),
                );
            }
            1 => {
                // The type of a value, the rank of a tensor, or what stands behind them.
                let at = (end + self.pick(&[0, 4, 8, 12])).min(data.len());
                let number =
                    self.pick(&[0u32, 1, 2, 3, 4, 5, 8, 9, 12, 13, 14, 30, 32, 39, 64, 1 << 31, u32::MAX]);
                let end = (at + 4).min(data.len());
                drop(data.splice(at..end, number.to_le_bytes()));
            }
            _ => {
                // A length, a dimension or a place.
                let at = (self.pick(&[at, end + 4, end + 8, end + 12, end + 16, 8, 16])).min(data.len());
                let huge = [u64::MAX, u64::MAX - 31, 1 << 63, 1 << 62, 1 << 61, 1 << 40, 1 << 32];
                let small = [0, 1, 2, 3, 16, 31, 32, 33, 64, 96, 128, 256, 4096];
                let number = if self.below(2) == 0 { self.pick(&huge) } else { self.pick(&small) };
                let end = (at + 8).min(data.len());
                drop(data.splice(at..end, number.to_le_bytes()));
            }
        }
        data
    }

    /// Changes one of the files of an input.
    fn files(&mut self, data: &[u8]) -> Vec<u8> {
        let mut files: Vec<Vec<u8>> = split(data).into_iter().map(<[u8]>::to_vec).collect();
        let index = self.below(files.len());
        files[index] = if self.below(6) == 0 { self.bytes(&files[index]) } else { self.json(&files[index]) };
        files.join(SEPARATOR)
    }

    /// Changes a template, or the conversation behind it.
    fn template(&mut self, data: &[u8]) -> Vec<u8> {
        let mut files: Vec<Vec<u8>> = split(data).into_iter().map(<[u8]>::to_vec).collect();
        let last = files.len() - 1;
        match self.below(4) {
            0 if last > 0 => files[last] = self.json(&files[last]),
            _ => files[0] = self.text(&files[0]),
        }
        files.join(SEPARATOR)
    }

    /// Changes a text that consists of words of this target, and of others.
    fn text(&mut self, data: &[u8]) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(data) else { return self.bytes(data) };
        let places: Vec<usize> = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
        let (at, other) = (self.pick(&places), self.pick(&places));
        let (start, end) = (at.min(other), at.max(other));
        let short = text.floor_char_boundary(end.min(start + 40));
        let word = self.word();
        match self.below(8) {
            0 => self.bytes(data),
            1 => [&text[..start], &text[short..]].concat().into_bytes(),
            2 => [&text[..start], &word, &text[short..]].concat().into_bytes(),
            3 => [&text[..at], &text[start..end], &text[at..]].concat().into_bytes(),
            4 => {
                let times = self.pick(&[2, 3, 40, 400]);
                [&text[..at], &word.repeat(times), &text[at..]].concat().into_bytes()
            }
            _ => [&text[..at], &word, &text[at..]].concat().into_bytes(),
        }
    }

    /// Changes bytes, whatever they stand for.
    fn bytes(&mut self, data: &[u8]) -> Vec<u8> {
        let mut data = data.to_vec();
        let (at, other) = (self.below(data.len() + 1), self.below(data.len() + 1));
        let (start, end) = (at.min(other), at.max(other));
        match self.below(7) {
            0 => data.truncate(at),
            1 => drop(data.drain(start..end.min(start + 64))),
            2 => {
                let piece = data[start..end.min(start + 256)].to_vec();
                let to = self.below(data.len() + 1);
                drop(data.splice(to..to, piece));
            }
            3 => {
                let piece: &[u8] =
                    self.pick(&[b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\xff", b"[", b"{", b"\"", b",", b"9"]);
                let times = self.pick(&[1, 1, 2, 200]);
                drop(data.splice(at..at, piece.repeat(times)));
            }
            4 => {
                let value = self.json_value().as_bytes();
                drop(data.splice(at..at, value.iter().copied()));
            }
            _ if at < data.len() => data[at] ^= 1 << self.below(8),
            _ => data.push(self.random.next_u32() as u8),
        }
        data
    }

    /// Changes a value of a JSON text; its bytes where it is none.
    fn json(&mut self, text: &[u8]) -> Vec<u8> {
        let Ok(mut value) = serde_json::from_slice::<Value>(text) else { return self.bytes(text) };
        let count = count(&value);
        let (place, other) = (self.below(count), self.below(count));
        let other = nth(&mut value, other).cloned().unwrap_or_default();
        if let Some(node) = nth(&mut value, place) {
            self.value(node, other);
        }
        let mut text = value.to_string();
        // A value cannot hold a key twice; a text can.
        if self.below(16) == 0 {
            let commas: Vec<usize> = text.match_indices(',').map(|(at, _)| at).collect();
            if let Some(at) = commas.windows(2).nth(self.below(commas.len().max(1))) {
                let piece = text[at[0]..at[1]].to_owned();
                text.insert_str(at[1], &piece);
            }
        }
        text.into_bytes()
    }

    /// Changes `node`; `other` is another value of the same text.
    fn value(&mut self, node: &mut Value, other: Value) {
        match self.below(10) {
            0 => *node = self.any(other),
            1 => *node = other,
            2 => {
                let depth = self.pick(&[1, 1, 1, 2, 100]);
                for _ in 0..depth {
                    let inner = node.take();
                    *node = if self.below(3) == 0 {
                        Value::from(Map::from_iter([(self.word(), inner)]))
                    } else {
                        vec![inner].into()
                    };
                }
            }
            _ => match node {
                Value::Object(map) => self.object(map, other),
                Value::Array(items) => self.array(items, other),
                Value::Number(number) => {
                    let digits = number.to_string();
                    *node = self.number(&digits);
                }
                Value::String(text) => *text = self.string(text),
                Value::Bool(flag) => *flag = !*flag,
                Value::Null => *node = self.any(other),
            },
        }
    }

    fn any(&mut self, other: Value) -> Value {
        match self.below(4) {
            0 => other,
            1 => self.word().into(),
            _ => serde_json::from_str(self.json_value()).unwrap_or_default(),
        }
    }

    fn json_value(&mut self) -> &'static str {
        let at = self.below(self.values.len());
        self.values[at]
    }

    fn word(&mut self) -> String {
        let at = self.below(self.words.len());
        self.words[at].to_owned()
    }

    fn object(&mut self, map: &mut Map<String, Value>, other: Value) {
        let key = map.keys().nth(self.below(map.len().max(1))).cloned();
        match (self.below(4), key) {
            (0, Some(key)) => drop(map.shift_remove(&key)),
            (1, Some(key)) => {
                let value = map.shift_remove(&key).unwrap_or_default();
                let key = if self.below(2) == 0 { self.word() } else { self.string(&key) };
                map.insert(key, value);
            }
            (2, Some(key)) => {
                let value = self.any(other);
                map.insert(key, value);
            }
            _ => {
                let value = self.any(other);
                map.insert(self.word(), value);
            }
        }
    }

    fn array(&mut self, items: &mut Vec<Value>, other: Value) {
        let at = self.below(items.len() + 1);
        match self.below(5) {
            0 if at < items.len() => drop(items.remove(at)),
            1 if at < items.len() => {
                let times = self.pick(&[1, 1, 3, 20, 300]);
                let item = items[at].clone();
                drop(items.splice(at..at, std::iter::repeat_n(item, times)));
            }
            2 if at < items.len() => {
                let last = self.below(items.len());
                items.swap(at, last);
            }
            _ => {
                let item = self.any(other);
                items.insert(at, item);
            }
        }
    }

    fn number(&mut self, digits: &str) -> Value {
        let by = self.pick(&[1i128, -1, 2, -2, 8, 64]);
        let changed = match (self.below(4), digits.parse::<i128>()) {
            (0, Ok(number)) => number.saturating_add(by).to_string(),
            (1, Ok(number)) => number.saturating_mul(by).to_string(),
            (2, Ok(number)) => (number / 2).to_string(),
            (2, Err(_)) => format!("-{}", digits.trim_start_matches('-')),
            _ => self.json_value().to_owned(),
        };
        serde_json::from_str(&changed).unwrap_or_default()
    }

    fn string(&mut self, text: &str) -> String {
        let chars: Vec<char> = text.chars().collect();
        let at = self.below(chars.len() + 1);
        let (start, end): (String, String) = (chars[..at].iter().collect(), chars[at..].iter().collect());
        match self.below(6) {
            0 => self.word(),
            1 => end,
            2 => format!("{start}{}{end}", self.word()),
            3 => text.repeat(self.pick(&[2, 3, 40])).chars().take(LONGEST / 8).collect(),
            4 => {
                let odd = self.pick(&[
                    '\0',
                    '\u{feff}',
                    '\u{fffd}',
                    '\u{10ffff}',
                    '\u{300}',
                    'İ',
                    'ß',
                    '/',
                    '\\',
                    '"',
                    ' ',
                ]);
                format!("{start}{odd}{end}")
            }
            _ => format!("{start}{}", end.chars().skip(1).collect::<String>()),
        }
    }
}

/// Values in `value`, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// The value number `place` in `value`, which is number 0 itself.
fn nth(value: &mut Value, place: usize) -> Option<&mut Value> {
    fn down<'a>(value: &'a mut Value, place: &mut usize) -> Option<&'a mut Value> {
        if *place == 0 {
            return Some(value);
        }
        *place -= 1;
        match value {
            Value::Array(items) => items.iter_mut().find_map(|item| down(item, place)),
            Value::Object(map) => map.values_mut().find_map(|item| down(item, place)),
            _ => None,
        }
    }
    down(value, &mut { place })
}
