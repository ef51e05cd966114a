//! `rd_kafka_messages_t`: the messages of one poll. They are destroyed together.

use std::ptr::null_mut;
use std::sync::Arc;

use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::handles::handle_table::{HandleKind, HandleTable, as_pointer};
use crate::handles::slot_table::InUse;
use crate::messages::message::OwnedMessage;

/// The messages of a batch.
pub(crate) struct MessageBatch(Box<[OwnedMessage]>);

// SAFETY: a batch only returns the addresses of its messages. The application uses a message in one thread at a time (rdkafka.h,
// `rd_kafka_messages_get`).
unsafe impl Sync for MessageBatch {}

static BATCHES: HandleTable<MessageBatch> = HandleTable::new(HandleKind::MessageBatch);

impl MessageBatch {
    pub(super) fn new(messages: Vec<OwnedMessage>) -> Self {
        Self(messages.into())
    }

    /// To C, which destroys it; `None` if too many batches exist.
    pub(super) fn into_raw(self) -> Option<*mut rd_kafka_messages_t> {
        BATCHES.insert(Arc::new(self)).map(as_pointer)
    }

    fn of(batch: *const rd_kafka_messages_t, function: &str) -> Option<InUse<Self>> {
        BATCHES.find(batch, function)
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_messages_count(rkmessages: *const rd_kafka_messages_t) -> usize {
    MessageBatch::of(rkmessages, FUNCTION).map_or(0, |batch| batch.0.len())
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_messages_get(
    rkmessages: *const rd_kafka_messages_t,
    idx: usize,
) -> *mut rd_kafka_message_t {
    let batch = MessageBatch::of(rkmessages, FUNCTION);
    batch.and_then(|batch| batch.0.get(idx).map(OwnedMessage::as_raw)).unwrap_or(null_mut())
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_messages_destroy(rkmessages: *mut rd_kafka_messages_t) {
    let handle = rkmessages.addr() as u64;
    if handle != 0 && !BATCHES.retire(handle) {
        BATCHES.report_stale(handle, FUNCTION);
    }
}
