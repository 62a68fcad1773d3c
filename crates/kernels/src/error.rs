//! What a backend can fail with.

use std::fmt;

/// A failure of a device or of what was given to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The device has no room for `what`.
    OutOfMemory {
        /// What the memory was wanted for.
        what: String,
        /// How many bytes were asked for.
        bytes: usize,
    },
    /// The device does not exist here; the text says which and why.
    Unavailable(String),
    /// The device stopped working.
    Failed(String),
    /// A weight is infinite or not a number, which no integer form can hold.
    NotFinite {
        /// The row of the source tensor.
        row: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { what, bytes } => {
                write!(f, "no memory for {what}: {:.1} MiB more are needed", *bytes as f64 / (1 << 20) as f64)
            }
            Self::Unavailable(why) | Self::Failed(why) => f.write_str(why),
            Self::NotFinite { row } => write!(f, "row {row} holds a weight that is infinite or not a number"),
        }
    }
}

impl std::error::Error for Error {}
