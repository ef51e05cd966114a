//! Debian's unmodified kcat on our library: common commands.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use ottla_interop::{
    Cluster, Failure, KafkaCluster, Librdkafka, Output, Peer, kcat_on, on_both_libraries, require,
};

use crate::peers;
use crate::peers::certificates::Authority;
use crate::peers::{PASSWORD, WRONG_PASSWORD};

on_both_libraries! { Kcat;
    it_runs_on_the_library_that_it_is_given
    lists_as_text_and_as_json
    keys_headers_partitions_and_tombstones_come_back
    every_codec_comes_back
    offsets_are_queried_by_time_and_from_the_end
    a_group_resumes_where_it_stopped
    a_pattern_is_subscribed_to
    a_broker_that_is_not_there_is_an_error
}

fn it_runs_on_the_library_that_it_is_given(library: &Librdkafka, _: &dyn Cluster) -> Result<(), Failure> {
    let version = kcat_on(library, &["-V"], b"")?.succeeded()?.stdout_text();
    assert!(version.contains("librdkafka 2.16."), "{version}");
    let properties = kcat_on(library, &["-X", "list"], b"")?.succeeded()?.stdout_text();
    for property in
        ["bootstrap.servers", "linger.ms", "sasl.oauthbearer.token.endpoint.url", "group.protocol"]
    {
        assert!(properties.contains(property), "{property} is not listed:\n{properties}");
    }
    Ok(())
}

fn lists_as_text_and_as_json(library: &Librdkafka, cluster: &dyn Cluster) -> Result<(), Failure> {
    let bootstrap = cluster.bootstrap();
    cluster.create_topic_quickly("capi-list", 3)?;
    let listing = kcat_on(library, &["-b", &bootstrap, "-L"], b"")?.succeeded()?.stdout_text();
    assert!(listing.contains(&format!(" at {bootstrap}")), "{listing}");
    assert!(listing.contains("topic \"capi-list\" with 3 partitions:"), "{listing}");

    let json = kcat_on(library, &["-b", &bootstrap, "-L", "-J", "-t", "capi-list"], b"")?.succeeded()?;
    let json: serde_json::Value =
        serde_json::from_slice(&json.stdout).map_err(|error| json.failure(&format!("no JSON: {error}")))?;
    assert_eq!(json["topics"][0]["topic"], "capi-list", "{json}");
    assert_eq!(json["topics"][0]["partitions"].as_array().map(Vec::len), Some(3), "{json}");
    assert_eq!(json["brokers"][0]["name"], bootstrap.as_str(), "{json}");
    Ok(())
}

fn keys_headers_partitions_and_tombstones_come_back(
    library: &Librdkafka,
    cluster: &dyn Cluster,
) -> Result<(), Failure> {
    let topic = "capi-parts";
    cluster.create_topic_quickly(topic, 2)?;
    let headers = ["-K", ":", "-Z", "-H", "origin=kcat", "-H", "empty=", "-H", "origin=again", "-p", "1"];
    produce(library, cluster, topic, &headers, b"k1:v1\nk2:\n:v3\n")?;
    let records = consume(library, cluster, topic, &["-f", "%p %o %K %k %S %s %h\n"])?;
    let all = "origin=kcat,empty=,origin=again";
    assert_eq!(
        records,
        [format!("1 0 2 k1 2 v1 {all}"), format!("1 1 2 k2 -1  {all}"), format!("1 2 -1  2 v3 {all}")],
        "key length and key, value length and value (-1 is null), headers in order, doubles included"
    );
    let json = consume(library, cluster, topic, &["-J", "-c", "1"])?;
    assert!(json[0].contains("\"key\":\"k1\",\"payload\":\"v1\""), "{json:?}");
    Ok(())
}

fn every_codec_comes_back(library: &Librdkafka, cluster: &dyn Cluster) -> Result<(), Failure> {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("capi-{codec}");
        let sent: Vec<String> = (0..500)
            .map(|n| format!("key {n}:{codec} record {n} {}", "of the log ".repeat(n % 20)))
            .collect();
        let text = sent.join("\n") + "\n";
        let args = ["-K", ":", "-z", codec, "-X", "enable.idempotence=true"];
        produce(library, cluster, &topic, &args, text.as_bytes())?;
        let expected: Vec<String> =
            sent.iter().enumerate().map(|(offset, line)| format!("{offset} {line}")).collect();
        let consumer = ["-X", "check.crcs=true", "-f", "%o %k:%s\n"];
        assert_eq!(consume(library, cluster, &topic, &consumer)?, expected, "{codec}");
    }
    Ok(())
}

