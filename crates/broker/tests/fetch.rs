//! Fetch: long polls end when data comes or the time is over; sessions tell only what is new.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_broker::{Broker, TopicConfig};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use ottla_protocol::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic,
};
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::{Chain, Seal};

use crate::common::{PATIENCE, Raw, batch, metadata_of, produce_request};

fn fetch(max_wait: Duration, min_bytes: i32, offsets: &[i64]) -> FetchRequest {
    let partitions = offsets.iter().zip(0..).map(|(offset, partition)| FetchPartition {
        partition,
        fetch_offset: *offset,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    });
    FetchRequest {
        replica_id: -1,
        max_wait_ms: max_wait.as_millis() as i32,
        min_bytes,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: "orders".into(),
            partitions: partitions.collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[test]
fn a_long_poll_is_answered_when_data_comes() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let address = broker.addresses()[0];
    let reader = std::thread::spawn(move || {
        Raw::connect(address).ask(12, &fetch(PATIENCE * 10, 1, &[0])).expect("an answer")
    });
    let records = batch(&[b"one"], &Seal::default());
    let written = Raw::connect(address).produce("orders", -1, &records);
    assert_eq!(written.error_code, ErrorCode::None);
    // The socket's patience ends long before the poll's: an answer means that the data woke it.
    let answer = reader.join().expect("no panic");
    let part = &answer.responses[0].partitions[0];
    let got = part.records.as_ref().expect("records").to_bytes().expect("in memory");
    assert_eq!((part.high_watermark, got.len()), (1, records.len()));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the broker's long poll runs on the real clock here")]
fn a_long_poll_without_enough_data_is_answered_when_its_time_is_over() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    connection.produce("orders", -1, &batch(&[b"one"], &Seal::default()));
    for (min_bytes, offset, any) in [(1, 1, false), (1 << 20, 0, true)] {
        let wait = Duration::from_millis(60);
        let started = Instant::now();
        let answer = connection.ask(12, &fetch(wait, min_bytes, &[offset])).expect("an answer");
        assert!(started.elapsed() >= wait, "it was waited for {min_bytes} bytes");
        let records = answer.responses[0].partitions[0].records.as_ref();
        assert_eq!(records.is_some_and(|records| !records.is_empty()), any);
    }
    let answer = connection.ask(12, &fetch(PATIENCE * 10, 1, &[7])).expect("an answer at once");
    assert_eq!(answer.responses[0].partitions[0].error_code, ErrorCode::OffsetOutOfRange);
}

/// The request did not wait: it asked for no bytes, although a response without room for bytes has one batch.
#[test]
#[expect(clippy::disallowed_methods, reason = "the broker's long poll runs on the real clock here")]
fn a_long_poll_without_room_for_bytes_waits_for_one_batch() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    connection.produce("orders", -1, &batch(&[b"one"], &Seal::default()));
    let wait = Duration::from_millis(60);
    let started = Instant::now();
    let request = FetchRequest { max_bytes: 0, ..fetch(wait, 1, &[1]) };
    connection.ask(12, &request).expect("an answer");
    assert!(started.elapsed() >= wait, "there are no records");
    let request = FetchRequest { max_bytes: 0, ..fetch(PATIENCE * 10, 1, &[0]) };
    let answer = connection.ask(12, &request).expect("an answer at once");
    assert!(answer.responses[0].partitions[0].records.as_ref().is_some_and(|records| !records.is_empty()));
}

/// Its high watermark was 1 and its log start 0, with either isolation.
#[test]
fn a_fetch_that_is_out_of_range_does_not_tell_the_offsets_of_the_partition() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    connection.produce("orders", -1, &batch(&[b"one"], &Seal::default()));
    for isolation_level in [0, 1] {
        let request = FetchRequest { isolation_level, ..fetch(Duration::ZERO, 1, &[7]) };
        let answer = connection.ask(12, &request).expect("an answer");
        let part = &answer.responses[0].partitions[0];
        assert_eq!(part.error_code, ErrorCode::OffsetOutOfRange);
        assert_eq!((part.high_watermark, part.last_stable_offset, part.log_start_offset), (-1, -1, -1));
    }
}

/// The bytes that were read were too few, and the request waited, although the rest had no room in any answer.
#[test]
fn a_long_poll_does_not_wait_for_bytes_that_have_no_room() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let records = batch(&[&vec![b'x'; 100_000]], &Seal::default());
    for _ in 0..11 {
        assert_eq!(connection.produce("orders", -1, &records).error_code, ErrorCode::None);
    }
    // Ten batches have room in 1 MiB. The second request asks for more than it allows.
    for min_bytes in [1 << 20, 4 << 20] {
        let answer = connection.ask(12, &fetch(PATIENCE * 10, min_bytes, &[0])).expect("an answer at once");
        let read = answer.responses[0].partitions[0].records.as_ref().map(Chain::len);
        assert_eq!(read, Some(10 * records.len()));
    }
}

