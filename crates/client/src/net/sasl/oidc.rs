//! Tokens from an OpenID Connect endpoint, with client credentials (RFC 6749, section 4.4) or an assertion (RFC 7523).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use serde_json::Value;

use super::http::{bracketed, exchange, percent_encoded, within_limit};
use crate::net::connector::Connector;
use crate::security::assertion::{Assertions, JWT_BEARER};
use crate::security::token_endpoint::TokenEndpoint;
use crate::security::{Secret, Token};

/// A token endpoint and the client's credentials.
pub(crate) struct Endpoint {
    url: TokenEndpoint,
    pub(crate) connector: Option<Arc<dyn Connector>>,
    pub(crate) client_id: String,
    pub(crate) client_secret: Secret,
    /// Signs the requests in place of the id and the secret.
    pub(crate) assertions: Option<Assertions>,
    /// Azure's metadata service, which knows the machine and wants no credentials.
    pub(crate) is_azure_imds: bool,
    pub(crate) scope: Option<String>,
    pub(crate) principal_claim: String,
    pub(crate) extensions: Vec<(String, String)>,
}

impl Endpoint {
    pub(crate) fn new(url: TokenEndpoint) -> Self {
        Self {
            url,
            connector: None,
            client_id: String::new(),
            client_secret: Secret::default(),
            assertions: None,
            is_azure_imds: false,
            scope: None,
            principal_claim: "sub".into(),
            extensions: Vec::new(),
        }
    }

    /// Requests a token. The error's text names the endpoint and contains no secret.
    pub(crate) async fn token(&self, now_ms: i64) -> Result<Token, String> {
        let named = |text: String| format!("token endpoint {}:{}: {text}", self.url.host, self.url.port);
        let (status, body) = within_limit(self.ask(now_ms)).await.map_err(named)?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status != StatusCode::OK {
            let text = |key: &str| answer[key].as_str().map(|text| format!(": {text}")).unwrap_or_default();
            return Err(named(format!("{status}{}{}", text("error"), text("error_description"))));
        }
        self.token_in(&answer, now_ms).map_err(named)
    }

    /// The token in the body of a successful response.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn token_of(&self, body: &[u8], now_ms: i64) -> Result<Token, String> {
        self.token_in(&serde_json::from_slice(body).unwrap_or_default(), now_ms)
    }

    fn token_in(&self, answer: &Value, now_ms: i64) -> Result<Token, String> {
        let value = self.value_in(answer).ok_or("the answer holds no access_token")?;
        let claims = claims(value);
        let expires_at_ms = claims["exp"]
            .as_f64()
            .map(|seconds| (seconds * 1000.0) as i64)
            .or_else(|| {
                answer["expires_in"]
                    .as_i64()
                    .map(|seconds| now_ms.saturating_add(seconds.saturating_mul(1000)))
            })
            .ok_or("neither the token nor the answer says when it expires")?;
        Ok(Token {
            value: value.into(),
            principal: claims[self.principal_claim.as_str()].as_str().unwrap_or(&self.client_id).to_owned(),
            expires_at_ms,
            extensions: self.extensions.clone(),
        })
    }

    /// The token of a response. For an assertion, some providers send an `id_token`, which brokers can verify, in place of the access token
    /// or beside an opaque one.
    fn value_in<'a>(&self, answer: &'a Value) -> Option<&'a str> {
        let access = answer["access_token"].as_str();
        let id = answer["id_token"].as_str().filter(|_| self.assertions.is_some());
        let has_end = |token: &&str| claims(token)["exp"].is_number();
        access.filter(has_end).or(id.filter(has_end)).or(access)
    }

    async fn ask(&self, now_ms: i64) -> Result<(StatusCode, Bytes), String> {
        let connector = self.connector.as_deref().ok_or("no way to connect")?;
        exchange(connector, &self.url, self.request(now_ms)?).await
    }

    fn request(&self, now_ms: i64) -> Result<Request<Full<Bytes>>, String> {
        let request = Request::builder()
            .uri(&self.url.path)
            .header(header::HOST, format!("{}:{}", bracketed(&self.url.host), self.url.port))
            .header(header::ACCEPT, "application/json")
            .header(header::CONNECTION, "close");
        let request = if self.is_azure_imds {
            // The service refuses requests without it: a page with a link cannot make them.
            request.method(Method::GET).header("Metadata", "true").body(Full::default())
        } else {
            let request = request
                .method(Method::POST)
                .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
            let request = match &self.assertions {
                Some(_) => request,
                None => request.header(header::AUTHORIZATION, self.authorization()?),
            };
            request.body(Full::new(Bytes::from(self.form(now_ms)?)))
        };
        request.map_err(|error| error.to_string())
    }

    /// The form that is posted to a token endpoint.
    fn form(&self, now_ms: i64) -> Result<String, String> {
        let mut body = match &self.assertions {
            None => "grant_type=client_credentials".to_owned(),
            Some(assertions) => {
                let assertion = assertions.assertion(now_ms).map_err(|error| error.to_string())?;
                let assertion = percent_encoded(assertion.expose());
                format!("grant_type={}&assertion={assertion}", percent_encoded(JWT_BEARER))
            }
        };
        if let Some(scope) = &self.scope {
            body.push_str("&scope=");
            body.push_str(&percent_encoded(scope));
        }
        Ok(body)
    }

    /// The id and the secret.
    fn authorization(&self) -> Result<header::HeaderValue, String> {
        let credentials = Secret::new(format!("{}:{}", self.client_id, self.client_secret.expose()));
        let basic = Secret::new(format!("Basic {}", STANDARD.encode(credentials.expose())));
        let mut authorization =
            header::HeaderValue::from_str(basic.expose()).map_err(|error| error.to_string())?;
        authorization.set_sensitive(true);
        Ok(authorization)
    }
}

