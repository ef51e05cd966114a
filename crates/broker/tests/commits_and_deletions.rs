//! Offset commits while their topic is deleted.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::net::SocketAddr;
use std::time::Instant;

use ottla_broker::Broker;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use ottla_protocol::messages::delete_topics::DeleteTopicsRequest;

use crate::common::{PATIENCE, Raw, commit_request};

const ROUNDS: usize = 20;

/// Commits until the topic is gone.
fn commit_until_deleted(address: SocketAddr) {
    let mut connection = Raw::connect(address);
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let response = connection.ask(8, &commit_request("billing", 7)).expect("an answer");
        match response.topics[0].partitions[0].error_code {
            ErrorCode::None | ErrorCode::CoordinatorLoadInProgress => {}
            code => {
                assert_eq!(code, ErrorCode::UnknownTopicOrPartition);
                return;
            }
        }
    }
    panic!("the topic is not deleted");
}

/// A commit that had found the topic was appended after its offsets were removed: the next topic of that name began with it.
#[test]
fn a_commit_during_the_deletion_of_its_topic_does_not_outlive_it() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker");
    let address = broker.addresses()[0];
    let mut connection = Raw::connect(address);
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            let committers = [(); 2].map(|()| scope.spawn(move || commit_until_deleted(address)));
            // One commit at least is before the deletion.
            let began = Instant::now();
            while broker.cluster().committed_offset("billing", "orders", 0).is_none() {
                assert!(began.elapsed() < PATIENCE, "no commit");
                std::thread::yield_now();
            }
            let request = DeleteTopicsRequest { topic_names: vec!["orders".into()], ..Default::default() };
            let deleted = connection.ask(5, &request).expect("an answer").responses[0].error_code;
            assert_eq!(deleted, ErrorCode::None);
            for committer in committers {
                committer.join().expect("it ends");
            }
        });
        assert_eq!(broker.cluster().committed_offset("billing", "orders", 0), None, "round {round}");
        let topic = CreatableTopic {
            name: "orders".into(),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        let created = connection.ask(7, &request).expect("an answer").topics[0].error_code;
        assert_eq!(created, ErrorCode::None);
    }
}