/// A read of a file ends with its segment, and the request waited although the next segment had records.
#[test]
fn a_long_poll_does_not_wait_in_an_older_segment() {
    let storage = MemStorage::new();
    let start = || {
        let mut config = TopicConfig::default();
        config.set("segment.bytes", "65536").expect("a setting");
        let builder = Broker::builder().storage(Arc::new(storage.clone()));
        builder.topic_with("orders", 1, config).spawn().expect("a broker")
    };
    let broker = start();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let records = batch(&[&vec![b'x'; 10_000]], &Seal::default());
    for _ in 0..30 {
        assert_eq!(connection.produce("orders", -1, &records).error_code, ErrorCode::None);
    }
    broker.stop();
    // After a restart, records are in files only.
    let broker = start();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let answer = connection.ask(12, &fetch(PATIENCE * 10, 200_000, &[0])).expect("an answer at once");
    let read = answer.responses[0].partitions[0].records.as_ref().map_or(0, Chain::len);
    assert!((1..200_000).contains(&read), "{read} bytes of the first segment");
}

/// A small read of a file had the rest of the 8 KiB that its lookup had read, and the request waited for the others.
#[test]
fn a_long_poll_for_few_bytes_of_a_file_gets_all_that_have_room() {
    const BYTES: i32 = 16 * 1024;
    let storage = MemStorage::new();
    let start = || {
        let builder = Broker::builder().storage(Arc::new(storage.clone()));
        builder.topic("orders", 1).spawn().expect("a broker")
    };
    let broker = start();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let records = batch(&[&vec![b'x'; 1000]], &Seal::default());
    for _ in 0..40 {
        assert_eq!(connection.produce("orders", -1, &records).error_code, ErrorCode::None);
    }
    broker.stop();
    // After a restart, records are in files only.
    let broker = start();
    let mut connection = Raw::connect(broker.addresses()[0]);
    for offset in [0, 5] {
        let mut request = fetch(PATIENCE * 10, BYTES, &[offset]);
        request.topics[0].partitions[0].partition_max_bytes = BYTES;
        let answer = connection.ask(12, &request).expect("an answer at once");
        let read = answer.responses[0].partitions[0].records.as_ref().map(Chain::len);
        assert_eq!(read, Some(BYTES as usize), "from {offset} on");
    }
}

/// librdkafka's tests 0104 and 0139 count on this property of its mock cluster.
#[test]
#[expect(clippy::disallowed_methods, reason = "the broker's long poll runs on the real clock here")]
fn a_fetch_that_is_decided_on_arrival_has_nothing_that_comes_later() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    broker.cluster().set_mock_fetches(true);
    let mut connection = Raw::connect(broker.addresses()[0]);
    let wait = Duration::from_millis(300);
    let mut refused = |offset| {
        let started = Instant::now();
        let answer = connection.ask(12, &fetch(wait, 1, &[offset])).expect("an answer");
        assert!(started.elapsed() >= wait, "errors wait as well");
        answer.responses[0].partitions[0].clone()
    };
    assert_eq!(refused(7).error_code, ErrorCode::OffsetOutOfRange);
    let address = broker.addresses()[0];
    let tracked = broker.cluster();
    tracked.track_requests(true);
    let writer = std::thread::spawn(move || {
        while tracked.tracked_requests().is_empty() {
            std::thread::yield_now();
        }
        Raw::connect(address).produce("orders", -1, &batch(&[b"one"], &Seal::default()))
    });
    assert!(refused(0).records.is_none_or(|records| records.is_empty()), "it came later");
    assert_eq!(writer.join().expect("no panic").error_code, ErrorCode::None);
    let answer = connection.ask(12, &fetch(PATIENCE * 10, 1, &[0])).expect("an answer at once");
    assert!(answer.responses[0].partitions[0].records.as_ref().is_some_and(|records| !records.is_empty()));
}

