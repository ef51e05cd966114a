//! Unsigned tokens for development: `sasl.oauthbearer.config`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::token::is_extension;
use super::{Secret, Token};
use crate::error::Error;

/// The claims of the tokens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct UnsecuredClaims {
    principal: String,
    principal_claim: String,
    scope: Vec<String>,
    scope_claim: String,
    life_seconds: i64,
    extensions: Vec<(String, String)>,
}

impl UnsecuredClaims {
    /// Reads pairs of `key=value`, separated by spaces.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let refuse = |text: String| Err(Error::Config(format!("sasl.oauthbearer.config: {text}")));
        let mut claims = Self {
            principal: String::new(),
            principal_claim: "sub".into(),
            scope: Vec::new(),
            scope_claim: "scope".into(),
            life_seconds: 3600,
            extensions: Vec::new(),
        };
        for pair in text.split_ascii_whitespace() {
            let Some((key, value)) = pair.split_once('=') else {
                return refuse("expected key=value pairs separated by spaces".into());
            };
            match key {
                "principal" => claims.principal = value.into(),
                "principalClaimName" => claims.principal_claim = value.into(),
                "scope" => {
                    claims.scope = value.split(',').filter(|s| !s.is_empty()).map(str::to_owned).collect();
                }
                "scopeClaimName" => claims.scope_claim = value.into(),
                "lifeSeconds" => match value.parse() {
                    Ok(seconds) if (1..=i64::from(i32::MAX)).contains(&seconds) => {
                        claims.life_seconds = seconds;
                    }
                    _ => return refuse(format!("lifeSeconds={value}: expected 1 to {}", i32::MAX)),
                },
                _ => match key.strip_prefix("extension_") {
                    Some(name) if is_extension(name, value) => {
                        claims.extensions.push((name.into(), value.into()));
                    }
                    Some(_) => return refuse(format!("`{key}`: no name or value of a SASL extension")),
                    None => {
                        return refuse(format!(
                            "unknown key `{key}`; known are principal, principalClaimName, scope, \
                             scopeClaimName, lifeSeconds and extension_NAME"
                        ));
                    }
                },
            }
        }
        if claims.principal.is_empty() {
            return refuse("principal=NAME is missing".into());
        }
        Ok(claims)
    }

    /// Creates a token that is valid from now on.
    pub(crate) fn token(&self, now_ms: i64) -> Token {
        let issued = now_ms / 1000;
        let mut claims = Map::new();
        claims.insert(self.principal_claim.clone(), json!(self.principal));
        claims.insert("iat".into(), json!(issued));
        claims.insert("exp".into(), json!(issued + self.life_seconds));
        if !self.scope.is_empty() {
            claims.insert(self.scope_claim.clone(), json!(self.scope));
        }
        let header = URL_SAFE_NO_PAD.encode(json!({ "alg": "none" }).to_string());
        let payload = URL_SAFE_NO_PAD.encode(Value::Object(claims).to_string());
        Token {
            // The part after the last dot, the signature, is empty.
            value: Secret::new(format!("{header}.{payload}.")),
            principal: self.principal.clone(),
            expires_at_ms: (issued + self.life_seconds) * 1000,
            extensions: self.extensions.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_what_the_pairs_say() {
        let text = "principal=me principalClaimName=azp scope=a,b lifeSeconds=60 extension_traceId=123";
        let token = UnsecuredClaims::parse(text).expect("valid").token(1_700_000_000_123);
        let parts: Vec<_> = token.value.expose().split('.').collect();
        let decoded = URL_SAFE_NO_PAD.decode(parts[1]).expect("base64");
        let claims: Value = serde_json::from_slice(&decoded).expect("JSON");
        let expected =
            json!({ "azp": "me", "iat": 1_700_000_000, "exp": 1_700_000_060, "scope": ["a", "b"] });
        assert_eq!((claims, parts[2]), (expected, ""));
        assert_eq!(token.extensions, [("traceId".to_owned(), "123".to_owned())]);
        assert_eq!(token.expires_at_ms, 1_700_000_060_000);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, named) in [
            ("", "principal=NAME is missing"),
            ("principal", "expected key=value"),
            ("principal=me lifeSeconds=0", "lifeSeconds=0"),
            ("principal=me colour=red", "unknown key `colour`"),
            ("principal=me extension_auth=x", "extension"),
        ] {
            let error = UnsecuredClaims::parse(text).expect_err(text).to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
