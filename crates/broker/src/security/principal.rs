//! The identity of a client, as ACLs, quotas and log lines name it.

use std::fmt;
use std::sync::LazyLock;

/// The type of every principal that a listener creates.
const USER: &str = "User";

/// The identity of a client: `User:alice`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Principal {
    /// `User`, except in ACLs, which may name others.
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl Principal {
    pub(crate) fn user(name: &str) -> Self {
        Self { kind: USER.to_owned(), name: name.to_owned() }
    }

    /// Reads `<type>:<name>`; `None` if there is no colon, or nothing before it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':').filter(|(kind, _)| !kind.is_empty())?;
        Some(Self { kind: kind.to_owned(), name: name.to_owned() })
    }

    /// Returns `true` if this is how the principal is written in an ACL.
    pub(crate) fn is_written(&self, text: &str) -> bool {
        text.split_once(':').is_some_and(|(kind, name)| kind == self.kind && name == self.name)
    }

    /// `User:*`: an ACL with it applies to every user.
    pub(crate) fn everyone() -> &'static Self {
        static EVERYONE: LazyLock<Principal> = LazyLock::new(|| Principal::user("*"));
        &EVERYONE
    }

    /// A client that has not said who it is.
    pub(crate) fn anonymous() -> &'static Self {
        static ANONYMOUS: LazyLock<Principal> = LazyLock::new(|| Principal::user("ANONYMOUS"));
        &ANONYMOUS
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.name)
    }
}
