//! Share consumers of the C interface on the embedded broker, for tests.

#![allow(dead_code, unreachable_pub, reason = "not every test needs everything")]

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::Mutex;
use std::time::Instant;

use ottla_broker::{Broker, BrokerThread};
use ottla_client::{AlterOptions, Client, Config, ConfigChange, ConfigResource, Record};
use rdkafka::client::topic_handle::*;
use rdkafka::conf::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::share::acknowledge::*;
use rdkafka::share::close::*;
use rdkafka::share::commit_callback::*;
use rdkafka::share::message_batch::*;
use rdkafka::share::open::*;
use rdkafka::share::partition_offsets::*;
use rdkafka::share::poll::*;
use rdkafka::share::subscription::*;

use crate::common::{PATIENCE, conf, list, text_of};

pub const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;
pub const EXPLICIT: (&str, &str) = ("share.acknowledgement.mode", "explicit");
pub const ACCEPT: rd_kafka_share_AcknowledgeType_t = RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT;
pub const RELEASE: rd_kafka_share_AcknowledgeType_t = RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_RELEASE;
pub const REJECT: rd_kafka_share_AcknowledgeType_t = RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_REJECT;

/// A broker whose group `g` reads topics from their beginning.
pub struct Cluster {
    pub broker: BrokerThread,
    pub client: Client,
}

impl Cluster {
    pub fn start(partitions: i32) -> Self {
        let builder = Broker::builder().memory().topic("orders", partitions);
        let builder = builder.configure(|config| {
            config.set("group.share.min.record.lock.duration.ms", "1000").expect("a property");
        });
        let broker = builder.spawn().expect("a broker");
        let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
        let earliest = ("share.auto.offset.reset".to_owned(), ConfigChange::Set("earliest".into()));
        let changes = [(ConfigResource::group("g"), vec![earliest])];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let altering =
            async { client.admin().incremental_alter_configs(&changes, AlterOptions::default()).await };
        for (_, result) in runtime.block_on(altering).expect("an answer") {
            result.expect("changed");
        }
        Self { broker, client }
    }

    /// Writes records with these values to a partition.
    pub fn produce(&self, partition: i32, values: impl IntoIterator<Item = usize>) {
        let producer = self.client.producer();
        for value in values {
            let value = value.to_string();
            let record = Record::to("orders").partition(partition).value(&value);
            drop(producer.enqueue_blocking(record).expect("taken"));
        }
        producer.flush_blocking(PATIENCE).expect("written");
    }

    /// A consumer of the group `g`, without a subscription.
    pub fn consumer(&self, properties: &[(&str, &str)]) -> Consumer {
        Consumer::of(self.conf(properties))
    }

    pub fn conf(&self, properties: &[(&str, &str)]) -> *mut rd_kafka_conf_t {
        let servers = self.broker.bootstrap_servers();
        let mut all = vec![("bootstrap.servers", servers.as_str()), ("group.id", "g")];
        all.extend(properties);
        conf(&all)
    }

    /// A consumer of the group `g` and the topic `orders`.
    pub fn member(&self, properties: &[(&str, &str)]) -> Consumer {
        let consumer = self.consumer(properties);
        assert_eq!(consumer.subscribe(&[c"orders"]), OK);
        consumer
    }
}

/// A share consumer; it is destroyed with this value.
pub struct Consumer(pub *mut rd_kafka_share_t);

impl Consumer {
    pub fn of(conf: *mut rd_kafka_conf_t) -> Self {
        let mut text = [0; 512];
        let consumer = unsafe { rd_kafka_share_consumer_new(conf, text.as_mut_ptr(), text.len()) };
        assert!(!consumer.is_null(), "{:?}", unsafe { CStr::from_ptr(text.as_ptr()) });
        Self(consumer)
    }

    pub fn subscribe(&self, topics: &[&CStr]) -> rd_kafka_resp_err_t {
        let entries: Vec<(&CStr, i32)> = topics.iter().map(|topic| (*topic, -1)).collect();
        let topics = list(&entries);
        unsafe {
            let code = rd_kafka_share_subscribe(self.0, topics);
            rd_kafka_topic_partition_list_destroy(topics);
            code
        }
    }

    /// Polls once; the batch, or the code of the error.
    pub fn poll(&self, timeout_ms: i32) -> Result<Option<Batch>, rd_kafka_resp_err_t> {
        let mut batch = null_mut();
        code_of(unsafe { rd_kafka_share_poll(self.0, timeout_ms, &raw mut batch) })?;
        Ok((!batch.is_null()).then_some(Batch(batch)))
    }

