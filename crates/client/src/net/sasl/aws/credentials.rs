//! AWS credentials, from the places that AWS's own libraries use: the environment, the token of a Kubernetes service account, the
//! agent of a container, and the metadata service of a machine. Files with profiles are not read.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use serde_json::Value;

use super::{element, form};
use crate::net::connector::Connector;
use crate::net::sasl::http::{bracketed, exchange};
use crate::security::Secret;
use crate::security::token_endpoint::TokenEndpoint;

/// The agent of a container in ECS.
const CONTAINER_AGENT: &str = "http://169.254.170.2";
/// The metadata service of a machine in EC2.
const MACHINE: &str = "http://169.254.169.254";
/// The addresses to which `http` may be used: the agents of ECS and of EKS, and this machine.
const HTTP_HOSTS: [&str; 6] =
    ["169.254.170.2", "169.254.170.23", "fd00:ec2::23", "127.0.0.1", "::1", "localhost"];
/// The life of a session with the metadata service, in seconds: one lookup.
const SESSION_TTL: &str = "60";
/// A machine outside of AWS does not answer.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// Credentials of a user or of a role.
pub(super) struct Credentials {
    pub(super) key_id: String,
    pub(super) secret_key: Secret,
    /// The part of temporary credentials.
    pub(super) session_token: Option<Secret>,
}

/// Looks an environment variable up.
pub(super) type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Finds credentials.
pub(super) struct CredentialChain {
    pub(super) environment: Environment,
    /// Connects without TLS.
    pub(super) plain: Arc<dyn Connector>,
    /// Connects with TLS.
    pub(super) secure: Arc<dyn Connector>,
}

