//! Pauses of a producer's partitions, for `rd_kafka_pause_partitions` and `rd_kafka_resume_partitions`.

use crate::client::handle::Handle;
use crate::ffi::*;
use crate::messages::list_conversion;

/// Pauses or resumes partitions of a producer. As in the original, any partition of a topic that the client knows is accepted,
/// and the entry of another topic receives an error.
///
/// # Safety
/// `partitions` is NULL or a list of this library, not yet destroyed.
pub(crate) unsafe fn set_paused(
    handle: &Handle,
    partitions: *mut rd_kafka_topic_partition_list_t,
    paused: bool,
) -> rd_kafka_resp_err_t {
    if partitions.is_null() {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    // SAFETY: the contract of this function, above.
    for entry in unsafe { list_conversion::entries(partitions) } {
        let known = handle.topics().find(&entry.topic().to_string_lossy());
        let Some(producer) = known.as_ref().and_then(|topic| topic.producer()) else {
            entry.err = RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
            continue;
        };
        if paused {
            producer.pause(entry.partition);
        } else {
            producer.resume(entry.partition);
        }
        entry.err = RD_KAFKA_RESP_ERR_NO_ERROR;
    }
    RD_KAFKA_RESP_ERR_NO_ERROR
}
