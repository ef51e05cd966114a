//! Listeners under Kafka's property names.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use super::jaas;
use super::listener::{ClientAuth, Listener, Pem, SaslMechanism, SaslSettings, TlsSettings, TlsVersion};
use super::{KeyEndpointSettings, KeySource, OauthSettings, Password, PrincipalRules};
use super::{Scope, find_setting};

/// The properties of one listener begin with this, its name in lower case, and a dot.
pub(super) const LISTENER_PREFIX: &str = "listener.name.";

/// The properties that [`SecurityProperties::listeners`] reads, with and without the prefix of a listener.
const NAMES: [&str; 29] = [
    "advertised.listeners",
    "connection.failed.authentication.delay.ms",
    "connections.max.reauth.ms",
    "controller.listener.names",
    "listener.security.protocol.map",
    "listeners",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.server.max.receive.size",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.principal.mapping.rules",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.type",
];

/// The properties of listeners, with their secrets.
#[derive(Clone, Default)]
pub(crate) struct SecurityProperties(BTreeMap<String, Password>);

impl fmt::Debug for SecurityProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Returns `true` for a property of one listener.
pub(crate) fn is_of_listener(name: &str) -> bool {
    name.starts_with(LISTENER_PREFIX)
}

/// `ssl.keystore.location` of `listener.name.internal.ssl.keystore.location`; `None` if it is no property of one listener.
pub(super) fn property_of_listener(name: &str) -> Option<&str> {
    let (_, property) = name.strip_prefix(LISTENER_PREFIX)?.split_once('.')?;
    Some(without_mechanism(property))
}

/// Returns `true` for an address that clients cannot connect to: that of all interfaces.
fn is_unspecified(host: &str) -> bool {
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
}

