//! The parts of a client that read text and bytes from outside, for fuzz targets. Only with the feature `fuzzing`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::assignor::{BUILT_IN, Member, Topics, built_in};
use crate::group::subscription::Subscription;
use crate::net::sasl::oidc::Endpoint;
use crate::net::sasl::scram;
use crate::security::token::parse_extensions;
use crate::security::token_endpoint::TokenEndpoint;
use crate::security::unsecured_jwt::UnsecuredClaims;
use crate::security::{Secret, encrypted_pem, keys, signatures, suites};
use crate::statistics::Snapshot;
use crate::types::{GroupHabits, TopicPartition};

/// A broker's SCRAM messages: its challenge to a client whose nonce is `nonce`, and its last message.
pub fn scram(nonce: &str, challenge: &[u8], last: &[u8]) {
    scram::read_challenge(challenge, nonce);
    let signature = [7; 32];
    let is_accepted = scram::check_signature(last, &signature).is_ok();
    assert!(!is_accepted || last.starts_with(b"v=BwcHBwcHBwcH"), "only the signature is accepted");
}

/// A subscription by names and patterns, one per line, against the topics that are known. Returns the topics.
pub fn subscription(topics: &[&str], known: &[Arc<str>]) -> Option<Vec<Arc<str>>> {
    let subscription = Subscription::parse(topics).ok()?;
    let found = subscription.topics(known);
    assert!(found.is_sorted(), "topics are sorted");
    for topic in &found {
        assert!(known.contains(topic) || subscription.names().contains(topic), "{topic} is not known");
    }
    assert_eq!(subscription.server_pattern().is_some(), subscription.has_patterns());
    Some(found)
}

/// The response of a token endpoint. Returns the time at which the token expires.
pub fn token_response(body: &[u8], now_ms: i64) -> Option<i64> {
    let endpoint = Endpoint::new(TokenEndpoint::parse("https://localhost/token").ok()?);
    let token = endpoint.token_of(body, now_ms).ok()?;
    Some(token.expires_at_ms)
}

/// The properties `sasl.oauthbearer.config`, `sasl.oauthbearer.extensions`, `sasl.oauthbearer.token.endpoint.url`,
/// `ssl.cipher.suites`, `ssl.curves.list` and `ssl.sigalgs.list`, which are read when a client starts.
pub fn security_texts(text: &str, now_ms: i64) {
    if let Ok(claims) = UnsecuredClaims::parse(text) {
        let token = claims.token(now_ms);
        assert!(token.expires_at_ms > now_ms - 1000, "a new token is valid");
        assert_eq!(token.value.expose().split('.').count(), 3, "a JWT has three parts");
    }
    let _ = parse_extensions(text);
    if let Ok(endpoint) = TokenEndpoint::parse(text) {
        assert!(endpoint.path.starts_with('/'), "{:?} is no path", endpoint.path);
    }
    let _ = suites::provider(text, text);
    let _ = signatures::schemes(text);
}

/// Certificates in PEM, and a private key in OpenSSL's form of old.
pub fn certificates(pem: &[u8]) {
    let text = String::from_utf8_lossy(pem);
    if encrypted_pem::has_key(&text) {
        let _ = encrypted_pem::decrypt(&text, &Secret::new("password"));
    }
    if let Ok(certificates) = keys::certificates("ssl.ca.pem", pem) {
        assert!(!certificates.is_empty());
    }
}

/// Statistics as Prometheus reads them.
pub fn prometheus(snapshot: &Snapshot) -> String {
    crate::stats::prometheus::text(snapshot)
}

/// The built-in assignors with these members: each partition has at most one owner, who subscribes to its topic.
pub fn assign(topics: &Topics, members: &BTreeMap<String, Member>) {
    let names = BUILT_IN.iter().map(|name| (*name, GroupHabits::Java));
    for (name, habits) in names.chain([("cooperative-sticky", GroupHabits::Librdkafka)]) {
        let Some(assignor) = built_in(name, habits) else { continue };
        let assignment = assignor.assign(topics, members);
        let mut owners: BTreeMap<&TopicPartition, &str> = BTreeMap::new();
        for (member, partitions) in &assignment {
            let subscribed = &members[member].topics;
            for at in partitions {
                assert!(
                    subscribed.contains(&at.topic),
                    "{name}: {member} does not subscribe to {}",
                    at.topic
                );
                let count = topics.get(&at.topic).map_or(0, Vec::len);
                assert!(
                    usize::try_from(at.partition).is_ok_and(|partition| partition < count),
                    "{name}: {at:?}"
                );
                let other = owners.insert(at, member);
                assert_eq!(other, None, "{name}: {at:?} has two owners");
            }
        }
        if assignor.is_cooperative() {
            continue;
        }
        for (topic, partitions) in topics {
            if !members.values().any(|member| member.topics.contains(topic)) {
                continue;
            }
            for partition in 0..partitions.len() {
                let at = TopicPartition { topic: topic.clone(), partition: partition as i32 };
                assert!(owners.contains_key(&at), "{name}: {at:?} has no owner");
            }
        }
    }
}
