//! The URL of a token endpoint: `sasl.oauthbearer.token.endpoint.url`.

use crate::error::Error;

/// The address of a token endpoint, and the path of its requests.
#[derive(Debug)]
pub(crate) struct TokenEndpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
    /// `https`.
    pub(crate) is_tls: bool,
}

impl TokenEndpoint {
    /// Parses a URL. Only `https` is accepted, because the request contains the client's secret.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        Self::parse_with(url, false)
    }

    /// Parses a URL of requests without a secret, which may be `http`: a cloud's metadata service has no certificate.
    pub(crate) fn parse_any(url: &str) -> Result<Self, Error> {
        Self::parse_with(url, true)
    }

    fn parse_with(url: &str, allows_http: bool) -> Result<Self, Error> {
        let refuse = |text: &str| refusal(url, text);
        let uri: hyper::Uri = url.parse().map_err(|_| refuse("not a URL"))?;
        let (is_tls, usual_port) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") if allows_http => (false, 80),
            _ if allows_http => return Err(refuse("must be http or https")),
            _ => return Err(refuse("must be https: the client's secret goes there")),
        };
        let authority = uri.authority().ok_or_else(|| refuse("the host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(refuse(
                "must not carry a user or password: use sasl.oauthbearer.client.id and \
                 sasl.oauthbearer.client.secret",
            ));
        }
        // The path before a query may be missing: found by the fuzz target `security_texts`.
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        // `port_u16` is `None` also for a number that is no port.
        let port = authority.as_str().strip_prefix(authority.host()).and_then(|rest| rest.strip_prefix(':'));
        let port = match port {
            None | Some("") => usual_port,
            Some(port) => {
                port.parse::<u16>().map_err(|_| refuse("the number behind the host is not a port"))?
            }
        };
        Ok(Self { host, port, path, is_tls })
    }
}

fn refusal(url: &str, text: &str) -> Error {
    let shown = if url.contains('@') { "..." } else { url };
    Error::Config(format!("sasl.oauthbearer.token.endpoint.url: `{shown}`: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_endpoints_are_taken() {
        let endpoint = TokenEndpoint::parse("https://login.example/realms/x/token?y=1").expect("valid");
        assert_eq!((endpoint.host.as_str(), endpoint.port), ("login.example", 443));
        assert_eq!(endpoint.path, "/realms/x/token?y=1");
        for (url, path) in [("https://login.example", "/"), ("https://login.example?y=1", "/?y=1")] {
            assert_eq!(TokenEndpoint::parse(url).expect("valid").path, path, "{url}");
        }
        assert_eq!(TokenEndpoint::parse("https://[::1]:8443").expect("valid").host, "::1");
        for (url, reason) in [
            ("http://login.example/token", "must be https"),
            ("login.example", "must be https"),
            ("https://me:secret@login.example/", "must not carry a user"),
            ("http://me:secret@login.example/", "must be https"),
        ] {
            let error = TokenEndpoint::parse(url).expect_err(url).to_string();
            assert!(error.contains(reason) && !error.contains("secret@"), "{error}");
        }
    }

    /// It became 443, and the client's secret went to another server.
    #[test]
    fn a_number_that_is_no_port_is_refused() {
        for url in ["https://login.example:84430/", "https://[::1]:65536/token"] {
            let error = TokenEndpoint::parse(url).expect_err(url).to_string();
            assert!(error.contains("not a port"), "{error}");
        }
        let error = TokenEndpoint::parse_any("http://login.example:80800/").expect_err("no port").to_string();
        assert!(error.contains("not a port"), "{error}");
        assert_eq!(TokenEndpoint::parse("https://login.example:/").expect("the usual one").port, 443);
        assert_eq!(TokenEndpoint::parse("https://[::1]:65535/token").expect("a port").port, 65_535);
    }
}
