//! TxnOffsetCommit and OffsetCommit while the group or its topics change, or the transaction's coordinator is not available.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use ottla_broker::{Broker, BrokerThread};
use ottla_log::storage::mem::MemStorage;
use ottla_log::storage::{Entry, File, Open, Storage};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use ottla_protocol::messages::delete_topics::DeleteTopicsRequest;
use ottla_protocol::messages::init_producer_id::InitProducerIdRequest;
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use ottla_protocol::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use ottla_protocol::messages::offset_commit::{OffsetCommitRequest, OffsetCommitRequestPartition};
use ottla_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use ottla_protocol::messages::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use ottla_wire::{ReadAt, Seal};

use crate::common::{PATIENCE, Raw, batch, commit_request, framed, produce_request};

const GROUP: &str = "billing";
const TOPIC: &str = "orders";
const TRANSACTIONAL_ID: &str = "till-1";

/// The partitions of the transactions' coordinator.
const TRANSACTIONS: &str = "__transaction_state-";
/// The partitions of the groups' coordinator.
const OFFSETS: &str = "__consumer_offsets-";

/// The syncs that are held.
#[derive(Debug, Default)]
struct Held {
    /// The beginning of their paths.
    prefix: Option<&'static str>,
    waiting: usize,
}

impl Held {
    fn holds(&self, path: &str) -> bool {
        self.prefix.is_some_and(|prefix| path.starts_with(prefix))
    }
}

/// A disk in memory whose syncs of some paths can be held.
#[derive(Clone, Debug, Default)]
struct HeldDisk {
    disk: MemStorage,
    held: Arc<(Mutex<Held>, Condvar)>,
}

impl HeldDisk {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the syncs of paths with this beginning until the result is dropped, in a test that fails, too.
    fn hold(&self, prefix: &'static str) -> Release<'_> {
        self.held().prefix = Some(prefix);
        Release(self)
    }

    fn await_held_sync(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut held = self.held();
        while held.waiting == 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no sync is held");
            held = self.held.1.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn pass(&self, path: &str) {
        let mut held = self.held();
        if !held.holds(path) {
            return;
        }
        held.waiting += 1;
        self.held.1.notify_all();
        while held.holds(path) {
            held = self.held.1.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        held.waiting -= 1;
    }
}

/// Releases the held syncs.
struct Release<'a>(&'a HeldDisk);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.held().prefix = None;
        self.0.held.1.notify_all();
    }
}

impl Storage for HeldDisk {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, how)?;
        Ok(Arc::new(HeldFile { path: path.to_owned(), file, storage: self.clone() }))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        self.disk.list(dir)
    }

    fn file_len(&self, path: &str) -> io::Result<u64> {
        self.disk.file_len(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.disk.remove_dir(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
}

#[derive(Debug)]
struct HeldFile {
    path: String,
    file: Arc<dyn File>,
    storage: HeldDisk,
}

impl ReadAt for HeldFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

impl File for HeldFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.storage.pass(&self.path);
        self.file.sync_data()
    }
}

/// A broker and two connections to it.
fn start(disk: &HeldDisk) -> (BrokerThread, Raw, Raw) {
    let broker = Broker::builder().storage(Arc::new(disk.clone())).topic(TOPIC, 1).topic("returns", 1);
    let broker = broker.spawn().expect("a broker");
    let address = broker.addresses()[0];
    (broker, Raw::connect(address), Raw::connect(address))
}

/// Joins the only member and assigns. Returns its id and generation.
fn join(connection: &mut Raw) -> (String, i32) {
    let metadata = Bytes::from_static(b"\0\0");
    let request = JoinGroupRequest {
        group_id: GROUP.into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata }],
        ..Default::default()
    };
    let joined = connection.ask(3, &request).expect("an answer");
    assert_eq!(joined.error_code, ErrorCode::None);
    let (member_id, generation_id) = (joined.member_id, joined.generation_id);
    let assignment = Bytes::from_static(b"assigned");
    let request = SyncGroupRequest {
        group_id: GROUP.into(),
        generation_id,
        member_id: member_id.clone(),
        assignments: vec![SyncGroupRequestAssignment { member_id: member_id.clone(), assignment }],
        ..Default::default()
    };
    assert_eq!(connection.ask(3, &request).expect("an answer").error_code, ErrorCode::None);
    (member_id, generation_id)
}

