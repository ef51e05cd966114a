//! `--exit-at-end` in a group: the assigned partitions that have something to read.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::{
    Admin, Consumer, Error, Isolation, OffsetAt, OffsetReset, StartAt, Timeouts, TopicPartition,
};

use crate::failure::Failure;
use crate::time;

/// The offsets of a partition.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    committed: Option<i64>,
    first: i64,
    /// The end for the client's `isolation.level`.
    end: i64,
    /// The end of all records: it is past `end` while a transaction is open.
    high_watermark: i64,
    /// The first record that is young enough for `auto.offset.reset=by_duration`, or the end.
    young: i64,
}

impl Offsets {
    /// The committed offset, if the log has it.
    fn committed_in_log(&self) -> Option<i64> {
        self.committed.filter(|at| (self.first..=self.high_watermark).contains(at))
    }

    /// The offset at which the group continues; `None` if the client reports that there is none.
    fn start(&self, reset: OffsetReset) -> Option<i64> {
        self.committed_in_log().or(match reset {
            OffsetReset::Earliest => Some(self.first),
            OffsetReset::Latest => Some(self.end),
            OffsetReset::ByDuration(_) => Some(self.young),
            OffsetReset::Error => None,
        })
    }
}

/// Returns the ends of the partitions that have records between the group's position and their end. A partition for which the client
/// reports an error has something to read, too: the next poll returns the error.
pub(super) async fn unread(
    consumer: &mut Consumer,
    admin: &Admin,
    partitions: &[TopicPartition],
) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    let mut unread = BTreeMap::new();
    if partitions.is_empty() {
        return Ok(unread);
    }
    let reset = consumer.client().config().auto_offset_reset;
    for (at, offsets) in look_up(consumer, admin, partitions, reset).await? {
        let start = offsets.start(reset);
        if start.is_some_and(|start| start >= offsets.end) {
            continue;
        }
        if let (OffsetReset::ByDuration(_), None, Some(start)) = (reset, offsets.committed_in_log(), start) {
            // The client looks the time up later: the last record may be too old then, and the end would not be reached.
            match consumer.seek(&at, StartAt::Offset(start)).await {
                // A revoked partition has its own event.
                Ok(()) | Err(Error::NotAssigned { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        unread.insert(at, offsets.end);
    }
    Ok(unread)
}

async fn look_up(
    consumer: &Consumer,
    admin: &Admin,
    partitions: &[TopicPartition],
    reset: OffsetReset,
) -> Result<BTreeMap<TopicPartition, Offsets>, Failure> {
    let ask = |which| partitions.iter().map(|at| (at.clone(), which)).collect::<Vec<_>>();
    let committed = consumer.committed(partitions).await?;
    let firsts = admin.list_offsets(&ask(OffsetAt::Earliest)).await?;
    let ends = admin.list_offsets(&ask(OffsetAt::Latest)).await?;
    let young = match reset {
        OffsetReset::ByDuration(age) => admin.list_offsets(&ask(OffsetAt::Timestamp(before(age)))).await?,
        OffsetReset::Earliest | OffsetReset::Latest | OffsetReset::Error => BTreeMap::new(),
    };
    let is_past_end =
        |at: &&TopicPartition| committed.get(*at).zip(ends.get(*at)).is_some_and(|(at, end)| at > end);
    let past_end: Vec<_> =
        partitions.iter().filter(is_past_end).map(|at| (at.clone(), OffsetAt::Latest)).collect();
    let mut high_watermarks = BTreeMap::new();
    if !past_end.is_empty() {
        let all = Isolation::ReadUncommitted;
        for (at, found) in admin.list_offsets_with(&past_end, all, Timeouts::default()).await? {
            high_watermarks.insert(at, found?.offset);
        }
    }
    let offsets = |at: &TopicPartition| {
        let (first, end) = (*firsts.get(at)?, *ends.get(at)?);
        let found = Offsets {
            committed: committed.get(at).copied(),
            first,
            end,
            high_watermark: high_watermarks.get(at).copied().unwrap_or(end),
            young: young.get(at).copied().unwrap_or(end),
        };
        Some((at.clone(), found))
    };
    Ok(partitions.iter().filter_map(offsets).collect())
}

/// The time at which records of this age were written.
fn before(age: Duration) -> i64 {
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    // Negative timestamps have other meanings.
    time::now_ms().saturating_sub(age_ms).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_continues_at_its_offset_or_where_the_reset_leads() {
        let by_age = OffsetReset::ByDuration(Duration::from_secs(1));
        let start = |committed, reset| {
            Offsets { committed, first: 10, end: 20, high_watermark: 30, young: 15 }.start(reset)
        };
        for reset in [OffsetReset::Earliest, OffsetReset::Latest, by_age, OffsetReset::Error] {
            for committed in [10, 15, 20, 30] {
                assert_eq!(start(Some(committed), reset), Some(committed), "{reset:?}");
            }
        }
        // 30 is past the end of the committed records, and the log has it.
        for committed in [None, Some(9), Some(31)] {
            assert_eq!(start(committed, OffsetReset::Earliest), Some(10), "{committed:?}");
            assert_eq!(start(committed, OffsetReset::Latest), Some(20), "{committed:?}");
            assert_eq!(start(committed, by_age), Some(15), "{committed:?}");
            assert_eq!(start(committed, OffsetReset::Error), None, "{committed:?}");
        }
    }
}
