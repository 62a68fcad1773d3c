//! The time that a template may ask for.

use jiff::{Timestamp, ZonedDateTime, tz::TimeZone};
use minijinja::Error;

use super::python::invalid;

/// Where the time comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// This machine's, in its own time zone.
    System,
    /// A moment of Universal Time, in seconds since 1970, for tests.
    #[cfg_attr(not(test), allow(dead_code))]
    Fixed(i64),
}

impl Clock {
    /// `datetime.now().strftime(format)`.
    pub(super) fn format(self, format: &str) -> Result<String, Error> {
        let now = match self {
            Self::System => ZonedDateTime::now(),
            Self::Fixed(seconds) => {
                let moment = Timestamp::from_second(seconds).map_err(|error| invalid(error.to_string()))?;
                moment.to_zoned_datetime(TimeZone::UTC)
            }
        };
        jiff::fmt::strtime::format(format, &now).map_err(|error| invalid(format!("strftime_now: {error}")))
    }
}
