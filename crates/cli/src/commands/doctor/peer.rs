//! Who is it that does not speak Kafka?

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ottla_protocol::ApiKey;
use ottla_protocol::messages::SaslHandshakeRequest;

use super::network::Reachable;
use super::wire::{Terms, Trouble, Wire};

/// What a peer speaks instead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Speaks {
    Http,
    Ssh,
    Tls,
}

impl Speaks {
    /// Told from where a Kafka frame would have its size. None of these would be a size that anybody allows.
    pub(super) fn from_first_bytes(bytes: [u8; 4]) -> Option<Self> {
        match bytes {
            // A page without a status line is the answer of HTTP 0.9, to what is no request.
            [b'H', b'T', b'T', b'P'] | [b'<', b'!', b'D' | b'd', _] | [b'<', b'h' | b'H', b't' | b'T', _] => {
                Some(Self::Http)
            }
            [b'S', b'S', b'H', b'-'] => Some(Self::Ssh),
            // A handshake record, or an alert, of SSL 3 to TLS 1.3.
            [0x15 | 0x16, 3, 0..=4, _] => Some(Self::Tls),
            _ => None,
        }
    }
}

impl fmt::Display for Speaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP",
            Self::Ssh => "SSH",
            Self::Tls => "TLS",
        })
    }
}

/// What the peer is, as far as asking it tells, and what to do about it.
pub(super) fn diagnose(peer: &Reachable, terms: &Terms, trouble: &Trouble) -> Vec<String> {
    let speaks = match trouble {
        Trouble::Foreign(speaks) => Some(*speaks),
        Trouble::Closed | Trouble::Silent(_) | Trouble::Nonsense(_) => speaks_to(peer.address, terms),
        Trouble::Io(_) | Trouble::Unknown(_) | Trouble::Tls(_) | Trouble::Unproven(_) => None,
    };
    let text = match speaks {
        Some(Speaks::Tls) => {
            "this is a TLS listener: set security.protocol to ssl or sasl_ssl, or use the plaintext listener's port"
        }
        Some(Speaks::Http) => {
            "a web server listens there (a REST proxy, a schema registry, an admin page?): use the port of the broker's listener"
        }
        Some(Speaks::Ssh) => "an SSH server listens there: use the port of the broker's listener",
        None => match trouble {
            Trouble::Closed => {
                "it takes connections and does not want ours: a broker older than 0.10, a controller's listener, or a proxy without anything behind it"
            }
            Trouble::Silent(_) => {
                "something takes connections and does not answer: a broker that hangs or starts, or a load balancer without anything behind it"
            }
            Trouble::Tls(_) => "the broker has ended the TLS connection: its log says why",
            Trouble::Io(_) | Trouble::Foreign(_) | Trouble::Unproven(_) => {
                "see that the broker runs, and that no firewall is between"
            }
            Trouble::Nonsense(_) => "something else than a Kafka broker listens there",
            Trouble::Unknown(_) => "the broker is too old, or too new, for this version of Ottla",
        },
    };
    vec![text.to_owned()]
}

/// Greets as clients of other protocols do, each on a connection of its own.
fn speaks_to(address: SocketAddr, terms: &Terms) -> Option<Speaks> {
    [HTTP_REQUEST, CLIENT_HELLO].into_iter().find_map(|greeting| answer_to(greeting, address, terms))
}

fn answer_to(greeting: &[u8], address: SocketAddr, terms: &Terms) -> Option<Speaks> {
    let mut stream = TcpStream::connect_timeout(&address, terms.connect).ok()?;
    stream.set_read_timeout(Some(terms.answer.min(GREETING_WITHIN))).ok()?;
    stream.write_all(greeting).ok()?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).ok()?;
    Speaks::from_first_bytes(answer)
}

/// What SASL mechanisms a listener has that closes connections when they do not begin with SASL.
pub(super) fn sasl_mechanisms(peer: &Reachable, terms: &Terms) -> Option<Vec<String>> {
    let mut wire = Wire::open(peer, terms).ok()?;
    wire.greet().ok()?;
    // No mechanism has this name: the refusal lists those that there are.
    let request = SaslHandshakeRequest { mechanism: "OTTLA-DOCTOR".into() };
    let (answer, _) = wire.ask(&request, 1).ok()?;
    (!answer.mechanisms.is_empty()).then_some(answer.mechanisms)
}

/// What is wrong when a broker greets and then closes the connection.
pub(super) fn diagnose_after_greeting(
    peer: &Reachable,
    terms: &Terms,
    api: ApiKey,
    trouble: &Trouble,
) -> String {
    if !matches!(trouble, Trouble::Closed | Trouble::Silent(_)) {
        return format!("the broker greets and does not answer {}", api.name());
    }
    match sasl_mechanisms(peer, terms) {
        Some(mechanisms) => format!(
            "this listener wants SASL ({}): set security.protocol to sasl_plaintext or sasl_ssl, and sasl.mechanism",
            mechanisms.join(", ")
        ),
        None => format!("the broker greets and does not answer {}: its log says why", api.name()),
    }
}

/// How long the answer to a greeting of another protocol may take.
const GREETING_WITHIN: Duration = Duration::from_secs(2);

/// A request that every web server answers, if only to refuse it. A broker takes its first bytes for a size and hangs up.
const HTTP_REQUEST: &[u8] = b"HEAD / HTTP/1.0\r\n\r\n";

/// A TLS 1.2 greeting with one suite that everybody has: enough to be answered, with a handshake or with an alert.
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
    fn peers_are_known_by_their_first_bytes() {
        for (bytes, speaks) in [
            (*b"HTTP", Some(Speaks::Http)),
            (*b"<!DO", Some(Speaks::Http)),
            (*b"<htm", Some(Speaks::Http)),
            (*b"SSH-", Some(Speaks::Ssh)),
            ([0x15, 3, 3, 0], Some(Speaks::Tls)),
            ([0x16, 3, 1, 7], Some(Speaks::Tls)),
            ([0, 0, 1, 7], None),
        ] {
            assert_eq!(Speaks::from_first_bytes(bytes), speaks);
        }
    }

    #[test]
    fn the_greeting_says_its_own_lengths() {
        assert_eq!(usize::from(CLIENT_HELLO[4]), CLIENT_HELLO.len() - 5);
        assert_eq!(usize::from(CLIENT_HELLO[8]), CLIENT_HELLO.len() - 9);
    }
}
