//! Clients' metrics (KIP-714): who is asked for which, pushes that come too early or are wrong, and where the values appear.

use bytes::Bytes;
use ottla_broker::{ApiKey, Broker, BrokerThread};
use ottla_protocol::messages::api_versions::ApiVersionsRequest;
use ottla_protocol::messages::get_telemetry_subscriptions::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
};
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_protocol::messages::push_telemetry::PushTelemetryRequest;
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::Compression;
use ottla_wire::compress::compress;

use crate::common::Raw;

const CLIENT_METRICS: i8 = 16;
const SET: i8 = 0;

fn broker() -> (BrokerThread, Raw) {
    let broker = Broker::builder().memory().spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

fn subscribe(connection: &mut Raw, name: &str, settings: &[(&str, &str)]) -> ErrorCode {
    let configs = settings.iter().map(|(name, value)| AlterableConfig {
        name: (*name).to_owned(),
        config_operation: SET,
        value: Some((*value).to_owned()),
    });
    let resource = AlterConfigsResource {
        resource_type: CLIENT_METRICS,
        resource_name: name.to_owned(),
        configs: configs.collect(),
    };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    connection.ask(1, &request).expect("an answer").responses[0].error_code
}

fn ask(connection: &mut Raw, id: Uuid) -> GetTelemetrySubscriptionsResponse {
    let request = GetTelemetrySubscriptionsRequest { client_instance_id: id };
    connection.ask(0, &request).expect("an answer")
}

fn push(asked: &GetTelemetrySubscriptionsResponse, metrics: Bytes) -> PushTelemetryRequest {
    PushTelemetryRequest {
        client_instance_id: asked.client_instance_id,
        subscription_id: asked.subscription_id,
        terminating: false,
        compression_type: 0,
        metrics,
    }
}

fn error_of(connection: &mut Raw, request: &PushTelemetryRequest) -> ErrorCode {
    connection.ask(0, request).expect("an answer").error_code
}

fn compressed(codec: Compression, bytes: &[u8]) -> Bytes {
    let mut out = Vec::new();
    compress(codec, None, bytes, &mut out).expect("compressed");
    out.into()
}

/// A field of protobuf with bytes.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![tag << 3 | 2, u8::try_from(bytes.len()).expect("short")];
    field.extend_from_slice(bytes);
    field
}

/// OpenTelemetry's `MetricsData` with one gauge.
fn gauge(name: &str, value: f64) -> Bytes {
    data(&[metric(name, "topic", value, false)])
}

/// OpenTelemetry's `MetricsData` with these metrics.
fn data(metrics: &[Vec<u8>]) -> Bytes {
    let metrics: Vec<u8> = metrics.iter().flat_map(|metric| long_field(2, metric)).collect();
    long_field(1, &long_field(2, &metrics)).into()
}

/// A gauge or a sum that only grows, with one value, which has the label.
fn metric(name: &str, label: &str, value: f64, is_counter: bool) -> Vec<u8> {
    let label = [field(1, label.as_bytes()), field(2, &field(1, b"orders"))].concat();
    let value = [vec![4 << 3 | 1], value.to_le_bytes().to_vec()].concat();
    let point = field(1, &[field(7, &label), value].concat());
    // Cumulative and monotonic.
    let sum = [&point[..], &[2 << 3, 2, 3 << 3, 1]].concat();
    [field(1, name.as_bytes()), if is_counter { field(7, &sum) } else { field(5, &point) }].concat()
}

/// A field of protobuf with more than 127 bytes.
fn long_field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![tag << 3 | 2];
    let mut length = bytes.len();
    while length > 127 {
        field.push((length % 128) as u8 | 128);
        length /= 128;
    }
    field.push(length as u8);
    field.extend_from_slice(bytes);
    field
}

#[test]
fn a_pushed_value_appears_in_the_metrics_with_the_labels_of_its_client() {
    let (broker, mut connection) = broker();
    assert_eq!(
        subscribe(&mut connection, "all", &[("metrics", "*"), ("interval.ms", "100")]),
        ErrorCode::None
    );
    let asked = ask(&mut connection, Uuid::ZERO);
    assert_eq!(
        (asked.error_code, asked.requested_metrics.as_slice()),
        (ErrorCode::None, &["*".to_owned()][..])
    );
    assert!(!asked.client_instance_id.is_zero());
    let metrics = gauge("org.apache.kafka.consumer.fetch.manager.records.lag", 3.5);
    let mut request = push(&asked, metrics.clone());
    request.compression_type = Compression::Zstd as i8;
    request.metrics = compressed(Compression::Zstd, &metrics);
    assert_eq!(error_of(&mut connection, &request), ErrorCode::None);
    let text = broker.cluster().metrics_text(100);
    let line = text.lines().find(|line| line.starts_with("kafka_client_consumer_fetch_manager_records_lag{"));
    let line = line.unwrap_or_else(|| panic!("not in {text}"));
    assert!(line.contains("topic=\"orders\"") && line.ends_with(" 3.5"), "{line}");
    assert!(line.contains(&asked.client_instance_id.to_string()), "{line}");
    assert!(text.contains("ottla_client_pushes_total 1"));
    let answer = broker.control("GET", "/clients", b"");
    assert_eq!(answer.body["clients"][0]["metrics"][0]["value"], 3.5);
}

