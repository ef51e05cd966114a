//! The admin interface: requests that the application builds, and results that it reads from events.

mod acls;
mod checks;
mod configs;
mod enum_names;
mod group_descriptions;
mod groups;
mod layout;
mod macros;
mod offsets;
mod options;
mod pending_requests;
mod requests;
mod results;
mod scram;
mod topics;

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use ottla_client::{Error, TopicPartition};

pub use self::acls::*;
pub use self::configs::*;
pub use self::enum_names::*;
pub use self::group_descriptions::*;
pub use self::groups::*;
pub use self::layout::*;
pub use self::offsets::*;
pub use self::options::*;
pub(crate) use self::pending_requests::PendingRequests;
pub use self::requests::*;
pub use self::results::*;
pub use self::scram::*;
pub use self::topics::*;
use crate::errors::error_mapping;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::c_strings::c_string;
use crate::ffi::*;
use crate::messages::list_conversion;

/// Objects of one type, and the array of pointers through which C reads them.
pub struct Array<T> {
    items: Box<[T]>,
    pointers: Box<[*const T]>,
}

// SAFETY: the pointers point to the items, which come along.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: no code writes through these pointers.
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

    /// Returns the pointers and their number for C; NULL if there are none.
    pub fn read(&self) -> (*mut *const T, usize) {
        if self.pointers.is_empty() {
            return (null_mut(), 0);
        }
        (self.pointers.as_ptr().cast_mut(), self.pointers.len())
    }
}

/// An array that grows. Its objects stay where they are, because C may have pointers to them.
pub struct GrowingArray<T> {
    items: Vec<Arc<T>>,
    pointers: Vec<*const T>,
}

// SAFETY: the pointers point to the items, which come along.
unsafe impl<T: Send + Sync> Send for GrowingArray<T> {}
// SAFETY: no code writes through these pointers.
unsafe impl<T: Send + Sync> Sync for GrowingArray<T> {}

impl<T> GrowingArray<T> {
    pub fn new(items: Vec<T>) -> Self {
        let items: Vec<Arc<T>> = items.into_iter().map(Arc::new).collect();
        let pointers = items.iter().map(Arc::as_ptr).collect();
        Self { items, pointers }
    }

    pub fn push(&mut self, item: T) {
        let item = Arc::new(item);
        self.pointers.push(Arc::as_ptr(&item));
        self.items.push(item);
    }

    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|item| &**item)
    }

    /// Returns the pointers and their number for C; NULL if there are none. The pointers are valid as long as the objects; their
    /// array is valid until the next push.
    pub fn read(&self) -> (*mut *const T, usize) {
        if self.pointers.is_empty() {
            return (null_mut(), 0);
        }
        (self.pointers.as_ptr().cast_mut(), self.pointers.len())
    }
}

/// The NULL value of each returned pointer type.
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

/// A list of partitions that is destroyed with its owner.
pub struct List(*mut rd_kafka_topic_partition_list_t);

// SAFETY: ours alone, and nothing in it belongs to a thread.
unsafe impl Send for List {}

impl List {
    /// Copies the caller's list. The copy of NULL is empty.
    ///
    /// # Safety
    /// The list is NULL or not yet destroyed.
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

    /// Adds a partition that the caller fills in. Returns `None` if there is no memory.
    pub fn add(&mut self, at: &TopicPartition) -> Option<&mut rd_kafka_topic_partition_t> {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }?.add(&c_string(&at.topic), at.partition)
    }

    /// Adds a partition with its offset and its error code.
    pub fn add_with(&mut self, at: &TopicPartition, offset: i64, err: rd_kafka_resp_err_t) {
        if let Some(element) = self.add(at) {
            element.offset = offset;
            element.err = err;
        }
    }

    pub fn partitions(&self) -> Vec<TopicPartition> {
        self.elems().iter().map(list_conversion::at).collect()
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
        unsafe { crate::messages::partition_list::rd_kafka_topic_partition_list_destroy(self.0) };
    }
}

/// Returns the error code of a failed request. A request that reached no broker has timed out.
pub fn code(error: &Error) -> rd_kafka_resp_err_t {
    match error {
        Error::Unreachable { .. } => RD_KAFKA_RESP_ERR__TIMED_OUT,
        error => error_mapping::of(error),
    }
}

/// Returns the text of an error: the broker's own, as in librdkafka, or else the text of its code.
fn words(error: &Error) -> String {
    match error {
        Error::Broker { .. } => String::new(),
        Error::Refused { message, .. } => message.clone(),
        Error::Config(reason) => reason.clone(),
        error => error.to_string(),
    }
}

/// Returns the error as an object.
pub fn error_object(error: &Error) -> Box<rd_kafka_error_t> {
    rd_kafka_error_t::new(code(error), &words(error)).retriable(error.is_retriable())
}

/// Returns C's pointer to an error that is valid as long as its owner.
fn error_pointer(error: Option<&rd_kafka_error_t>) -> *const rd_kafka_error_t {
    error.map_or(null(), std::ptr::from_ref)
}

/// Returns the error code of a result.
fn code_of<T>(answer: &Result<T, Error>) -> rd_kafka_resp_err_t {
    answer.as_ref().err().map_or(RD_KAFKA_RESP_ERR_NO_ERROR, code)
}

fn optional(text: Option<&CString>) -> *const c_char {
    text.map_or(null(), |text| text.as_ptr())
}

fn lossy(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Returns an error that C must destroy.
fn invalid(text: &str) -> *mut rd_kafka_error_t {
    rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__INVALID_ARG, text).into_raw()
}
