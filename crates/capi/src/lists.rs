//! Lists of partitions, between C's and ours.

use ottla_client::{OffsetAndMetadata, StartAt, TopicPartition};

use crate::ffi::*;
use crate::text::c_string;

/// The entries of a list, to be read and written.
///
/// # Safety
/// `list` is NULL or a list that lives and that nobody else touches meanwhile.
pub(crate) unsafe fn entries<'a>(
    list: *const rd_kafka_topic_partition_list_t,
) -> &'a mut [rd_kafka_topic_partition_t] {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed (the contract of this function, above).
    unsafe { list.cast_mut().as_mut() }.map_or(&mut [], rd_kafka_topic_partition_list_t::elems_mut)
}

/// Which partition an entry names.
pub(crate) fn at(entry: &rd_kafka_topic_partition_t) -> TopicPartition {
    TopicPartition::new(&entry.topic().to_string_lossy(), entry.partition)
}

/// The partitions of a list.
///
/// # Safety
/// As of [`entries`].
pub(crate) unsafe fn partitions(list: *const rd_kafka_topic_partition_list_t) -> Vec<TopicPartition> {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed (the contract of this function, above).
    unsafe { entries(list) }.iter().map(at).collect()
}

/// What an offset in a list means as a place to begin.
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
        _ => return None,
    })
}

/// The offset to commit that an entry has, with what is kept beside it.
pub(crate) fn offset(entry: &rd_kafka_topic_partition_t) -> OffsetAndMetadata {
    let mut offset = OffsetAndMetadata::from(entry.offset);
    offset.metadata = String::from_utf8_lossy(entry.metadata()).into_owned();
    offset.leader_epoch = Some(entry.leader_epoch()).filter(|epoch| *epoch >= 0);
    offset
}

/// A new list with these partitions; C destroys it.
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

/// A new list of partitions without offsets.
pub(crate) fn bare(partitions: &[TopicPartition]) -> *mut rd_kafka_topic_partition_list_t {
    list(partitions.iter().map(|at| (at, RD_KAFKA_OFFSET_INVALID)))
}

/// A new list of offsets and what became of them.
pub(crate) fn with_offsets(
    offsets: &[(TopicPartition, OffsetAndMetadata)],
    err: rd_kafka_resp_err_t,
) -> *mut rd_kafka_topic_partition_list_t {
    let made = list(offsets.iter().map(|(at, offset)| (at, offset.offset)));
    // SAFETY: made just now.
    for (entry, (_, offset)) in unsafe { entries(made) }.iter_mut().zip(offsets) {
        entry.err = err;
        entry.set_metadata(offset.metadata.as_bytes());
        if let Some(epoch) = offset.leader_epoch {
            entry.private_mut().leader_epoch = epoch;
        }
    }
    made
}

/// A list that goes away with its owner.
pub(crate) struct OwnedList(pub(crate) *mut rd_kafka_topic_partition_list_t);

impl Drop for OwnedList {
    fn drop(&mut self) {
        // SAFETY: ours alone.
        unsafe { crate::partitions::rd_kafka_topic_partition_list_destroy(self.0) };
    }
}
