//! Groups and their offsets: what is asked of them, what became of it, and listings.

use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};

use ottla_client::{Error, GroupListing, GroupListings, KeyedResults, OffsetAndMetadata, TopicPartition};

use super::enum_names::{GROUP_STATES, GROUP_TYPES, number};
use super::macros::{destroyers, readers};
use super::{Array, List, code_of, error_object, error_pointer, lossy};
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::c_strings::{c_string, text};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::list_conversion;

pub struct rd_kafka_DeleteGroup_t(pub(super) String);

/// A group and some of its partitions.
pub struct Partitions {
    pub(super) group: CString,
    /// `None` for all.
    pub(super) list: Option<List>,
}

impl Partitions {
    /// # Safety
    /// `group` is NULL or a C string, `list` NULL or a list.
    unsafe fn new(group: *const c_char, list: *const rd_kafka_topic_partition_list_t) -> Option<Self> {
        // SAFETY: `group` is NULL or a C string; `list` is NULL or a list of this library, not yet destroyed (the
        // contract of this function, above).
        unsafe {
            let group = c_string(&text(group)?);
            Some(Self { group, list: (!list.is_null()).then(|| List::copy_of(list)) })
        }
    }

    pub(super) fn group(&self) -> String {
        lossy(&self.group)
    }

    pub(super) fn partitions(&self) -> Option<Vec<TopicPartition>> {
        self.list.as_ref().map(List::partitions)
    }

    /// The offsets of the list; every one must be an offset.
    pub(super) fn offsets(&self) -> Result<Vec<(TopicPartition, OffsetAndMetadata)>, String> {
        let offset = |element: &rd_kafka_topic_partition_t| {
            let at = list_conversion::at(element);
            if element.offset < 0 {
                // Programs compare the text.
                return Err("All topic-partition offsets must be >= 0".to_owned());
            }
            Ok((at, list_conversion::offset(element)))
        };
        self.list.as_ref().map_or(&[][..], List::elems).iter().map(offset).collect()
    }
}

macro_rules! requests_of_groups {
    ($($type:ident, $new:ident, $destroy:ident, $destroy_array:ident;)*) => {$(
        pub struct $type(pub(super) Partitions);

        #[on_panic(null_mut())]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $new(
            group_id: *const c_char,
            partitions: *const rd_kafka_topic_partition_list_t,
        ) -> *mut $type {
            // SAFETY: `group_id` is NULL or a C string; `partitions` is NULL or a list of this library, not yet
            // destroyed (rdkafka.h, every function of this macro).
            let request = unsafe { Partitions::new(group_id, partitions) };
            request.map_or(null_mut(), |request| Box::into_raw(Box::new($type(request))))
        }

        destroyers! {
            $destroy, $destroy_array ($type);
        }
    )*};
}