/// Prometheus refused the broker's whole text.
#[test]
fn labels_and_types_of_one_client_leave_the_text_parseable() {
    let (broker, mut connection) = broker();
    subscribe(&mut connection, "all", &[("metrics", "*"), ("interval.ms", "100")]);
    let asked = ask(&mut connection, Uuid::ZERO);
    let metrics = [
        metric("a", "2xx", 1.0, false),
        metric("b", "", 1.0, false),
        metric("c", "__name__", 1.0, false),
        metric("d", "topic", 1.0, false),
        metric("d", "topic", 2.0, true),
        metric("d", "client_id", 3.0, true),
    ];
    assert_eq!(error_of(&mut connection, &push(&asked, data(&metrics))), ErrorCode::None);
    let text = broker.cluster().metrics_text(100);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("kafka_client_")).skip(1).collect();
    let types: Vec<&&str> = lines.iter().filter(|line| line.starts_with('#')).collect();
    let (gauge, untyped) = ("gauge", "untyped");
    let expected = [("a", gauge), ("b", gauge), ("c", gauge), ("d", untyped)];
    assert_eq!(types, expected.map(|(name, kind)| format!("# TYPE kafka_client_{name} {kind}")).each_ref());
    // The end of each series, after the labels of the client.
    let ends = |name: &str| {
        let series = lines.iter().filter(|line| line.starts_with(name));
        let ends = series.filter_map(|line| line.split_once("client_software_version=\"")?.1.split_once('"'));
        ends.map(|(_, end)| end).collect::<Vec<_>>()
    };
    assert_eq!(ends("kafka_client_a{"), [",_2xx=\"orders\"} 1"]);
    assert_eq!(ends("kafka_client_b{"), ["} 1"]);
    assert_eq!(ends("kafka_client_c{"), ["} 1"]);
    // The same series twice, and one whose only label is the client's own.
    assert_eq!(ends("kafka_client_d{"), ["} 3", ",topic=\"orders\"} 1"]);
}

/// The limit was one of each name, and a client can push 10,000 names.
#[test]
fn the_series_of_clients_have_a_limit_for_all_names() {
    let (broker, mut connection) = broker();
    subscribe(&mut connection, "all", &[("metrics", "*"), ("interval.ms", "100")]);
    let metrics: Vec<Vec<u8>> =
        (0..9_000).map(|number| metric(&format!("m{number}"), "a", 1.0, false)).collect();
    let metrics = data(&metrics);
    for _ in 0..6 {
        let asked = ask(&mut connection, Uuid::ZERO);
        assert_eq!(error_of(&mut connection, &push(&asked, metrics.clone())), ErrorCode::None);
    }
    let text = broker.cluster().metrics_text(10_000);
    let series = text.lines().filter(|line| line.starts_with("kafka_client_")).count();
    assert_eq!(series, 50_000);
    assert!(text.contains("ottla_series_left_out{metric=\"ottla_client_instances\"} 4000"), "{series}");
}

#[test]
fn the_apis_are_listed_only_while_there_is_a_subscription() {
    let (_broker, mut connection) = broker();
    let is_listed = |connection: &mut Raw| {
        let answer = connection.ask(0, &ApiVersionsRequest::default()).expect("an answer");
        answer.api_keys.iter().any(|api| api.api_key == ApiKey::PushTelemetry.code())
    };
    assert!(!is_listed(&mut connection));
    subscribe(&mut connection, "all", &[("metrics", "*")]);
    assert!(is_listed(&mut connection));
}

#[test]
fn a_client_that_no_subscription_selects_is_asked_for_nothing() {
    let (_broker, mut connection) = broker();
    let of_others = [("metrics", "*"), ("match", "client_id=other")];
    assert_eq!(subscribe(&mut connection, "others", &of_others), ErrorCode::None);
    let asked = ask(&mut connection, Uuid::ONE);
    assert_eq!((asked.requested_metrics.len(), asked.push_interval_ms), (0, 300_000));
    assert_eq!(asked.client_instance_id, Uuid::ONE, "a client keeps its id");
}

