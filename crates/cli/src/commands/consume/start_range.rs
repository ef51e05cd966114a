//! Start offsets outside of the log: a reset to its beginning would print records again without a word.

use std::collections::BTreeMap;

use ottla_client::{Admin, Error, Isolation, OffsetAt, StartAt, Timeouts, TopicPartition};

use crate::failure::Failure;
use crate::output::note;

/// Moves offsets that are out of range: an offset beyond the end to the end, as in kcat, and one below the start to the
/// start. Prints a warning for each. With `refuses`, for `auto.offset.reset=error`, the first such offset is a failure: with
/// `--exit-at-end` there would be nothing to read, and the client would not report it. Nothing is known of the partitions in `offline`.
pub(super) async fn keep_within(
    admin: &Admin,
    starts: &mut [(TopicPartition, StartAt)],
    offline: &[TopicPartition],
    refuses: bool,
) -> Result<(), Failure> {
    let is_offset = |(at, start): &&(TopicPartition, StartAt)| {
        matches!(start, StartAt::Offset(_)) && !offline.contains(at)
    };
    let asked: Vec<TopicPartition> = starts.iter().filter(is_offset).map(|(at, _)| at.clone()).collect();
    if asked.is_empty() {
        return Ok(());
    }
    let ask = |which| asked.iter().map(|at| (at.clone(), which)).collect::<Vec<_>>();
    let firsts = admin.list_offsets(&ask(OffsetAt::Earliest)).await?;
    // The records of an open transaction are in the log: an offset among them is no other one.
    let (latest, all) = (ask(OffsetAt::Latest), Isolation::ReadUncommitted);
    let mut ends = BTreeMap::new();
    for (at, found) in admin.list_offsets_with(&latest, all, Timeouts::default()).await? {
        ends.insert(at, found?.offset);
    }
    for (at, start) in starts {
        let StartAt::Offset(offset) = start else { continue };
        let (Some(first), Some(end)) = (firsts.get(at).copied(), ends.get(at).copied()) else { continue };
        if let Some((moved, warning)) = moved(at, *offset, first, end) {
            if refuses {
                let TopicPartition { topic, partition } = at;
                let (topic, partition) = (topic.to_string(), *partition);
                return Err(Error::OffsetOutOfRange { topic, partition, offset: *offset }.into());
            }
            note(&warning);
            *offset = moved;
        }
    }
    Ok(())
}

/// The offset to read from instead of one that is out of range, and the warning about it.
fn moved(at: &TopicPartition, offset: i64, first: i64, end: i64) -> Option<(i64, String)> {
    let (moved, place) = match offset {
        _ if offset > end => (end, "at the end"),
        _ if offset < first => (first, "at the start"),
        _ => return None,
    };
    let TopicPartition { topic, partition } = at;
    let warning = format!(
        "ottla: warning: topic `{topic}` partition {partition}: offset {offset} is out of range, the log has {first} to \
         {end}: reading {place}, from {moved}"
    );
    Some((moved, warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_out_of_range_moves_to_the_nearer_end_of_the_log() {
        let at = TopicPartition::new("orders", 3);
        let to = |offset| moved(&at, offset, 10, 20).map(|(moved, _)| moved);
        assert_eq!((to(9), to(10), to(20), to(21)), (Some(10), None, None, Some(20)));
        let (_, warning) = moved(&at, 21, 10, 20).expect("beyond the end");
        assert!(
            warning.contains("offset 21 is out of range, the log has 10 to 20: reading at the end"),
            "{warning}"
        );
    }
}
