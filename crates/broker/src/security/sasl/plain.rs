//! PLAIN (RFC 4616): a user and a password.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Login, Outcome};
use crate::config::SaslSettings;

/// Checks `[authorization id] NUL user NUL password`.
pub(super) fn check(settings: &SaslSettings, token: &Bytes) -> Outcome {
    let failed = |text: &str, user: Option<&str>| {
        Outcome::FailedWith(format!("Authentication failed: {text}"), user.map(str::to_owned))
    };
    let parts: Option<Vec<&str>> = std::str::from_utf8(token)
        .ok()
        .map(|text| text.split('\0').collect())
        .filter(|parts: &Vec<_>| parts.len() == 3);
    let Some([authorization_id, user, password]) = parts.as_deref() else { return Outcome::Failed(None) };
    if user.is_empty() {
        return failed("username not specified", None);
    }
    if password.is_empty() {
        return failed("password not specified", Some(user));
    }
    // The hashes have one length. A user that does not exist costs the same comparison.
    let hash = |text: &str| Sha256::digest(text.as_bytes());
    let known = settings.plain_users.get(*user);
    let expected = hash(known.map_or("", |password| password.expose()));
    let is_equal = bool::from(expected.as_slice().ct_eq(hash(password).as_slice()));
    if known.is_none() || !is_equal {
        return failed("Invalid username or password", Some(user));
    }
    if !authorization_id.is_empty() && authorization_id != user {
        return failed("Client requested an authorization id that is different from username", Some(user));
    }
    Outcome::Done(Login { user: (*user).to_owned(), bytes: Bytes::new(), expires_ms: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SaslMechanism;

    fn text_of(token: &'static str) -> Result<String, String> {
        let settings = SaslSettings::new([SaslMechanism::Plain]).user("alice", "secret");
        match check(&settings, &Bytes::from_static(token.as_bytes())) {
            Outcome::Done(login) => Ok(login.user),
            Outcome::FailedWith(text, _) => Err(text),
            Outcome::Failed(_) => Err("malformed".to_owned()),
            Outcome::Continue(..) | Outcome::FailedFor(..) => unreachable!("PLAIN has one token"),
        }
    }

    #[test]
    fn only_the_right_password_gets_in() {
        assert_eq!(text_of("\0alice\0secret"), Ok("alice".to_owned()));
        assert_eq!(text_of("alice\0alice\0secret"), Ok("alice".to_owned()));
        let invalid = Err("Authentication failed: Invalid username or password".to_owned());
        assert_eq!(text_of("\0alice\0Secret"), invalid);
        assert_eq!(text_of("\0bob\0secret"), invalid);
        assert!(text_of("bob\0alice\0secret").is_err_and(|text| text.contains("authorization id")));
        assert!(text_of("\0\0secret").is_err());
        assert!(text_of("\0alice\0").is_err());
        for malformed in ["", "alice", "\0alice", "\0alice\0secret\0"] {
            assert_eq!(text_of(malformed), Err("malformed".to_owned()), "{malformed:?}");
        }
    }
}
