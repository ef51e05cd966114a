//! `ottla doctor` at TLS and SASL listeners of Apache Kafka 4.1: tests produce every finding.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::path::Path;
use std::sync::Arc;

use ottla_interop::{Failure, KafkaCluster, Peer, require};

use crate::findings::doctor;
use crate::peers;
use crate::peers::certificates::Authority;
use crate::peers::{CLIENT_SECRET, PASSWORD, SOON_DAYS, WRONG_PASSWORD, jwt, oidc_server, start};

struct World {
    kafka: KafkaCluster,
    authority: Authority,
    ca: String,
    strangers_ca: String,
    own_ca: String,
}

impl World {
    fn at(&self, listener: &str) -> String {
        self.kafka.listener(listener).to_string()
    }

    fn tls(&self) -> Vec<String> {
        properties(&[("security.protocol", "ssl"), ("ssl.ca.location", &self.ca)])
    }

    fn login(&self, mechanism: &str, password: &str) -> Vec<String> {
        properties(&[
            ("security.protocol", "sasl_ssl"),
            ("ssl.ca.location", &self.ca),
            ("sasl.mechanism", mechanism),
            ("sasl.username", "alice"),
            ("sasl.password", password),
        ])
    }
}

#[test]
fn every_finding_of_tls_and_sasl_at_kafka() -> Result<(), Failure> {
    require!(Peer::Java);
    let files = tempfile::tempdir().map_err(|error| Failure::new(error.to_string()))?;
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let kafka = start(&authority, files.path())?;
    let ca = pem_file(files.path(), "ca.pem", &authority.pem);
    let strangers_ca = pem_file(files.path(), "stranger.pem", &stranger.pem);
    let own_ca = files.path().join(peers::SELF_CA).display().to_string();
    let world = World { kafka, authority, ca, strangers_ca, own_ca };
    healthy(&world)?;
    certificates(&world)?;
    wrong_doors(&world)?;
    passwords(&world)?;
    tokens(&world)
}

/// Every step works through TLS and SASL and reports its time.
fn healthy(world: &World) -> Result<(), Failure> {
    let login = world.login("SCRAM-SHA-512", PASSWORD);
    let found = doctor(&world.at("LOGIN"), &[&["--write"], &words(&login)[..]].concat())?;
    found.expect("tls", "ok", &["TLSv1_3", "TLS13_", "CN=127.0.0.1", "CN=authority", "2100-01-01"]);
    found.expect("sasl", "ok", &["sasl.mechanism=SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"]);
    for step in ["api-versions", "metadata", "advertised", "fetch", "client"] {
        found.expect(step, "ok", &[]);
    }
    for step in ["round-trip", "produce"] {
        // Slow steps are tested elsewhere.
        assert_ne!(found.step(step)["status"], "fail", "{:#}", found.report);
    }
    for step in ["tls", "sasl"] {
        assert!(found.step(step)["ms"].as_f64().is_some_and(|ms| ms > 0.0), "{:#}", found.step(step));
    }
    assert!(found.succeeded);
    Ok(())
}

fn certificates(world: &World) -> Result<(), Failure> {
    let tls = world.tls();
    let unknown = properties(&[("security.protocol", "ssl"), ("ssl.ca.location", &world.strangers_ca)]);
    let found = doctor(&world.at("TLS"), &words(&unknown))?;
    found.expect("tls", "fail", &["not trusted", "signed by CN=authority", "ssl.ca.location"]);

    let elsewhere = format!("localhost:{}", world.kafka.listener("TLS").port());
    let found = doctor(&elsewhere, &words(&tls))?;
    found.expect("tls", "fail", &["for another host", "the connection is to localhost", "is for 127.0.0.1"]);
    // Verification can be disabled.
    let any = [tls.clone(), properties(&[("ssl.endpoint.identification.algorithm", "none")])].concat();
    doctor(&elsewhere, &words(&any))?.expect("tls", "ok", &[]);

    let found = doctor(&world.at("EXPIRED"), &words(&tls))?;
    found.expect("tls", "fail", &["has expired", "to 2020-01-01", "renew"]);
    let any = [tls.clone(), properties(&[("enable.ssl.certificate.verification", "false")])].concat();
    doctor(&world.at("EXPIRED"), &words(&any))?.expect("tls", "warn", &["it expired", "renew"]);

    // Counted in whole days; part of the first has passed.
    let days = format!("expires in {} days", SOON_DAYS - 1);
    let found = doctor(&world.at("SOON"), &words(&tls))?;
    found.expect("tls", "warn", &[&days, "renew"]);
    assert!(found.succeeded, "a warning is no failure");

    // librdkafka accepts a broker's certificate that is itself configured; another authority's is explained.
    let own = properties(&[("security.protocol", "ssl"), ("ssl.ca.location", &world.own_ca)]);
    let found = doctor(&world.at("SELF"), &[&["--write"], &words(&own)[..]].concat())?;
    found.expect("tls", "ok", &["CN=127.0.0.1"]);
    assert!(found.succeeded, "{:#}", found.report);
    let found = doctor(&world.at("SELF"), &words(&tls))?;
    found.expect("tls", "fail", &["certificate of an authority", "ssl.ca.location"]);

    let found = doctor(&world.at("MUTUAL"), &words(&tls))?;
    found.expect("api-versions", "fail", &["requires a client certificate", "ssl.certificate.location"]);
    Ok(())
}

