//! Dead-letter queues of share groups over the wire (KIP-1191, Apache Kafka 4.4): which records get a letter, what it has, and what is
//! left after a kill.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod letters;

use std::thread;
use std::time::{Duration, Instant};

use ottla_broker::{BrokerThread, DiskCall, DiskEffect, DiskFiles, DiskRule};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::write_share_group_state::{
    PartitionData as StateToWrite, StateBatch, WriteShareGroupStateRequest, WriteStateData,
};
use ottla_protocol::messages::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest,
};
use ottla_wire::{BatchBuilder, Compression, Seal};

use crate::common::{batch, produce_request};
use letters::*;

#[test]
fn a_rejected_record_gets_a_letter_with_its_place() {
    let broker = start_group(&MemStorage::new());
    produce(&broker, 2, 10, Compression::None);
    let mut a = Member::join(&broker, "a", 2);
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    a.acknowledge(0, 2, ACCEPT);
    a.acknowledge(3, 4, REJECT);
    // The number of the source's partition, modulo the number of partitions.
    let letters = letters(&broker, 0, 2);
    assert_eq!(offsets(&letters), [3, 4]);
    let headers = [
        ("__dlq.errors.delivery.count", "1"),
        ("__dlq.errors.group", GROUP),
        ("__dlq.errors.message", REJECTED),
        ("__dlq.errors.offset", "3"),
        ("__dlq.errors.partition", "2"),
        ("__dlq.errors.topic", "orders"),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(letters[0], Letter { key: None, value: None, headers: headers.into_iter().collect() });
    wait_for_start(&broker, 2, 5);
    a.acknowledge(5, 9, REJECT);
    wait_for_start(&broker, 2, 10);
    assert_eq!(offsets(&letters_now(&broker, QUEUE, 0)), (3..10).collect::<Vec<i64>>());
    assert_eq!((letters_now(&broker, QUEUE, 1), a.fetch()), (Vec::new(), Vec::new()));
}

#[test]
fn a_record_that_is_delivered_too_often_gets_a_letter_with_the_other_cause() {
    let broker = start(&MemStorage::new(), 2, &[("group.share.min.record.lock.duration.ms", "1000")]);
    initialize(&broker);
    configure(
        &broker,
        &[
            (TOPIC_NAME, QUEUE),
            ("share.delivery.count.limit", "2"),
            ("share.record.lock.duration.ms", "1000"),
        ],
    );
    produce(&broker, 1, 4, Compression::None);
    let mut a = Member::join(&broker, "a", 1);
    assert_eq!(a.fetch(), [(0, 3, 1)]);
    a.acknowledge(0, 3, RELEASE);
    assert_eq!(a.fetch(), [(0, 3, 2)]);
    a.acknowledge(0, 1, RELEASE);
    let letters_of_releases = letters(&broker, 1, 2);
    // The locks of the others end.
    let all = wait_for("the end of the locks", || {
        assert_eq!(a.fetch(), []);
        let letters = letters_now(&broker, QUEUE, 1);
        (letters.len() >= 4).then_some(letters)
    });
    assert_eq!(offsets(&all), [0, 1, 2, 3]);
    assert_eq!(all[..2], letters_of_releases);
    for letter in all {
        assert_eq!((letter.header("message"), letter.header("delivery.count")), (EXCEEDED, "2"));
    }
    wait_for_start(&broker, 1, 4);
}

#[test]
fn the_key_and_the_value_are_copied_if_the_group_wants_them() {
    let broker = start_group(&MemStorage::new());
    configure(&broker, &[(COPY, "true")]);
    // Batches of each codec: the letters are read out of them.
    let codecs =
        [Compression::None, Compression::Gzip, Compression::Lz4, Compression::Snappy, Compression::Zstd];
    for codec in codecs {
        produce(&broker, 0, 20, codec);
    }
    let mut a = Member::join(&broker, "a", 0);
    assert_eq!(a.fetch(), [(0, 99, 1)]);
    let wanted: Vec<i64> = vec![0, 19, 20, 33, 55, 56, 57, 77, 99];
    for offset in &wanted {
        a.acknowledge(*offset, *offset, REJECT);
    }
    let copies = letters(&broker, 0, wanted.len());
    assert_eq!(offsets(&copies), wanted);
    for letter in &copies {
        let number = letter.offset() % 20;
        assert_eq!(letter.key.as_deref(), Some(&*format!("k{number}")));
        assert_eq!(letter.value.as_deref(), Some(&*format!("v{number}")));
        assert_eq!(letter.headers.len(), 6, "as in Kafka, the original's headers are not copied");
    }
    configure(&broker, &[(COPY, "false")]);
    a.acknowledge(98, 98, REJECT);
    let letter = letters(&broker, 0, wanted.len() + 1).pop().expect("a letter");
    assert_eq!((letter.offset(), letter.key, letter.value), (98, None, None));
}

/// Appends the records of a transaction, and the marker that commits it.
fn append_transaction(broker: &BrokerThread, base_sequence: i32, values: &[&[u8]]) {
    let mut connection = connect(broker);
    let seal =
        Seal { producer_id: 1, producer_epoch: 0, base_sequence, transactional: true, ..Seal::default() };
    let mut request = produce_request("orders", -1, &batch(values, &seal));
    request.transactional_id = Some("t".into());
    let answer = connection.ask(11, &request).expect("an answer");
    assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::None);
    let topics = vec![WritableTxnMarkerTopic { name: "orders".into(), partition_indexes: vec![0] }];
    let marker = WritableTxnMarker { producer_id: 1, transaction_result: true, topics, ..Default::default() };
    connection.ask(1, &WriteTxnMarkersRequest { markers: vec![marker] }).expect("an answer");
}