impl SecurityProperties {
    /// Stores a property if it is one of listeners.
    ///
    /// # Errors
    /// A property with the prefix of a listener that no listener has.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        if is_of_listener(name) {
            let property = property_of_listener(name);
            if property.is_none_or(|property| find_setting(Scope::Broker, property).is_none()) {
                return Err(format!("no property of a listener is called `{name}`"));
            }
        } else if !NAMES.contains(&name) {
            return Ok(());
        }
        self.0.insert(name.to_owned(), value.trim().into());
        Ok(())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(Password::expose).filter(|value| !value.is_empty())
    }

    /// The properties of single listeners.
    pub(crate) fn of_listeners(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.0.iter().filter(|(name, _)| is_of_listener(name));
        all.map(|(name, value)| (name.as_str(), value.expose()))
    }

    /// The listeners for clients that `listeners` names. `None` without that property.
    pub(crate) fn listeners(&self) -> Result<Option<Vec<Listener>>, String> {
        let Some(listeners) = self.get("listeners") else { return Ok(None) };
        let controllers: Vec<&str> = list(self.get("controller.listener.names")).collect();
        let advertised = self.advertised(listeners)?;
        let mut all: Vec<Listener> = Vec::new();
        for entry in list(Some(listeners)) {
            let (name, host, port) = split_listener(entry)
                .ok_or_else(|| format!("listeners=`{listeners}`: `{entry}` is not NAME://HOST:PORT"))?;
            if controllers.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                continue;
            }
            if all.iter().any(|other| other.name.eq_ignore_ascii_case(name)) {
                return Err(format!("listeners=`{listeners}`: {name} is there twice"));
            }
            let mut listener = Listener::new(name, resolve(listeners, host, port)?);
            let own = advertised.iter().find(|(of, ..)| of.eq_ignore_ascii_case(name));
            if let Some((_, host, port)) = own.filter(|(_, host, _)| is_unspecified(host)) {
                return Err(format!(
                    "advertised.listeners: clients of {name} cannot connect to {host}: use {name}://HOST:{port}, with a host that they \
                     know"
                ));
            }
            listener.advertise = match own {
                Some((_, host, port)) if !host.is_empty() => Some(format!("{host}:{port}")),
                // Clients cannot connect to the address of all interfaces.
                _ if host.is_empty() => Some("localhost".to_owned()),
                _ => None,
            };
            all.push(self.secured(listener)?);
        }
        if all.is_empty() {
            return Err(format!(
                "listeners=`{listeners}`: no listener for clients; use PLAINTEXT://HOST:PORT"
            ));
        }
        Ok(Some(all))
    }

    /// The entries of `advertised.listeners`. Each is for a listener that `listeners` names, as in Apache Kafka.
    fn advertised(&self, listeners: &str) -> Result<Vec<(&str, &str, &str)>, String> {
        let Some(text) = self.get("advertised.listeners") else { return Ok(Vec::new()) };
        let named = list(Some(listeners)).filter_map(split_listener);
        let names: Vec<&str> = named.map(|(name, ..)| name).collect();
        let mut advertised = Vec::new();
        for entry in list(Some(text)) {
            let (name, host, port) = split_listener(entry)
                .filter(|(_, _, port)| port.parse::<u16>().is_ok())
                .ok_or_else(|| format!("advertised.listeners=`{text}`: `{entry}` is not NAME://HOST:PORT"))?;
            if !names.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                let names = names.join(", ");
                return Err(format!(
                    "advertised.listeners=`{text}`: no listener is called {name}; `listeners` has {names}"
                ));
            }
            advertised.push((name, host, port));
        }
        Ok(advertised)
    }

    /// A property that names or secures listeners, if there is one and `listeners` is not set.
    pub(crate) fn property_without_listeners(&self) -> Option<&str> {
        let of_listeners = ["advertised.listeners", LISTENER_PREFIX, "sasl.", "ssl."];
        let is_one = |name: &&str| of_listeners.iter().any(|beginning| name.starts_with(beginning));
        let mut names = self.0.keys().map(String::as_str).filter(|name| self.get(name).is_some());
        if self.get("listeners").is_some() { None } else { names.find(is_one) }
    }

    /// Adds the security of the listener's protocol.
    fn secured(&self, mut listener: Listener) -> Result<Listener, String> {
        let name = &listener.name;
        let pairs = list(self.get("listener.security.protocol.map")).filter_map(|pair| pair.split_once(':'));
        let mapped = pairs
            .filter(|(of, _)| of.trim().eq_ignore_ascii_case(name))
            .map(|(_, protocol)| protocol.trim())
            .last();
        let properties = ListenerProperties { all: self, name };
        let (has_tls, has_sasl) = match mapped.unwrap_or(name).to_ascii_uppercase().as_str() {
            "PLAINTEXT" => (false, false),
            "SSL" => (true, false),
            "SASL_PLAINTEXT" => (false, true),
            "SASL_SSL" => (true, true),
            other => {
                return Err(format!(
                    "listener {name}: `{other}` is no security protocol: use PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, \
                     or map the name in listener.security.protocol.map"
                ));
            }
        };
        let located = |problem: String| format!("listener {name}: {problem}");
        let tls = has_tls.then(|| properties.tls(has_sasl)).transpose().map_err(located)?;
        let sasl = has_sasl.then(|| properties.sasl()).transpose().map_err(located)?;
        listener.tls = tls;
        listener.sasl = sasl;
        Ok(listener)
    }
}

/// The properties as one listener sees them.
struct ListenerProperties<'a> {
    all: &'a SecurityProperties,
    name: &'a str,
}