/// A commit of offset 7 in partition 0 of each topic.
fn request(connection: &mut Raw, member: Option<(String, i32)>, topics: &[&str]) -> TxnOffsetCommitRequest {
    let request = InitProducerIdRequest {
        transactional_id: Some(TRANSACTIONAL_ID.into()),
        transaction_timeout_ms: 60_000,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    let producer = connection.ask(3, &request).expect("an answer");
    assert_eq!(producer.error_code, ErrorCode::None);
    let (member_id, generation_id) = member.unwrap_or((String::new(), -1));
    let topics = topics.iter().map(|name| {
        let partition = TxnOffsetCommitRequestPartition {
            partition_index: 0,
            committed_offset: 7,
            committed_leader_epoch: -1,
            committed_metadata: None,
        };
        TxnOffsetCommitRequestTopic { name: (*name).into(), partitions: vec![partition] }
    });
    TxnOffsetCommitRequest {
        transactional_id: TRANSACTIONAL_ID.into(),
        group_id: GROUP.into(),
        producer_id: producer.producer_id,
        producer_epoch: producer.producer_epoch,
        generation_id,
        member_id,
        topics: topics.collect(),
        ..Default::default()
    }
}

/// The error of an offset that must be stable: a pending one is not.
fn stable_code(connection: &mut Raw, topic: &str) -> ErrorCode {
    let topic =
        OffsetFetchRequestTopics { name: topic.into(), partition_indexes: vec![0], ..Default::default() };
    let group =
        OffsetFetchRequestGroup { group_id: GROUP.into(), topics: Some(vec![topic]), ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![group], require_stable: true, ..Default::default() };
    let answer = connection.ask(8, &request).expect("an answer");
    answer.groups[0].topics[0].partitions[0].error_code
}

/// The generation was checked before the transaction's coordinator was asked only: another member processed the same records.
#[test]
fn a_member_that_leaves_while_the_transaction_is_approved_commits_no_offsets() {
    let disk = HeldDisk::default();
    let (broker, mut connection, mut other) = start(&disk);
    let member = join(&mut connection);
    let request = request(&mut connection, Some(member.clone()), &[TOPIC]);
    let held = disk.hold(TRANSACTIONS);
    connection.send(&framed(5, &request));
    disk.await_held_sync();
    let left = LeaveGroupRequest {
        group_id: GROUP.into(),
        members: vec![MemberIdentity { member_id: member.0, ..Default::default() }],
        ..Default::default()
    };
    assert_eq!(other.ask(3, &left).expect("an answer").error_code, ErrorCode::None);
    drop(held);
    let answer = connection.answer_to::<TxnOffsetCommitRequest>(5).expect("an answer");
    let code = answer.topics[0].partitions[0].error_code;
    assert!(matches!(code, ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration), "{code}");
    assert_eq!(stable_code(&mut other, TOPIC), ErrorCode::None);
    broker.stop();
}

/// The offset was appended after the offsets of the deleted topic were removed: the next topic of that name had it.
#[test]
fn a_topic_that_is_deleted_while_the_transaction_is_approved_gets_no_offsets() {
    let disk = HeldDisk::default();
    let (broker, mut connection, mut other) = start(&disk);
    let request = request(&mut connection, None, &["returns", TOPIC]);
    let held = disk.hold(TRANSACTIONS);
    connection.send(&framed(5, &request));
    disk.await_held_sync();
    let deletion =
        DeleteTopicsRequest { topic_names: vec!["returns".into()], timeout_ms: 30_000, ..Default::default() };
    assert_eq!(other.ask(5, &deletion).expect("an answer").responses[0].error_code, ErrorCode::None);
    drop(held);
    let answer = connection.answer_to::<TxnOffsetCommitRequest>(5).expect("an answer");
    let codes: Vec<ErrorCode> = answer.topics.iter().map(|topic| topic.partitions[0].error_code).collect();
    assert_eq!(codes, [ErrorCode::UnknownTopicOrPartition, ErrorCode::None]);
    assert_eq!(stable_code(&mut other, "returns"), ErrorCode::None);
    assert_eq!(stable_code(&mut other, TOPIC), ErrorCode::UnstableOffsetCommit);
    broker.stop();
}

/// The partition was looked up again after the commit: an offset that was not committed was answered without an error.
#[test]
fn a_partition_that_is_created_during_a_commit_was_unknown_to_it() {
    let disk = HeldDisk::default();
    let (broker, mut connection, mut other) = start(&disk);
    let mut request = commit_request(GROUP, 7);
    let first = connection.ask(8, &request).expect("an answer");
    assert_eq!(first.topics[0].partitions[0].error_code, ErrorCode::None, "the coordinator has its topic");
    let missing =
        OffsetCommitRequestPartition { partition_index: 1, ..request.topics[0].partitions[0].clone() };
    request.topics[0].partitions.push(missing);
    let held = disk.hold(OFFSETS);
    connection.send(&framed(8, &request));
    disk.await_held_sync();
    let grown = CreatePartitionsTopic { name: TOPIC.into(), count: 2, assignments: None };
    let growth = CreatePartitionsRequest { topics: vec![grown], timeout_ms: 30_000, ..Default::default() };
    assert_eq!(other.ask(2, &growth).expect("an answer").results[0].error_code, ErrorCode::None);
    drop(held);
    let answer = connection.answer_to::<OffsetCommitRequest>(8).expect("an answer");
    let codes = answer.topics[0].partitions.iter().map(|partition| partition.error_code);
    let codes: Vec<ErrorCode> = codes.collect();
    assert_eq!(codes, [ErrorCode::None, ErrorCode::UnknownTopicOrPartition]);
    assert_eq!(broker.cluster().committed_offset(GROUP, TOPIC, 1), None);
    broker.stop();
}

/// The transactions of the partition were not known, and the answer was INVALID_PRODUCER_ID_MAPPING, which is fatal.
#[test]
fn a_producer_retries_while_the_partition_of_its_transactions_is_offline() {
    let disk = HeldDisk::default();
    let (broker, mut connection, _) = start(&disk);
    let request = request(&mut connection, None, &[TOPIC]);
    broker.stop();
    let is_log = |path: &String| path.starts_with(TRANSACTIONS) && path.rsplit('.').next() == Some("log");
    for path in disk.disk.paths().into_iter().filter(is_log) {
        let mut bytes = disk.disk.contents(&path).expect("there");
        if bytes.len() > 3 {
            let last = bytes.len() - 3;
            bytes[last] ^= 1;
            disk.disk.set_contents(&path, &bytes);
        }
    }
    let (broker, mut connection, _) = start(&disk);
    for version in [4, 5] {
        let answer = connection.ask(version, &request).expect("an answer");
        let code = answer.topics[0].partitions[0].error_code;
        assert_eq!(code, ErrorCode::CoordinatorLoadInProgress, "version {version}");
    }
    let seal = Seal {
        producer_id: request.producer_id,
        producer_epoch: request.producer_epoch,
        base_sequence: 0,
        transactional: true,
        ..Seal::default()
    };
    let mut produce = produce_request(TOPIC, -1, &batch(&[b"x"], &seal));
    produce.transactional_id = Some(TRANSACTIONAL_ID.into());
    let answer = connection.ask(11, &produce).expect("an answer");
    assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::NotEnoughReplicas);
    broker.stop();
}
