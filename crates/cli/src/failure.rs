//! Why a command failed: one sentence, and an exit code that scripts can trust.

use std::fmt;
use std::io;
use std::path::Path;

use ottla_client::ErrorCode;

/// A command's end that is not success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The caller's words were not understood: exit code 2.
    Usage(String),
    /// It was tried and did not work: exit code 1.
    Failed(String),
    /// A signal ended it before it was done: exit code 128 and the signal's number, as a shell reports it.
    Interrupted(u8),
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
            Self::Interrupted(signal) => 128 + signal,
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

/// A broker's answer in words, with what to do about a misspelled name. `what` may have a verb before the thing, and more
/// behind it, as in "deleting records of topic `orders` partition 3".
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

/// A text without the numbers of the system's errors, which follow their words.
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
                "no broker could be reached at {brokers}: {reason} (`ottla doctor -b {brokers}` finds causes)"
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
    fn a_name_that_does_not_exist_is_reported_as_that() {
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
    fn the_numbers_of_errors_are_left_out() {
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
