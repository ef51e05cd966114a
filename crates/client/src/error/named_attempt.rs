//! Failed attempts to connect in the words of librdkafka.

use std::io;
use std::net::SocketAddr;

use tokio::time::Instant;

use super::HostLookupFailure;

/// The standard library begins the system's description of a failed lookup with it.
const LOOKUP: &str = "failed to lookup address information: ";

/// The beginning of an attempt to connect. It describes the failure of the attempt as librdkafka does:
/// [`Config::name_failures`](crate::Config::name_failures).
#[derive(Clone, Copy, Debug)]
pub struct NamedAttempt(Instant);

impl NamedAttempt {
    /// Begins an attempt.
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// Describes the failure of a connection to this address.
    pub fn refused_at(self, address: SocketAddr, error: &io::Error) -> io::Error {
        let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
        let text = error.to_string();
        let reason = text.split_once(" (os error ").map_or(&*text, |(reason, _)| reason);
        io::Error::new(error.kind(), self.timed(&format!("Connect to {family}#{address} failed: {reason}")))
    }

    /// Describes a host without an address.
    pub fn unresolved(self, text: &str) -> io::Error {
        io::Error::other(HostLookupFailure(self.timed(&text.replace(LOOKUP, ""))))
    }

    fn timed(self, text: &str) -> String {
        format!("{text} (after {}ms in state CONNECT)", self.0.elapsed().as_millis())
    }
}

/// The description of a failure without the time, in which the failures of two attempts for the same reason differ.
pub(crate) fn without_time(text: &str) -> &str {
    text.split_once(" (after ").map_or(text, |(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_address_and_the_time() {
        let attempt = NamedAttempt::begin();
        let refused = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        for (address, expected) in [
            ("127.0.0.1:9092", "Connect to ipv4#127.0.0.1:9092 failed: Connection refused"),
            ("[::1]:9092", "Connect to ipv6#[::1]:9092 failed: Connection refused"),
        ] {
            let failure = attempt.refused_at(address.parse().expect("an address"), &refused);
            let text = failure.to_string();
            assert_eq!((without_time(&text), failure.kind()), (expected, refused.kind()));
            assert!(text.ends_with("ms in state CONNECT)"), "{text}");
        }
        let text = attempt.unresolved(&format!("Failed to resolve 'a:1': {LOOKUP}none")).to_string();
        assert_eq!(without_time(&text), "Failed to resolve 'a:1': none");
    }
}