/// The marker had a letter, and the copy of its record had the marker's bytes as key and value.
#[test]
fn the_marker_of_a_transaction_gets_no_letter() {
    for copies in [true, false] {
        let broker = start_group(&MemStorage::new());
        broker.cluster().set_transactions_approved(true);
        configure(&broker, &[(COPY, if copies { "true" } else { "false" })]);
        append_transaction(&broker, 0, &[b"x", b"y"]);
        append_transaction(&broker, 2, &[b"z"]);
        let mut a = Member::join(&broker, "a", 0);
        assert_eq!(a.fetch(), [(0, 4, 1)]);
        // A marker alone, and one with its neighbours.
        a.acknowledge(4, 4, REJECT);
        a.acknowledge(0, 3, REJECT);
        wait_for_start(&broker, 0, 5);
        let letters = letters_now(&broker, QUEUE, 0);
        assert_eq!(offsets(&letters), [0, 1, 3]);
        let values: Vec<Option<&str>> = letters.iter().map(|letter| letter.value.as_deref()).collect();
        assert_eq!(values, if copies { [Some("x"), Some("y"), Some("z")] } else { [None; 3] });
        let text = broker.cluster().metrics_text(100);
        let line = "ottla_share_dead_letters_total{result=\"written\"} 3";
        assert!(text.lines().any(|other| other == line), "{text}");
    }
}

#[test]
fn letters_are_written_in_batches_that_fit_and_a_copy_that_does_not_fit_is_left_out() {
    let broker = start_group(&MemStorage::new());
    configure(&broker, &[(COPY, "true")]);
    assert_eq!(alter(&broker, TOPIC_RESOURCE, QUEUE, &[("max.message.bytes", "3000")]).0, ErrorCode::None);
    for size in [1000, 1000, 5000, 1000, 2600, 1000] {
        let mut builder = BatchBuilder::new();
        builder.push(1_700_000_000_000, None, Some(&vec![b'x'; size]), &[]);
        append(&broker, 0, builder, Compression::None);
    }
    let mut a = Member::join(&broker, "a", 0);
    assert_eq!(a.fetch(), [(0, 5, 1)]);
    a.acknowledge(0, 5, REJECT);
    let letters = letters(&broker, 0, 6);
    assert_eq!(offsets(&letters), [0, 1, 2, 3, 4, 5]);
    let sizes = letters.iter().map(|letter| letter.value.as_ref().map(String::len));
    let expected = [Some(1000), Some(1000), None, Some(1000), Some(2600), Some(1000)];
    assert_eq!(sizes.collect::<Vec<_>>(), expected);
    wait_for_start(&broker, 0, 6);
}

