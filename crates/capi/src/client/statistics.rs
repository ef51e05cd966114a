//! The statistics of a client for its application.

use ottla_client::statistics::{Fatal, Snapshot};

use crate::client::handle::Handle;
use crate::errors::error_object::description;
use crate::ffi::{RD_KAFKA_PARTITION_UA, RD_KAFKA_PRODUCER};

/// The statistics as JSON, with what only this library knows: the type of the client, and the error that ended it. Each topic has the
/// partition -1, as in the original, whether records wait for its metadata or not.
pub(super) fn shown(handle: &Handle, snapshot: &Snapshot) -> String {
    let mut snapshot = snapshot.clone();
    snapshot.client_type = if handle.kind == RD_KAFKA_PRODUCER { "producer" } else { "consumer" }.into();
    for topic in snapshot.topics.values_mut() {
        topic.partitions.entry(RD_KAFKA_PARTITION_UA.to_string()).or_default();
    }
    if let Some((code, text)) = handle.fatal.get() {
        let mut fatal = Fatal::default();
        fatal.error = description(*code).to_string_lossy().into_owned();
        fatal.reason.clone_from(text);
        fatal.cnt = 1;
        snapshot.fatal = Some(fatal);
    }
    snapshot.to_json()
}
