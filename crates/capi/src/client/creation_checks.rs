//! Contradictions of properties that the original finds when it creates a client, with its texts: programs and tests of bindings compare
//! them. The client finds further ones.

use std::borrow::Cow;

use ottla_client::{
    Acks, Config, GroupProtocol, Mechanism, OauthBearer, OauthCloud, OauthGrant, OauthMethod,
};

use crate::client::role::Role;

/// The properties contradict each other if the function returns `true`.
type Check = (fn(&Config) -> bool, &'static str);

/// Bytes of a fetch response in addition to its records.
const RESPONSE_OVERHEAD_BYTES: usize = 512;

const OF_ALL: &[Check] = &[
    (
        |config| config.reconnect_backoff_max < config.reconnect_backoff,
        "`reconnect.backoff.max.ms` must be >= `reconnect.backoff.ms`",
    ),
    (
        |config| {
            let tls = &config.security.tls;
            tls.keystore_location.is_some() && tls.keystore_password.is_none()
        },
        "`ssl.keystore.password` is mandatory when `ssl.keystore.location` is set",
    ),
    (
        |config| with_oidc(config, |oauth| oauth.unsecured_jwt),
        "`enable.sasl.oauthbearer.unsecure.jwt` and `sasl.oauthbearer.method=oidc` are mutually exclusive",
    ),
    (
        |config| with_oidc(config, |oauth| oauth.token_endpoint_url.is_none()),
        "`sasl.oauthbearer.token.endpoint.url` is mandatory when `sasl.oauthbearer.method=oidc` is set",
    ),
    (
        |config| with_oidc(config, |oauth| has_secret(oauth) && oauth.client_id.is_none()),
        "`sasl.oauthbearer.client.id` is mandatory when `sasl.oauthbearer.method=oidc` is set",
    ),
    (
        |config| with_oidc(config, |oauth| has_secret(oauth) && oauth.client_secret.is_none()),
        "`sasl.oauthbearer.client.secret` is mandatory when `sasl.oauthbearer.method=oidc` is set",
    ),
];

const OF_PRODUCERS: &[Check] = &[
    (
        |config| config.transactional_id.is_some() && !is_idempotent(config),
        "`transactional.id` requires `enable.idempotence=true`",
    ),
    (
        |config| {
            config.transactional_id.is_some()
                && config.is_set("message.timeout.ms")
                // 0 is no limit.
                && config.get("message.timeout.ms").is_ok_and(|ms| ms != "0")
                && config.delivery_timeout > config.transaction_timeout
        },
        "`message.timeout.ms` must be set <= `transaction.timeout.ms`",
    ),
    (
        |config| is_idempotent(config) && config.is_set("acks") && config.acks != Acks::All,
        "`acks` must be set to `all` when `enable.idempotence` is true",
    ),
    (
        |config| {
            is_idempotent(config)
                && config.is_set("max.in.flight")
                && config.max_in_flight_requests_per_connection > 5
        },
        "`max.in.flight` must be set <= 5 when `enable.idempotence` is true",
    ),
    (
        |config| is_idempotent(config) && config.retries == 0,
        "`retries` must be set >= 1 when `enable.idempotence` is true",
    ),
    (
        |config| config.enable_gapless_guarantee && !is_idempotent(config),
        "`enable.gapless.guarantee` requires `enable.idempotence` to be enabled",
    ),
    (
        |config| config.linger.is_some_and(|linger| config.delivery_timeout <= linger),
        "`message.timeout.ms` must be greater than `linger.ms`",
    ),
];

const OF_CONSUMERS: &[Check] = &[
    (
        |config| config.is_set("fetch.max.bytes") && config.fetch_max_bytes < config.message_max_bytes,
        "`fetch.max.bytes` must be >= `message.max.bytes`",
    ),
    (
        |config| {
            config.is_set("receive.message.max.bytes")
                && config.receive_message_max_bytes
                    < config.fetch_max_bytes.saturating_add(RESPONSE_OVERHEAD_BYTES)
        },
        "`receive.message.max.bytes` must be >= `fetch.max.bytes` + 512",
    ),
    (
        |config| {
            config.group_protocol == GroupProtocol::Classic
                && config.max_poll_interval < config.session_timeout
        },
        // As the original writes it.
        "`max.poll.interval.ms`must be >= `session.timeout.ms`",
    ),
    (
        |config| has_of_brokers(config, "session.timeout.ms"),
        "`session.timeout.ms` is not supported for `group.protocol=consumer` or share consumer. It is defined broker side",
    ),
    (
        |config| has_of_brokers(config, "heartbeat.interval.ms"),
        "`heartbeat.interval.ms` is not supported for `group.protocol=consumer` or share consumer. It is defined broker side",
    ),
    (
        |config| has_of_brokers(config, "partition.assignment.strategy"),
        "`partition.assignment.strategy` is not supported for `group.protocol=consumer`. Use `group.remote.assignor` instead",
    ),
];

/// Returns the text of the first contradiction. A mock cluster, which `has_mock` announces, needs no credentials; `has_ca` is true
/// if the authorities were set from memory.
pub(super) fn contradiction(role: Role, has_mock: bool, has_ca: bool, config: &Config) -> Option<String> {
    // Certificates from memory are the only ones that are trusted, and those of a file would be in addition to them.
    if has_ca && config.security.tls.ca_location.is_some() {
        let text = "`ssl.ca.location` or `ssl.ca.pem`, and memory-based set_ssl_cert(CERT_CA) are mutually exclusive.";
        return Some(text.to_owned());
    }
    if lacks_credentials(config) && !has_mock {
        return Some("sasl.username and sasl.password must be set".to_owned());
    }
    let own = match role {
        Role::Producer => OF_PRODUCERS,
        Role::Consumer => OF_CONSUMERS,
        // It has checks of its own.
        Role::ShareConsumer => &[],
    };
    let found = OF_ALL.iter().chain(own).find(|(contradicts, _)| contradicts(config));
    found.map(|(_, text)| (*text).to_owned()).or_else(|| mixed_assignors(config))
}

/// Returns the text for assignors of both rebalance protocols beside each other.
fn mixed_assignors(config: &Config) -> Option<String> {
    let names = &config.partition_assignment_strategy;
    let has = |wanted: &[&str]| names.iter().any(|name| wanted.contains(&name.as_str()));
    (has(&["cooperative-sticky"]) && has(&["range", "roundrobin", "sticky"])).then(|| {
        format!(
            "All partition.assignment.strategy ({}) assignors must have the same protocol type, \
             online migration between assignors with different protocol types is not supported",
            names.join(",")
        )
    })
}

/// The beginnings of texts of the client, and the original's.
const BEGINNINGS: &[(&str, &str)] = &[
    ("ssl.ca.pem: ", "failed to read certificate #0 from ssl.ca.pem: not in PEM format?: "),
    ("the client's certificate and private key cannot be used: ", "ssl.key.location failed: "),
    ("an SSL key is set without its certificate: ", "Private key check failed: "),
];

/// The beginning of the client's texts about a keystore.
const KEYSTORE: &str = "ssl.keystore.location: ";

/// Returns the text of a refusal by the client. The original's names an unknown assignor, and a property of TLS that cannot be used as
/// failed.
pub(super) fn refusal(text: &str) -> Cow<'_, str> {
    let assignor =
        text.strip_prefix("partition.assignment.strategy: `").and_then(|rest| rest.split_once('`'));
    if let Some((name, _)) = assignor {
        return format!("Unsupported partition.assignment.strategy: {name}").into();
    }
    let replaced = |(own, original): &(&str, &str)| Some(format!("{original}{}", text.strip_prefix(own)?));
    if let Some(text) = BEGINNINGS.iter().find_map(replaced) {
        return text.into();
    }
    if let Some(reason) = text.strip_prefix(KEYSTORE) {
        let is_there = !reason.contains("(os error ");
        let failed =
            if is_there { "parse ssl.keystore.location PKCS#12 file" } else { "open ssl.keystore.location" };
        return format!("Failed to {failed}: {reason}").into();
    }
    let is_property = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'.');
    match text.split_once(": ") {
        Some((name, reason)) if name.starts_with("ssl.") && is_property(name) => {
            format!("{name} failed: {reason}").into()
        }
        _ => text.into(),
    }
}