#[test]
fn a_letter_that_its_topic_refuses_costs_no_other_letter() {
    let broker = start_group(&MemStorage::new());
    configure(&broker, &[(COPY, "true")]);
    // It refuses records without a key.
    let (code, reason) = alter(&broker, TOPIC_RESOURCE, QUEUE, &[("cleanup.policy", "compact")]);
    assert_eq!(code, ErrorCode::None, "{reason}");
    let mut builder = BatchBuilder::new();
    for key in [Some(&b"a"[..]), None, Some(b"b"), Some(b"c")] {
        builder.push(1_700_000_000_000, key, Some(b"x"), &[]);
    }
    append(&broker, 0, builder, Compression::None);
    let mut a = Member::join(&broker, "a", 0);
    assert_eq!(a.fetch(), [(0, 3, 1)]);
    a.acknowledge(0, 3, REJECT);
    wait_for_start(&broker, 0, 4);
    assert_eq!(offsets(&letters_now(&broker, QUEUE, 0)), [0, 2, 3]);
    let text = broker.cluster().metrics_text(100);
    for line in ["{result=\"written\"} 3", "{result=\"given_up\"} 1"] {
        let line = format!("ottla_share_dead_letters_total{line}");
        assert!(text.lines().any(|other| other == line), "{line}");
    }
}

#[test]
fn without_a_queue_records_are_archived_at_once_and_nothing_is_described() {
    let broker = start(&MemStorage::new(), 2, &[]);
    initialize(&broker);
    produce(&broker, 0, 10, Compression::None);
    let mut a = Member::join(&broker, "a", 0);
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    a.acknowledge(0, 9, REJECT);
    assert_eq!(stored(&broker, 0).0, 10, "the answer has waited for the last state");
    assert_eq!(letters_now(&broker, QUEUE, 0), []);
    // A client that does not know Apache Kafka 4.4 sees what 4.3 has.
    let names =
        |kind, name, keys: &[&str]| described(&broker, kind, name, keys).into_keys().collect::<Vec<_>>();
    for (kind, name) in [(TOPIC_RESOURCE, "orders"), (BROKER_RESOURCE, "1"), (GROUP_RESOURCE, GROUP)] {
        let names = names(kind, name, &[]);
        assert!(names.len() > 10 && names.iter().all(|name| !name.contains("deadletterqueue")), "{names:?}");
    }
    assert_eq!(described(&broker, GROUP_RESOURCE, GROUP, &[COPY])[COPY], "false");
    assert_eq!(described(&broker, TOPIC_RESOURCE, QUEUE, &[])[ACCEPTS], "true", "it is set");
    configure(&broker, &[(TOPIC_NAME, QUEUE)]);
    assert_eq!(described(&broker, GROUP_RESOURCE, GROUP, &[])[TOPIC_NAME], QUEUE);
}