fn offsets_are_queried_by_time_and_from_the_end(
    library: &Librdkafka,
    cluster: &dyn Cluster,
) -> Result<(), Failure> {
    let topic = "capi-offsets";
    produce(library, cluster, topic, &[], b"a\nb\nc\nd\ne\n")?;
    assert_eq!(consume(library, cluster, topic, &["-o", "-2", "-f", "%o %s\n"])?, ["3 d", "4 e"]);
    assert_eq!(consume(library, cluster, topic, &["-o", "3", "-c", "1", "-f", "%o %s\n"])?, ["3 d"]);
    let timestamps = consume(library, cluster, topic, &["-f", "%T\n"])?;
    let bootstrap = cluster.bootstrap();
    let query = |at: &str| {
        let wanted = format!("{topic}:0:{at}");
        let asked = kcat_on(library, &["-b", &bootstrap, "-Q", "-t", &wanted], b"")?;
        asked.succeeded().map(|output| output.lines())
    };
    assert_eq!(query(&timestamps[0])?, ["capi-offsets [0] offset 0"]);
    assert_eq!(query("-1")?, ["capi-offsets [0] offset 5"], "the end");
    assert_eq!(query("-2")?, ["capi-offsets [0] offset 0"], "the beginning");
    let since = format!("s@{}", timestamps[2]);
    assert!(consume(library, cluster, topic, &["-o", &since, "-f", "%s\n"])?.contains(&"e".to_owned()));
    Ok(())
}

fn a_group_resumes_where_it_stopped(library: &Librdkafka, cluster: &dyn Cluster) -> Result<(), Failure> {
    let topic = "capi-group";
    cluster.create_topic_quickly(topic, 4)?;
    let group = || members(library, cluster, &["-G", "capi-readers"], topic);
    produce(library, cluster, topic, &["-K", ":"], b"a:1\nb:2\nc:3\nd:4\ne:5\nf:6\n")?;
    assert_eq!(group()?, ["1", "2", "3", "4", "5", "6"]);
    produce(library, cluster, topic, &["-K", ":"], b"a:7\nb:8\n")?;
    assert_eq!(group()?, ["7", "8"], "only what came after the committed offsets");
    Ok(())
}

fn a_pattern_is_subscribed_to(library: &Librdkafka, cluster: &dyn Cluster) -> Result<(), Failure> {
    for topic in ["capi-pattern-a", "capi-pattern-b"] {
        cluster.create_topic_quickly(topic, 1)?;
        produce(library, cluster, topic, &[], format!("{topic}\n").as_bytes())?;
    }
    let found = members(library, cluster, &["-G", "capi-pattern-readers"], "^capi-pattern-[ab]$")?;
    assert_eq!(found, ["capi-pattern-a", "capi-pattern-b"]);
    Ok(())
}

fn a_broker_that_is_not_there_is_an_error(library: &Librdkafka, _: &dyn Cluster) -> Result<(), Failure> {
    let refused = kcat_on(library, &["-b", "127.0.0.1:1", "-L", "-m", "2"], b"")?.failed()?;
    let said = refused.stderr_text();
    assert!(said.contains("Failed to acquire metadata"), "{said}");
    assert!(said.contains("FAIL"), "the facility that people look for: {said}");
    Ok(())
}

/// Transactions, against Apache Kafka.
mod transactions {
    use super::{Failure, KafkaCluster, Librdkafka, Peer, consume, produce, require};

    #[test]
    fn ours_on_kafka() -> Result<(), Failure> {
        require!(Peer::Kcat);
        require!(Peer::Java);
        commit_on_success(&Librdkafka::ours()?, "ours")
    }

    #[test]
    fn reference_on_kafka() -> Result<(), Failure> {
        require!(Peer::Kcat);
        require!(Peer::Librdkafka);
        require!(Peer::Java);
        commit_on_success(&Librdkafka::reference()?, "reference")
    }

