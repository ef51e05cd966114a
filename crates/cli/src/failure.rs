//! Failures of a command: one sentence and an exit code.

use std::fmt;
use std::io;
use std::path::Path;

use ottla_client::ErrorCode;

/// The reason why a command ended without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments are invalid: exit code 2.
    Usage(String),
    /// The command failed: exit code 1.
    Failed(String),
    /// A signal ended the command early: exit code 128 plus the signal's number, as shells report it.
    Interrupted(u8),
    /// The reader of standard output closed it, as `head` does. This is not reported.
    OutputClosed,
}

impl Failure {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// An error of a file.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("{}: {}", path.display(), sentence(error)))
    }

    /// An error of standard output.
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
            Self::Interrupted(signal) => 128 + signal,
            Self::OutputClosed => 0,
        }
    }
}

/// The text of an I/O error without its number.
pub(crate) fn sentence(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.chars().next().map_or_else(String::new, |first| {
        first.to_lowercase().collect::<String>() + &text[first.len_utf8()..]
    })
}

/// The text of a broker's error code, with a hint for a misspelled name. `what` may surround the name with text, as
/// in "deleting records of topic `orders` partition 3".
fn broker_refused(what: &str, code: ErrorCode) -> String {
    let thing = |noun: &str| {
        let from = what.find(&format!("{noun} `"))?;
        what.get(from..).filter(|thing| thing.ends_with('`') && thing.matches('`').count() == 2)
    };
    match code {
        ErrorCode::UnknownTopicOrPartition => thing("topic")
            .map(|topic| format!("{topic} does not exist: `ottla topics list` prints the topics")),
        ErrorCode::GroupIdNotFound => thing("group")
            .map(|group| format!("{group} does not exist: `ottla groups list` prints the groups")),
        _ => None,
    }
    .unwrap_or_else(|| format!("{what}: {code}"))
}

/// Removes the numbers of system errors from a text.
pub(crate) fn without_os_error(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut short = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => short += rest,
            _ => short += &format!(" (os error {part}"),
        }
    }
    short
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) => f.write_str(&without_os_error(text)),
            Self::Interrupted(_) => f.write_str("interrupted"),
            Self::OutputClosed => f.write_str("standard output is closed"),
        }
    }
}

impl From<ottla_client::Error> for Failure {
    fn from(error: ottla_client::Error) -> Self {
        match error {
            ottla_client::Error::Config(text) => Self::Usage(text),
            ottla_client::Error::Unreachable { brokers, reason, .. } => Self::Failed(format!(
                "no broker could be reached at {brokers}: {reason} (run `ottla doctor -b {brokers}` to find the cause)"
            )),
            ottla_client::Error::Broker { what, code } => Self::Failed(broker_refused(&what, code)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_reported_as_unknown() {
        let (topic, group) = (ErrorCode::UnknownTopicOrPartition, ErrorCode::GroupIdNotFound);
        for (what, code, start) in [
            ("topic `a`", topic, "topic `a` does not exist: "),
            ("deleting topic `a`", topic, "topic `a` does not exist: "),
            ("topic `a` partition 3", topic, "topic `a` partition 3: UNKNOWN_TOPIC_OR_PARTITION"),
            ("deleting group `a`", group, "group `a` does not exist: "),
            ("topic `a`", ErrorCode::TopicAuthorizationFailed, "topic `a`: TOPIC_AUTHORIZATION_FAILED"),
        ] {
            let text = broker_refused(what, code);
            assert!(text.starts_with(start), "{text}");
        }
    }

    #[test]
    fn error_numbers_are_removed() {
        for (text, short) in [
            ("refused (os error 111)", "refused"),
            ("a (os error 1): b (os error 2) c", "a: b c"),
            ("(os error) (os error x)", "(os error) (os error x)"),
            ("", ""),
        ] {
            assert_eq!(without_os_error(text), short);
        }
    }
}