impl<'a> ListenerProperties<'a> {
    fn own(&self, name: &str) -> Option<&'a str> {
        self.all.get(&format!("{LISTENER_PREFIX}{}.{name}", self.name.to_lowercase()))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.own(name).or_else(|| self.all.get(name))
    }

    /// The property of a mechanism; that of all mechanisms otherwise.
    fn of_mechanism(&self, mechanism: SaslMechanism, name: &str) -> Option<&'a str> {
        let prefixed = format!("{}.{name}", mechanism.name().to_lowercase());
        self.own(&prefixed).or_else(|| self.get(name))
    }

    fn tls(&self, has_sasl: bool) -> Result<TlsSettings, String> {
        let file = |name: &str| self.get(name).map(|path| Pem::File(PathBuf::from(path)));
        let text = |name: &str| self.get(name).map(|text| Pem::Text(text.into()));
        for store in ["ssl.keystore", "ssl.truststore"] {
            let kind = self.get(&format!("{store}.type")).unwrap_or("JKS");
            if kind != "PEM" && self.get(&format!("{store}.location")).is_some() {
                return Err(format!("{store}.type=`{kind}`: this broker reads PEM: set {store}.type=PEM"));
            }
        }
        let missing =
            "ssl.keystore.location is missing, or ssl.keystore.certificate.chain with ssl.keystore.key";
        // The listener's own certificates count before a file for all listeners.
        let file_before = |location: &str, certificates: &str| {
            file(location).filter(|_| self.own(location).is_some() || self.own(certificates).is_none())
        };
        let store = file_before("ssl.keystore.location", "ssl.keystore.certificate.chain");
        let certificates = store.clone().or_else(|| text("ssl.keystore.certificate.chain")).ok_or(missing)?;
        let key = store.or_else(|| text("ssl.keystore.key")).ok_or(missing)?;
        let mut tls = TlsSettings::new(certificates, key);
        tls.key_password = self.get("ssl.key.password").map(Password::from);
        tls.trusted = file_before("ssl.truststore.location", "ssl.truststore.certificates")
            .or_else(|| text("ssl.truststore.certificates"));
        // As in Kafka: with SASL, only the listener's own property counts.
        let name = "ssl.client.auth";
        let client_auth = if has_sasl { self.own(name) } else { self.get(name) };
        tls.client_auth = match client_auth {
            None | Some("none") => ClientAuth::None,
            Some("requested") => ClientAuth::Requested,
            Some("required") => ClientAuth::Required,
            Some(other) => return Err(format!("{name}=`{other}`: use none, requested or required")),
        };
        tls.cipher_suites = list(self.get("ssl.cipher.suites")).map(str::to_owned).collect();
        if let Some(names) = self.get("ssl.enabled.protocols") {
            tls.versions = tls_versions(names).map_err(|error| format!("ssl.enabled.protocols: {error}"))?;
        }
        if let Some(rules) = self.get("ssl.principal.mapping.rules") {
            tls.principal_rules = PrincipalRules::parse(rules)
                .map_err(|error| format!("ssl.principal.mapping.rules: {error}"))?;
        }
        Ok(tls)
    }

    fn sasl(&self) -> Result<SaslSettings, String> {
        let name = "sasl.enabled.mechanisms";
        let mut mechanisms = Vec::new();
        for mechanism in list(self.get(name)) {
            let known = SaslMechanism::of_name(mechanism).ok_or_else(|| {
                let known = SaslMechanism::ALL.map(SaslMechanism::name).join(", ");
                format!("{name}: `{mechanism}` is not supported: use some of {known}")
            })?;
            mechanisms.push(known);
        }
        let mut sasl = SaslSettings::new(mechanisms);
        let name = "connection.failed.authentication.delay.ms";
        if let Some(value) = self.get(name) {
            sasl.failure_delay = Duration::from_millis(number(name, value)?);
        }
        let name = "sasl.server.max.receive.size";
        if let Some(value) = self.get(name) {
            sasl.receive_bytes_max = number(name, value)? as usize;
        }
        for mechanism in sasl.mechanisms.clone() {
            let name = "connections.max.reauth.ms";
            if let Some(value) = self.of_mechanism(mechanism, name) {
                sasl.session_max.insert(mechanism, Duration::from_millis(number(name, value)?));
            }
        }
        if sasl.mechanisms.contains(&SaslMechanism::Plain) {
            let jaas = self.of_mechanism(SaslMechanism::Plain, "sasl.jaas.config").unwrap_or_default();
            // Other options are the broker's own login, which it does not need.
            let options = jaas::options("plain.sasl.jaas.config", jaas, "PlainLoginModule")?;
            let user = |(name, password): (String, Password)| {
                Some((name.strip_prefix("user_")?.to_owned(), password))
            };
            sasl.plain_users = options.into_iter().filter_map(user).collect();
            if sasl.plain_users.is_empty() {
                return Err(
                    "PLAIN needs users: plain.sasl.jaas.config=`... user_NAME=\"PASSWORD\";`".to_owned()
                );
            }
        }
        if sasl.mechanisms.contains(&SaslMechanism::OauthBearer) {
            sasl.oauth = Some(self.oauth()?);
        }
        Ok(sasl)
    }

    fn oauth(&self) -> Result<OauthSettings, String> {
        let get = |name: &str| self.get(name).ok_or_else(|| format!("OAUTHBEARER needs {name}"));
        let url = get("sasl.oauthbearer.jwks.endpoint.url")?;
        let keys = match url.strip_prefix("file://") {
            Some(path) if path.starts_with('/') => KeySource::File(path.into()),
            Some(_) => {
                return Err(format!("sasl.oauthbearer.jwks.endpoint.url=`{url}`: expected file:///PATH"));
            }
            None => KeySource::Endpoint(self.key_endpoint(url)?),
        };
        let audiences = get("sasl.oauthbearer.expected.audience")?;
        let mut oauth = OauthSettings::with_keys(keys, get("sasl.oauthbearer.expected.issuer")?, "");
        oauth.audiences = list(Some(audiences)).map(str::to_owned).collect();
        if let Some(claim) = self.get("sasl.oauthbearer.sub.claim.name") {
            claim.clone_into(&mut oauth.subject_claim);
        }
        let name = "sasl.oauthbearer.clock.skew.seconds";
        if let Some(value) = self.get(name) {
            oauth.clock_skew = Duration::from_secs(number(name, value)?);
        }
        Ok(oauth)
    }

    /// The endpoint of public keys. As in Kafka, its authorities are options of the login module.
    fn key_endpoint(&self, url: &str) -> Result<KeyEndpointSettings, String> {
        let mut endpoint = KeyEndpointSettings::new(url);
        for (name, time) in [
            ("sasl.oauthbearer.jwks.endpoint.refresh.ms", &mut endpoint.refresh),
            ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", &mut endpoint.retry_backoff),
            ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", &mut endpoint.retry_backoff_max),
        ] {
            if let Some(value) = self.get(name) {
                *time = Duration::from_millis(number(name, value)?.max(1));
            }
        }
        let jaas = self.own("oauthbearer.sasl.jaas.config").unwrap_or_default();
        let options = jaas::options("oauthbearer.sasl.jaas.config", jaas, "OAuthBearerLoginModule")?;
        let option = |name: &str| options.iter().find(|(found, _)| found == name).map(|(_, value)| value);
        if let Some(file) = option("ssl.truststore.location") {
            let kind = option("ssl.truststore.type").map_or("JKS", Password::expose);
            if kind != "PEM" {
                return Err(format!(
                    "oauthbearer.sasl.jaas.config: ssl.truststore.type=`{kind}`: this broker reads PEM: set \
                     ssl.truststore.type=\"PEM\""
                ));
            }
            endpoint.trusted = Some(Pem::File(file.expose().into()));
        } else if let Some(text) = option("ssl.truststore.certificates") {
            endpoint.trusted = Some(Pem::Text(text.clone()));
        }
        Ok(endpoint)
    }
}