#[test]
fn a_session_tells_what_is_new_and_remembers_what_is_wanted() {
    let broker = Broker::builder().memory().topic("orders", 3).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let now = Duration::ZERO;
    let opened = connection
        .ask(12, &FetchRequest { session_epoch: 0, ..fetch(now, 0, &[0, 0, 0]) })
        .expect("an answer");
    assert_eq!((opened.error_code, opened.responses[0].partitions.len()), (ErrorCode::None, 3));
    let session_id = opened.session_id;
    assert_ne!(session_id, 0, "a session");
    let again = |epoch: i32, topics: Vec<FetchTopic>| FetchRequest {
        session_id,
        session_epoch: epoch,
        topics,
        ..fetch(now, 0, &[])
    };
    let quiet = connection.ask(12, &again(1, Vec::new())).expect("an answer");
    assert!(quiet.responses.is_empty(), "nothing is new: {:?}", quiet.responses);

    connection.produce("orders", -1, &batch(&[b"one"], &Seal::default()));
    let news = connection.ask(12, &again(2, Vec::new())).expect("an answer");
    let parts = &news.responses[0].partitions;
    assert_eq!((parts.len(), parts[0].partition_index, parts[0].high_watermark), (1, 0, 1));

    let forget = ForgottenTopic { topic: "orders".into(), partitions: vec![0], ..Default::default() };
    let request = FetchRequest { forgotten_topics_data: vec![forget], ..again(3, Vec::new()) };
    let quiet = connection.ask(12, &request).expect("an answer");
    assert!(quiet.responses.is_empty(), "partition 0 is not wanted any more");

    let skipped = connection.ask(12, &again(9, Vec::new())).expect("an answer");
    assert_eq!(skipped.error_code, ErrorCode::InvalidFetchSessionEpoch);
    let unknown = FetchRequest { session_id: session_id + 1, ..again(1, Vec::new()) };
    let unknown = connection.ask(12, &unknown).expect("an answer");
    assert_eq!(unknown.error_code, ErrorCode::FetchSessionIdNotFound);
}

/// It kept its place among the sessions.
#[test]
fn a_session_ends_when_its_last_partition_is_forgotten() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let full = FetchRequest { session_epoch: 0, ..fetch(Duration::ZERO, 0, &[0]) };
    let session_id = connection.ask(12, &full).expect("an answer").session_id;
    assert_ne!(session_id, 0, "a session");
    let forget = ForgottenTopic { topic: "orders".into(), partitions: vec![0], ..Default::default() };
    let mut request = FetchRequest { topics: Vec::new(), session_id, session_epoch: 1, ..full };
    request.forgotten_topics_data = vec![forget];
    let last = connection.ask(12, &request).expect("an answer");
    assert_eq!((last.error_code, last.session_id, last.responses.len()), (ErrorCode::None, 0, 0));
    let next = FetchRequest { forgotten_topics_data: Vec::new(), session_epoch: 2, ..request };
    let next = connection.ask(12, &next).expect("an answer");
    assert_eq!(next.error_code, ErrorCode::FetchSessionIdNotFound);
}

/// The high watermark beside OFFSET_OUT_OF_RANGE counted as known: the partition was left out of the next answers, and a client that
/// fetched at its end then did not learn that it was there.
#[test]
fn a_partition_that_had_an_error_is_in_the_next_answer() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let written = connection.produce("orders", -1, &batch(&[b"x".as_slice(); 10], &Seal::default()));
    assert_eq!(written.error_code, ErrorCode::None);
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset: 10 }];
    let topics = vec![DeleteRecordsTopic { name: "orders".into(), partitions }];
    let request = DeleteRecordsRequest { topics, timeout_ms: 10_000 };
    let deleted = connection.ask(2, &request).expect("an answer");
    assert_eq!(deleted.topics[0].partitions[0].error_code, ErrorCode::None);

    let now = Duration::ZERO;
    let opened =
        connection.ask(12, &FetchRequest { session_epoch: 0, ..fetch(now, 0, &[5]) }).expect("an answer");
    assert_ne!(opened.session_id, 0, "a session");
    assert_eq!(opened.responses[0].partitions[0].error_code, ErrorCode::OffsetOutOfRange);
    let next =
        |epoch| FetchRequest { session_id: opened.session_id, session_epoch: epoch, ..fetch(now, 0, &[10]) };
    let at_the_end = connection.ask(12, &next(1)).expect("an answer");
    assert_eq!(at_the_end.responses.len(), 1, "the partition is named");
    let part = &at_the_end.responses[0].partitions[0];
    assert_eq!((part.error_code, part.high_watermark), (ErrorCode::None, 10));
    let quiet = connection.ask(12, &next(2)).expect("an answer");
    assert!(quiet.responses.is_empty(), "nothing is new: {:?}", quiet.responses);
}

