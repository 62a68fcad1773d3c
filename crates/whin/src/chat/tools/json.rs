//! Finds the end of a JSON object or array in text that comes byte by byte.

/// Deeper values are refused, here and by serde_json, which reads them afterwards.
const MAX_DEPTH: usize = 127;

/// A strict reader of one object or array (RFC 8259): says with each byte whether the text is complete or wrong.
///
/// It keeps nothing but the brackets that are open; the text must be UTF-8.
#[derive(Clone, Debug)]
pub(in crate::chat) struct JsonReader {
    open: Vec<u8>, // the brackets that will close them
    state: State,
}

/// What JSON text is, as far as it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::chat) enum Json {
    /// The beginning of a value.
    Begun,
    /// A whole value.
    Whole,
    /// No value, whatever follows.
    Wrong,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Value,
    FirstValue, // or the end of the array
    Key,
    FirstKey, // or the end of the object
    Colon,
    Comma, // or the end of the object or array
    Text { key: bool },
    Escape { key: bool },
    Unicode { key: bool, left: u8 },
    Word { rest: &'static [u8] },
    Number(Number),
}

/// What the last byte of a number was.
#[derive(Clone, Copy, Debug)]
enum Number {
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

impl JsonReader {
    pub fn new() -> Self {
        Self { open: Vec::new(), state: State::Value }
    }

    /// Takes the next byte. Nothing may follow once it has said `Whole` or `Wrong`.
    pub fn read(&mut self, byte: u8) -> Json {
        if let State::Number(number) = self.state {
            if let Some(next) = number.read(byte) {
                self.state = State::Number(next);
                return Json::Begun;
            }
            if !number.is_whole() {
                return Json::Wrong;
            }
            self.state = State::Comma;
        }
        match self.next(byte) {
            None => Json::Wrong,
            Some(State::Comma) if self.open.is_empty() => Json::Whole,
            Some(state) => {
                self.state = state;
                Json::Begun
            }
        }
    }

    fn next(&mut self, byte: u8) -> Option<State> {
        let blank = super::is_blank(byte);
        match self.state {
            State::Text { key } => match byte {
                b'"' => Some(if key { State::Colon } else { State::Comma }),
                b'\\' => Some(State::Escape { key }),
                0..0x20 => None,
                _ => Some(self.state),
            },
            State::Escape { key } => match byte {
                b'u' => Some(State::Unicode { key, left: 4 }),
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(State::Text { key }),
                _ => None,
            },
            State::Unicode { .. } if !byte.is_ascii_hexdigit() => None,
            State::Unicode { key, left: 1 } => Some(State::Text { key }),
            State::Unicode { key, left } => Some(State::Unicode { key, left: left - 1 }),
            State::Word { rest } => match rest {
                [next] if *next == byte => Some(State::Comma),
                [next, rest @ ..] if *next == byte => Some(State::Word { rest }),
                _ => None,
            },
            _ if blank => Some(self.state),
            State::FirstValue | State::Comma | State::FirstKey if self.open.last() == Some(&byte) => {
                self.open.pop();
                Some(State::Comma)
            }
            State::Comma if byte == b',' => {
                Some(if self.open.last() == Some(&b'}') { State::Key } else { State::Value })
            }
            State::Key | State::FirstKey if byte == b'"' => Some(State::Text { key: true }),
            State::Colon if byte == b':' => Some(State::Value),
            State::Value | State::FirstValue => self.begin(byte),
            State::Key | State::FirstKey | State::Colon | State::Comma | State::Number(_) => None,
        }
    }

    /// A value begins with this byte. The outermost one is an object or an array.
    fn begin(&mut self, byte: u8) -> Option<State> {
        let (close, state) = match byte {
            b'{' => (b'}', State::FirstKey),
            b'[' => (b']', State::FirstValue),
            _ if self.open.is_empty() => return None,
            b'"' => return Some(State::Text { key: false }),
            b't' => return Some(State::Word { rest: b"rue" }),
            b'f' => return Some(State::Word { rest: b"alse" }),
            b'n' => return Some(State::Word { rest: b"ull" }),
            b'-' => return Some(State::Number(Number::Minus)),
            b'0' => return Some(State::Number(Number::Zero)),
            b'1'..=b'9' => return Some(State::Number(Number::Digits)),
            _ => return None,
        };
        self.open.push(close);
        (self.open.len() <= MAX_DEPTH).then_some(state)
    }
}

impl Number {
    /// The number with one more byte, if that belongs to it.
    fn read(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::Minus, b'0') => Some(Self::Zero),
            (Self::Minus, b'1'..=b'9') | (Self::Digits, b'0'..=b'9') => Some(Self::Digits),
            (Self::Zero | Self::Digits, b'.') => Some(Self::Point),
            (Self::Point | Self::Fraction, b'0'..=b'9') => Some(Self::Fraction),
            (Self::Zero | Self::Digits | Self::Fraction, b'e' | b'E') => Some(Self::Exponent),
            (Self::Exponent, b'+' | b'-') => Some(Self::Sign),
            (Self::Exponent | Self::Sign | Self::Power, b'0'..=b'9') => Some(Self::Power),
            _ => None,
        }
    }

    fn is_whole(self) -> bool {
        matches!(self, Self::Zero | Self::Digits | Self::Fraction | Self::Power)
    }
}