/// The versions of TLS in a list of Java's names. rustls has none of the older ones, which are left out.
fn tls_versions(names: &str) -> Result<Vec<TlsVersion>, String> {
    let mut versions = Vec::new();
    for name in list(Some(names)) {
        match name {
            "TLSv1.2" => versions.push(TlsVersion::V1_2),
            "TLSv1.3" => versions.push(TlsVersion::V1_3),
            "SSLv2Hello" | "SSLv3" | "TLSv1" | "TLSv1.1" => {}
            other => return Err(format!("`{other}` is no version of TLS: use TLSv1.2 or TLSv1.3")),
        }
    }
    if versions.is_empty() { Err(format!("`{names}` has neither TLSv1.2 nor TLSv1.3")) } else { Ok(versions) }
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{name}=`{value}`: not a whole number from 0"))
}

fn list(text: Option<&str>) -> impl Iterator<Item = &str> {
    text.unwrap_or_default().split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

/// `NAME://HOST:PORT`
fn split_listener(text: &str) -> Option<(&str, &str, &str)> {
    let (name, address) = text.trim().split_once("://")?;
    let (host, port) = address.rsplit_once(':')?;
    Some((name, host, port))
}

fn resolve(listeners: &str, host: &str, port: &str) -> Result<SocketAddr, String> {
    let address = format!("{}:{port}", if host.is_empty() { "0.0.0.0" } else { host });
    let mut addresses =
        address.to_socket_addrs().map_err(|error| format!("listeners=`{listeners}`: {address}: {error}"))?;
    addresses.next().ok_or_else(|| format!("listeners=`{listeners}`: {address} has no address"))
}

/// `sasl.jaas.config` of `plain.sasl.jaas.config`.
fn without_mechanism(property: &str) -> &str {
    let mut mechanisms = SaslMechanism::ALL.iter().map(|mechanism| mechanism.name().to_lowercase());
    let rest = mechanisms.find_map(|name| property.strip_prefix(&name)?.strip_prefix('.'));
    rest.unwrap_or(property)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listeners(pairs: &[(&str, &str)]) -> Result<Vec<Listener>, String> {
        let mut properties = SecurityProperties::default();
        for (name, value) in pairs {
            properties.set(name, value)?;
        }
        properties.listeners().map(Option::unwrap_or_default)
    }

    #[test]
    fn a_stock_file_has_one_listener_and_its_address() {
        let all = listeners(&[
            ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
            ("advertised.listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"),
            ("controller.listener.names", "CONTROLLER"),
        ])
        .expect("allowed");
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].address, SocketAddr::from(([0, 0, 0, 0], 9092)));
        assert_eq!(all[0].advertise.as_deref(), Some("localhost:9092"));
        assert_eq!(all[0].protocol(), "PLAINTEXT");
    }

    /// Clients got the address 0.0.0.0, and connected to their own machine.
    #[test]
    fn the_address_of_all_interfaces_is_not_advertised() {
        for address in ["0.0.0.0", "[::]"] {
            let advertised = format!("PLAINTEXT://{address}:9092");
            let pairs = [("listeners", "PLAINTEXT://:9092"), ("advertised.listeners", advertised.as_str())];
            let error = listeners(&pairs).expect_err("clients cannot connect");
            assert!(error.contains("use PLAINTEXT://HOST:9092"), "{error}");
        }
        let pairs = [
            ("listeners", "PLAINTEXT://0.0.0.0:9092"),
            ("advertised.listeners", "PLAINTEXT://broker.test:9092"),
        ];
        let all = listeners(&pairs).expect("allowed");
        assert_eq!(all[0].advertise.as_deref(), Some("broker.test:9092"));
    }

    /// They were ignored: clients got the address of the listener itself.
    #[test]
    fn advertised_listeners_without_a_name_or_with_another_one_are_refused() {
        let refused = |advertised| {
            let pairs = [("listeners", "PLAINTEXT://:9092"), ("advertised.listeners", advertised)];
            listeners(&pairs).expect_err("no listener")
        };
        for text in ["broker.test:9092", "PLAINTEXT://broker.test", "PLAINTEXT://broker.test:x"] {
            let error = refused(text);
            assert!(error.ends_with(&format!("`{text}` is not NAME://HOST:PORT")), "{error}");
        }
        let error = refused("plaintext://broker.test:9092,EXTERNAL://broker.test:9094");
        assert!(error.ends_with("no listener is called EXTERNAL; `listeners` has PLAINTEXT"), "{error}");
    }

    #[test]
    fn names_of_listeners_and_protocols_have_no_case() {
        let all = listeners(&[
            ("listeners", "client://127.0.0.1:9092"),
            ("listener.security.protocol.map", "CLIENT:plaintext"),
        ])
        .expect("allowed");
        assert_eq!(all[0].protocol(), "PLAINTEXT");
    }

    /// The file for all listeners was served without a word, and clients of its authorities were let in.
    #[test]
    fn a_listener_has_its_own_certificate_before_the_file_for_all() {
        let all = listeners(&[
            ("listeners", "SSL://127.0.0.1:9092"),
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.location", "/all.pem"),
            ("listener.name.ssl.ssl.keystore.certificate.chain", "CHAIN"),
            ("listener.name.ssl.ssl.keystore.key", "KEY"),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.location", "/all-authorities.pem"),
            ("listener.name.ssl.ssl.truststore.certificates", "AUTHORITY"),
        ])
        .expect("allowed");
        let tls = all[0].tls.as_ref().expect("TLS");
        assert!(matches!(&tls.certificates, Pem::Text(_)), "{tls:?}");
        assert!(matches!(&tls.trusted, Some(Pem::Text(_))), "{tls:?}");
    }

    #[test]
    fn a_property_of_the_listener_wins() {
        let all = listeners(&[
            ("listeners", "IN://127.0.0.1:9092,OUT://127.0.0.1:9093"),
            ("listener.security.protocol.map", "IN:SSL, OUT:SASL_SSL"),
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.location", "/in.pem"),
            ("ssl.client.auth", "required"),
            ("ssl.truststore.certificates", "-"),
            ("listener.name.out.ssl.keystore.location", "/out.pem"),
            ("listener.name.out.sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512"),
            ("listener.name.out.scram-sha-512.connections.max.reauth.ms", "1000"),
            (
                "listener.name.out.plain.sasl.jaas.config",
                r#"org.apache.kafka.common.security.plain.PlainLoginModule required
                   username="broker" password="x" user_alice="a\"=b" user_bob=c;"#,
            ),
        ])
        .expect("allowed");
        let [inside, outside] = &all[..] else { panic!("{all:?}") };
        let tls = |listener: &Listener| listener.tls.clone().expect("TLS");
        assert_eq!(tls(inside).certificates, Pem::File("/in.pem".into()));
        assert_eq!(tls(inside).client_auth, ClientAuth::Required);
        assert_eq!(tls(outside).key, Pem::File("/out.pem".into()));
        assert_eq!(tls(outside).client_auth, ClientAuth::None);
        let sasl = outside.sasl.clone().expect("SASL");
        assert_eq!(sasl.mechanisms, [SaslMechanism::Plain, SaslMechanism::ScramSha512]);
        assert_eq!(sasl.plain_users["alice"].expose(), "a\"=b");
        assert_eq!(sasl.plain_users["bob"].expose(), "c");
        assert_eq!(sasl.plain_users.len(), 2);
        assert_eq!(sasl.session_max.len(), 1);
        assert!(!format!("{all:?}").contains("a\\\"=b"), "secrets are hidden");
    }

    /// A listener that was to have TLS 1.3 only had TLS 1.2, too.
    #[test]
    fn a_listener_has_the_versions_of_tls_that_are_named() {
        let with = |names: &'static str| {
            listeners(&[
                ("listeners", "SSL://127.0.0.1:9092"),
                ("ssl.keystore.type", "PEM"),
                ("ssl.keystore.location", "/all.pem"),
                ("ssl.enabled.protocols", "TLSv1.2"),
                ("listener.name.ssl.ssl.enabled.protocols", names),
            ])
        };
        let versions = |names| with(names).expect("allowed")[0].tls.as_ref().expect("TLS").versions.clone();
        assert_eq!(versions("TLSv1.3"), [TlsVersion::V1_3]);
        assert_eq!(versions(""), [TlsVersion::V1_2], "that of all listeners");
        assert_eq!(versions("TLSv1.1, TLSv1.2,TLSv1.3"), [TlsVersion::V1_2, TlsVersion::V1_3]);
        for (names, reason) in
            [("TLSv1.1", "neither TLSv1.2 nor TLSv1.3"), ("TLS1.3", "`TLS1.3` is no version")]
        {
            let refused = with(names).expect_err("refused");
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn what_this_broker_lacks_is_refused() {
        let refused = |pairs: &[(&str, &str)]| listeners(pairs).expect_err("refused");
        assert!(refused(&[("listeners", "OUT://:9093")]).contains("no security protocol"));
        assert!(refused(&[("listeners", "9093")]).contains("NAME://HOST:PORT"));
        assert!(refused(&[("listeners", "SSL://:9093")]).contains("ssl.keystore.location is missing"));
        let jks = [("listeners", "SSL://:9093"), ("ssl.keystore.location", "/a.jks")];
        assert!(refused(&jks).contains("ssl.keystore.type=PEM"));
        let gssapi = [("listeners", "SASL_PLAINTEXT://:9093"), ("sasl.enabled.mechanisms", "GSSAPI")];
        assert!(refused(&gssapi).contains("`GSSAPI` is not supported"));
        let no_users = [("listeners", "SASL_PLAINTEXT://:9093"), ("sasl.enabled.mechanisms", "PLAIN")];
        assert!(refused(&no_users).contains("PLAIN needs users"));
        let refused_keys = |url: &str| {
            refused(&[
                ("listeners", "SASL_PLAINTEXT://:9093"),
                ("sasl.enabled.mechanisms", "OAUTHBEARER"),
                ("sasl.oauthbearer.jwks.endpoint.url", url),
            ])
        };
        assert!(refused_keys("file://jwks.json").contains("expected file:///PATH"));
        assert!(
            refused_keys("https://issuer.test/jwks").contains("needs sasl.oauthbearer.expected.audience")
        );
        assert!(
            refused(&[("listener.name.out.no.such.property", "x")]).contains("no property of a listener")
        );
    }

    #[test]
    fn public_keys_of_a_url_are_read_with_the_authorities_of_the_login_module() {
        let with = |jaas: &'static str| {
            listeners(&[
                ("listeners", "OUT://:9093"),
                ("listener.security.protocol.map", "OUT:SASL_PLAINTEXT"),
                ("sasl.enabled.mechanisms", "OAUTHBEARER"),
                ("sasl.oauthbearer.expected.issuer", "https://issuer.test"),
                ("sasl.oauthbearer.expected.audience", "kafka"),
                ("sasl.oauthbearer.jwks.endpoint.url", "https://issuer.test/jwks"),
                ("sasl.oauthbearer.jwks.endpoint.refresh.ms", "60000"),
                ("listener.name.out.oauthbearer.sasl.jaas.config", jaas),
            ])
        };
        let module = "a.b.OAuthBearerLoginModule required ssl.truststore.type=\"PEM\" ssl.truststore.location=\"/ca.pem\";";
        let listeners = with(module).expect("a listener");
        let oauth = listeners[0].sasl.as_ref().and_then(|sasl| sasl.oauth.as_ref()).expect("settings");
        let KeySource::Endpoint(endpoint) = &oauth.keys else { panic!("{oauth:?}") };
        assert_eq!(endpoint.refresh, Duration::from_secs(60));
        assert!(
            matches!(&endpoint.trusted, Some(Pem::File(path)) if path.ends_with("ca.pem")),
            "{endpoint:?}"
        );
        let jks = with("OAuthBearerLoginModule required ssl.truststore.location=\"/ca.jks\";");
        assert!(jks.expect_err("refused").contains("ssl.truststore.type=\"PEM\""));
        assert!(with("PlainLoginModule required;").expect_err("refused").contains("OAuthBearerLoginModule"));
    }
}
