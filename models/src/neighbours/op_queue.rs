//! The neighbours of a queue of C: operations that are numbers, and no messages.

use std::ffi::c_void;

/// An operation.
#[derive(Debug, Eq, PartialEq)]
pub struct Op(pub u32);

impl Op {
    /// The model's operations have no payloads.
    pub fn discard(self) {}
}

/// The model sets no callback, and so has no calls to wait for.
#[derive(Debug, Default)]
pub struct CallGate;

impl CallGate {
    /// There is no call.
    pub fn enter(&self) -> Option<()> {
        None
    }

    /// There is no call.
    pub fn close(&self) {}
}

/// The model has no client in C.
#[derive(Debug)]
pub enum rd_kafka_t {}

/// The model has no messages.
#[derive(Debug)]
pub enum rd_kafka_message_t {}

/// The model sets no callback.
pub type rd_kafka_queue_event_cb_t = Option<extern "C" fn(*mut rd_kafka_t, *mut c_void)>;

/// The model has no messages.
#[derive(Debug)]
pub struct OwnedMessage;

impl OwnedMessage {
    /// The model's sources have no messages.
    pub fn of(_: *mut rd_kafka_message_t) -> Self {
        Self
    }
}

/// The model's arrays have no messages.
#[derive(Debug)]
pub struct MessageArray;

impl MessageArray {
    /// The model has no messages.
    pub fn take(&mut self, op: Op) -> Option<Op> {
        Some(op)
    }

    /// The model has no messages.
    pub fn len(&self) -> usize {
        0
    }

    /// The model has no messages.
    pub fn is_empty(&self) -> bool {
        true
    }

    /// There is always room for what never comes.
    pub fn has_room(&self) -> bool {
        true
    }
}