impl CredentialChain {
    fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name).filter(|value| !value.is_empty())
    }

    /// The credentials of the first place that is configured. `sts` is asked for those of a Kubernetes service account.
    pub(super) async fn find(&self, sts: &TokenEndpoint) -> Result<Credentials, String> {
        let keys = (self.variable("AWS_ACCESS_KEY_ID"), self.variable("AWS_SECRET_ACCESS_KEY"));
        if let (Some(key_id), Some(secret)) = keys {
            let session_token = self.variable("AWS_SESSION_TOKEN").map(Secret::new);
            return Ok(Credentials { key_id, secret_key: secret.into(), session_token });
        }
        let role = (self.variable("AWS_WEB_IDENTITY_TOKEN_FILE"), self.variable("AWS_ROLE_ARN"));
        if let (Some(file), Some(role)) = role {
            return self.of_role(sts, &file, &role).await;
        }
        let relative = self.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let agent = relative.map(|path| format!("{CONTAINER_AGENT}{path}"));
        if let Some(url) = agent.or_else(|| self.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
            return self.of_container(&url).await;
        }
        if self.variable("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        {
            return Err(missing("AWS_EC2_METADATA_DISABLED is true"));
        }
        let of_machine = tokio::time::timeout(METADATA_TIMEOUT, self.of_machine()).await;
        let late = |_| Err(format!("no answer within {} s", METADATA_TIMEOUT.as_secs()));
        of_machine.unwrap_or_else(late).map_err(|error| missing(&format!("{MACHINE}: {error}")))
    }

    /// The credentials of a role that the holder of a token may assume.
    async fn of_role(&self, sts: &TokenEndpoint, file: &str, role: &str) -> Result<Credentials, String> {
        let token = read_secret("AWS_WEB_IDENTITY_TOKEN_FILE", file)?;
        let session = self.variable("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "ottla".into());
        let body = form(&[
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", super::STS_VERSION),
            ("RoleArn", role),
            ("RoleSessionName", &session),
            ("WebIdentityToken", token.expose()),
        ]);
        let request = request(sts, Method::POST)
            .header(header::CONTENT_TYPE, super::FORM)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let answer = self.ask(sts, request).await.map_err(|error| format!("role {role}: {error}"))?;
        let part = |name: &str| element(&answer, name).map(str::to_owned);
        match (part("AccessKeyId"), part("SecretAccessKey"), part("SessionToken")) {
            (Some(key_id), Some(secret), token) => {
                Ok(Credentials { key_id, secret_key: secret.into(), session_token: token.map(Secret::new) })
            }
            _ => Err(format!("role {role}: the answer holds no credentials")),
        }
    }

    async fn of_container(&self, url: &str) -> Result<Credentials, String> {
        let named = |error: String| format!("credentials of the container at {url}: {error}");
        let endpoint = TokenEndpoint::parse_any(url).map_err(|error| named(error.to_string()))?;
        if !endpoint.is_tls && !HTTP_HOSTS.contains(&endpoint.host.as_str()) {
            return Err(named("http is allowed for this machine and AWS's own agents only".into()));
        }
        let token = match self.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
            Some(file) => Some(read_secret("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file).map_err(named)?),
            None => self.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(Secret::new),
        };
        let mut asking = request(&endpoint, Method::GET);
        if let Some(token) = token {
            let value = header::HeaderValue::from_str(token.expose().trim());
            let mut value = value.map_err(|error| named(error.to_string()))?;
            value.set_sensitive(true);
            asking = asking.header(header::AUTHORIZATION, value);
        }
        let asking = asking.body(Full::default()).map_err(|error| named(error.to_string()))?;
        let answer = self.ask(&endpoint, asking).await.map_err(named)?;
        of_json(&answer).map_err(named)
    }

    /// The credentials of the machine's role, in a session (IMDSv2).
    async fn of_machine(&self) -> Result<Credentials, String> {
        let at = |path: &str| {
            let url = format!("{MACHINE}/latest/{path}");
            TokenEndpoint::parse_any(&url).map_err(|error| error.to_string())
        };
        let session = at("api/token")?;
        let begin =
            request(&session, Method::PUT).header("x-aws-ec2-metadata-token-ttl-seconds", SESSION_TTL);
        let begin = begin.body(Full::default()).map_err(|error| error.to_string())?;
        let token = self.ask(&session, begin).await?;
        let read = async |path: &str| {
            let endpoint = at(&format!("meta-data/iam/security-credentials/{path}"))?;
            let asking = request(&endpoint, Method::GET).header("x-aws-ec2-metadata-token", token.trim());
            let asking = asking.body(Full::default()).map_err(|error| error.to_string())?;
            self.ask(&endpoint, asking).await
        };
        let roles = read("").await?;
        let role = roles.lines().next().unwrap_or_default().trim();
        if role.is_empty() {
            return Err("the machine has no role".into());
        }
        of_json(&read(role).await?)
    }

    /// The body of a successful response.
    async fn ask(&self, url: &TokenEndpoint, request: Request<Full<Bytes>>) -> Result<String, String> {
        let connector = if url.is_tls { &self.secure } else { &self.plain };
        let (status, body) = exchange(&**connector, url, request).await?;
        let body = String::from_utf8_lossy(&body).into_owned();
        if status == StatusCode::OK { Ok(body) } else { Err(super::failure(status, &body)) }
    }
}

fn request(url: &TokenEndpoint, method: Method) -> hyper::http::request::Builder {
    Request::builder()
        .method(method)
        .uri(&url.path)
        .header(header::HOST, format!("{}:{}", bracketed(&url.host), url.port))
        .header(header::CONNECTION, "close")
}

/// Reads the credentials of an agent or of the metadata service.
fn of_json(text: &str) -> Result<Credentials, String> {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    let part = |name: &str| answer[name].as_str().map(str::to_owned);
    match (part("AccessKeyId"), part("SecretAccessKey")) {
        (Some(key_id), Some(secret)) => {
            let session_token = part("Token").map(Secret::new);
            Ok(Credentials { key_id, secret_key: secret.into(), session_token })
        }
        _ => Err("the answer holds no credentials".into()),
    }
}

fn read_secret(variable: &str, file: &str) -> Result<Secret, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{variable}: {file}: {error}"))?;
    Ok(Secret::new(text.trim()))
}

fn missing(last: &str) -> String {
    format!(
        "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the pod, the container or the machine a \
         role ({last})"
    )
}
