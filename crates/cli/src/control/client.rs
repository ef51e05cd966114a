//! Requests to a control address.

use std::path::Path;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::address::ControlAddress;
use super::token;
use crate::failure::{Failure, sentence};

/// A broker's control address, and the token for it.
#[derive(Debug)]
pub(crate) struct ControlClient {
    address: ControlAddress,
    token: Option<String>,
}

impl ControlClient {
    /// Reads the token of a port. A socket has none: its file's mode is what protects it.
    pub(crate) fn new(address: ControlAddress, token_file: Option<&Path>) -> Result<Self, Failure> {
        let token_file = token_file.filter(|_| matches!(address, ControlAddress::Loopback(_)));
        Ok(Self { address, token: token_file.map(token::read).transpose()? })
    }

    /// Sends a request and returns the JSON of its answer.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, Failure> {
        let failed = |error: std::io::Error| self.no_broker(&sentence(&error));
        let (status, answer) = match &self.address {
            ControlAddress::Unix(path_of_socket) => {
                let stream = UnixStream::connect(path_of_socket).await.map_err(failed)?;
                self.exchange(stream, method, path, body).await?
            }
            ControlAddress::Loopback(port) => {
                let stream = TcpStream::connect(port).await.map_err(failed)?;
                self.exchange(stream, method, path, body).await?
            }
        };
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|_| self.fails("the answer is not JSON: no Ottla broker is controlled there"))?;
        match (status, answer.get("error").and_then(Value::as_str)) {
            (StatusCode::OK, _) => Ok(answer),
            // The arguments were wrong, as far as only the broker can know.
            (StatusCode::BAD_REQUEST, Some(error)) => Err(Failure::usage(error)),
            (_, Some(error)) => Err(Failure::failed(error.to_owned())),
            (status, None) => Err(self.fails(&format!("status {status}"))),
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, "localhost");
        request = request.header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| Failure::usage("the token or the path has characters that HTTP does not allow"))?;
        // A listener for Kafka's clients closes the connection.
        let fails = |error: hyper::Error| self.no_broker(&error.to_string());
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(fails)?;
        let connection = tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(fails)?;
        let status = response.status();
        let answer = response.into_body().collect().await.map_err(fails)?.to_bytes();
        connection.abort();
        Ok((status, answer))
    }

    fn no_broker(&self, reason: &str) -> Failure {
        self.fails(&format!("{reason}; is it the address of `ottla broker --control`?"))
    }

    fn fails(&self, reason: &str) -> Failure {
        Failure::failed(format!("{}: {reason}", self.address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A variable that was left from another broker made each command fail.
    #[test]
    fn the_token_of_another_broker_is_not_read_for_a_socket() {
        let missing = Path::new("/no/such/token");
        let socket: ControlAddress = "unix:/tmp/broker.sock".parse().expect("an address");
        assert!(ControlClient::new(socket, Some(missing)).is_ok());
        let port: ControlAddress = "127.0.0.1:9".parse().expect("an address");
        ControlClient::new(port, Some(missing)).expect_err("the file is missing");
    }
}
