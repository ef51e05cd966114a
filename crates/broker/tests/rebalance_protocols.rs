//! `group.coordinator.rebalance.protocols`: groups of the new protocol can be disabled, those of the classic one cannot.

use ottla_broker::{Broker, BrokerConfig, BrokerThread};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_group_describe::ConsumerGroupDescribeRequest;
use ottla_protocol::messages::consumer_group_heartbeat::ConsumerGroupHeartbeatRequest;
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use ottla_protocol::messages::share_group_heartbeat::ShareGroupHeartbeatRequest;

use crate::common::Raw;

const NAME: &str = "group.coordinator.rebalance.protocols";

fn start(protocols: &str) -> (BrokerThread, Raw) {
    let builder = Broker::builder().memory().topic("orders", 1);
    let builder = builder.configure(|config| config.set(NAME, protocols).expect("allowed"));
    let broker = builder.spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

/// The errors of a heartbeat and of a description of a group of the new protocol.
fn codes(connection: &mut Raw) -> [ErrorCode; 2] {
    let beat = ConsumerGroupHeartbeatRequest {
        group_id: "billing".into(),
        member_id: "a".into(),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(vec!["orders".into()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let beaten = connection.ask(1, &beat).expect("an answer");
    let describe = ConsumerGroupDescribeRequest { group_ids: vec!["billing".into()], ..Default::default() };
    let described = connection.ask(1, &describe).expect("an answer").groups.remove(0);
    assert_eq!(described.group_id, "billing");
    [beaten.error_code, described.error_code]
}

/// The property had no effect.
#[test]
fn without_the_consumer_protocol_its_requests_get_unsupported_version() {
    let (_broker, mut connection) = start("classic");
    assert_eq!(codes(&mut connection), [ErrorCode::UnsupportedVersion; 2]);
    let join = JoinGroupRequest {
        group_id: "billing".into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), ..Default::default() }],
        ..Default::default()
    };
    assert_eq!(connection.ask(3, &join).expect("an answer").error_code, ErrorCode::None);
    // As in Apache Kafka 4.3, `share.version` alone decides about share groups.
    let share = ShareGroupHeartbeatRequest {
        group_id: "workers".into(),
        member_id: "b".into(),
        subscribed_topic_names: Some(vec!["orders".into()]),
        ..Default::default()
    };
    assert_eq!(connection.ask(1, &share).expect("an answer").error_code, ErrorCode::None);

    for protocols in ["classic,consumer", " consumer , classic ,streams", "classic,consumer,share"] {
        let (_broker, mut connection) = start(protocols);
        assert_eq!(codes(&mut connection), [ErrorCode::None; 2], "{protocols}");
    }
}

#[test]
fn a_list_without_the_classic_protocol_is_refused() {
    for (protocols, reason) in [
        ("consumer", "classic cannot be disabled"),
        ("", "classic cannot be disabled"),
        ("classic,modern", "`modern`"),
        ("Classic", "`Classic`"),
        ("classic,consumer,classic", "twice"),
    ] {
        let refused = BrokerConfig::default().set(NAME, protocols).expect_err(protocols);
        assert!(refused.contains(NAME) && refused.contains(reason), "{refused}");
    }
}
