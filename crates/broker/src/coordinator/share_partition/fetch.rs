//! Reads of share partitions: the batches from the first available record on, and the locks on their records.

use std::sync::Arc;

use ottla_log::{ColdRead, CommittedRead, LeftOut, Log, ReadError, ReadPlan};
use ottla_protocol::ErrorCode;
use ottla_wire::Chain;
use tokio::time::Instant;

use super::acquire::{Acquired, Acquirer};
use super::batches::{part, spans};
use super::leader::LedPartition;
use super::settings::ShareSettings;
use crate::cluster::{Cluster, lock};
use crate::partition::Partition;
use crate::request_memory::ABORTED_TRANSACTIONS_MAX;

/// Reads in a row that find no record for a consumer. The next request continues.
const EMPTY_READS_MAX: usize = 100;

/// A read of a share partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShareRead<'a> {
    pub(crate) acquirer: &'a Acquirer,
    pub(crate) settings: &'a ShareSettings,
    /// The bytes that it may return.
    pub(crate) bytes_max: usize,
    /// One batch has room, however large it is.
    pub(crate) is_first: bool,
    /// Batches that must be checked first are read as well.
    pub(crate) reads_unchecked: bool,
    /// Only looks at what there is: nothing is acquired.
    pub(crate) only_looks: bool,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum ShareFetched {
    /// Batches of the log, whole, and the records of them that were acquired. A look reports what it has left out.
    Records { chain: Chain, acquired: Vec<Acquired>, left_out: LeftOut },
    /// Nothing is available.
    Nothing,
    /// A look has found a batch that has no room.
    NoRoom,
    /// These batches must be checked first.
    Unchecked(ColdRead),
    /// The share partition must be loaded again.
    Closed,
}

impl LedPartition {
    /// Reads the next batches and acquires their records.
    pub(crate) fn fetch(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        partition: &Partition,
        now: Instant,
        read: ShareRead<'_>,
    ) -> Result<ShareFetched, ErrorCode> {
        let fetched = self.fetch_locked(cluster, partition, now, read);
        self.start_write(cluster);
        fetched
    }

    fn fetch_locked(
        &self,
        cluster: &Arc<Cluster>,
        partition: &Partition,
        now: Instant,
        read: ShareRead<'_>,
    ) -> Result<ShareFetched, ErrorCode> {
        let ShareRead { acquirer, settings, is_first, only_looks, .. } = read;
        let mut state = lock(&self.state);
        if self.is_closed() {
            return Ok(ShareFetched::Closed);
        }
        if state.window.expire(now, &settings.limits) {
            state.count(cluster);
            self.notify_changed();
        }
        let limits = cluster.share_leader.limits_now(settings.limits);
        let window = &mut state.window;
        for _ in 0..EMPTY_READS_MAX {
            if !window.can_acquire(&limits) {
                break;
            }
            let high_watermark = partition.high_watermark();
            let mut log = cluster.log_with_files(partition);
            window.set_log_start(log.start_offset());
            let offset = window.next_fetch_offset();
            let end =
                if settings.is_committed { log.last_stable_offset(high_watermark) } else { high_watermark };
            if offset >= end {
                break;
            }
            let found = match read_batches(&mut log, offset, end, &read).map_err(|error| code_of(&error))? {
                ReadPlan::Ready(found) => found,
                ReadPlan::Cold(cold) => return Ok(ShareFetched::Unchecked(cold)),
            };
            let (found, aborted) = if settings.is_committed {
                let listed = log.aborted_in(offset, found, end, ABORTED_TRANSACTIONS_MAX, true);
                let CommittedRead { read, aborted } = listed.map_err(|error| code_of(&error))?;
                (read, aborted)
            } else {
                (found, Vec::new())
            };
            let left_out =
                if only_looks { log.left_out(offset, &found, end, is_first) } else { LeftOut::Nothing };
            drop(log);
            let wanted = window.last_wanted(acquirer, &limits);
            let spans = spans(&found.chain, &aborted, wanted, end).map_err(|error| {
                tracing::error!(%error, topic = %partition.topic, partition = partition.index, "cannot read batches");
                ErrorCode::KafkaStorageError
            })?;
            if spans.is_empty() {
                if left_out == LeftOut::NoRoom {
                    return Ok(ShareFetched::NoRoom);
                }
                break;
            }
            if only_looks {
                let chain = found.chain;
                return Ok(ShareFetched::Records { chain, acquired: Vec::new(), left_out });
            }
            let acquired = window.acquire(now, acquirer, &limits, offset, &spans);
            if let (Some(first), Some(last)) = (acquired.first(), acquired.last()) {
                let begin = spans.iter().find(|span| span.last >= first.first).map_or(0, |span| span.begin);
                let end = spans.iter().rev().find(|span| span.base <= last.last);
                let end = end.map_or(found.chain.len(), |span| span.end);
                let chain = part(&found.chain, begin, end);
                return Ok(ShareFetched::Records { chain, acquired, left_out });
            }
            if window.next_fetch_offset() == offset {
                break;
            }
        }
        Ok(ShareFetched::Nothing)
    }
}

/// Reads batches below `end`. Returns the read of those that must be checked first.
fn read_batches(log: &mut Log, offset: i64, end: i64, read: &ShareRead<'_>) -> Result<ReadPlan, ReadError> {
    if !read.reads_unchecked {
        match log.plan_read(offset, read.bytes_max, end, read.is_first)? {
            ReadPlan::Cold(cold) if !cold.is_unchecked() => {}
            plan => return Ok(plan),
        }
    }
    log.read(offset, read.bytes_max, end, read.is_first).map(ReadPlan::Ready)
}

/// Logs why a read failed and returns its error code.
fn code_of(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        ReadError::Corrupt { .. } => {
            tracing::debug!(%error, "cannot read");
            ErrorCode::KafkaStorageError
        }
        ReadError::Io { .. } | ReadError::Offline { .. } => {
            tracing::error!(%error, "cannot read");
            ErrorCode::KafkaStorageError
        }
    }
}
