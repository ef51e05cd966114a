//! One HTTP request on a connection of its own, for the sources of tokens.

use std::fmt::Write as _;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;

use crate::net::connector::Connector;
use crate::panics;
use crate::security::token_endpoint::TokenEndpoint;

/// Tokens have a few thousand bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The limit of a request for a token with its connections and all lookups, as in librdkafka.
const TOKEN_REQUEST_MAX: Duration = Duration::from_secs(20);

/// Ends a request for a token after [`TOKEN_REQUEST_MAX`]: all connections of a client wait for it.
pub(super) async fn within_limit<T>(request: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = |_| Err(format!("no answer within {} s", TOKEN_REQUEST_MAX.as_secs()));
    tokio::time::timeout(TOKEN_REQUEST_MAX, request).await.unwrap_or_else(late)
}

/// Sends a request to the host of `url`, and returns the status and the body of the response.
pub(super) async fn exchange(
    connector: &dyn Connector,
    url: &TokenEndpoint,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), String> {
    // The lookup of a name panics if the system has no thread for it.
    let connected = panics::caught(connector.connect(&url.host, url.port)).await;
    let io = connected?.map_err(|error| error.to_string())?;
    let http = hyper::client::conn::http1::handshake(TokioIo::new(io)).await;
    let (mut sender, connection) = http.map_err(|error| error.to_string())?;
    let asking = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    tokio::pin!(asking);
    tokio::select! {
        biased;
        answer = &mut asking => answer,
        // The server closed the connection after the response, which is read to its end.
        _ = connection => asking.await,
    }
}

/// The host in a URL or a `Host` header, without the port.
pub(super) fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Encodes a value for a form or a query, as RFC 3986 and AWS's signatures have it.
pub(super) fn percent_encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_encoded_for_a_form() {
        assert_eq!(percent_encoded("a b&c=d"), "a%20b%26c%3Dd");
    }
}
