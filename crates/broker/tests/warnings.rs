//! The warnings that a broker logs when a client needs an unsupported feature.

#![allow(dead_code, reason = "the shared helpers serve several stories")]

mod common;
#[path = "../../client/tests/support/log.rs"]
mod log;

use common::Raw;
use log::Log;
use ottla_broker::{Broker, BrokerConfig, KafkaLevel};
use ottla_protocol::messages::api_versions::ApiVersionsRequest;
use ottla_protocol::messages::push_telemetry::PushTelemetryRequest;

#[test]
fn an_unsupported_request_is_logged_once_with_who_sent_it() {
    let log = Log::capture();
    let old = |config: &mut BrokerConfig| config.as_version = KafkaLevel::V2_8;
    let broker = Broker::builder().memory().configure(old).spawn().expect("a broker in memory");
    for _ in 0..3 {
        let mut connection = Raw::connect(broker.addresses()[0]);
        let hello = ApiVersionsRequest {
            client_software_name: "story".into(),
            client_software_version: "1.2".into(),
        };
        connection.ask(3, &hello).expect("an answer");
        let request = PushTelemetryRequest::default();
        assert!(connection.ask(0, &request).is_none(), "it came with 3.7");
    }
    let text = log.text();
    let wanted = "(story 1.2) requests PushTelemetry version 0, which this broker does not support";
    let lines: Vec<_> = text.lines().filter(|line| line.contains(wanted)).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].contains("WARN") && lines[0].contains("127.0.0.1:"), "{lines:?}");
}
