//! The time that a template may ask for.

use jiff::ZonedDateTime;
#[cfg(test)]
use jiff::{Timestamp, tz::TimeZone};
use minijinja::Error;

use super::python::invalid;

/// The longest format, in bytes.
const MAX_FORMAT: usize = 1024;

/// The conversions that Python knows; it writes others as they are.
const CONVERSIONS: &str = "aAbBcCdDefFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%";

/// Where the time comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// This machine's, in its own time zone.
    System,
    /// A moment of Universal Time, in seconds since 1970, for tests.
    #[cfg(test)]
    Fixed(i64),
}

impl Clock {
    /// `datetime.now().strftime(format)`.
    pub(super) fn format(self, format: &str) -> Result<String, Error> {
        if format.len() > MAX_FORMAT {
            let length = format.len();
            return Err(invalid(format!(
                "strftime_now: the format has {length} bytes, more than the {MAX_FORMAT} that are allowed"
            )));
        }
        let format = &without_unknown(format);
        let now = match self {
            Self::System => ZonedDateTime::now(),
            #[cfg(test)]
            Self::Fixed(seconds) => {
                let moment = Timestamp::from_second(seconds).map_err(|error| invalid(error.to_string()))?;
                moment.to_zoned_datetime(TimeZone::UTC)
            }
        };
        jiff::fmt::strtime::format(format, &now).map_err(|error| invalid(format!("strftime_now: {error}")))
    }
}

/// A format in which conversions that Python does not know are plain text.
fn without_unknown(format: &str) -> String {
    let mut out = String::with_capacity(format.len());
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let (before, conversion) = rest.split_at(at);
        out.push_str(before);
        let letter = conversion[1..].find(|c: char| !(c.is_ascii_digit() || "-_^#:".contains(c)));
        let end = letter.map_or(conversion.len(), |letter| 1 + letter);
        let last = conversion[end..].chars().next();
        let end = end + last.map_or(0, char::len_utf8);
        match last {
            Some(last) if CONVERSIONS.contains(last) => out.push_str(&conversion[..end]),
            _ => out.push_str(&conversion[..end].replace('%', "%%")),
        }
        rest = &conversion[end..];
    }
    out + rest
}
