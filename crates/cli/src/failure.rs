//! Why a command failed: one sentence, and an exit code that scripts can trust.

use std::fmt;
use std::io;
use std::path::Path;

/// A command's end that is not success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The caller's words were not understood: exit code 2.
    Usage(String),
    /// It was tried and did not work: exit code 1.
    Failed(String),
    /// Whoever read our output has seen enough, as `head` does: no failure to report.
    OutputClosed,
}

impl Failure {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// A file that could not be used.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("{}: {}", path.display(), sentence(error)))
    }

    /// Standard output or a file on its other end refused what we wrote.
    pub(crate) fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed(format!("standard output: {}", sentence(error))),
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
            Self::OutputClosed => 0,
        }
    }
}

/// An I/O error without the number that only programmers read.
pub(crate) fn sentence(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.chars().next().map_or_else(String::new, |first| {
        first.to_lowercase().collect::<String>() + &text[first.len_utf8()..]
    })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) => f.write_str(text),
            Self::OutputClosed => f.write_str("standard output is closed"),
        }
    }
}

impl From<ottla_client::Error> for Failure {
    fn from(error: ottla_client::Error) -> Self {
        match error {
            ottla_client::Error::Config(text) => Self::Usage(text),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<ottla_parallel::Error> for Failure {
    fn from(error: ottla_parallel::Error) -> Self {
        match error {
            ottla_parallel::Error::Client(error) => error.into(),
            ottla_parallel::Error::Config(text) => Self::Usage(text),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<ottla_client::ProduceError> for Failure {
    fn from(error: ottla_client::ProduceError) -> Self {
        Self::Failed(error.to_string())
    }
}