#[test]
fn a_missing_topic_is_created_if_the_broker_may() {
    for creates in [true, false] {
        let properties: &[(&str, &str)] = if creates { &[AUTO_CREATE] } else { &[] };
        let broker = start(&MemStorage::new(), 0, properties);
        initialize(&broker);
        configure(&broker, &[(TOPIC_NAME, QUEUE)]);
        produce(&broker, 0, 10, Compression::None);
        let mut a = Member::join(&broker, "a", 0);
        assert_eq!(a.fetch(), [(0, 9, 1)]);
        a.acknowledge(0, 9, REJECT);
        wait_for_start(&broker, 0, 10);
        assert_eq!(letters_now(&broker, QUEUE, 0).len(), if creates { 10 } else { 0 });
        if creates {
            let configs = described(&broker, TOPIC_RESOURCE, QUEUE, &[]);
            assert_eq!((&*configs[ACCEPTS], &*configs["message.timestamp.type"]), ("true", "CreateTime"));
        }
    }
}

#[test]
fn topics_that_must_not_have_letters_get_none() {
    let broker = start(&MemStorage::new(), 2, &[]);
    initialize(&broker);
    let (code, reason) = alter(&broker, GROUP_RESOURCE, GROUP, &[(TOPIC_NAME, "__consumer_offsets")]);
    assert_eq!(code, ErrorCode::InvalidConfig);
    assert!(reason.contains("__consumer_offsets"), "{reason}");
    let (code, reason) = alter(&broker, GROUP_RESOURCE, GROUP, &[(COPY, "perhaps")]);
    assert_eq!(code, ErrorCode::InvalidConfig, "{reason}");
    let (code, reason) = alter(&broker, BROKER_RESOURCE, "", &[(AUTO_CREATE.0, "perhaps")]);
    assert_eq!(code, ErrorCode::InvalidRequest, "{reason}");
    for _ in 0..3 {
        produce(&broker, 0, 10, Compression::None);
    }
    let mut a = Member::join(&broker, "a", 0);
    assert_eq!(a.fetch(), [(0, 29, 1)]);
    // Its name has not the prefix.
    configure(&broker, &[(TOPIC_NAME, "orders")]);
    assert_eq!(alter(&broker, TOPIC_RESOURCE, "orders", &[(ACCEPTS, "true")]).0, ErrorCode::None);
    a.acknowledge(0, 9, REJECT);
    wait_for_start(&broker, 0, 10);
    assert_eq!(letters_now(&broker, "orders", 0).len(), 30, "only the produced records");
    // It does not accept letters.
    configure(&broker, &[(TOPIC_NAME, QUEUE)]);
    assert_eq!(alter(&broker, TOPIC_RESOURCE, QUEUE, &[(ACCEPTS, "false")]).0, ErrorCode::None);
    a.acknowledge(10, 19, REJECT);
    wait_for_start(&broker, 0, 20);
    assert_eq!(letters_now(&broker, QUEUE, 0), []);
    // The settings of a running broker count.
    let prefix = [("errors.deadletterqueue.topic.name.prefix", "")];
    assert_eq!(alter(&broker, BROKER_RESOURCE, "", &prefix).0, ErrorCode::None);
    configure(&broker, &[(TOPIC_NAME, "orders")]);
    a.acknowledge(20, 29, REJECT);
    wait_for_start(&broker, 0, 30);
    assert_eq!(letters_now(&broker, "orders", 0).len(), 40);
}

#[test]
fn a_topic_that_cannot_be_written_holds_the_start_offset_but_no_member() {
    let storage = MemStorage::new();
    let broker = start_group(&storage);
    produce(&broker, 0, 10, Compression::None);
    let full = DiskRule::new(DiskCall::Write, DiskEffect::Full);
    let fault =
        broker.cluster().add_disk_fault(DiskRule { files: DiskFiles::Topic(QUEUE.to_owned()), ..full });
    let mut a = Member::join(&broker, "a", 0);
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    a.acknowledge(0, 3, REJECT);
    a.acknowledge(4, 4, RELEASE);
    assert_eq!(a.fetch(), [(4, 4, 2)], "the members go on");
    a.acknowledge(4, 9, ACCEPT);
    let (begin, batches) = stored(&broker, 0);
    assert_eq!((begin, batches[0]), (0, (0, 3, 3)), "the start waits for the letters");
    // A kill between the two states: the next broker writes the letters when a member reads the partition.
    let killed = start(&storage.fork(), 2, &[]);
    assert_eq!(stored(&killed, 0).1[0], (0, 3, 3));
    let mut b = Member::join(&killed, "b", 0);
    assert_eq!(b.fetch(), [], "no record is delivered again");
    let after = letters(&killed, 0, 4);
    assert_eq!((offsets(&after), after[0].header("message")), (vec![0, 1, 2, 3], REJECTED));
    wait_for_start(&killed, 0, 10);
    // The broker that was not killed tries again.
    assert!(broker.cluster().remove_disk_fault(fault));
    assert_eq!(offsets(&letters(&broker, 0, 4)), [0, 1, 2, 3]);
    wait_for_start(&broker, 0, 10);
}

