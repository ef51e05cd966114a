//! `rd_kafka_metadata`: the cluster, as C reads it.

use std::ffi::{CString, c_int};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::{Error, Metadata};

use crate::client::handle::Handle;
use crate::client::topic_handle::{Topic, TopicState};
use crate::errors::error_mapping::{of as code_of, of_protocol as code_of_broker};
use crate::ffi::c_strings::c_string;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::op_queue::timeout_of;

/// Between two looks for a broker that can be reached.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The memory that `rd_kafka_metadata_destroy` frees: the struct that C reads, and all that it points to.
#[repr(C)]
struct MetadataBlock {
    metadata: rd_kafka_metadata_t,
    _brokers: Box<[rd_kafka_metadata_broker_t]>,
    _topics: Box<[rd_kafka_metadata_topic_t]>,
    _partitions: Vec<Box<[rd_kafka_metadata_partition_t]>>,
    _nodes: Vec<Box<[i32]>>,
    _texts: Vec<CString>,
}

impl MetadataBlock {
    fn new(told: &Metadata, responder: &str) -> Box<Self> {
        let (mut texts, mut nodes, mut partitions) = (Vec::new(), Vec::new(), Vec::new());
        let mut text = |text: &str| {
            let text = c_string(text);
            let raw = text.as_ptr().cast_mut();
            texts.push(text);
            raw
        };
        let mut list = |ids: &[i32]| {
            let mut ids: Box<[i32]> = ids.into();
            let raw = (ids.as_mut_ptr(), ids.len() as c_int);
            nodes.push(ids);
            raw
        };
        let mut brokers: Box<[_]> = told
            .brokers
            .iter()
            .map(|(id, host, port)| rd_kafka_metadata_broker_t {
                id: *id,
                host: text(host),
                port: (*port).into(),
            })
            .collect();
        let mut topics: Box<[_]> = told
            .topics
            .iter()
            .map(|topic| {
                let mut of_topic: Box<[_]> = topic
                    .partitions
                    .iter()
                    .map(|partition| {
                        let (replicas, replica_cnt) = list(&partition.replicas);
                        let (isrs, isr_cnt) = list(&partition.isr);
                        rd_kafka_metadata_partition_t {
                            id: partition.partition,
                            err: code_of_broker(partition.error),
                            leader: partition.leader,
                            replica_cnt,
                            replicas,
                            isr_cnt,
                            isrs,
                        }
                    })
                    .collect();
                let (raw, count) = (of_topic.as_mut_ptr(), of_topic.len());
                partitions.push(of_topic);
                rd_kafka_metadata_topic_t {
                    topic: text(&topic.name),
                    partition_cnt: count as c_int,
                    partitions: raw,
                    err: code_of_broker(topic.error),
                }
            })
            .collect();
        let metadata = rd_kafka_metadata_t {
            broker_cnt: brokers.len() as c_int,
            brokers: brokers.as_mut_ptr(),
            topic_cnt: topics.len() as c_int,
            topics: topics.as_mut_ptr(),
            orig_broker_id: told.responder.unwrap_or(-1),
            orig_broker_name: text(responder),
        };
        Box::new(Self {
            metadata,
            _brokers: brokers,
            _topics: topics,
            _partitions: partitions,
            _nodes: nodes,
            _texts: texts,
        })
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_metadata(
    rk: *mut rd_kafka_t,
    all_topics: c_int,
    only_rkt: *mut rd_kafka_topic_t,
    metadatap: *mut *const rd_kafka_metadata_t,
    timeout_ms: c_int,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `metadatap` is NULL or writable
    // (rdkafka.h, `rd_kafka_metadata`).
    let (Some(handle), Some(place)) = (Handle::shared(rk, FUNCTION), unsafe { metadatap.as_mut() }) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let only = Topic::of(only_rkt, FUNCTION);
    match ask(&handle, all_topics != 0, only.as_deref(), timeout_ms) {
        Ok(told) => {
            handle.note_cluster(&told);
            *place = Box::into_raw(MetadataBlock::new(&told, &responder_of(&handle, &told))).cast();
            RD_KAFKA_RESP_ERR_NO_ERROR
        }
        Err(Error::TimedOut { .. }) => RD_KAFKA_RESP_ERR__TIMED_OUT,
        Err(Error::Unreachable { .. }) => RD_KAFKA_RESP_ERR__TRANSPORT,
        Err(error) => code_of(&error),
    }
}

/// Returns the name of the broker that responded, as the original writes it: a protocol other than PLAINTEXT, the address, and
/// the id.
fn responder_of(handle: &Handle, told: &Metadata) -> String {
    let protocol = handle.conf().get("security.protocol").filter(|name| name != "plaintext");
    let prefix = protocol.map(|name| format!("{name}://")).unwrap_or_default();
    let suffix = told.responder.map_or_else(|| "bootstrap".to_owned(), |node| node.to_string());
    format!("{prefix}{}/{suffix}", told.responder_address)
}

fn ask(
    handle: &Arc<Handle>,
    all: bool,
    only: Option<&TopicState>,
    timeout_ms: c_int,
) -> Result<Metadata, Error> {
    let client = handle.client().ok_or(Error::Closed)?;
    let known = handle.topics().names();
    let names: Vec<&str> = match only {
        Some(topic) => vec![&topic.name],
        None => known.iter().map(|name| &**name).collect(),
    };
    let names = (only.is_some() || !all).then_some(&names[..]);
    let request = |timeout| match names {
        Some(names) => client.metadata_creating_blocking(names, timeout),
        None => client.metadata_blocking(None, timeout),
    };
    let deadline = Instant::now() + timeout_of(timeout_ms).unwrap_or(Duration::from_secs(3600));
    let mut unreachable = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match (request(left), unreachable.take()) {
            // Programs that start together with their broker wait for it here.
            (Err(error @ Error::Unreachable { .. }), _) if left > ASKED_AGAIN_AFTER => {
                unreachable = Some(error);
                std::thread::sleep(ASKED_AGAIN_AFTER);
            }
            // The last attempt had too little time to find that out again.
            (Err(Error::TimedOut { .. }), Some(error)) => return Err(error),
            (asked, _) => return asked,
        }
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_metadata_destroy(metadata: *const rd_kafka_metadata_t) {
    if !metadata.is_null() {
        let told: *mut MetadataBlock = metadata.cast_mut().cast();
        // SAFETY: the first field of what `rd_kafka_metadata` leaked, given back once (rdkafka.h,
        // `rd_kafka_metadata_destroy`).
        drop(unsafe { Box::from_raw(told) });
    }
}