/// The claims of a JWT; null if the token is not a JWT.
pub(super) fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    payload.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_principal_is_in_the_claim_that_is_named() {
        let mut endpoint = Endpoint::new(TokenEndpoint::parse("https://login.example/token").expect("valid"));
        endpoint.client_id = "orders".into();
        let payload = URL_SAFE_NO_PAD.encode(br#"{"sub": "17", "azp": "billing", "exp": 2}"#);
        let answer = serde_json::json!({ "access_token": format!("e30.{payload}.") });
        for (claim, principal) in [("sub", "17"), ("azp", "billing"), ("upn", "orders")] {
            endpoint.principal_claim = claim.into();
            let token = endpoint.token_in(&answer, 0).expect("a token");
            assert_eq!((token.principal.as_str(), token.expires_at_ms), (principal, 2000), "{claim}");
        }
    }

    /// Google's endpoint sends nothing else for a target audience: no client with an assertion got a token there.
    #[test]
    fn an_assertion_may_be_answered_with_an_id_token() {
        let jwt =
            |text: &str| format!("e30.{}.", URL_SAFE_NO_PAD.encode(format!(r#"{{"sub":"{text}","exp":2}}"#)));
        let mut endpoint = Endpoint::new(TokenEndpoint::parse("https://login.example/token").expect("valid"));
        let only_id = serde_json::json!({ "id_token": jwt("id") });
        assert!(endpoint.token_in(&only_id, 0).is_err(), "a client with a secret gets an access token");
        endpoint.assertions = Some(Assertions::default());
        let principal = |answer: &Value| endpoint.token_in(answer, 0).expect("a token").principal;
        assert_eq!(principal(&only_id), "id");
        let with_opaque =
            serde_json::json!({ "access_token": "opaque", "expires_in": 9, "id_token": jwt("id") });
        assert_eq!(principal(&with_opaque), "id");
        let both = serde_json::json!({ "access_token": jwt("access"), "id_token": jwt("id") });
        assert_eq!(principal(&both), "access");
        let opaque = serde_json::json!({ "access_token": "opaque", "expires_in": 9 });
        assert_eq!(endpoint.token_in(&opaque, 0).expect("a token").value.expose(), "opaque");
    }

    /// Accepts connections and never sends a byte.
    struct Silent;

    impl Connector for Silent {
        fn connect<'a>(&'a self, _host: &'a str, _port: u16) -> crate::net::connector::Connecting<'a> {
            Box::pin(async {
                let (io, peer) = tokio::io::duplex(1 << 16);
                tokio::spawn(async move {
                    let _open = peer;
                    std::future::pending::<()>().await;
                });
                Ok(Box::new(io) as _)
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_ends() {
        let mut endpoint = Endpoint::new(TokenEndpoint::parse("https://login.example/token").expect("valid"));
        endpoint.connector = Some(Arc::new(Silent));
        let asking = tokio::time::timeout(std::time::Duration::from_secs(21), endpoint.token(0));
        let error = asking.await.expect("an end").expect_err("no token");
        assert_eq!(error, "token endpoint login.example:443: no answer within 20 s");
    }

    #[test]
    fn a_token_of_any_life_time_is_taken_without_an_overflow() {
        let endpoint = Endpoint::new(TokenEndpoint::parse("https://login.example/token").expect("valid"));
        for seconds in [i64::MAX, i64::MAX / 1000, i64::MIN] {
            let answer = serde_json::json!({ "access_token": "opaque", "expires_in": seconds });
            let token = endpoint.token_in(&answer, 1_700_000_000_000).expect("a token");
            assert_eq!(token.expires_at_ms > 0, seconds > 0, "{seconds}");
        }
    }
}
