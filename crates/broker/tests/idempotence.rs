//! Idempotent producers: the broker detects duplicates and gaps, also after a restart.

use std::sync::Arc;

use ottla_broker::{Broker, BrokerThread, Durability};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::init_producer_id::InitProducerIdRequest;
use ottla_wire::Seal;

use crate::common::{Raw, batch, numbered};

fn on(disk: &MemStorage) -> BrokerThread {
    Broker::builder().storage(Arc::new(disk.clone())).topic("orders", 1).spawn().expect("a broker")
}

fn producer_id(connection: &mut Raw) -> (i64, i16) {
    let request =
        InitProducerIdRequest { transactional_id: None, transaction_timeout_ms: 1000, ..Default::default() };
    let answer = connection.ask(4, &request).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::None);
    (answer.producer_id, answer.producer_epoch)
}

#[test]
fn duplicates_get_their_first_offset_and_gaps_are_refused_across_restarts() {
    let disk = MemStorage::forgetful();
    let broker = on(&disk);
    let mut connection = Raw::connect(broker.addresses()[0]);
    let me = producer_id(&mut connection);
    let send = |connection: &mut Raw, sequence: i32| {
        let answer = connection.produce("orders", -1, &numbered(me, sequence, &[b"a", b"b"]));
        (answer.error_code, answer.base_offset)
    };
    for at in 0..6 {
        assert_eq!(send(&mut connection, at * 2), (ErrorCode::None, i64::from(at) * 2));
    }
    let check = |connection: &mut Raw| {
        for at in 1..6 {
            assert_eq!(send(connection, at * 2), (ErrorCode::None, i64::from(at) * 2), "a duplicate");
        }
        assert_eq!(send(connection, 14).0, ErrorCode::OutOfOrderSequenceNumber, "a gap");
        assert_eq!(send(connection, 0).0, ErrorCode::OutOfOrderSequenceNumber, "older than five batches");
    };
    check(&mut connection);

    // A clean stop stores the producers in a snapshot. After a crash only the log is left.
    broker.stop();
    let broker = on(&disk);
    check(&mut Raw::connect(broker.addresses()[0]));
    broker.stop();
    disk.crash(&mut fastrand::Rng::with_seed(7));
    let broker = on(&disk);
    let mut connection = Raw::connect(broker.addresses()[0]);
    check(&mut connection);
    assert_eq!(send(&mut connection, 12), (ErrorCode::None, 12), "the sequence goes on");

    // A higher epoch begins at 0, a lower one is fenced.
    let next = (me.0, me.1 + 1);
    assert_eq!(
        connection.produce("orders", -1, &numbered(next, 3, &[b"x"])).error_code,
        ErrorCode::OutOfOrderSequenceNumber
    );
    assert_eq!(connection.produce("orders", -1, &numbered(next, 0, &[b"x"])).base_offset, 14);
    assert_eq!(send(&mut connection, 14).0, ErrorCode::InvalidProducerEpoch);
    assert_ne!(producer_id(&mut connection).0, me.0, "no producer id is given twice");
}

#[test]
fn acknowledged_by_all_survives_a_power_cut_at_any_moment() {
    let mut lost_of_acks_1 = 0;
    for seed in 0..20 {
        let disk = MemStorage::forgetful();
        let broker = on(&disk);
        let mut connection = Raw::connect(broker.addresses()[0]);
        let records = batch(&[b"a"], &Seal::default());
        for _ in 0..5 {
            assert_eq!(connection.produce("orders", -1, &records).error_code, ErrorCode::None);
        }
        let answer = connection.produce("orders", 1, &records);
        assert_eq!((answer.error_code, answer.base_offset), (ErrorCode::None, 5));
        disk.crash(&mut fastrand::Rng::with_seed(seed));
        drop((connection, broker));
        disk.crash(&mut fastrand::Rng::with_seed(seed));
        let broker = on(&disk);
        let end = broker.cluster().offsets_of("orders", 0).expect("the topic is there").1;
        assert!((5..=6).contains(&end), "seed {seed}: {end} records of 5 that all=acks promised");
        lost_of_acks_1 += 6 - end;
    }
    println!("{lost_of_acks_1} of 20 records with acks=1 were lost");
}

#[test]
fn a_second_process_on_the_data_directory_is_told_so() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let first = Broker::builder().data_dir(dir.path()).spawn().expect("the first broker");
    let error = Broker::builder().data_dir(dir.path()).spawn().expect_err("it is taken").to_string();
    assert!(error.contains(&dir.path().display().to_string()) && error.contains("another"), "{error}");
    first.stop();
    Broker::builder()
        .data_dir(dir.path())
        .configure(|config| config.durability = Durability::Os)
        .spawn()
        .expect("it is free again");
}