    /// Polls until there is a batch.
    pub fn batch(&self) -> Batch {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(batch) = self.poll(1000).expect("no error") {
                return batch;
            }
        }
        panic!("no batch came in time");
    }

    /// Polls until so many records have come, in implicit mode; their values and delivery counts.
    pub fn read(&self, count: usize) -> Vec<(String, i16)> {
        let mut records = Vec::new();
        while records.len() < count {
            records.extend(self.batch().records());
        }
        records
    }

    pub fn acknowledge(&self, message: *mut rd_kafka_message_t, kind: i32) -> rd_kafka_resp_err_t {
        unsafe { rd_kafka_share_acknowledge_type(self.0, message, kind) }
    }

    pub fn close(&self) -> Result<(), rd_kafka_resp_err_t> {
        code_of(unsafe { rd_kafka_share_consumer_close(self.0) })
    }

    /// Sets the callback that adds to `seen`.
    pub fn observe(&self, seen: &Seen) {
        let opaque = std::ptr::from_ref(seen).cast_mut().cast();
        let set = unsafe { rd_kafka_share_set_acknowledgement_commit_cb(self.0, Some(on_result), opaque) };
        assert_eq!(code_of(set), Ok(()));
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if !self.0.is_null() {
            assert_eq!(code_of(unsafe { rd_kafka_share_destroy(self.0) }), Ok(()));
        }
    }
}

/// The messages of a poll; they are destroyed with this value.
pub struct Batch(pub *mut rd_kafka_messages_t);

impl Batch {
    pub fn messages(&self) -> Vec<*mut rd_kafka_message_t> {
        let count = unsafe { rd_kafka_messages_count(self.0) };
        (0..count).map(|at| unsafe { rd_kafka_messages_get(self.0, at) }).collect()
    }

    /// The values and delivery counts.
    pub fn records(&self) -> Vec<(String, i16)> {
        let record = |message: *mut rd_kafka_message_t| {
            assert_eq!(unsafe { (*message).err }, OK);
            (text_of(message), unsafe { rd_kafka_message_delivery_count(message) })
        };
        self.messages().into_iter().map(record).collect()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        unsafe { rd_kafka_messages_destroy(self.0) };
    }
}

/// The result of acknowledgements: the topic, the partition, the offsets and the code.
pub type Acknowledged = (String, i32, Vec<i64>, rd_kafka_resp_err_t);

/// The results that the callback got.
#[derive(Default)]
pub struct Seen {
    pub results: Mutex<Vec<Acknowledged>>,
    /// The code of a poll inside the callback.
    pub inside: Mutex<Option<rd_kafka_resp_err_t>>,
}

impl Seen {
    pub fn take(&self) -> Vec<Acknowledged> {
        std::mem::take(&mut *self.results.lock().unwrap())
    }
}

unsafe extern "C" fn on_result(
    consumer: *mut rd_kafka_share_t,
    partitions: *mut rd_kafka_share_partition_offsets_list_t,
    err: rd_kafka_resp_err_t,
    opaque: *mut c_void,
) {
    let seen = unsafe { &*opaque.cast::<Seen>() };
    let mut batch = null_mut();
    *seen.inside.lock().unwrap() = code_of(unsafe { rd_kafka_share_poll(consumer, 0, &raw mut batch) }).err();
    unsafe {
        for at in 0..rd_kafka_share_partition_offsets_list_count(partitions) {
            let offsets = rd_kafka_share_partition_offsets_list_get(partitions, at);
            let partition = &*rd_kafka_share_partition_offsets_partition(offsets);
            let count = rd_kafka_share_partition_offsets_offsets_cnt(offsets);
            let offsets = &*slice_from_raw_parts(rd_kafka_share_partition_offsets_offsets(offsets), count);
            let topic = partition.topic().to_str().unwrap().to_owned();
            seen.results.lock().unwrap().push((topic, partition.partition, offsets.to_vec(), err));
        }
        let end = rd_kafka_share_partition_offsets_list_count(partitions);
        assert!(rd_kafka_share_partition_offsets_list_get(partitions, end).is_null());
    }
}

/// The code of an error object, which is destroyed.
pub fn code_of(error: *mut rd_kafka_error_t) -> Result<(), rd_kafka_resp_err_t> {
    if error.is_null() {
        return Ok(());
    }
    unsafe {
        let code = rd_kafka_error_code(error);
        rd_kafka_error_destroy(error);
        Err(code)
    }
}

/// The entries of a list, which is destroyed: the topic, the partition and the error.
pub fn entries(list: *mut rd_kafka_topic_partition_list_t) -> Vec<(String, i32, rd_kafka_resp_err_t)> {
    if list.is_null() {
        return Vec::new();
    }
    unsafe {
        let count = usize::try_from((*list).cnt).unwrap();
        let entries = (*slice_from_raw_parts((*list).elems, count))
            .iter()
            .map(|entry| (entry.topic().to_str().unwrap().to_owned(), entry.partition, entry.err))
            .collect();
        rd_kafka_topic_partition_list_destroy(list);
        entries
    }
}

/// The name of a message's topic.
pub fn topic_of(message: *mut rd_kafka_message_t) -> CString {
    unsafe { CStr::from_ptr(rd_kafka_topic_name((*message).rkt)) }.to_owned()
}
