//! Tokens of AWS's Security Token Service: STS signs a token for the role or the user of this program (`GetWebIdentityToken`).

mod credentials;
mod signature;

use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};

use self::credentials::{CredentialChain, Credentials};
use self::signature::{Scope, Signed, authorization, timestamp};
use super::http::{bracketed, exchange, percent_encoded, within_limit};
use super::oidc::claims;
use crate::net::connector::Connector;
use crate::security::Token;
use crate::security::aws_iam::AwsIam;
use crate::security::token_endpoint::TokenEndpoint;

const STS_VERSION: &str = "2011-06-15";
const FORM: &str = "application/x-www-form-urlencoded";

/// STS, and the credentials to ask it with, which are looked up for each token.
pub(crate) struct AwsTokens {
    settings: AwsIam,
    chain: CredentialChain,
    principal_claim: String,
    extensions: Vec<(String, String)>,
}

impl AwsTokens {
    /// `plain` connects to metadata services, `secure` to STS. The credentials come from the environment of the process.
    pub(crate) fn new(
        settings: AwsIam,
        plain: Arc<dyn Connector>,
        secure: Arc<dyn Connector>,
        principal_claim: String,
        extensions: Vec<(String, String)>,
    ) -> Self {
        let environment = Arc::new(|name: &str| std::env::var(name).ok());
        let chain = CredentialChain { environment, plain, secure };
        Self { settings, chain, principal_claim, extensions }
    }

    /// Requests a token. The error's text names the service and contains no secret.
    pub(crate) async fn token(&self, now_ms: i64) -> Result<Token, String> {
        let sts = &self.settings.endpoint;
        let named = |text: String| format!("AWS STS at {}:{}: {text}", sts.host, sts.port);
        let asking = async {
            let credentials = self.chain.find(sts).await?;
            let request = self.request(&credentials, now_ms)?;
            let connector = if sts.is_tls { &self.chain.secure } else { &self.chain.plain };
            exchange(&**connector, sts, request).await
        };
        let (status, body) = within_limit(asking).await.map_err(named)?;
        let body = String::from_utf8_lossy(&body);
        if status != StatusCode::OK {
            return Err(named(failure(status, &body)));
        }
        self.token_in(&body).map_err(named)
    }

    fn token_in(&self, answer: &str) -> Result<Token, String> {
        let value = element(answer, "WebIdentityToken").ok_or("the answer holds no WebIdentityToken")?;
        let claims = claims(value);
        let expires_s = claims["exp"].as_f64().ok_or("the token does not say when it expires")?;
        Ok(Token {
            value: value.into(),
            principal: claims[self.principal_claim.as_str()].as_str().unwrap_or_default().to_owned(),
            expires_at_ms: (expires_s * 1000.0) as i64,
            extensions: self.extensions.clone(),
        })
    }

    fn request(&self, credentials: &Credentials, now_ms: i64) -> Result<Request<Full<Bytes>>, String> {
        let AwsIam { region, endpoint, .. } = &self.settings;
        let (body, host, time) = (self.body(), host_header(endpoint), timestamp(now_ms));
        let mut headers = vec![("content-type", FORM), ("host", &*host), ("x-amz-date", &*time)];
        if let Some(token) = &credentials.session_token {
            headers.push(("x-amz-security-token", token.expose()));
        }
        let signed =
            Signed { method: "POST", path: &endpoint.path, headers: &headers, body: body.as_bytes() };
        let scope = Scope { region, service: "sts", time: &time };
        let value = authorization(credentials, &scope, &signed);
        let request = Request::builder().method(Method::POST).uri(&endpoint.path);
        let request = request.header(header::CONNECTION, "close").header(header::AUTHORIZATION, value);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())
    }

    fn body(&self) -> String {
        let AwsIam { audience, duration_seconds, signing_algorithm, tags, .. } = &self.settings;
        let duration = duration_seconds.to_string();
        let mut body = form(&[
            ("Action", "GetWebIdentityToken"),
            ("Version", STS_VERSION),
            ("Audience.member.1", audience),
            ("SigningAlgorithm", signing_algorithm),
            ("DurationSeconds", &duration),
        ]);
        for (index, (name, value)) in tags.iter().enumerate() {
            let number = index + 1;
            let (key, of) = (format!("Tags.member.{number}.Key"), format!("Tags.member.{number}.Value"));
            body.push('&');
            body.push_str(&form(&[(&key, name), (&of, value)]));
        }
        body
    }
}

/// The host as it is signed: without the usual port.
fn host_header(url: &TokenEndpoint) -> String {
    let host = bracketed(&url.host);
    let usual = if url.is_tls { 443 } else { 80 };
    if url.port == usual { host } else { format!("{host}:{}", url.port) }
}

fn form(fields: &[(&str, &str)]) -> String {
    let field = |(name, value): &(&str, &str)| format!("{name}={}", percent_encoded(value));
    fields.iter().map(field).collect::<Vec<_>>().join("&")
}

/// The text of the first element of this name. Tokens and credentials have no characters that XML escapes.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text.trim())
}

/// The text of a refusal: the code and the message of AWS, if there are any.
fn failure(status: StatusCode, body: &str) -> String {
    match (element(body, "Code"), element(body, "Message")) {
        (Some(code), Some(message)) => format!("{status}: {code}: {message}"),
        _ => status.to_string(),
    }
}

#[cfg(test)]
mod tests;
