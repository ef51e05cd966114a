//! The thread that serves all clients never waits for the disk: no request makes it sync a file or a directory, create or
//! remove a directory, or remove a segment.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread, Clock, Durability};
use ottla_log::storage::mem::MemStorage;
use ottla_log::storage::{Entry, File, Open, Storage};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use ottla_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use ottla_protocol::messages::delete_groups::DeleteGroupsRequest;
use ottla_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use ottla_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_protocol::messages::init_producer_id::InitProducerIdRequest;
use ottla_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use ottla_wire::{ReadAt, Seal};

use crate::common::{PATIENCE, Raw, batch, commit_request, metadata_of};

const NOW_MS: i64 = 1_700_000_000_000;
/// The thread of `Broker::spawn`, which serves all connections.
const SERVING_THREAD: &str = "ottla-broker";

/// A disk in memory that notes the calls of the serving thread which a real disk makes wait.
#[derive(Clone, Debug)]
struct Watched {
    disk: MemStorage,
    armed: Arc<AtomicBool>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Watched {
    fn note(&self, call: String) {
        let is_serving = std::thread::current().name() == Some(SERVING_THREAD);
        if is_serving && self.armed.load(Ordering::Relaxed) {
            self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        }
    }

    #[track_caller]
    fn assert_no_calls(&self, after: &str) {
        let calls = std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner));
        assert!(calls.is_empty(), "{after}: the serving thread called {calls:?}");
    }
}

impl Storage for Watched {
    fn root(&self) -> Option<&Path> {
        self.disk.root()
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.note(format!("create_dir {path}"));
        self.disk.create_dir(path)
    }

    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, how)?;
        Ok(Arc::new(WatchedFile { path: path.to_owned(), file, storage: self.clone() }))
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
        // The removal of a small file is a change in the page cache; that of a segment frees many blocks.
        if Path::new(path).extension().is_some_and(|extension| extension == "log") {
            self.note(format!("remove {path}"));
        }
        self.disk.remove(path)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.note(format!("remove_dir {path}"));
        self.disk.remove_dir(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.note(format!("sync_dir {dir}"));
        self.disk.sync_dir(dir)
    }
}

#[derive(Debug)]
struct WatchedFile {
    path: String,
    file: Arc<dyn File>,
    storage: Watched,
}

impl ReadAt for WatchedFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

impl File for WatchedFile {
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
        self.storage.note(format!("sync_data {}", self.path));
        self.file.sync_data()
    }
}

fn create(connection: &mut Raw, names: &[&str], partitions: i32, configs: &[(&str, &str)]) {
    let configs =
        configs.iter().map(|(name, value)| ottla_protocol::messages::create_topics::CreatableTopicConfig {
            name: (*name).into(),
            value: Some((*value).into()),
        });
    let configs: Vec<_> = configs.collect();
    let topics = names.iter().map(|name| CreatableTopic {
        name: (*name).into(),
        num_partitions: partitions,
        replication_factor: 1,
        configs: configs.clone(),
        ..Default::default()
    });
    let request = CreateTopicsRequest { topics: topics.collect(), timeout_ms: 10_000, validate_only: false };
    for topic in connection.ask(7, &request).expect("an answer").topics {
        assert_eq!(topic.error_code, ErrorCode::None, "{:?}", topic.error_message);
    }
}

fn commit(connection: &mut Raw, group: &str, offset: i64) {
    let request = commit_request(group, offset);
    let answer = connection.ask(8, &request).expect("an answer");
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::None);
}

/// A broker on a watched disk, and a connection to it.
struct Setting {
    watched: Watched,
    clock: Arc<AtomicI64>,
    broker: BrokerThread,
    connection: Raw,
}

impl Setting {
    fn new(durability: Durability) -> Self {
        let clock = Arc::new(AtomicI64::new(NOW_MS));
        let watched = Watched { disk: MemStorage::new(), armed: Arc::default(), calls: Arc::default() };
        let broker = Broker::builder()
            .storage(Arc::new(watched.clone()))
            .clock(Clock::Fixed(clock.clone()))
            .configure(|config| {
                config.durability = durability;
                config.auto_create_topics = true;
                config.retention_check = Duration::from_millis(5);
                config.clock_jump_wait = Duration::ZERO;
            })
            .spawn()
            .expect("a broker");
        let connection = Raw::connect(broker.addresses()[0]);
        watched.armed.store(true, Ordering::Relaxed);
        Self { watched, clock, broker, connection }
    }
}

