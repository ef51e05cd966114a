//! The text and the bytes that a client reads: properties, patterns, tokens, statistics, and its group's members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use ottla_client::assignor::{Member, Topics};
use ottla_client::properties::{self, Kind};
use ottla_client::statistics::{Broker, Partition, Snapshot, Topic};
use ottla_client::{
    BrokerVersion, Config, Secret, TopicConfig, TopicPartition, check_topic_name, fuzzing, open_keystore,
};

use crate::input::{Input, push_part};

const NOW_MS: i64 = 1_700_000_000_000;

/// The messages of a broker in SCRAM, in a part each.
pub(crate) fn scram(input: &[u8]) {
    let mut input = Input::new(input);
    let challenge = input.part();
    fuzzing::scram("ours", challenge, input.rest());
}

pub(crate) fn scram_seeds() -> Vec<Vec<u8>> {
    let exchange = |challenge: &str, last: &str| {
        let mut seed = Vec::new();
        push_part(&mut seed, challenge.as_bytes());
        seed.extend(last.bytes());
        seed
    };
    let signature = format!("v={}BwcH=", "BwcH".repeat(9));
    vec![
        exchange("r=oursX,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "v=AAAA"),
        exchange("r=ours%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=AA==,i=1000000", &signature),
        exchange("r=oursX,i=4096,s=!!", "v=BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=,x=y"),
        exchange("e=unknown-user", "e=invalid-proof"),
        exchange("m=ext,r=oursX,s=AA==,i=4096", ""),
    ]
}

/// A property, by its number, and a value. An accepted value can be read and set again.
pub(crate) fn properties(input: &[u8]) {
    let mut input = Input::new(input);
    let number = u16::from_be_bytes([input.byte(), input.byte()]);
    let value = String::from_utf8_lossy(input.rest()).into_owned();
    let all: Vec<_> = properties::all().collect();
    let property = all[usize::from(number) % all.len()];
    for mut config in [Config::default(), Config::librdkafka()] {
        if let Err(error) = config.set(property.name, &value) {
            let text = error.to_string();
            assert!(!property.secret || value.len() < 8 || !text.contains(&value), "a secret in an error");
            continue;
        }
        assert!(config.is_set(property.name));
        let shown = config.get(property.name).expect("a known name");
        if property.secret {
            assert!(value.len() < 9 || !shown.contains(&value), "a secret is shown");
        } else if property.kind != Kind::Pointer {
            config
                .set(property.name, &shown)
                .unwrap_or_else(|error| panic!("its own value is refused: {error}"));
            assert_eq!(config.get(property.name).expect("a known name"), shown);
        }
        let _ = config.dump();
    }
    let _ = TopicConfig::default().set(property.name, &value);
}

/// The defaults of all properties, and lists with an entry for each syntax.
pub(crate) fn properties_seeds() -> Vec<Vec<u8>> {
    let seed =
        |(number, value): (usize, &str)| [&(number as u16).to_be_bytes()[..], value.as_bytes()].concat();
    let all: Vec<_> = properties::all().collect();
    let number_of = |name: &str| all.iter().position(|property| property.name == name).unwrap_or_default();
    let mut seeds: Vec<_> = all
        .iter()
        .enumerate()
        .step_by(8)
        .map(|(number, property)| seed((number, property.default)))
        .collect();
    let texts = [
        ("bootstrap.servers", "kafka-1:9092,[::1]:9093, ssl://kafka-3"),
        ("topic.blacklist", "^a.*,b"),
        ("debug", "broker,topic,-msg"),
        ("partition.assignment.strategy", "range,cooperative-sticky"),
        ("statistics.interval.ms", "1000"),
        ("linger.ms", "0.5"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("compression.codec", "zstd"),
        ("broker.version.fallback", "0.10.2"),
    ];
    seeds.extend(texts.map(|(name, value)| seed((number_of(name), value))));
    seeds
}

/// Topics and patterns, one per line, against a few topics. Names and versions are checked as well.
pub(crate) fn patterns(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let lines: Vec<&str> = text.lines().collect();
    let known: Vec<Arc<str>> =
        ["orders", "orders.eu", "reorders.eu", "refunds", "__consumer_offsets"].map(Arc::from).into();
    fuzzing::subscription(&lines, &known);
    for line in lines {
        let _ = check_topic_name(line);
        let _ = BrokerVersion::parse(line);
    }
}

pub(crate) fn patterns_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "^orders\\.",
        "orders\n^re.*s$\npayments",
        "^(a|b)*c{2,5}[x-z]",
        "^\\d+(?i)X",
        "^[",
        "2.8.0",
        "..",
        "^a{1,300}",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// The response of a token endpoint.
pub(crate) fn token_response(input: &[u8]) {
    fuzzing::token_response(input, NOW_MS);
}

pub(crate) fn token_response_seeds() -> Vec<Vec<u8>> {
    // The claims {"sub":"17","exp":2} and {"exp":1e400}.
    let texts = [
        r#"{"access_token":"e30.eyJzdWIiOiIxNyIsImV4cCI6Mn0.","expires_in":3600}"#,
        r#"{"access_token":"e30.eyJleHAiOjFlMzAwfQ.x"}"#,
        r#"{"access_token":"opaque","expires_in":9223372036854775807}"#,
        r#"{"access_token":"opaque","expires_in":-1}"#,
        r#"{"error":"invalid_client"}"#,
        "[[[[",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// The texts of security properties that are read when a client starts.
pub(crate) fn security_texts(input: &[u8]) {
    fuzzing::security_texts(&String::from_utf8_lossy(input), NOW_MS);
}

pub(crate) fn security_texts_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "principal=me principalClaimName=azp scope=a,b lifeSeconds=60 extension_traceId=123",
        "principal=me scopeClaimName=s lifeSeconds=2147483647",
        "traceId=123, cluster=lkc-1",
        "https://login.example:8443/realms/x/token?y=1",
        "https://[::1]/token",
        "TLS_AES_256_GCM_SHA384:ECDHE-RSA-AES128-GCM-SHA256",
        "x25519,P-256",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// Certificates in PEM, and a PKCS#12 keystore.
pub(crate) fn certificates(input: &[u8]) {
    fuzzing::certificates(input);
    let _ = open_keystore(input, &Secret::new("password"));
}

pub(crate) fn certificates_seeds() -> Vec<Vec<u8>> {
    let pem = "-----BEGIN CERTIFICATE-----\nMAMCAQU=\n-----END CERTIFICATE-----\n";
    let key = "-----BEGIN PRIVATE KEY-----\nMAMCAQU=\n-----END PRIVATE KEY-----\n";
    // PFX { version 3, authSafe { contentType data, content OCTET STRING with an empty SEQUENCE } }
    let keystore = [
        &[0x30, 0x16, 0x02, 0x01, 0x03, 0x30, 0x11, 0x06, 0x09][..],
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01],
        &[0xa0, 0x04, 0x04, 0x02, 0x30, 0x00],
    ]
    .concat();
    vec![pem.into(), [pem, pem, key].concat().into(), pem[..40].into(), keystore]
}

/// Statistics as JSON: written again they are the same, and every line for Prometheus is a sample or a comment.
pub(crate) fn statistics(input: &[u8]) {
    let Ok(snapshot) = serde_json::from_slice::<Snapshot>(input) else { return };
    let again: Snapshot = serde_json::from_str(&snapshot.to_json()).expect("our own JSON");
    assert_eq!(again, snapshot);
    for line in fuzzing::prometheus(&snapshot).split('\n').filter(|line| !line.is_empty()) {
        assert!(line.starts_with("ottla_") || line.starts_with("# "), "{line:?}");
    }
}

pub(crate) fn statistics_seeds() -> Vec<Vec<u8>> {
    let mut snapshot = Snapshot::default();
    snapshot.name = "rdkafka#producer-1".into();
    let small = snapshot.to_json().into_bytes();
    let mut broker = Broker::default();
    broker.name = "kafka\"\\\n:9092/1".into();
    snapshot.brokers.insert("b".into(), broker);
    let with_broker = snapshot.to_json().into_bytes();
    snapshot.brokers.clear();
    let mut topic = Topic::default();
    topic.partitions.insert("0".into(), Partition::default());
    snapshot.topics.insert("orders".into(), topic);
    vec![small, with_broker, snapshot.to_json().into_bytes()]
}

/// The members of a group with any topics and owned partitions, as its leader receives them.
pub(crate) fn assignors(input: &[u8]) {
    let mut input = Input::new(input);
    let names: Vec<Arc<str>> = ["a", "b", "c", "d", "e", "f", "g", "gone"].map(Arc::from).into();
    let racks: Vec<Arc<str>> = ["r0", "r1", "r2"].map(Arc::from).into();
    let mut topics = Topics::new();
    for name in &names[..7] {
        let (count, mask) = (input.byte() % 32, input.byte());
        let rack_of = |partition: u8| -> BTreeSet<Arc<str>> {
            (mask != 0)
                .then(|| racks[usize::from(mask.wrapping_add(partition)) % 3].clone())
                .into_iter()
                .collect()
        };
        topics.insert(name.clone(), (0..count).map(rack_of).collect());
    }
    let mut members = BTreeMap::new();
    while !input.is_empty() && members.len() < 12 {
        let (subscribed, choices) = (input.byte(), input.byte());
        let mut member = Member::default();
        member.topics = names
            .iter()
            .enumerate()
            .filter(|(bit, _)| subscribed >> bit & 1 == 1)
            .map(|(_, n)| n.clone())
            .collect();
        member.generation = (choices & 1 == 1).then(|| i32::from(input.byte() as i8));
        member.rack = (choices & 2 == 2).then(|| racks[usize::from(choices >> 4) % 3].clone());
        member.instance_id = (choices & 4 == 4).then(|| format!("static-{}", choices >> 5));
        let runs = input.byte() % 8;
        for _ in 0..runs {
            let (at, first) = (input.byte(), i32::from(input.byte() as i8));
            let topic = &names[usize::from(at & 7)];
            let run = (0..=i32::from(at >> 3)).map(|offset| TopicPartition::new(topic, first + offset));
            member.owned.extend(run);
        }
        member.user_data = (choices & 8 == 8).then(|| Bytes::copy_from_slice(input.part()));
        members.insert(format!("member-{}", members.len()), member);
    }
    fuzzing::assign(&topics, &members);
}

pub(crate) fn assignors_seeds() -> Vec<Vec<u8>> {
    /// A member: its topics as bits, its choices, its generation if it has one, and runs of partitions that it owns.
    fn push_member(out: &mut Vec<u8>, head: &[u8], runs: &[(u8, u8, u8)]) {
        out.extend(head);
        out.push(runs.len() as u8);
        out.extend(runs.iter().flat_map(|(topic, first, count)| [topic | ((count - 1) << 3), *first]));
    }
    let topics = |counts: [u8; 7], mask: u8| -> Vec<u8> {
        counts.into_iter().flat_map(|count| [count, if count > 0 { mask } else { 0 }]).collect()
    };
    let sticky = [0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 5];
    let mut with_data = topics([4, 2, 0, 0, 0, 0, 0], 0);
    with_data.extend([7, 8, 0]);
    push_part(&mut with_data, &sticky);
    with_data.extend([7, 0, 0]);
    let mut unequal = topics([4, 2, 0, 0, 0, 0, 0], 0);
    push_member(&mut unequal, &[1, 0], &[]);
    push_member(&mut unequal, &[3, 0], &[]);
    let mut racks = topics([7, 7, 7, 0, 0, 0, 0], 1);
    for rack in [0x02, 0x12, 0x22] {
        push_member(&mut racks, &[7, rack], &[]);
    }
    let mut owning = topics([3, 3, 3, 0, 0, 0, 0], 0);
    push_member(&mut owning, &[7, 1, 5], &[(0, 0, 2), (2, 1, 1)]);
    push_member(&mut owning, &[7, 1, 5], &[(1, 0, 2)]);
    push_member(&mut owning, &[0x87, 1, 4], &[]);
    // Moves that undo each other.
    let mut cycle = topics([4, 2, 6, 5, 4, 3, 20], 0);
    push_member(&mut cycle, &[0b0000_1010, 1, 1], &[(1, 1, 1), (3, 0, 5)]);
    push_member(&mut cycle, &[0b0001_0010, 1, 1], &[(1, 0, 1), (4, 0, 4)]);
    push_member(&mut cycle, &[0b0010_0011, 1, 1], &[(5, 0, 3)]);
    push_member(&mut cycle, &[0b0000_0101, 1, 1], &[(0, 0, 4)]);
    push_member(&mut cycle, &[0b0100_0100, 1, 1], &[(2, 0, 6), (6, 0, 20)]);
    vec![unequal, racks, owning, with_data, cycle]
}
