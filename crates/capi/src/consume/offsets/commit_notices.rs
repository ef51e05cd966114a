//! Results of commits for interceptors and for the log.

use std::sync::Arc;

use ottla_client::LogLine;

use crate::client::handle::{Handle, LOG_WARNING};
use crate::errors::error_object::description;
use crate::ffi::*;
use crate::queue::op::CommittedOffset;

/// A line names at most so many partitions.
const SHOWN_MAX: usize = 10;

pub(super) fn notify_interceptors(handle: &Handle, offsets: &[CommittedOffset], err: rd_kafka_resp_err_t) {
    if let Some(interceptors) = handle.client_interceptors.get() {
        interceptors.on_commit(handle, offsets, err);
    }
}

/// Logs a failed commit whose result is for no function and no event of the application. Programs search the log for the text, which
/// is librdkafka's.
pub(super) fn log_failure(
    handle: &Arc<Handle>,
    reason: &str,
    offsets: &[CommittedOffset],
    err: rd_kafka_resp_err_t,
) {
    // As in the original, nothing to commit is no failure, nor is the end of the client.
    if matches!(err, RD_KAFKA_RESP_ERR_NO_ERROR | RD_KAFKA_RESP_ERR__NO_OFFSET | RD_KAFKA_RESP_ERR__DESTROY) {
        return;
    }
    let has_failed = |of: &&CommittedOffset| of.1.offset >= 0 && of.2 != RD_KAFKA_RESP_ERR_NO_ERROR;
    let failed: Vec<_> = offsets.iter().filter(has_failed).collect();
    let shown = failed.iter().take(SHOWN_MAX).map(|(at, offset, err)| {
        let reason = description(*err).to_string_lossy();
        format!("{}[{}]@{}({reason})", at.topic, at.partition, offset.offset)
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = if failed.len() > SHOWN_MAX { ", ..." } else { "" };
    let text = format!(
        "Offset commit ({reason}) failed for {}/{} partition(s): {}: {shown}{more}",
        failed.len(),
        offsets.len(),
        description(err).to_string_lossy()
    );
    let line = LogLine::new(LOG_WARNING, "COMMITFAIL", &handle.name.to_string_lossy(), text);
    handle.logs.take_from_engine(handle, line);
}