/// Applies a check to a client that gets its tokens from an identity provider.
fn with_oidc(config: &Config, contradicts: impl FnOnce(&OauthBearer) -> bool) -> bool {
    let sasl = &config.security.sasl;
    let oauth = &sasl.oauthbearer;
    config.security.protocol.is_sasl()
        && sasl.mechanism == Some(Mechanism::OauthBearer)
        && oauth.method == OauthMethod::Oidc
        // The tokens of a cloud come from its own service.
        && oauth.cloud == OauthCloud::None
        && contradicts(oauth)
}

/// Returns `true` if the client proves its identity by a secret.
fn has_secret(oauth: &OauthBearer) -> bool {
    oauth.grant != OauthGrant::JwtBearer
}

fn lacks_credentials(config: &Config) -> bool {
    let sasl = &config.security.sasl;
    config.security.protocol.is_sasl()
        && sasl.mechanism.unwrap_or_default().has_password()
        && (sasl.username.as_ref().is_none_or(String::is_empty) || sasl.password.is_none())
}

/// Transactions enable idempotence.
fn is_idempotent(config: &Config) -> bool {
    config.enable_idempotence || config.transactional_id.is_some() && !config.is_set("enable.idempotence")
}

/// Returns `true` if a property is set that the broker decides about in the group's protocol.
fn has_of_brokers(config: &Config, property: &str) -> bool {
    config.group_protocol == GroupProtocol::Consumer && config.is_set(property)
}
