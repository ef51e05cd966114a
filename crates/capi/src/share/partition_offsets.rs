//! `rd_kafka_share_partition_offsets_list_t`: the offsets that a result is about. The callback that gets it borrows it.

use std::ptr::{null, null_mut};
use std::sync::Arc;

use ottla_client::TopicPartition;

use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::handles::handle_table::{HandleKind, HandleTable, as_pointer};
use crate::handles::misuse_report::report;
use crate::handles::slot_table::InUse;
use crate::messages::list_conversion::{self, OwnedList};

/// The offsets of one partition; C's `rd_kafka_share_partition_offsets_t`.
struct PartitionOffsets {
    /// A list with the partition alone.
    partition: OwnedList,
    offsets: Vec<i64>,
}

// SAFETY: nothing changes it between its creation and its end, and the list is used through it alone.
unsafe impl Send for PartitionOffsets {}
// SAFETY: as above.
unsafe impl Sync for PartitionOffsets {}

/// A list for the time of a callback.
pub(super) struct LentOffsets(u64);

static LISTS: HandleTable<PartitionOffsets> = HandleTable::new(HandleKind::PartitionOffsets);

impl LentOffsets {
    /// A list of one partition: each result is about one. `None` if there are too many lists.
    pub(super) fn new(at: &TopicPartition, offsets: Vec<i64>) -> Option<Self> {
        // A result has no position.
        let partition = OwnedList(list_conversion::list([(at, 0)].into_iter()));
        LISTS.insert(Arc::new(PartitionOffsets { partition, offsets })).map(Self)
    }

    pub(super) fn raw(&self) -> *mut rd_kafka_share_partition_offsets_list_t {
        as_pointer(self.0)
    }
}

impl Drop for LentOffsets {
    fn drop(&mut self) {
        LISTS.retire(self.0);
    }
}

fn list_of(
    list: *const rd_kafka_share_partition_offsets_list_t,
    function: &str,
) -> Option<InUse<PartitionOffsets>> {
    LISTS.find(list, function)
}

/// # Safety
/// `offsets` is NULL or from a list whose callback has not returned.
unsafe fn offsets_of<'a>(offsets: *const rd_kafka_share_partition_offsets_t) -> Option<&'a PartitionOffsets> {
    // SAFETY: the contract of this function, above.
    unsafe { offsets.cast::<PartitionOffsets>().as_ref() }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_partition_offsets_list_count(
    list: *const rd_kafka_share_partition_offsets_list_t,
) -> usize {
    list_of(list, FUNCTION).map_or(0, |_| 1)
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_partition_offsets_list_get(
    list: *const rd_kafka_share_partition_offsets_list_t,
    index: usize,
) -> *const rd_kafka_share_partition_offsets_t {
    let found = list_of(list, FUNCTION).filter(|_| index == 0);
    found.map_or(null(), |offsets| std::ptr::from_ref::<PartitionOffsets>(&offsets).cast())
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_partition_offsets_list_destroy(
    list: *mut rd_kafka_share_partition_offsets_list_t,
) {
    if list_of(list, FUNCTION).is_some() {
        let problem = format!("the rd_kafka_share_partition_offsets_list_t {list:p} belongs to the library");
        report(FUNCTION, &problem, "do not destroy the list of a callback");
    }
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_partition_offsets_partition(
    partition_offsets: *const rd_kafka_share_partition_offsets_t,
) -> *const rd_kafka_topic_partition_t {
    // SAFETY: `partition_offsets` is NULL or from a list that exists (rdkafka.h,
    // `rd_kafka_share_partition_offsets_partition`).
    let offsets = unsafe { offsets_of(partition_offsets) };
    // SAFETY: the list is the library's and is not destroyed.
    let entry = offsets.and_then(|offsets| unsafe { list_conversion::entries(offsets.partition.0) }.first());
    entry.map_or(null(), std::ptr::from_ref)
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_partition_offsets_offsets(
    partition_offsets: *const rd_kafka_share_partition_offsets_t,
) -> *const i64 {
    // SAFETY: as above (rdkafka.h, `rd_kafka_share_partition_offsets_offsets`).
    unsafe { offsets_of(partition_offsets) }.map_or(null_mut(), |offsets| offsets.offsets.as_ptr().cast_mut())
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_partition_offsets_offsets_cnt(
    partition_offsets: *const rd_kafka_share_partition_offsets_t,
) -> usize {
    // SAFETY: as above (rdkafka.h, `rd_kafka_share_partition_offsets_offsets_cnt`).
    unsafe { offsets_of(partition_offsets) }.map_or(0, |offsets| offsets.offsets.len())
}
