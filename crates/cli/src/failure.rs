//! Failures of a command: one sentence and an exit code.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

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

/// The advice for a cluster that cannot be reached. Its arguments may be files, secrets and variables: they are not repeated.
pub(crate) const ADVICE: &str = "run `ottla doctor` with the same connection arguments to find the cause";

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
        code if is_forbidden(code) => Some(format!("{what}: {code}; {}", missing_acl(what, code))),
        _ => None,
    }
    .unwrap_or_else(|| format!("{what}: {code}"))
}

/// The user who logs in, for the remedy of a missing permission.
static USER: OnceLock<String> = OnceLock::new();

/// The operation of the command on its topics, groups or transactional ids.
static OPERATION: OnceLock<&str> = OnceLock::new();

/// Remembers the operation that the command needs on its topics, groups or transactional ids. It allows DESCRIBE as well.
pub(crate) fn remember_operation(operation: &'static str) {
    let _first = OPERATION.set(operation);
}

/// Remembers the user of the command's connections.
pub(crate) fn remember_user(user: &str) {
    let _first = USER.set(user.to_owned());
}

/// Returns `true` for the codes of a missing permission.
pub(crate) fn is_forbidden(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::TopicAuthorizationFailed
            | ErrorCode::GroupAuthorizationFailed
            | ErrorCode::ClusterAuthorizationFailed
            | ErrorCode::TransactionalIdAuthorizationFailed
    )
}

/// The remedy of a missing permission for the call that `what` describes.
pub(crate) fn missing_acl(what: &str, code: ErrorCode) -> String {
    let user = USER.get().map_or("ANONYMOUS", String::as_str);
    match needed_operation(what, code).zip(resource_option(what, code)) {
        Some((operation, resource)) => format!(
            "user `{user}` needs an ACL: `ottla acls add --principal User:{user} --operation {operation} {resource}`"
        ),
        // A wrong command would give away rights without a result.
        None => format!("user `{user}` needs an ACL for this"),
    }
}

/// The operations that calls need on the kind of resource that the code names. A call is known by the first words of the client's
/// texts.
static NEEDED: [(ErrorCode, &str, &str); 28] = [
    (ErrorCode::TopicAuthorizationFailed, "creating topic", "create"),
    (ErrorCode::TopicAuthorizationFailed, "deleting topic", "delete"),
    (ErrorCode::TopicAuthorizationFailed, "deleting records", "delete"),
    (ErrorCode::TopicAuthorizationFailed, "giving topic", "alter"),
    (ErrorCode::TopicAuthorizationFailed, "changing", "alter-configs"),
    (ErrorCode::TopicAuthorizationFailed, "settings of", "describe-configs"),
    (ErrorCode::TopicAuthorizationFailed, "producers of", "read"),
    (ErrorCode::TopicAuthorizationFailed, "offset of", "read"),
    (ErrorCode::TopicAuthorizationFailed, "deleting the offset", "read"),
    (ErrorCode::TopicAuthorizationFailed, "Fetch", "read"),
    (ErrorCode::TopicAuthorizationFailed, "Produce", "write"),
    (ErrorCode::GroupAuthorizationFailed, "deleting", "delete"),
    (ErrorCode::GroupAuthorizationFailed, "changing", "alter-configs"),
    (ErrorCode::GroupAuthorizationFailed, "settings of", "describe-configs"),
    (ErrorCode::GroupAuthorizationFailed, "offset of", "read"),
    (ErrorCode::GroupAuthorizationFailed, "JoinGroup", "read"),
    (ErrorCode::TransactionalIdAuthorizationFailed, "aborting the transaction", "write"),
    (ErrorCode::ClusterAuthorizationFailed, "creating the rule", "alter"),
    (ErrorCode::ClusterAuthorizationFailed, "deleting", "alter"),
    (ErrorCode::ClusterAuthorizationFailed, "access rules", "describe"),
    (ErrorCode::ClusterAuthorizationFailed, "changing", "alter-configs"),
    (ErrorCode::ClusterAuthorizationFailed, "settings of", "describe-configs"),
    (ErrorCode::ClusterAuthorizationFailed, "quotas of", "alter-configs"),
    (ErrorCode::ClusterAuthorizationFailed, "client quotas", "describe-configs"),
    (ErrorCode::ClusterAuthorizationFailed, "SCRAM credentials of user", "alter"),
    (ErrorCode::ClusterAuthorizationFailed, "SCRAM credentials", "describe"),
    (ErrorCode::ClusterAuthorizationFailed, "aborting the transaction", "alter"),
    (ErrorCode::ClusterAuthorizationFailed, "log directories", "describe"),
];

/// The operation that the call needs: its own, or that of the command on its topics, groups and transactional ids.
fn needed_operation(what: &str, code: ErrorCode) -> Option<&'static str> {
    let call = NEEDED.iter().find(|(about, call, _)| *about == code && what.starts_with(call));
    match call {
        Some((_, _, operation)) => Some(*operation),
        None if code == ErrorCode::ClusterAuthorizationFailed => None,
        None => Some(OPERATION.get().copied().unwrap_or("describe")),
    }
}

