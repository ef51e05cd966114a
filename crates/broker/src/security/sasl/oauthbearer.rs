//! OAUTHBEARER (RFC 7628): a signed token in place of a password.

use bytes::Bytes;

use super::jwt::TokenVerifier;
use super::{Login, Outcome, Stage};

const SEPARATOR: char = '\x01';
/// The answer to a bad token, after which the client sends one byte and gets the error.
const INVALID_TOKEN: &str = r#"{"status":"invalid_token"}"#;

/// Checks `n,[a=id],^A auth=Bearer TOKEN ^A extensions ^A ^A`.
pub(super) fn check(tokens: Option<&TokenVerifier>, message: &Bytes, now_ms: i64) -> Outcome {
    let Some((authorization_id, token)) = std::str::from_utf8(message).ok().and_then(parse) else {
        return Outcome::Failed(None);
    };
    let verified = match tokens {
        Some(tokens) => tokens.verify(token, now_ms),
        None => Err("the listener has no keys".to_owned()),
    };
    match verified {
        Ok(claims) if authorization_id.is_empty() || authorization_id == claims.user => {
            Outcome::Done(Login {
                user: claims.user,
                bytes: Bytes::new(),
                expires_ms: Some(claims.expires_ms),
            })
        }
        Ok(claims) => {
            let text = format!(
                "Authentication failed: Client requested an authorization id ({authorization_id}) that is different \
                 from the token's principal name ({})",
                claims.user
            );
            Outcome::FailedWith(text, Some(claims.user))
        }
        Err(reason) => {
            tracing::debug!(reason, "a token is refused");
            Outcome::Continue(Stage::BadToken, Bytes::from_static(INVALID_TOKEN.as_bytes()))
        }
    }
}

/// The end of a login whose token was refused: as in Kafka, its error has the text of the answer.
pub(super) fn refused() -> Outcome {
    Outcome::FailedWith(INVALID_TOKEN.to_owned(), None)
}

/// The authorization id and the token.
fn parse(message: &str) -> Option<(&str, &str)> {
    let (header, rest) = message.split_once(SEPARATOR)?;
    let authorization = header.strip_prefix("n,")?.strip_suffix(',')?;
    let authorization_id = match authorization {
        "" => "",
        authorization => authorization.strip_prefix("a=")?,
    };
    let mut auth =
        rest.split(SEPARATOR).filter_map(|pair| pair.split_once('=')).filter(|(key, _)| *key == "auth");
    let (_, value) = auth.next()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some((authorization_id, token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_an_authorization_id_and_a_token() {
        assert_eq!(parse("n,,\x01auth=Bearer abc\x01\x01"), Some(("", "abc")));
        assert_eq!(parse("n,a=me,\x01x=y\x01auth=bearer abc\x01\x01"), Some(("me", "abc")));
        for bad in [
            "",
            "n,,",
            "n,,\x01auth=Basic abc\x01\x01",
            "p=x,,\x01auth=Bearer abc\x01\x01",
            "n,me,\x01auth=Bearer a\x01",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
