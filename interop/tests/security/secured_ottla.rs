//! The Ottla broker with one listener per case of the security tests.

use std::net::SocketAddr;
use std::path::Path;

use ottla_interop::{Failure, OttlaBroker};

use crate::peers::certificates::Authority;
use crate::peers::issuer::{AUDIENCE, ISSUER, Issuer};
use crate::peers::{LISTENERS, properties};

/// An Ottla broker with the listeners of Apache Kafka.
pub(crate) struct SecuredOttla {
    broker: OttlaBroker,
}

impl SecuredOttla {
    /// Starts it with the properties of Apache Kafka, and with the public key of an issuer of tokens.
    pub(crate) fn start(authority: &Authority, files: &Path, issuer: &Issuer) -> Result<Self, Failure> {
        let jwks = files.join("jwks.json");
        issuer.write_jwks(&jwks);
        let pairs =
            |text: fn(&(&str, &str)) -> String| LISTENERS.iter().map(text).collect::<Vec<_>>().join(",");
        let listeners = pairs(|(name, _)| format!("{name}://127.0.0.1:0"));
        let protocols = pairs(|(name, protocol)| format!("{name}:{protocol}"));
        let mut all = properties(authority, files)?;
        let own = [
            ("listeners", format!("PLAINTEXT://127.0.0.1:0,{listeners}")),
            ("listener.security.protocol.map", format!("PLAINTEXT:PLAINTEXT,{protocols}")),
            ("sasl.oauthbearer.jwks.endpoint.url", format!("file://{}", jwks.display())),
            ("sasl.oauthbearer.expected.issuer", ISSUER.to_owned()),
            ("sasl.oauthbearer.expected.audience", AUDIENCE.to_owned()),
        ];
        all.extend(own.map(|(name, value)| (name.to_owned(), value)));
        let args: Vec<String> =
            all.into_iter().flat_map(|(name, value)| ["-X".to_owned(), format!("{name}={value}")]).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Ok(Self { broker: OttlaBroker::start(&args)? })
    }

    /// The address of the listener without security.
    pub(crate) fn bootstrap(&self) -> String {
        self.broker.addresses()[0].to_string()
    }

    /// The address of a listener by its name.
    pub(crate) fn listener(&self, name: &str) -> SocketAddr {
        let at = LISTENERS.iter().position(|(listed, _)| *listed == name).expect("a listener");
        self.broker.addresses()[at + 1]
    }
}