/// It got the records at its offset, which are not those that follow what it had read.
#[test]
fn a_fetch_behind_a_record_of_an_unknown_epoch_is_out_of_range() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    connection.produce("orders", -1, &batch(&[b"one"], &Seal::default()));
    let code_of = |connection: &mut Raw, last_fetched_epoch| {
        let mut request = fetch(Duration::ZERO, 1, &[0]);
        request.topics[0].partitions[0].last_fetched_epoch = last_fetched_epoch;
        connection.ask(12, &request).expect("an answer").responses[0].partitions[0].error_code
    };
    assert_eq!(code_of(&mut connection, 0), ErrorCode::None);
    assert_eq!(code_of(&mut connection, i32::MAX), ErrorCode::OffsetOutOfRange);
}

/// A fetch of `orders` partitions 0 and 1 by the topic's id.
fn fetch_by_id(topic_id: Uuid, session: (i32, i32)) -> FetchRequest {
    let mut request = fetch(Duration::ZERO, 0, &[0, 0]);
    (request.topics[0].topic, request.topics[0].topic_id) = (String::new(), topic_id);
    (request.session_id, request.session_epoch) = session;
    request
}

fn codes_of(answer: &FetchResponse) -> Vec<ErrorCode> {
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| partition.error_code).collect()
}

/// The session had the id only, and each of its fetches had UNKNOWN_TOPIC_ID.
#[test]
fn a_session_remembers_the_name_of_a_topic_that_is_deleted() {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let id = connection.ask(13, &metadata_of("orders")).expect("an answer").topics[0].topic_id;
    let opened = connection.ask(13, &fetch_by_id(id, (0, 0))).expect("an answer");
    assert_eq!(codes_of(&opened), [ErrorCode::None; 2]);
    let session_id = opened.session_id;
    assert_ne!(session_id, 0, "a session");
    let empty = |epoch| FetchRequest { topics: Vec::new(), ..fetch_by_id(id, (session_id, epoch)) };
    let cluster = broker.cluster();

    cluster.remove_topic("orders").expect("deleted");
    let missing = [ErrorCode::UnknownTopicOrPartition; 2];
    assert_eq!(codes_of(&connection.ask(13, &empty(1)).expect("an answer")), missing);
    let named = fetch_by_id(id, (session_id, 2));
    assert_eq!(codes_of(&connection.ask(13, &named).expect("an answer")), missing);

    // The new topic has one partition less.
    cluster.add_topic("orders", 1).expect("created");
    for request in [empty(3), fetch_by_id(id, (session_id, 4))] {
        let mut codes = codes_of(&connection.ask(13, &request).expect("an answer"));
        codes.sort_unstable();
        assert_eq!(codes, [ErrorCode::UnknownTopicOrPartition, ErrorCode::InconsistentTopicId]);
    }
    for session in [(0, -1), (session_id, 0)] {
        let full = connection.ask(13, &fetch_by_id(id, session)).expect("an answer");
        assert_eq!(codes_of(&full), [ErrorCode::UnknownTopicId; 2], "no session had its name");
    }
}

#[test]
fn what_does_not_fit_into_an_answer_comes_in_one_of_the_next() {
    const PARTITIONS: i32 = 5;
    let broker = Broker::builder().memory().topic("orders", PARTITIONS).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    // One fits into an answer, two do not.
    let large = batch(&[&vec![b'x'; 600 << 10]], &Seal::default());
    for partition in 0..PARTITIONS {
        let mut request = produce_request("orders", -1, &large);
        request.topic_data[0].partition_data[0].index = partition;
        let written = connection.ask(12, &request).expect("an answer");
        assert_eq!(written.responses[0].partition_responses[0].error_code, ErrorCode::None);
    }
    let from_the_start = fetch(Duration::ZERO, 0, &[0; PARTITIONS as usize]);
    let mut request = FetchRequest { session_epoch: 0, ..from_the_start };
    let mut got = [0; PARTITIONS as usize];
    for answers in 1..=PARTITIONS {
        let answer = connection.ask(12, &request).expect("an answer");
        let mut read = Vec::new();
        for part in answer.responses.iter().flat_map(|topic| &topic.partitions) {
            if part.records.as_ref().is_some_and(|records| records.len() == large.len()) {
                got[part.partition_index as usize] += 1;
                read.push(part.partition_index);
            }
        }
        assert_eq!(read.len(), 1, "answer {answers}: {read:?}");
        let mut next = fetch(Duration::ZERO, 0, &[1; PARTITIONS as usize]);
        next.topics[0].partitions.retain(|partition| read.contains(&partition.partition));
        request = FetchRequest { session_id: answer.session_id, session_epoch: answers, ..next };
    }
    assert_eq!(got, [1; PARTITIONS as usize], "each once");
}
