//! The other end of a connection, as far as it can be named in a log line, and what was logged about it.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Different warnings of one interval that are logged. The others are counted together.
const WARNINGS_MAX: usize = 200;
/// The time after which a failed login is logged again.
const LOGIN_INTERVAL: Duration = Duration::from_secs(60);
/// The time after which an unsupported feature is logged again.
const FEATURE_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes of the name and of the version of a client's software that are kept.
const SOFTWARE_BYTES_MAX: usize = 256;
/// Bytes of a user's name in the log. A stranger can send a name of any length.
const USER_BYTES_MAX: usize = 64;
/// Bytes of the reason why a login failed: it can contain what the client has sent.
const REASON_BYTES_MAX: usize = 500;

/// An IP address as Java writes it and Kafka's ACLs have it: IPv6 in eight groups, without `::`; IPv4 within IPv6 as IPv4.
pub(crate) fn java_address(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address.segments().map(|group| format!("{group:x}")).join(":"),
    }
}

/// The client of a connection.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    address: Option<SocketAddr>,
    /// Name and version of its software, from its ApiVersions request (KIP-511).
    software: OnceLock<(String, String)>,
    /// Its IP address as text, in Kafka's form: with a slash before it.
    host: OnceLock<Arc<str>>,
}

/// Warnings that were logged, so that a client that tries again is logged once in an interval.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    features: Mutex<Logged>,
    logins: Mutex<Logged>,
    refusals: Mutex<Logged>,
    accepts: Mutex<Logged>,
}

/// The warnings of the interval that runs.
#[derive(Debug, Default)]
struct Logged {
    began: Option<Instant>,
    keys: BTreeSet<String>,
    /// Warnings that were not logged because there were too many.
    others: u64,
}

impl Logged {
    /// Returns whether the warning is to be logged, and the number of those that were not logged in the interval before.
    fn note(&mut self, key: String, interval: Duration, now: Instant) -> (bool, u64) {
        let mut others = 0;
        if self.began.is_none_or(|began| now >= began + interval) {
            others = std::mem::take(self).others;
            self.began = Some(now);
        }
        if self.keys.contains(&key) {
            return (false, others);
        }
        if self.keys.len() >= WARNINGS_MAX {
            self.others += 1;
            return (false, others);
        }
        (self.keys.insert(key), others)
    }
}

impl Peer {
    pub(crate) fn new(address: Option<SocketAddr>) -> Self {
        Self { address, software: OnceLock::new(), host: OnceLock::new() }
    }

    pub(crate) fn set_software(&self, name: &str, version: &str) {
        let kept = |text: &str| text[..text.floor_char_boundary(SOFTWARE_BYTES_MAX)].to_owned();
        let _ = self.software.set((kept(name), kept(version)));
    }

    /// The address in Kafka's form.
    pub(crate) fn host(&self) -> &Arc<str> {
        self.host.get_or_init(|| {
            // An in-process client is on this host.
            let text =
                self.address.map_or_else(|| "127.0.0.1".to_owned(), |address| java_address(address.ip()));
            format!("/{text}").into()
        })
    }

    /// The IP address; `None` for an in-process client.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.address.map(|address| address.ip())
    }

    /// The IP address as ACLs have it.
    pub(crate) fn address_text(&self) -> &str {
        &self.host()[1..]
    }

    /// The port of the client; 0 for an in-process one.
    pub(crate) fn port(&self) -> u16 {
        self.address.map_or(0, |address| address.port())
    }

    /// The name and the version of the client's software, or `unknown` as in Kafka.
    pub(crate) fn software_parts(&self) -> (String, String) {
        self.software.get().cloned().unwrap_or_else(|| ("unknown".to_owned(), "unknown".to_owned()))
    }

    /// The name and version of the client's software.
    fn software(&self) -> String {
        match self.software.get() {
            Some((name, version)) => format!("{name} {version}"),
            None => "unknown software".to_owned(),
        }
    }
}

impl Warnings {
    /// Logs once per host and client software that the broker does not support `feature`.
    pub(crate) fn warn(&self, peer: &Peer, feature: &str) {
        let software = peer.software();
        let host = peer.address.map_or_else(|| "an in-process client".to_owned(), |it| it.ip().to_string());
        if is_new(&self.features, format!("{host} {software} {feature}"), FEATURE_INTERVAL) {
            let client = peer.address.map_or(host, |address| address.to_string());
            tracing::warn!("{client} ({software}) requests {feature}, which this broker does not support");
        }
    }

    /// Logs a failed login, once a minute per host, listener and user.
    pub(crate) fn warn_login(&self, peer: &Peer, listener: &str, user: Option<&str>, reason: &str) {
        let host = peer.host();
        let user = cut(user.unwrap_or("unknown"), USER_BYTES_MAX);
        let reason = one_line(cut(reason, REASON_BYTES_MAX));
        if is_new(&self.logins, format!("{host} {listener} {user}"), LOGIN_INTERVAL) {
            tracing::warn!(
                listener,
                "{host}: user {user:?} is refused: {reason}; further failures of this minute are not logged"
            );
        } else {
            tracing::debug!(listener, user, reason, "a login failed");
        }
    }
}

