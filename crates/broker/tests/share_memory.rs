//! The memory of the records that share groups have in flight is limited. While it is used up, members get few records.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use ottla_broker::{Broker, BrokerThread};
use ottla_protocol::messages::initialize_share_group_state::{
    InitializeShareGroupStateRequest, InitializeStateData, PartitionData as StateToInitialize,
};
use ottla_protocol::messages::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch, ShareAcknowledgeRequest,
};
use ottla_protocol::messages::share_fetch::{FetchPartition, FetchTopic, ShareFetchRequest};
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::Seal;

use crate::common::{Raw, batch, metadata_of};

const GROUP: &str = "billing";
const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
/// The longest wait for records that are there: only a defect exhausts it.
const WAIT_MS: i32 = 20_000;

/// A member that fetches a topic of one partition.
struct Member {
    connection: Raw,
    id: &'static str,
    topic: Uuid,
    epoch: i32,
}

impl Member {
    /// Appends so many records to the topic, and begins with the first of them.
    fn begin(broker: &BrokerThread, id: &'static str, topic: &str, records: usize) -> Self {
        let mut connection = Raw::connect(broker.addresses()[0]);
        let values = vec![&b"x"[..]; records];
        let produced = connection.produce(topic, -1, &batch(&values, &Seal::default()));
        assert_eq!(produced.error_code, ErrorCode::None);
        let topic = connection.ask(12, &metadata_of(topic)).expect("an answer").topics[0].topic_id;
        let state = StateToInitialize { partition: 0, state_epoch: 0, start_offset: 0 };
        let topics = vec![InitializeStateData { topic_id: topic, partitions: vec![state] }];
        let request = InitializeShareGroupStateRequest { group_id: GROUP.into(), topics };
        let initialized = connection.ask(0, &request).expect("an answer");
        assert_eq!(initialized.results[0].partitions[0].error_code, ErrorCode::None);
        Self { connection, id, topic, epoch: 0 }
    }

    /// Returns the first and the last offsets of what was acquired.
    fn fetch(&mut self) -> Vec<(i64, i64)> {
        let partition = FetchPartition { partition_index: 0, acknowledgement_batches: Vec::new() };
        let topic = FetchTopic { topic_id: self.topic, partitions: vec![partition] };
        let request = ShareFetchRequest {
            group_id: Some(GROUP.into()),
            member_id: Some(self.id.into()),
            share_session_epoch: self.epoch,
            max_wait_ms: WAIT_MS,
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 2_000,
            batch_size: 2_000,
            topics: if self.epoch == 0 { vec![topic] } else { Vec::new() },
            ..Default::default()
        };
        let response = self.connection.ask(2, &request).expect("an answer");
        assert_eq!(response.error_code, ErrorCode::None);
        self.epoch += 1;
        let Some(topic) = response.responses.first() else { return Vec::new() };
        assert_eq!(topic.partitions[0].error_code, ErrorCode::None);
        let acquired = topic.partitions[0].acquired_records.iter();
        acquired.map(|records| (records.first_offset, records.last_offset)).collect()
    }

    fn acknowledge(&mut self, batches: Vec<AcknowledgementBatch>) -> ErrorCode {
        let partition = AcknowledgePartition { partition_index: 0, acknowledgement_batches: batches };
        let request = ShareAcknowledgeRequest {
            group_id: Some(GROUP.into()),
            member_id: Some(self.id.into()),
            share_session_epoch: self.epoch,
            is_renew_ack: false,
            topics: vec![AcknowledgeTopic { topic_id: self.topic, partitions: vec![partition] }],
        };
        let response = self.connection.ask(2, &request).expect("an answer");
        assert_eq!(response.error_code, ErrorCode::None);
        self.epoch += 1;
        response.responses[0].partitions[0].error_code
    }
}

fn accept((first_offset, last_offset): (i64, i64)) -> AcknowledgementBatch {
    AcknowledgementBatch { first_offset, last_offset, acknowledge_types: vec![ACCEPT] }
}

/// Each of 2,000 records had a state of its own, which was not counted: 300 KB for a request of 2 KB, in each share partition.
#[test]
fn members_get_few_records_while_the_memory_of_records_in_flight_is_used_up() {
    let builder = Broker::builder().memory().topic("orders", 1).topic("payments", 1);
    let configured = builder.configure(|config| config.memory_bytes_max = 1 << 20);
    let broker = configured.spawn().expect("a broker");
    let mut first = Member::begin(&broker, "first", "orders", 2_000);
    assert_eq!(first.fetch(), [(0, 1_999)]);
    let alternate = [RELEASE, ACCEPT].repeat(1_000);
    let all = AcknowledgementBatch { first_offset: 0, last_offset: 1_999, acknowledge_types: alternate };
    assert_eq!(first.acknowledge(vec![all]), ErrorCode::None);
    let mut other = Member::begin(&broker, "other", "payments", 100);
    assert_eq!(other.fetch(), [(0, 7)], "the memory is used up");
    assert_eq!(other.acknowledge(vec![accept((0, 7))]), ErrorCode::None);
    assert_eq!(other.fetch(), [(8, 15)]);
    let types = [RELEASE, ACCEPT].repeat(4);
    let split = AcknowledgementBatch { first_offset: 8, last_offset: 15, acknowledge_types: types };
    assert_eq!(other.acknowledge(vec![split]), ErrorCode::InvalidRecordState, "each would have a state");
    assert_eq!(other.acknowledge(vec![accept((8, 15))]), ErrorCode::None);
    // The records that were released are delivered again, and their states are not needed any more.
    let released = first.fetch();
    assert_eq!(released.len(), 1_000);
    assert_eq!(first.acknowledge(released.into_iter().map(accept).collect()), ErrorCode::None);
    assert_eq!(other.fetch(), [(16, 99)]);
}