#[test]
fn records_that_were_being_archived_get_their_letters_after_a_restart() {
    for has_queue in [true, false] {
        let broker = start(&MemStorage::new(), 2, &[]);
        initialize(&broker);
        produce(&broker, 0, 10, Compression::None);
        let mut connection = connect(&broker);
        let topic_id = topic_id(&mut connection);
        let batch = |first_offset, last_offset, delivery_count| StateBatch {
            first_offset,
            last_offset,
            delivery_state: 3,
            delivery_count,
        };
        let partition = StateToWrite {
            partition: 0,
            state_epoch: 0,
            leader_epoch: -1,
            start_offset: 0,
            delivery_complete_count: 0,
            state_batches: vec![batch(0, 1, 1), batch(4, 4, 5)],
        };
        let topics = vec![WriteStateData { topic_id, partitions: vec![partition] }];
        let request = WriteShareGroupStateRequest { group_id: GROUP.into(), topics };
        let written = connection.ask(1, &request).expect("an answer");
        assert_eq!(written.results[0].partitions[0].error_code, ErrorCode::None);
        if has_queue {
            configure(&broker, &[(TOPIC_NAME, QUEUE)]);
        }
        let mut a = Member::join(&broker, "a", 0);
        assert_eq!(a.fetch(), [(2, 3, 1), (5, 9, 1)]);
        wait_for_start(&broker, 0, 2);
        a.acknowledge(2, 3, ACCEPT);
        a.acknowledge(5, 9, ACCEPT);
        wait_for_start(&broker, 0, 10);
        let letters = letters_now(&broker, QUEUE, 0);
        let causes: Vec<(i64, &str)> =
            letters.iter().map(|letter| (letter.offset(), letter.header("message"))).collect();
        let expected = [(0, REJECTED), (1, REJECTED), (4, EXCEEDED)];
        assert_eq!(causes, if has_queue { &expected[..] } else { &[] });
    }
}

#[test]
fn letters_are_written_after_the_last_member_has_left() {
    let broker = start_group(&MemStorage::new());
    produce(&broker, 0, 10, Compression::None);
    let mut a = Member::join(&broker, "a", 0);
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    a.acknowledge_in(0, 9, REJECT, -1);
    drop(a);
    assert_eq!(letters(&broker, 0, 10).len(), 10);
    wait_for_start(&broker, 0, 10);
}

