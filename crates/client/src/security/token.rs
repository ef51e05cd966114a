//! Tokens for OAUTHBEARER, and where they come from.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::secret::Secret;
use crate::error::Error;

/// A token, and what is known about it.
#[derive(Clone, Debug)]
pub struct Token {
    /// The token as it is sent, without `Bearer`.
    pub value: Secret,
    /// Whom it stands for: shown in logs, not sent.
    pub principal: String,
    /// When it expires, milliseconds since 1970.
    pub expires_at_ms: i64,
    /// SASL extensions that go to the broker beside the token (KIP-342).
    pub extensions: Vec<(String, String)>,
}

impl Token {
    /// Checks that RFC 7628 permits the token and its extensions. Another character in them would begin a field of its own.
    ///
    /// # Errors
    /// The reason, without the token.
    pub fn check(&self) -> Result<(), String> {
        if !is_value(self.value.expose()) {
            return Err("the token has a character that SASL does not permit".into());
        }
        match self.extensions.iter().find(|(key, value)| !is_extension(key, value)) {
            Some((key, _)) => Err(format!("`{key}` is no name or value of a SASL extension")),
            None => Ok(()),
        }
    }
}

/// The future that [`TokenProvider::token`] returns.
pub type TokenFuture<'a> = Pin<Box<dyn Future<Output = Result<Token, String>> + Send + 'a>>;

/// A source of tokens. A closure `Fn() -> Result<Token, String>` is one.
pub trait TokenProvider: Send + Sync {
    /// A token that is good from now on. Asked on the engine's thread, so it must not block; the error's text is
    /// reported and must hold no secret.
    fn token(&self) -> TokenFuture<'_>;
}

impl<F: Fn() -> Result<Token, String> + Send + Sync> TokenProvider for F {
    fn token(&self) -> TokenFuture<'_> {
        let token = self();
        Box::pin(async move { token })
    }
}

/// A shared [`TokenProvider`].
#[derive(Clone)]
pub struct TokenCallback(Arc<dyn TokenProvider>);

impl TokenCallback {
    /// Shares a provider.
    pub fn new(provider: impl TokenProvider + 'static) -> Self {
        Self(Arc::new(provider))
    }

    pub(crate) fn token(&self) -> TokenFuture<'_> {
        self.0.token()
    }
}

impl fmt::Debug for TokenCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenCallback")
    }
}

/// Reads `sasl.oauthbearer.extensions`.
pub(crate) fn parse_extensions(text: &str) -> Result<Vec<(String, String)>, Error> {
    text.split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if is_extension(key, value) => Ok((key.to_owned(), value.to_owned())),
            _ => Err(Error::Config(format!(
                "sasl.oauthbearer.extensions: `{pair}`: expected NAME=VALUE, the name of letters other than `auth`"
            ))),
        })
        .collect()
}

/// Returns `true` if RFC 7628 permits the extension: `auth` is the token's own name.
pub(super) fn is_extension(key: &str, value: &str) -> bool {
    !key.is_empty() && key != "auth" && key.bytes().all(|byte| byte.is_ascii_alphabetic()) && is_value(value)
}

/// Returns `true` for text without the control characters that end a value.
fn is_value(value: &str) -> bool {
    value.bytes().all(|byte| matches!(byte, 0x20..=0x7e | b'\t' | b'\r' | b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only extensions were checked. A token with a separator was sent with what followed as fields of the client's message.
    #[test]
    fn a_token_with_a_separator_is_refused_and_not_shown() {
        let token = |value: &str, extensions: &[(&str, &str)]| Token {
            value: Secret::new(value.to_owned()),
            principal: "orders".into(),
            expires_at_ms: 0,
            extensions: extensions.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        };
        assert_eq!(token("a.b-c_d~+/=", &[("traceId", "18")]).check(), Ok(()));
        let refused = token("hunter2\u{1}admin=true", &[]).check().unwrap_err();
        assert!(!refused.contains("hunter2"), "{refused}");
        for extension in
            [("auth", "x"), ("trace-id", "x"), ("trace1", "x"), ("", "x"), ("trace", "x\u{1}y=z")]
        {
            assert!(token("t", &[("ok", "1"), extension]).check().is_err(), "{extension:?}");
        }
    }
}