impl Warnings {
    /// Logs that a connection above a limit is refused, once a minute per host.
    pub(crate) fn warn_full(&self, peer: &Peer, limit: &str, max: usize) {
        let host = peer.host();
        if is_new(&self.refusals, host.to_string(), LOGIN_INTERVAL) {
            tracing::warn!(
                max,
                "{host}: a connection is refused: {limit} is reached; further refusals of this minute are not logged"
            );
        }
    }
}

impl Warnings {
    /// Logs that a client is refused for its certificate, once a minute per host, listener and reason.
    pub(crate) fn log_certificate(&self, peer: &Peer, listener: &str, reason: &str) {
        let host = peer.host();
        let reason = one_line(cut(reason, REASON_BYTES_MAX));
        if is_new(&self.logins, format!("{host} {listener} {reason}"), LOGIN_INTERVAL) {
            tracing::info!(
                listener,
                "{host}: a client is refused: {reason}; further refusals of this minute are not logged"
            );
        } else {
            tracing::debug!(listener, reason, "a client is refused");
        }
    }

    /// Logs that a connection cannot be accepted, once a minute per error. Without free file descriptors, each attempt fails.
    pub(crate) fn warn_accept(&self, error: &io::Error) {
        if is_new(&self.accepts, error.to_string(), LOGIN_INTERVAL) {
            tracing::warn!(%error, "cannot accept a connection; further failures of this minute are not logged");
        }
    }
}

/// The beginning of a text of a client, for the log.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// A text that a client has a part in, without the characters by which it would look like lines of the log.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// Returns `true` for the first warning of an interval with this key; `false` as well when too many were logged.
fn is_new(logged: &Mutex<Logged>, key: String, interval: Duration) -> bool {
    let mut logged = logged.lock().unwrap_or_else(PoisonError::into_inner);
    let (is_new, others) = logged.note(key, interval, Instant::now());
    drop(logged);
    if others > 0 {
        tracing::warn!(count = others, "further warnings of the last interval were not logged");
    }
    is_new
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Each attempt had a line: clients whose certificates no rule matches could fill the disk, and so could a lack of file descriptors.
    #[test]
    fn a_refused_certificate_and_a_failed_accept_are_logged_once_a_minute() {
        let (warnings, peer, log) = (Warnings::default(), Peer::new(None), Log::default());
        let writer = log.clone();
        let captured =
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(captured, || {
            for _ in 0..3 {
                warnings.log_certificate(&peer, "SECURE", "no rule matches CN=a");
                warnings.log_certificate(&peer, "SECURE", "no rule matches CN=b");
                warnings.warn_accept(&io::Error::other("no file descriptor is free"));
            }
        });
        let text = String::from_utf8_lossy(&log.0.lock().expect("no panic")).into_owned();
        assert_eq!(text.lines().count(), 3, "{text}");
        for once in ["CN=a", "CN=b", "cannot accept a connection"] {
            assert_eq!(text.matches(once).count(), 1, "{text}");
        }
    }

    /// A user that failed weeks ago, or a thousand others, hid a failed login for ever.
    #[test]
    fn a_warning_is_logged_again_in_the_next_interval_whatever_others_were_logged() {
        let (mut logged, now) = (Logged::default(), Instant::now());
        let minute = Duration::from_secs(60);
        assert_eq!(logged.note("anna".into(), minute, now), (true, 0));
        assert_eq!(logged.note("anna".into(), minute, now), (false, 0));
        for number in 0..2 * WARNINGS_MAX {
            logged.note(number.to_string(), minute, now);
        }
        let others = WARNINGS_MAX as u64 + 1;
        assert_eq!(logged.note("anna".into(), minute, now + minute), (true, others));
    }

    /// A stranger wrote 2.5 MB into the log with each failed login.
    #[test]
    fn a_long_name_of_a_user_is_cut_for_the_log() {
        assert_eq!(cut(&"\u{1}".repeat(500_000), USER_BYTES_MAX).len(), USER_BYTES_MAX);
        assert_eq!(
            cut(&format!("{}ü", "a".repeat(USER_BYTES_MAX - 1)), USER_BYTES_MAX),
            "a".repeat(USER_BYTES_MAX - 1)
        );
        assert_eq!(cut("anna", USER_BYTES_MAX), "anna");
        assert_eq!(one_line("a\nWARN b\u{85}ü"), "a\\nWARN b\\u{85}ü");
    }

    #[test]
    fn addresses_have_the_form_of_java() {
        for (address, shown) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::1", "0:0:0:0:0:0:0:1"),
            ("2001:db8::1", "2001:db8:0:0:0:0:0:1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(java_address(address.parse().expect("an address")), shown);
        }
    }
}