#[test]
fn the_next_member_waits_for_letters_of_the_last_one() {
    let least =
        [("group.share.min.session.timeout.ms", "100"), ("group.share.min.heartbeat.interval.ms", "100")];
    let broker = start(&MemStorage::new(), 2, &least);
    configure(&broker, &[(TOPIC_NAME, QUEUE), ("share.auto.offset.reset", "earliest")]);
    produce(&broker, 0, 10, Compression::None);
    let mut a = Member::join(&broker, "a", 0);
    // A heartbeat waits for the states of the partitions, up to its interval. The session of the next one is short.
    a.beat();
    configure(&broker, &[("share.heartbeat.interval.ms", "400"), ("share.session.timeout.ms", "500")]);
    a.beat();
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    let slow = DiskRule::new(DiskCall::Sync, DiskEffect::Slow(Duration::from_secs(1)));
    broker.cluster().add_disk_fault(DiskRule { files: DiskFiles::Topic(QUEUE.to_owned()), ..slow });
    a.acknowledge(0, 4, REJECT);
    // It sends no heartbeat: its group is empty then, and the share partitions are forgotten. The letters are not.
    thread::sleep(Duration::from_millis(800));
    assert_eq!(stored(&broker, 0), (0, vec![(0, 4, 3), (5, 9, 0)]), "the letters take seconds");
    configure(&broker, &[("share.session.timeout.ms", "45000")]);
    let mut b = Member::join(&broker, "b", 0);
    b.beat();
    let acquired =
        wait_for("the records that are left", || Some(b.fetch()).filter(|found| !found.is_empty()));
    assert_eq!(acquired, [(5, 9, 2)]);
    broker.cluster().clear_disk_faults();
    assert_eq!(offsets(&letters_now(&broker, QUEUE, 0)), [0, 1, 2, 3, 4], "each once");
    b.acknowledge(5, 9, ACCEPT);
    wait_for_start(&broker, 0, 10);
    assert_eq!(letters_now(&broker, QUEUE, 0).len(), 5);
}

#[test]
fn letters_that_cannot_be_written_are_given_up_in_the_end() {
    let broker = start_group(&MemStorage::new());
    let full = DiskRule::new(DiskCall::Write, DiskEffect::Full);
    broker.cluster().add_disk_fault(DiskRule { files: DiskFiles::Topic(QUEUE.to_owned()), ..full });
    produce(&broker, 0, 10, Compression::None);
    let mut a = Member::join(&broker, "a", 0);
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    let began = Instant::now();
    a.acknowledge(0, 9, REJECT);
    assert_eq!(stored(&broker, 0).0, 0);
    wait_for_start(&broker, 0, 10);
    // Five attempts, with pauses of 1, 2, 4 and 8 seconds.
    assert!(began.elapsed() >= Duration::from_secs(15), "{:?}", began.elapsed());
    broker.cluster().clear_disk_faults();
    assert_eq!(letters_now(&broker, QUEUE, 0), []);
}

#[test]
fn a_kill_at_any_time_loses_no_letter_and_delivers_no_rejected_record_again() {
    let storage = MemStorage::new();
    let broker = start_group(&storage);
    configure(&broker, &[(COPY, "true")]);
    produce(&broker, 0, 40, Compression::Lz4);
    let mut a = Member::join(&broker, "a", 0);
    assert_eq!(a.fetch(), [(0, 39, 1)]);
    let mut killed = Vec::new();
    for offset in 0..40 {
        // Every second one in reverse, so that the window has gaps.
        let offset = if offset % 2 == 0 { offset } else { 40 - offset };
        a.acknowledge(offset, offset, REJECT);
        killed.push((storage.fork(), offset));
    }
    let mut rejected = Vec::new();
    for (at, (storage, offset)) in killed.into_iter().enumerate() {
        rejected.push(offset);
        if at % 4 != 0 {
            continue;
        }
        let broker = start(&storage, 2, &[]);
        let mut b = Member::join(&broker, "b", 0);
        let delivered = b.fetch();
        let delivered: Vec<i64> = delivered.iter().flat_map(|(first, last, _)| *first..=*last).collect();
        let both: Vec<&i64> = rejected.iter().filter(|offset| delivered.contains(offset)).collect();
        assert!(both.is_empty(), "{both:?} were rejected and are delivered again");
        assert_eq!(delivered.len() + rejected.len(), 40, "nothing else is lost");
        wait_for("a letter for each rejected record", || {
            let written = offsets(&letters_now(&broker, QUEUE, 0));
            rejected.iter().all(|offset| written.contains(offset)).then_some(())
        });
        broker.stop();
    }
}