    fn commit_on_success(library: &Librdkafka, name: &str) -> Result<(), Failure> {
        let kafka = KafkaCluster::shared()?;
        let topic = format!("capi-transactions-{name}");
        let id = format!("transactional.id=kcat-{name}");
        produce(library, &*kafka, &topic, &["-X", &id], b"one\ntwo\n")?;
        produce(library, &*kafka, &topic, &["-X", &id], b"three\n")?;
        let committed = ["-X", "isolation.level=read_committed", "-f", "%s\n"];
        assert_eq!(consume(library, &*kafka, &topic, &committed)?, ["one", "two", "three"]);
        // Each transaction wrote a marker, which takes an offset.
        let offsets = consume(library, &*kafka, &topic, &["-f", "%o\n"])?;
        assert_eq!(offsets, ["0", "1", "3"]);
        Ok(())
    }
}

/// TLS and SASL against Apache Kafka with one listener per case: first the original, then ours.
#[test]
fn tls_and_sasl_of_both_on_kafka() -> Result<(), Failure> {
    require!(Peer::Kcat);
    require!(Peer::Librdkafka);
    require!(Peer::Java);
    let libraries = [Librdkafka::reference()?, Librdkafka::ours()?];
    let files = tempfile::tempdir().map_err(|error| Failure::new(error.to_string()))?;
    let authority = Authority::new("authority");
    let kafka = peers::start(&authority, files.path())?;
    let (trusted, ours) = (files.path().join("trusted.pem"), authority.sign(&["client.test"]));
    let client = files.path().join("client.pem");
    std::fs::write(&client, format!("{}{}", ours.pem, ours.key_pem))
        .map_err(|error| Failure::new(error.to_string()))?;
    let ca = format!("ssl.ca.location={}", trusted.display());
    let certificate = format!("ssl.certificate.location={}", client.display());
    let key = format!("ssl.key.location={}", client.display());
    for library in &libraries {
        let list = |listener: &str, properties: &[&str]| {
            let bootstrap = kafka.listener(listener).to_string();
            let mut args = vec!["-b", &bootstrap, "-L", "-m", "10", "-X", &ca];
            args.extend(properties.iter().flat_map(|property| ["-X", property]));
            kcat_on(library, &args, b"")
        };
        got_in(&list("TLS", &["security.protocol=ssl"])?);
        got_in(&list("MUTUAL", &["security.protocol=ssl", &certificate, &key])?);
        let login = |mechanism: &str, password: &str| {
            let (mechanism, password) =
                (format!("sasl.mechanisms={mechanism}"), format!("sasl.password={password}"));
            list("LOGIN", &["security.protocol=sasl_ssl", &mechanism, "sasl.username=alice", &password])
        };
        for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
            got_in(&login(mechanism, PASSWORD)?);
        }
        let refused = login("SCRAM-SHA-256", WRONG_PASSWORD)?.failed()?;
        let said = refused.stderr_text();
        assert!(said.contains("uthentication") && !said.contains(WRONG_PASSWORD), "{said}");
    }
    Ok(())
}

#[track_caller]
fn got_in(output: &Output) {
    let listing = output.stdout_text();
    assert!(output.status.success() && listing.contains("1 brokers"), "{}", output.failure("refused"));
}

fn produce(
    library: &Librdkafka,
    cluster: &dyn Cluster,
    topic: &str,
    args: &[&str],
    input: &[u8],
) -> Result<(), Failure> {
    let bootstrap = cluster.bootstrap();
    let all = [&["-b", &bootstrap, "-P", "-t", topic], args].concat();
    kcat_on(library, &all, input)?.succeeded().map(|_| ())
}

/// The topic from its beginning to its end; a later `-o` in `args` takes precedence.
fn consume(
    library: &Librdkafka,
    cluster: &dyn Cluster,
    topic: &str,
    args: &[&str],
) -> Result<Vec<String>, Failure> {
    let bootstrap = cluster.bootstrap();
    let all = [&["-b", &bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q"], args].concat();
    kcat_on(library, &all, b"")?.succeeded().map(|output| output.lines())
}

/// The values that a group member receives up to the end, sorted.
fn members(
    library: &Librdkafka,
    cluster: &dyn Cluster,
    args: &[&str],
    topic: &str,
) -> Result<Vec<String>, Failure> {
    let bootstrap = cluster.bootstrap();
    let reset = ["-X", "auto.offset.reset=earliest", "-e", "-q", "-f", "%s\n", topic];
    let all = [&["-b", &bootstrap], args, &reset].concat();
    let mut values = kcat_on(library, &all, b"")?.succeeded()?.lines();
    values.sort_unstable();
    Ok(values)
}
