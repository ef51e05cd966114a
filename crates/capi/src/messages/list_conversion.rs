//! Conversions between C's lists of partitions and the client's types.

use ottla_client::{OffsetAndMetadata, StartAt, TopicPartition};

use crate::ffi::c_strings::c_string;
use crate::ffi::*;

/// Returns the entries of a list.
///
/// # Safety
/// `list` is NULL or a list that is not yet destroyed, and no other thread uses it at the same time.
pub(crate) unsafe fn entries<'a>(
    list: *const rd_kafka_topic_partition_list_t,
) -> &'a mut [rd_kafka_topic_partition_t] {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed (the contract of this function, above).
    unsafe { list.cast_mut().as_mut() }.map_or(&mut [], rd_kafka_topic_partition_list_t::elems_mut)
}

/// Returns the partition of an entry.
pub(crate) fn at(entry: &rd_kafka_topic_partition_t) -> TopicPartition {
    TopicPartition::new(&entry.topic().to_string_lossy(), entry.partition)
}

/// Returns the partitions of a list.
///
/// # Safety
/// The contract of [`entries`] applies.
pub(crate) unsafe fn partitions(list: *const rd_kafka_topic_partition_list_t) -> Vec<TopicPartition> {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed (the contract of this function, above).
    unsafe { entries(list) }.iter().map(at).collect()
}

/// Returns the start position for an offset in a list.
pub(crate) fn start(offset: i64) -> Option<StartAt> {
    const BEGINNING: i64 = RD_KAFKA_OFFSET_BEGINNING;
    const END: i64 = RD_KAFKA_OFFSET_END;
    const STORED: i64 = RD_KAFKA_OFFSET_STORED;
    const INVALID: i64 = RD_KAFKA_OFFSET_INVALID;
    Some(match offset {
        0.. => StartAt::Offset(offset),
        BEGINNING => StartAt::Beginning,
        END => StartAt::End,
        STORED | INVALID => StartAt::Committed,
        // `RD_KAFKA_OFFSET_TAIL(N)`: N records before the end when the partition is started.
        ..=RD_KAFKA_OFFSET_TAIL_BASE => {
            let count = RD_KAFKA_OFFSET_TAIL_BASE.saturating_sub(offset);
            StartAt::BeforeEnd(u32::try_from(count).unwrap_or(u32::MAX))
        }
        _ => return None,
    })
}

/// Returns the start position of an entry; its leader epoch, if it has one, is validated.
pub(crate) fn start_of(entry: &rd_kafka_topic_partition_t) -> Option<StartAt> {
    Some(match (start(entry.offset)?, entry.leader_epoch()) {
        (StartAt::Offset(offset), leader_epoch @ 0..) => StartAt::OffsetInEpoch { offset, leader_epoch },
        (start, _) => start,
    })
}

/// Returns the offset to commit from an entry, with its metadata.
pub(crate) fn offset(entry: &rd_kafka_topic_partition_t) -> OffsetAndMetadata {
    let mut offset = OffsetAndMetadata::from(entry.offset);
    offset.metadata = String::from_utf8_lossy(entry.metadata()).into_owned();
    offset.leader_epoch = Some(entry.leader_epoch()).filter(|epoch| *epoch >= 0);
    offset
}

/// Returns a new list with these partitions, which C destroys.
pub(crate) fn list<'a>(
    partitions: impl ExactSizeIterator<Item = (&'a TopicPartition, i64)>,
) -> *mut rd_kafka_topic_partition_list_t {
    let list = rd_kafka_topic_partition_list_t::new(partitions.len());
    // SAFETY: made just now; NULL when memory is out.
    if let Some(list) = unsafe { list.as_mut() } {
        for (at, offset) in partitions {
            if let Some(entry) = list.add(&c_string(&at.topic), at.partition) {
                entry.offset = offset;
            }
        }
    }
    list
}

/// Returns a new list of partitions without offsets.
pub(crate) fn bare(partitions: &[TopicPartition]) -> *mut rd_kafka_topic_partition_list_t {
    list(partitions.iter().map(|at| (at, RD_KAFKA_OFFSET_INVALID)))
}

/// Returns a new list of offsets with their error codes. An entry without an offset has no error: it was not committed.
pub(crate) fn with_offsets(
    offsets: &[(TopicPartition, OffsetAndMetadata, rd_kafka_resp_err_t)],
) -> *mut rd_kafka_topic_partition_list_t {
    let made = list(offsets.iter().map(|(at, offset, _)| (at, offset.offset)));
    // SAFETY: made just now.
    for (entry, (_, offset, err)) in unsafe { entries(made) }.iter_mut().zip(offsets) {
        entry.err = if offset.offset >= 0 { *err } else { RD_KAFKA_RESP_ERR_NO_ERROR };
        entry.set_metadata(offset.metadata.as_bytes());
        if let Some(epoch) = offset.leader_epoch {
            entry.private_mut().leader_epoch = epoch;
        }
    }
    made
}

/// A list that is destroyed with its owner.
pub(crate) struct OwnedList(pub(crate) *mut rd_kafka_topic_partition_list_t);

impl OwnedList {
    /// To C, which destroys it.
    pub(crate) fn into_raw(self) -> *mut rd_kafka_topic_partition_list_t {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }
}

impl Drop for OwnedList {
    fn drop(&mut self) {
        // SAFETY: ours alone.
        unsafe { crate::messages::partition_list::rd_kafka_topic_partition_list_destroy(self.0) };
    }
}
