//! Requests and responses with very many items move a connection to a thread of lower priority, and back: its client
//! does not notice.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use ottla_broker::Broker;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use ottla_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use ottla_wire::Seal;

use crate::common::{Raw, batch, framed, metadata_of};

/// More bytes than a narrow request has: 4,000 names of 20 characters.
const NAMES: usize = 4000;

fn wide(topic: &str) -> MetadataRequest {
    let names = (0..NAMES).map(|i| format!("missing-{i:012}")).chain([topic.to_owned()]);
    let topics =
        names.map(|name| MetadataRequestTopic { name: Some(name), ..MetadataRequestTopic::default() });
    MetadataRequest {
        topics: Some(topics.collect()),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    }
}

#[test]
fn narrow_and_wide_requests_of_one_connection_are_answered_in_their_order() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let version = 9;
    for _ in 0..3 {
        let requests =
            [metadata_of("orders"), wide("orders"), metadata_of("orders"), wide("orders"), wide("orders")];
        let frames: Vec<u8> = requests.iter().flat_map(|request| framed(version, request)).collect();
        connection.send(&frames);
        for request in &requests {
            let response = connection.answer_to::<MetadataRequest>(version).expect("a response");
            let asked = request.topics.as_ref().map_or(0, Vec::len);
            assert_eq!(response.topics.len(), asked);
            let last = response.topics.last().expect("a topic");
            assert_eq!((last.name.as_deref(), last.partitions.len()), (Some("orders"), 1));
        }
        let produced = connection.produce("orders", -1, &batch(&[b"one"], &Seal::default()));
        assert_eq!(produced.error_code, ErrorCode::None);
    }
    assert_eq!(broker.cluster().offsets_of("orders", 0), Some((0, 3)));
}

/// Their explanations took more memory than the descriptions.
#[test]
fn resources_beyond_the_limit_of_a_description_have_a_code_and_one_explanation() {
    const RESOURCES: usize = 20_000;
    let builder = Broker::builder().memory().topic("orders", 1);
    let builder = builder.configure(|config| config.set("memory.max.bytes", "16777216").expect("a property"));
    let broker = builder.spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let resource = DescribeConfigsResource {
        resource_type: 2,
        resource_name: "orders".into(),
        ..DescribeConfigsResource::default()
    };
    let request = DescribeConfigsRequest {
        resources: vec![resource; RESOURCES],
        include_synonyms: true,
        include_documentation: true,
    };
    let results = connection.ask(4, &request).expect("a response").results;
    assert_eq!(results.len(), RESOURCES);
    let described = results.iter().take_while(|result| result.error_code == ErrorCode::None).count();
    assert!((10..RESOURCES / 2).contains(&described), "{described}");
    let (first, others) = results[described..].split_first().expect("some are refused");
    assert_eq!(first.error_code, ErrorCode::PolicyViolation);
    assert!(first.error_message.as_ref().is_some_and(|text| text.contains("describe fewer resources")));
    assert!(
        others.iter().all(|it| (it.error_code, &it.error_message) == (ErrorCode::PolicyViolation, &None))
    );
    assert!(others.iter().all(|it| it.configs.is_empty()));
}