requests_of_groups! {
    rd_kafka_ListConsumerGroupOffsets_t, rd_kafka_ListConsumerGroupOffsets_new,
        rd_kafka_ListConsumerGroupOffsets_destroy, rd_kafka_ListConsumerGroupOffsets_destroy_array;
    rd_kafka_AlterConsumerGroupOffsets_t, rd_kafka_AlterConsumerGroupOffsets_new,
        rd_kafka_AlterConsumerGroupOffsets_destroy, rd_kafka_AlterConsumerGroupOffsets_destroy_array;
    rd_kafka_DeleteConsumerGroupOffsets_t, rd_kafka_DeleteConsumerGroupOffsets_new,
        rd_kafka_DeleteConsumerGroupOffsets_destroy, rd_kafka_DeleteConsumerGroupOffsets_destroy_array;
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DeleteGroup_new(group: *const c_char) -> *mut rd_kafka_DeleteGroup_t {
    // SAFETY: `group` is NULL or a C string (rdkafka.h, `rd_kafka_DeleteGroup_new`).
    let group = unsafe { text(group) };
    group.map_or(null_mut(), |group| Box::into_raw(Box::new(rd_kafka_DeleteGroup_t(group.into_owned()))))
}

/// The result for a group, or for its partitions.
pub struct rd_kafka_group_result_t {
    name: CString,
    error: Option<Box<rd_kafka_error_t>>,
    partitions: Option<List>,
}

pub(super) fn deleted(answers: KeyedResults<String, ()>) -> Array<rd_kafka_group_result_t> {
    let result = |(group, answer): (String, Result<(), Error>)| rd_kafka_group_result_t {
        name: c_string(&group),
        error: answer.err().as_ref().map(error_object),
        partitions: None,
    };
    Array::new(answers.into_iter().map(result).collect())
}

/// The result of one group whose partitions have their own.
fn of_partitions(group: &str, partitions: List) -> Array<rd_kafka_group_result_t> {
    let name = c_string(group);
    Array::new(vec![rd_kafka_group_result_t { name, error: None, partitions: Some(partitions) }])
}

/// The results for a group's partitions, with the requested offsets if there were any.
pub(super) fn altered(
    group: &str,
    answers: KeyedResults<TopicPartition, ()>,
    offsets: &[(TopicPartition, OffsetAndMetadata)],
) -> Array<rd_kafka_group_result_t> {
    let mut list = List::default();
    for (index, (at, answer)) in answers.into_iter().enumerate() {
        let Some(element) = list.add(&at) else { continue };
        element.err = code_of(&answer);
        if let Some((_, requested)) = offsets.get(index) {
            element.offset = requested.offset;
            element.set_metadata(requested.metadata.as_bytes());
            element.private_mut().leader_epoch = requested.leader_epoch.unwrap_or(-1);
        }
    }
    of_partitions(group, list)
}

pub(super) fn committed(
    group: &str,
    answers: KeyedResults<TopicPartition, Option<OffsetAndMetadata>>,
) -> Array<rd_kafka_group_result_t> {
    let mut list = List::default();
    for (at, answer) in answers {
        let err = code_of(&answer);
        let Some(element) = list.add(&at) else { continue };
        element.err = err;
        if let Ok(Some(committed)) = answer {
            element.offset = committed.offset;
            element.set_metadata(committed.metadata.as_bytes());
            element.private_mut().leader_epoch = committed.leader_epoch.unwrap_or(-1);
        }
    }
    of_partitions(group, list)
}

/// A group in a listing.
pub struct rd_kafka_ConsumerGroupListing_t {
    group: CString,
    simple: bool,
    state: rd_kafka_consumer_group_state_t,
    kind: rd_kafka_consumer_group_type_t,
}

/// The groups of all brokers, and the errors of brokers that did not list theirs.
pub struct Listings {
    pub(super) valid: Array<rd_kafka_ConsumerGroupListing_t>,
    pub(super) errors: Array<rd_kafka_error_t>,
}

pub(super) fn listed(listings: Result<GroupListings, Error>) -> Listings {
    let listings = match listings {
        Ok(listings) => listings,
        Err(error) => {
            let errors = Array::new(vec![*error_object(&error)]);
            return Listings { valid: Array::new(Vec::new()), errors };
        }
    };
    let listing = |group: GroupListing| rd_kafka_ConsumerGroupListing_t {
        group: c_string(&group.group),
        simple: group.protocol_type.is_empty(),
        state: number(GROUP_STATES, &group.state),
        kind: number(GROUP_TYPES, &group.kind),
    };
    Listings {
        valid: Array::new(listings.groups.into_iter().map(listing).collect()),
        errors: Array::new(listings.errors.iter().map(|(_, error)| *error_object(error)).collect()),
    }
}

readers! {
    rd_kafka_group_result_name(rd_kafka_group_result_t) -> *const c_char [null()] |group| group.name.as_ptr();
    rd_kafka_group_result_error(rd_kafka_group_result_t) -> *const rd_kafka_error_t
        [null()] |group| error_pointer(group.error.as_deref());
    rd_kafka_group_result_partitions(rd_kafka_group_result_t) -> *const rd_kafka_topic_partition_list_t
        [null()] |group| group.partitions.as_ref().map_or(null(), List::as_ptr);
    rd_kafka_ConsumerGroupListing_group_id(rd_kafka_ConsumerGroupListing_t) -> *const c_char
        [null()] |group| group.group.as_ptr();
    rd_kafka_ConsumerGroupListing_is_simple_consumer_group(rd_kafka_ConsumerGroupListing_t) -> c_int
        [0] |group| group.simple.into();
    rd_kafka_ConsumerGroupListing_state(rd_kafka_ConsumerGroupListing_t) -> rd_kafka_consumer_group_state_t
        [0] |group| group.state;
    rd_kafka_ConsumerGroupListing_type(rd_kafka_ConsumerGroupListing_t) -> rd_kafka_consumer_group_type_t
        [0] |group| group.kind;
}

destroyers! {
    rd_kafka_DeleteGroup_destroy, rd_kafka_DeleteGroup_destroy_array (rd_kafka_DeleteGroup_t);
}