#[test]
fn requests_that_come_before_their_interval_are_throttled_and_a_last_push_is_not() {
    let (_broker, mut connection) = broker();
    subscribe(&mut connection, "all", &[("metrics", "*"), ("interval.ms", "3600000")]);
    let asked = ask(&mut connection, Uuid::ZERO);
    let id = asked.client_instance_id;
    assert_eq!(ask(&mut connection, id).error_code, ErrorCode::ThrottlingQuotaExceeded);
    let mut request = push(&asked, gauge("a", 1.0));
    assert_eq!(error_of(&mut connection, &request), ErrorCode::None, "the first push may come at once");
    assert_eq!(error_of(&mut connection, &request), ErrorCode::ThrottlingQuotaExceeded);
    request.terminating = true;
    assert_eq!(error_of(&mut connection, &request), ErrorCode::None);
    assert_eq!(error_of(&mut connection, &request), ErrorCode::InvalidRequest, "it was the last one");
}

#[test]
fn a_changed_subscription_is_asked_for_again_at_once() {
    let (_broker, mut connection) = broker();
    subscribe(&mut connection, "all", &[("metrics", "*"), ("interval.ms", "3600000")]);
    let asked = ask(&mut connection, Uuid::ZERO);
    subscribe(&mut connection, "all", &[("metrics", "org.apache.kafka.producer")]);
    let request = push(&asked, gauge("a", 1.0));
    assert_eq!(error_of(&mut connection, &request), ErrorCode::UnknownSubscriptionId);
    let again = ask(&mut connection, asked.client_instance_id);
    assert_eq!(again.requested_metrics, ["org.apache.kafka.producer"]);
    assert_ne!(again.subscription_id, asked.subscription_id);
}

#[test]
fn pushes_that_are_wrong_or_too_large_are_refused() {
    let refused = |change: &dyn Fn(&mut PushTelemetryRequest)| {
        let (broker, mut connection) = broker();
        subscribe(&mut connection, "all", &[("metrics", "*"), ("interval.ms", "100")]);
        let asked = ask(&mut connection, Uuid::ZERO);
        let mut request = push(&asked, gauge("a", 1.0));
        change(&mut request);
        let code = error_of(&mut connection, &request);
        assert!(!broker.cluster().metrics_text(100).contains("\nkafka_client_"), "nothing is kept");
        code
    };
    assert_eq!(refused(&|it| it.client_instance_id = Uuid::ZERO), ErrorCode::InvalidRequest);
    assert_eq!(refused(&|it| it.compression_type = 9), ErrorCode::UnsupportedCompressionType);
    assert_eq!(refused(&|it| it.metrics = Bytes::from_static(&[0x0a, 0x7f, 1])), ErrorCode::InvalidRecord);
    assert_eq!(refused(&|it| it.metrics = Bytes::from(vec![0; (1 << 20) + 1])), ErrorCode::TelemetryTooLarge);
    let bomb = compressed(Compression::Gzip, &vec![0; 8 << 20]);
    let set = |it: &mut PushTelemetryRequest| {
        it.compression_type = Compression::Gzip as i8;
        it.metrics = bomb.clone();
    };
    assert_eq!(refused(&set), ErrorCode::TelemetryTooLarge);
}

#[test]
fn a_subscription_that_cannot_work_is_refused() {
    let (_broker, mut connection) = broker();
    for (name, value, expected) in [
        ("interval.ms", "99", ErrorCode::InvalidRequest),
        ("interval.ms", "bbb", ErrorCode::InvalidConfig),
        ("interval.ms", "", ErrorCode::InvalidConfig),
        ("intervals", "1000", ErrorCode::InvalidRequest),
        ("match", "client_id=(", ErrorCode::InvalidConfig),
        ("match", "color=red", ErrorCode::InvalidConfig),
    ] {
        assert_eq!(subscribe(&mut connection, "bad", &[(name, value)]), expected, "{name}={value}");
    }
}

/// Ten thousand were compared with each client.
#[test]
fn a_broker_has_at_most_a_hundred_subscriptions() {
    let (_broker, mut connection) = broker();
    for number in 0..100 {
        let code = subscribe(&mut connection, &number.to_string(), &[("metrics", "org.a")]);
        assert_eq!(code, ErrorCode::None);
    }
    assert_eq!(subscribe(&mut connection, "100", &[("metrics", "org.a")]), ErrorCode::PolicyViolation);
    assert_eq!(subscribe(&mut connection, "99", &[("metrics", "org.b")]), ErrorCode::None);
}
