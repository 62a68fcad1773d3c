//! What can go wrong, under codes that stay the same from release to release.

use std::fmt;

/// The kind of a failure. Callers branch on this; people read the message beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No checkpoint at the given place.
    CheckpointNotFound,
    /// A file of the checkpoint is damaged, contradicts another or lacks something.
    InvalidCheckpoint,
    /// The checkpoint is sound, but asks for something that cannot be computed here.
    UnsupportedArchitecture,
    /// The chat template cannot be rendered.
    UnsupportedChatTemplate,
    /// The request contradicts itself or the model.
    InvalidArguments,
    /// Prompt and answer do not fit the context window.
    ContextExceeded,
    /// The asked device does not exist here.
    DeviceUnavailable,
    /// The device stopped working, or computed something that is no number.
    DeviceFailed,
    /// Not enough memory; the message holds the sum.
    OutOfMemory,
    /// The caller gave up.
    Cancelled,
    /// The operating system refused to read or write a file, or a server could not be reached.
    Io,
}

impl ErrorKind {
    /// The stable name of this kind, as it stands in `error[code]: …` and in JSON.
    pub fn code(self) -> &'static str {
        match self {
            Self::CheckpointNotFound => "checkpoint_not_found",
            Self::InvalidCheckpoint => "invalid_checkpoint",
            Self::UnsupportedArchitecture => "unsupported_architecture",
            Self::UnsupportedChatTemplate => "unsupported_chat_template",
            Self::InvalidArguments => "invalid_arguments",
            Self::ContextExceeded => "context_exceeded",
            Self::DeviceUnavailable => "device_unavailable",
            Self::DeviceFailed => "device_failed",
            Self::OutOfMemory => "out_of_memory",
            Self::Cancelled => "cancelled",
            Self::Io => "io",
        }
    }
}

/// A failure: a [kind](ErrorKind), and a message that says what happened, where, and what to do.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure of `kind`; `message` names the thing, the place and the remedy.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same failure with the error that caused it.
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The stable code of [`Self::kind`].
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }
}

/// The beginning of `text`, so many characters at the most: what files hold can be as long as they are, and a message
/// that quotes it should not.
pub(crate) fn shortened(mut text: String, most: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.push('…');
    }
    text
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<whin_kernels::Error> for Error {
    fn from(error: whin_kernels::Error) -> Self {
        let kind = match error {
            whin_kernels::Error::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            whin_kernels::Error::Unavailable(_) => ErrorKind::DeviceUnavailable,
            whin_kernels::Error::Failed(_) => ErrorKind::DeviceFailed,
            whin_kernels::Error::NotFinite { .. } => ErrorKind::InvalidCheckpoint,
        };
        Self::new(kind, error.to_string())
    }
}
