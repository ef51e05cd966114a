//! The properties of one listener that change while the broker runs, with the rules of Apache Kafka (KIP-226, `DynamicBrokerConfig`).

use std::path::PathBuf;

use super::listener::{Pem, TlsSettings};
use super::listener_properties::{LISTENER_PREFIX, is_of_listener, property_of_listener};
use super::live::Values;
use super::{Password, Scope, Setting, find_setting};

/// The certificates and keys of a listener: its only properties that change while it exists.
const CERTIFICATES: [&str; 10] = [
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
];

/// The properties of one listener that can be set for all brokers.
const OF_ALL_BROKERS: [&str; 3] = ["max.connection.creation.rate", "max.connections", "num.network.threads"];

/// Returns `true` for a property that changes with the prefix of a listener only.
pub(crate) fn needs_listener(name: &str) -> bool {
    CERTIFICATES.contains(&name)
}

/// Returns `true` for a property of one listener that is set for one broker only.
pub(crate) fn is_of_one_broker(name: &str) -> bool {
    let property = name.strip_prefix(LISTENER_PREFIX).and_then(|rest| Some(rest.split_once('.')?.1));
    is_of_listener(name) && property.is_none_or(|property| !OF_ALL_BROKERS.contains(&property))
}

/// The setting of a property of one listener.
pub(crate) fn setting_of_listener(name: &str) -> Option<&'static Setting> {
    find_setting(Scope::Broker, property_of_listener(name)?)
}

/// Returns whether the certificates of an existing listener change.
///
/// # Errors
/// Another property of the listener changes, in Kafka's words.
pub(crate) fn changes_certificates(listener: &str, before: &Values, values: &Values) -> Result<bool, String> {
    let prefix = prefix_of(listener);
    let mut has_changes = false;
    for name in before.keys().chain(values.keys()) {
        let Some(property) = name.strip_prefix(&prefix) else { continue };
        if before.get(name) == values.get(name) {
            continue;
        }
        if values.contains_key(name) && !CERTIFICATES.contains(&property) {
            return Err(format!(
                "Configs cannot be updated dynamically for existing listener ListenerName({}), restart broker or create a new \
                 listener for update",
                listener.to_uppercase()
            ));
        }
        has_changes = true;
    }
    Ok(has_changes)
}

/// The TLS of a listener with the certificates that a node has in `values`. `None` if it has none there.
///
/// # Errors
/// A sentence that names the property.
pub(crate) fn changed_tls(
    start: &TlsSettings,
    listener: &str,
    values: &Values,
) -> Result<Option<TlsSettings>, String> {
    let prefix = prefix_of(listener);
    let get = |property: &str| {
        let value = values.get(&format!("{prefix}{property}")).map(String::as_str).map(str::trim);
        value.filter(|value| !value.is_empty())
    };
    if CERTIFICATES.into_iter().all(|property| get(property).is_none()) {
        return Ok(None);
    }
    for name in ["ssl.keystore.type", "ssl.truststore.type"] {
        if let Some(kind) = get(name).filter(|kind| *kind != "PEM") {
            return Err(format!("{name}=`{kind}`: this broker reads PEM: set {name}=PEM"));
        }
    }
    let file = |property: &str| get(property).map(|path| Pem::File(PathBuf::from(path)));
    let text = |property: &str| get(property).map(|text| Pem::Text(text.into()));
    let mut tls = start.clone();
    if let Some(store) = file("ssl.keystore.location") {
        tls.certificates = store.clone();
        tls.key = store;
    } else {
        tls.certificates = text("ssl.keystore.certificate.chain").unwrap_or(tls.certificates);
        tls.key = text("ssl.keystore.key").unwrap_or(tls.key);
    }
    if let Some(password) = get("ssl.key.password") {
        tls.key_password = Some(Password::from(password));
    }
    let trusted = file("ssl.truststore.location").or_else(|| text("ssl.truststore.certificates"));
    if trusted.is_some() && start.trusted.is_none() {
        let reason =
            "Cannot add SSL truststore to an existing listener for which no truststore was configured.";
        return Err(reason.to_owned());
    }
    tls.trusted = trusted.or(tls.trusted);
    Ok(Some(tls))
}

fn prefix_of(listener: &str) -> String {
    format!("{LISTENER_PREFIX}{}.", listener.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn start() -> TlsSettings {
        TlsSettings::new(Pem::File("/start.pem".into()), Pem::File("/start.pem".into()))
    }

    #[test]
    fn only_the_certificates_of_an_existing_listener_change() {
        let none = Values::new();
        let changes = |name: &str| changes_certificates("OUT", &none, &values(&[(name, "x")]));
        assert_eq!(changes("listener.name.out.ssl.keystore.location"), Ok(true));
        assert_eq!(changes("listener.name.in.ssl.keystore.location"), Ok(false), "another listener");
        assert_eq!(changes("log.retention.ms"), Ok(false));
        let refused = changes("listener.name.out.ssl.client.auth").expect_err("refused");
        assert_eq!(
            refused,
            "Configs cannot be updated dynamically for existing listener ListenerName(OUT), restart broker or create a new \
             listener for update"
        );
        // Stored while the listener did not exist.
        let before = values(&[("listener.name.out.ssl.client.auth", "required")]);
        assert_eq!(changes_certificates("OUT", &before, &none), Ok(true), "it can be deleted");
        assert_eq!(changes_certificates("OUT", &before, &before), Ok(false));
    }

    #[test]
    fn limits_of_a_listener_can_be_set_for_all_brokers() {
        assert!(!is_of_one_broker("listener.name.out.max.connections"));
        assert!(is_of_one_broker("listener.name.out.ssl.keystore.location"));
        assert!(!is_of_one_broker("ssl.keystore.location"));
    }

    #[test]
    fn the_certificates_of_a_node_replace_those_of_the_start_one_by_one() {
        let changed = |pairs: &[(&str, &str)]| changed_tls(&start(), "OUT", &values(pairs));
        let other = [("listener.name.in.ssl.keystore.location", "/in.pem")];
        assert!(changed(&other).expect("allowed").is_none());
        let file = changed(&[("listener.name.out.ssl.keystore.location", "/new.pem")]).expect("allowed");
        let file = file.expect("a change");
        assert_eq!(
            (file.certificates, file.key),
            (Pem::File("/new.pem".into()), Pem::File("/new.pem".into()))
        );
        let key = changed(&[("listener.name.out.ssl.keystore.key", "KEY")]).expect("allowed");
        let key = key.expect("a change");
        assert_eq!((key.certificates, key.key), (Pem::File("/start.pem".into()), Pem::Text("KEY".into())));
        let jks = changed(&[("listener.name.out.ssl.keystore.type", "JKS")]).expect_err("refused");
        assert!(jks.contains("reads PEM"), "{jks}");
        let trusted = changed(&[("listener.name.out.ssl.truststore.location", "/ca.pem")]);
        assert!(trusted.expect_err("refused").starts_with("Cannot add SSL truststore"));
    }
}