fn wrong_doors(world: &World) -> Result<(), Failure> {
    let found = doctor(&world.kafka.bootstrap(), &words(&world.tls()))?;
    found.expect("tls", "fail", &["plaintext listener", "security.protocol to plaintext"]);
    let found = doctor(&world.at("TLS"), &[])?;
    found.expect("api-versions", "fail", &["TLS listener", "security.protocol to ssl"]);
    let found = doctor(&world.at("TLS"), &words(&world.login("PLAIN", PASSWORD)))?;
    found.expect("sasl", "fail", &["the listener does not do SASL"]);
    // TLS alone, where SASL is required.
    let found = doctor(&world.at("LOGIN"), &words(&world.tls()))?;
    found.expect("metadata", "fail", &["this listener requires SASL", "SCRAM-SHA-512", "sasl.mechanism"]);
    Ok(())
}

fn passwords(world: &World) -> Result<(), Failure> {
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let found = doctor(&world.at("LOGIN"), &words(&world.login(mechanism, WRONG_PASSWORD)))?;
        found.expect("sasl", "fail", &[mechanism, "refused with", "sasl.password"]);
        let said = found.report.to_string();
        assert!(!said.contains(WRONG_PASSWORD), "a secret is repeated: {said}");
    }
    let plain =
        [world.login("SCRAM-SHA-256", PASSWORD), properties(&[("security.protocol", "sasl_plaintext")])];
    let found = doctor(&world.at("PLAINONLY"), &words(&plain.concat()))?;
    found.expect("sasl", "fail", &["the broker offers PLAIN", "does not offer", "sasl.enabled.mechanisms"]);
    Ok(())
}

/// Tokens of a provider that are valid for an hour, and expired tokens of another.
fn tokens(world: &World) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(error.to_string()))?;
    for (life_s, status, said) in [(3600, "ok", "OAUTHBEARER"), (-60, "fail", "expired")] {
        let port =
            runtime.block_on(oidc_server(&world.authority.sign(&["127.0.0.1"]), life_s, Arc::new(jwt)));
        let login = properties(&[
            ("security.protocol", "sasl_ssl"),
            ("ssl.ca.location", &world.ca),
            ("https.ca.location", &world.ca),
            ("sasl.mechanism", "OAUTHBEARER"),
            ("sasl.oauthbearer.method", "oidc"),
            ("sasl.oauthbearer.token.endpoint.url", &format!("https://127.0.0.1:{port}/token")),
            ("sasl.oauthbearer.client.id", "alice"),
            ("sasl.oauthbearer.client.secret", CLIENT_SECRET),
            ("sasl.oauthbearer.scope", "kafka write"),
        ]);
        doctor(&world.at("LOGIN"), &words(&login))?.expect("sasl", status, &[said]);
    }
    Ok(())
}

fn pem_file(dir: &Path, name: &str, pem: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, pem).expect("written");
    path.display().to_string()
}

fn properties(properties: &[(&str, &str)]) -> Vec<String> {
    properties.iter().flat_map(|(name, value)| ["-X".to_owned(), format!("{name}={value}")]).collect()
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}
