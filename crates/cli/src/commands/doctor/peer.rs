//! Identifies a peer that does not speak Kafka.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ottla_protocol::ApiKey;
use ottla_protocol::messages::SaslHandshakeRequest;

use super::connection::{Connection, ProbeError, ProbeSettings};
use super::network::Reachable;

/// The peer's protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OtherProtocol {
    Http,
    Ssh,
    Tls,
}

impl OtherProtocol {
    /// Identifies the protocol from the bytes at the position of a Kafka frame's size. As a size, each would exceed
    /// every limit.
    pub(super) fn from_first_bytes(bytes: [u8; 4]) -> Option<Self> {
        match bytes {
            // A page without a status line is an HTTP 0.9 response, which is sent to an invalid request.
            [b'H', b'T', b'T', b'P'] | [b'<', b'!', b'D' | b'd', _] | [b'<', b'h' | b'H', b't' | b'T', _] => {
                Some(Self::Http)
            }
            [b'S', b'S', b'H', b'-'] => Some(Self::Ssh),
            // A handshake or alert record of SSL 3 to TLS 1.3.
            [0x15 | 0x16, 3, 0..=4, _] => Some(Self::Tls),
            _ => None,
        }
    }
}

impl fmt::Display for OtherProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP",
            Self::Ssh => "SSH",
            Self::Tls => "TLS",
        })
    }
}

/// The probable cause of a failed exchange, and advice.
pub(super) fn diagnose(peer: &Reachable, settings: &ProbeSettings, probe_error: &ProbeError) -> Vec<String> {
    let protocol = match probe_error {
        ProbeError::OtherProtocol(protocol) => Some(*protocol),
        ProbeError::Closed | ProbeError::Timeout(_) | ProbeError::InvalidResponse(_) => {
            identify(peer.address, settings)
        }
        ProbeError::Io(_)
        | ProbeError::UnsupportedVersion(_)
        | ProbeError::Tls(_)
        | ProbeError::Authentication(_) => None,
    };
    let text = match protocol {
        Some(OtherProtocol::Tls) => {
            "this is a TLS listener: set security.protocol to ssl or sasl_ssl, or use the plaintext listener's port"
        }
        Some(OtherProtocol::Http) => {
            "this is a web server (a REST proxy, a schema registry, an admin page?): use the port of the broker's listener"
        }
        Some(OtherProtocol::Ssh) => "this is an SSH server: use the port of the broker's listener",
        None => match probe_error {
            ProbeError::Closed => {
                "it accepts connections and closes them: a broker older than 0.10, a controller's listener, or a proxy without a backend"
            }
            ProbeError::Timeout(_) => {
                "it accepts connections and does not answer: a broker that hangs or is starting, or a load balancer without a backend"
            }
            ProbeError::Tls(_) => "the broker closed the TLS connection: check its log for the reason",
            ProbeError::Io(_) | ProbeError::OtherProtocol(_) | ProbeError::Authentication(_) => {
                "check that the broker is running and that no firewall blocks the connection"
            }
            ProbeError::InvalidResponse(_) => "this is not a Kafka broker",
            ProbeError::UnsupportedVersion(_) => "the broker is too old or too new for this version of Ottla",
        },
    };
    vec![text.to_owned()]
}

/// Sends the first messages of other protocols, each on its own connection.
fn identify(address: SocketAddr, settings: &ProbeSettings) -> Option<OtherProtocol> {
    [HTTP_REQUEST, CLIENT_HELLO].into_iter().find_map(|greeting| answer_to(greeting, address, settings))
}

fn answer_to(greeting: &[u8], address: SocketAddr, settings: &ProbeSettings) -> Option<OtherProtocol> {
    let mut stream = TcpStream::connect_timeout(&address, settings.connect).ok()?;
    stream.set_read_timeout(Some(settings.answer.min(GREETING_WITHIN))).ok()?;
    stream.write_all(greeting).ok()?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).ok()?;
    OtherProtocol::from_first_bytes(answer)
}

/// The SASL mechanisms of a listener that closes connections which do not begin with SASL.
pub(super) fn sasl_mechanisms(peer: &Reachable, settings: &ProbeSettings) -> Option<Vec<String>> {
    let mut connection = Connection::open(peer, settings).ok()?;
    connection.request_api_versions().ok()?;
    // No mechanism has this name, so the error response lists the supported ones.
    let request = SaslHandshakeRequest { mechanism: "OTTLA-DOCTOR".into() };
    let (answer, _) = connection.request(&request, 1).ok()?;
    (!answer.mechanisms.is_empty()).then_some(answer.mechanisms)
}

/// The probable cause if a broker closes the connection after ApiVersions.
pub(super) fn diagnose_after_greeting(
    peer: &Reachable,
    settings: &ProbeSettings,
    api: ApiKey,
    probe_error: &ProbeError,
) -> String {
    if !matches!(probe_error, ProbeError::Closed | ProbeError::Timeout(_)) {
        return format!("the broker answers ApiVersions but not {}", api.name());
    }
    match sasl_mechanisms(peer, settings) {
        Some(mechanisms) => format!(
            "this listener requires SASL ({}): set security.protocol to sasl_plaintext or sasl_ssl, and sasl.mechanism",
            mechanisms.join(", ")
        ),
        None => {
            format!("the broker answers ApiVersions but not {}: check its log for the reason", api.name())
        }
    }
}

/// Time limit for the answer to another protocol's first message.
const GREETING_WITHIN: Duration = Duration::from_secs(2);

/// A request that every web server answers, at least with an error. A broker reads its first bytes as a size and
/// disconnects.
const HTTP_REQUEST: &[u8] = b"HEAD / HTTP/1.0\r\n\r\n";

/// A TLS 1.2 ClientHello with two common cipher suites: enough for a handshake record or an alert as the answer.
const CLIENT_HELLO: &[u8] = &[
    0x16, 3, 1, 0, 47, // record: handshake
    1, 0, 0, 43, // client hello
    3, 3, // TLS 1.2
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
    29, 30, 31, // random
    0,  // no session
    0, 4, 0xc0, 0x2f, 0x00, 0x2f, // suites
    1, 0, // no compression
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_identified_by_their_first_bytes() {
        for (bytes, protocol) in [
            (*b"HTTP", Some(OtherProtocol::Http)),
            (*b"<!DO", Some(OtherProtocol::Http)),
            (*b"<htm", Some(OtherProtocol::Http)),
            (*b"SSH-", Some(OtherProtocol::Ssh)),
            ([0x15, 3, 3, 0], Some(OtherProtocol::Tls)),
            ([0x16, 3, 1, 7], Some(OtherProtocol::Tls)),
            ([0, 0, 1, 7], None),
        ] {
            assert_eq!(OtherProtocol::from_first_bytes(bytes), protocol);
        }
    }

    #[test]
    fn the_client_hello_has_consistent_lengths() {
        assert_eq!(usize::from(CLIENT_HELLO[4]), CLIENT_HELLO.len() - 5);
        assert_eq!(usize::from(CLIENT_HELLO[8]), CLIENT_HELLO.len() - 9);
    }
}
