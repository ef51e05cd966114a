//! The admin interface: requests that the application builds, and results that it reads out of events.

mod acls;
mod configs;
mod group_descriptions;
mod groups;
mod layout;
mod macros;
mod names;
mod offsets;
mod options;
mod requests;
mod results;
mod scram;
mod task;
mod topics;

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};

use ottla_client::{Error, TopicPartition};

pub use self::acls::*;
pub use self::configs::*;
pub use self::group_descriptions::*;
pub use self::groups::*;
pub use self::layout::*;
pub use self::names::*;
pub use self::offsets::*;
pub use self::options::*;
pub use self::requests::*;
pub use self::results::*;
pub use self::scram::*;
pub(crate) use self::task::Tasks;
pub use self::topics::*;
use crate::codes;
use crate::error::rd_kafka_error_t;
use crate::ffi::*;
use crate::lists;
use crate::text::c_string;

/// Things of one kind, with the array of pointers through which C reads them.
pub struct Array<T> {
    items: Box<[T]>,
    pointers: Box<[*const T]>,
}

// SAFETY: the pointers point to the items, which come along.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: nobody writes through them.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T> Array<T> {
    pub fn new(items: Vec<T>) -> Self {
        let items = items.into_boxed_slice();
        let pointers = items.iter().map(std::ptr::from_ref).collect();
        Self { items, pointers }
    }

    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// For C: the pointers and how many there are; NULL if there are none.
    pub fn read(&self) -> (*mut *const T, usize) {
        if self.pointers.is_empty() {
            return (null_mut(), 0);
        }
        (self.pointers.as_ptr().cast_mut(), self.pointers.len())
    }
}

/// A NULL of each kind of pointer that is returned.
trait DefaultPointer {
    fn default_pointer() -> Self;
}

impl<T> DefaultPointer for *const T {
    fn default_pointer() -> Self {
        null()
    }
}

impl<T> DefaultPointer for *mut T {
    fn default_pointer() -> Self {
        null_mut()
    }
}

/// A list of partitions that goes away with its owner.
pub struct List(*mut rd_kafka_topic_partition_list_t);

// SAFETY: ours alone, and nothing in it belongs to a thread.
unsafe impl Send for List {}

impl List {
    /// A copy of the caller's list; empty for NULL.
    ///
    /// # Safety
    /// NULL or a list that lives.
    pub unsafe fn copy_of(list: *const rd_kafka_topic_partition_list_t) -> Self {
        // SAFETY: `list` is NULL or a list of this library, not yet destroyed (the contract of this function, above).
        unsafe { list.as_ref() }.map_or_else(Self::default, |list| Self(list.copy()))
    }

    pub fn as_ptr(&self) -> *const rd_kafka_topic_partition_list_t {
        self.0
    }

    pub fn elems(&self) -> &[rd_kafka_topic_partition_t] {
        // SAFETY: ours, and NULL only when memory is out.
        unsafe { self.0.as_ref() }.map_or(&[], rd_kafka_topic_partition_list_t::elems)
    }

    /// Adds a partition, to be filled in by the caller; `None` when memory is out.
    pub fn add(&mut self, at: &TopicPartition) -> Option<&mut rd_kafka_topic_partition_t> {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }?.add(&c_string(&at.topic), at.partition)
    }

    /// Adds a partition with its offset and what became of it.
    pub fn add_with(&mut self, at: &TopicPartition, offset: i64, err: rd_kafka_resp_err_t) {
        if let Some(element) = self.add(at) {
            element.offset = offset;
            element.err = err;
        }
    }

    pub fn partitions(&self) -> Vec<TopicPartition> {
        self.elems().iter().map(lists::at).collect()
    }
}

impl Default for List {
    fn default() -> Self {
        Self(rd_kafka_topic_partition_list_t::new(0))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: ours alone.
        unsafe { crate::partitions::rd_kafka_topic_partition_list_destroy(self.0) };
    }
}

/// Which code a failed request's error is: what never reached a broker has waited in vain.
pub fn code(error: &Error) -> rd_kafka_resp_err_t {
    match error {
        Error::Unreachable { .. } => RD_KAFKA_RESP_ERR__TIMED_OUT,
        error => codes::of(error),
    }
}

/// The words of an error: the broker's own, as librdkafka passes them on; without any, those of its code.
fn words(error: &Error) -> String {
    match error {
        Error::Broker { .. } => String::new(),
        Error::Refused { message, .. } => message.clone(),
        error => error.to_string(),
    }
}

/// The error as an object.
pub fn error_object(error: &Error) -> Box<rd_kafka_error_t> {
    rd_kafka_error_t::new(code(error), &words(error)).retriable(error.is_retriable())
}

/// C's pointer to an error that lives as long as what it is part of.
fn error_pointer(error: Option<&rd_kafka_error_t>) -> *const rd_kafka_error_t {
    error.map_or(null(), std::ptr::from_ref)
}

/// The code of what became of something.
fn code_of<T>(answer: &Result<T, Error>) -> rd_kafka_resp_err_t {
    answer.as_ref().err().map_or(RD_KAFKA_RESP_ERR_NO_ERROR, code)
}

fn optional(text: Option<&CString>) -> *const c_char {
    text.map_or(null(), |text| text.as_ptr())
}

fn lossy(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

/// An error for C to free.
fn invalid(text: &str) -> *mut rd_kafka_error_t {
    rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__INVALID_ARG, text).into_raw()
}