/// Creating a topic with 500 partitions stopped all clients for 1 s, and creating 200 topics automatically for 0.9 s.
fn create_and_produce(setting: &mut Setting) {
    let Setting { watched, connection, .. } = setting;
    create(connection, &["orders", "stock"], 3, &[("segment.bytes", "1024"), ("retention.ms", "60000")]);
    watched.assert_no_calls("CreateTopics");
    let topic = connection.ask(9, &metadata_of("made-on-demand")).expect("an answer").topics.remove(0);
    assert_eq!((topic.error_code, topic.partitions.len()), (ErrorCode::None, 1));
    watched.assert_no_calls("an automatic creation");
    for _ in 0..20 {
        let response = connection.produce("orders", -1, &batch(&[&[b'x'; 300]], &Seal::default()));
        assert_eq!(response.error_code, ErrorCode::None);
    }
    watched.assert_no_calls("Produce");
}

fn use_groups_and_producer_ids(setting: &mut Setting) {
    let Setting { watched, connection, .. } = setting;
    let init = InitProducerIdRequest {
        transactional_id: None,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    assert_eq!(connection.ask(4, &init).expect("an answer").error_code, ErrorCode::None);
    watched.assert_no_calls("InitProducerId");
    commit(connection, "billing", 3);
    watched.assert_no_calls("OffsetCommit");
    let partitions = vec![OffsetDeleteRequestPartition { partition_index: 0 }];
    let forget = OffsetDeleteRequest {
        group_id: "billing".into(),
        topics: vec![OffsetDeleteRequestTopic { name: "orders".into(), partitions }],
    };
    assert_eq!(connection.ask(0, &forget).expect("an answer").error_code, ErrorCode::None);
    commit(connection, "billing", 4);
    let groups = DeleteGroupsRequest { groups_names: vec!["billing".into()] };
    assert_eq!(connection.ask(2, &groups).expect("an answer").results[0].error_code, ErrorCode::None);
    watched.assert_no_calls("OffsetDelete and DeleteGroups");
}

fn change_topics(setting: &mut Setting) {
    let Setting { watched, connection, .. } = setting;
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset: 5 }];
    let records = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic { name: "orders".into(), partitions }],
        timeout_ms: 10_000,
    };
    let deleted = connection.ask(2, &records).expect("an answer").topics.remove(0).partitions.remove(0);
    assert_eq!((deleted.error_code, deleted.low_watermark), (ErrorCode::None, 5));
    watched.assert_no_calls("DeleteRecords");
    let configs = vec![AlterableConfig {
        name: "retention.ms".into(),
        value: Some("30000".into()),
        ..Default::default()
    }];
    let resource = AlterConfigsResource { resource_type: 2, resource_name: "orders".into(), configs };
    let alter = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    assert_eq!(connection.ask(1, &alter).expect("an answer").responses[0].error_code, ErrorCode::None);
    watched.assert_no_calls("IncrementalAlterConfigs");
    let topic = CreatePartitionsTopic { name: "stock".into(), count: 5, assignments: None };
    let grow = CreatePartitionsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    assert_eq!(connection.ask(3, &grow).expect("an answer").results[0].error_code, ErrorCode::None);
    watched.assert_no_calls("CreatePartitions");
}

/// Retention removes every record once they are old enough.
fn wait_for_retention(setting: &mut Setting) {
    let Setting { watched, clock, broker, .. } = setting;
    clock.fetch_add(3_600_000, Ordering::Relaxed);
    let cluster = broker.cluster();
    let deadline = std::time::Instant::now() + PATIENCE;
    while cluster.offsets_of("orders", 0) != Some((20, 20)) {
        assert!(std::time::Instant::now() < deadline, "{:?}", cluster.offsets_of("orders", 0));
        std::thread::park_timeout(Duration::from_millis(5));
    }
    watched.assert_no_calls("retention");
}

fn delete(setting: &mut Setting) {
    let Setting { watched, connection, .. } = setting;
    let topics = vec![DeleteTopicState { name: Some("orders".into()), ..Default::default() }];
    let delete = DeleteTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    assert_eq!(connection.ask(6, &delete).expect("an answer").responses[0].error_code, ErrorCode::None);
    watched.assert_no_calls("DeleteTopics");
}

fn no_request_makes_the_serving_thread_wait(durability: Durability) {
    let mut setting = Setting::new(durability);
    create_and_produce(&mut setting);
    use_groups_and_producer_ids(&mut setting);
    change_topics(&mut setting);
    wait_for_retention(&mut setting);
    delete(&mut setting);
}

#[test]
fn no_request_makes_the_serving_thread_wait_with_durability_disk() {
    no_request_makes_the_serving_thread_wait(Durability::Disk);
}

#[test]
fn no_request_makes_the_serving_thread_wait_with_durability_os() {
    no_request_makes_the_serving_thread_wait(Durability::Os);
}