/// The option of `ottla acls add` for the resource that the code is about, if the text names it.
fn resource_option(text: &str, code: ErrorCode) -> Option<String> {
    let quoted = |noun: &str| {
        let (_, rest) = text.split_once(&format!("{noun} `"))?;
        Some(rest.split_once('`')?.0)
    };
    // Resources with configs have their type in upper case: `changing TOPIC orders`.
    let config = |kind: &str| text.split_once(kind)?.1.split([':', ' ']).next();
    match code {
        ErrorCode::TopicAuthorizationFailed => {
            // `offset of group `billing` at orders-0`.
            let partition =
                || Some(text.split_once("` at ")?.1.split([':', ' ']).next()?.rsplit_once('-')?.0);
            let topic = quoted("topic").or_else(|| config("TOPIC ")).or_else(partition)?;
            Some(format!("--topic {topic}"))
        }
        ErrorCode::GroupAuthorizationFailed => {
            let group = quoted("group").or_else(|| config("GROUP "))?;
            Some(format!("--group {group}"))
        }
        ErrorCode::TransactionalIdAuthorizationFailed => {
            let names = ["transactional id", "transactional.id", "transaction of"];
            Some(format!("--transactional-id {}", names.into_iter().find_map(quoted)?))
        }
        ErrorCode::ClusterAuthorizationFailed => Some("--cluster".to_owned()),
        _ => None,
    }
}

/// Adds the options of this program to the properties that an error about TLS or SASL names.
fn with_options(text: &str) -> String {
    const OPTIONS: [(&str, &str); 7] = [
        ("(security.protocol)", "(security.protocol, --tls, --sasl-user)"),
        ("set security.protocol to ssl", "use --tls, or set security.protocol to ssl"),
        ("set security.protocol to plaintext", "leave out --sasl-user, set security.protocol to plaintext"),
        ("ssl.ca.location", "ssl.ca.location (--tls-ca)"),
        ("sasl.mechanism", "sasl.mechanism (--sasl-mechanism)"),
        ("sasl.username", "sasl.username (--sasl-user)"),
        ("sasl.password", "sasl.password (--sasl-password-file)"),
    ];
    OPTIONS.iter().fold(text.to_owned(), |text, (property, option)| text.replacen(property, option, 1))
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
                "no broker could be reached at {brokers}: {} ({ADVICE})",
                with_options(&reason)
            )),
            ottla_client::Error::Broker { what, code } => Self::Failed(broker_refused(&what, code)),
            ottla_client::Error::Partition { request, topic, partition, code, .. } => Self::Failed(
                broker_refused(&format!("{request} topic `{topic}` partition {partition}"), code),
            ),
            error @ (ottla_client::Error::Tls { .. } | ottla_client::Error::Authentication { .. }) => {
                Self::Failed(with_options(&error.to_string()))
            }
            error => {
                let text = error.to_string();
                Self::Failed(match error.broker_code().filter(|code| is_forbidden(*code)) {
                    Some(code) => format!("{text}; {}", missing_acl(&text, code)),
                    None => text,
                })
            }
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
    fn a_missing_permission_names_the_acl_to_add() {
        let text = broker_refused("creating topic `deleted`", ErrorCode::TopicAuthorizationFailed);
        assert!(text.ends_with("--operation create --topic deleted`"), "{text}");
        let text = broker_refused("changing TOPIC orders", ErrorCode::TopicAuthorizationFailed);
        assert!(text.ends_with("--operation alter-configs --topic orders`"), "{text}");
        let text = broker_refused("access rules", ErrorCode::ClusterAuthorizationFailed);
        assert!(text.ends_with("--operation describe --cluster`"), "{text}");
    }

    /// The operation was that of another call, and the resource the first that the text named.
    #[test]
    fn the_acl_is_one_of_the_resource_that_the_code_is_about() {
        let topic = ErrorCode::TopicAuthorizationFailed;
        let (group, cluster) = (ErrorCode::GroupAuthorizationFailed, ErrorCode::ClusterAuthorizationFailed);
        let id = ErrorCode::TransactionalIdAuthorizationFailed;
        for (what, code, acl) in [
            ("giving topic `a` 3 partitions", topic, "alter --topic a`"),
            ("offset of group `g` at a-b-0", topic, "read --topic a-b`"),
            ("offset of group `g` at a-b-0", group, "read --group g`"),
            ("deleting the offsets of share group `g` in topic `a`", topic, "read --topic a`"),
            ("deleting offsets of group `g`", group, "delete --group g`"),
            ("coordinator of group `g`", group, "describe --group g`"),
            ("transactional id `t`", id, "describe --transactional-id t`"),
            ("aborting the transaction of `t`", id, "write --transactional-id t`"),
            ("aborting the transaction of producer 1 in topic `a` partition 0", cluster, "alter --cluster`"),
            ("SCRAM credentials of user `u`", cluster, "alter --cluster`"),
            ("SCRAM credentials", cluster, "describe --cluster`"),
            ("quotas of user u", cluster, "alter-configs --cluster`"),
        ] {
            let text = broker_refused(what, code);
            assert!(text.ends_with(&format!(" --operation {acl}")), "{text}");
        }
        let text = broker_refused("another call", cluster);
        assert!(text.ends_with("needs an ACL for this"), "{text}");
    }

    #[test]
    fn errors_about_security_name_the_options() {
        let text = with_options("not trusted: set ssl.ca.location to that authority's certificate");
        assert_eq!(text, "not trusted: set ssl.ca.location (--tls-ca) to that authority's certificate");
        let text = with_options("the peer speaks TLS: set security.protocol to ssl or sasl_ssl");
        assert!(text.ends_with(": use --tls, or set security.protocol to ssl or sasl_ssl"), "{text}");
        let text = with_options("is this a plaintext listener? (security.protocol)");
        assert!(text.ends_with("(security.protocol, --tls, --sasl-user)"), "{text}");
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
