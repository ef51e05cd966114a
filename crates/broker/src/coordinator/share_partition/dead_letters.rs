//! The dead letters of a share partition: a task writes them, and then archives their records.
//!
//! As in Kafka's `SharePartition`, the records are archived even if their letters cannot be written: they must not hold the start of
//! the share partition for ever.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::leader::{LedPartition, LettersState};
use super::settings::settings_of;
use crate::cluster::{Cluster, lock};
use crate::coordinator::dead_letters::{
    BatchLimit, DeadLetterError, DeadLetters, LetterSource, WrittenLetters,
};

/// Kafka's limit of attempts for the same letters, and its pauses between them.
const ATTEMPTS_MAX: u32 = 5;
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

impl LedPartition {
    /// Begins to write the dead letters of records that wait for them, unless that is under way.
    pub(super) fn start_dead_letters(self: &Arc<Self>, cluster: &Arc<Cluster>) {
        {
            let mut state = lock(&self.state);
            if state.letters != LettersState::Idle || !state.window.may_have_dead_letters() {
                return;
            }
            state.letters = LettersState::Writing;
        }
        let (led, owned) = (self.clone(), cluster.clone());
        cluster.share_leader.spawn(async move { led.write_dead_letters(&owned).await });
    }

    async fn write_dead_letters(self: Arc<Self>, cluster: &Arc<Cluster>) {
        loop {
            let settings = settings_of(cluster, &self.key.group);
            let letters = {
                let mut state = lock(&self.state);
                let letters = state.window.take_dead_letters(settings.limits.delivery_count_max);
                if letters.is_empty() {
                    state.letters = LettersState::Idle;
                    break;
                }
                VecDeque::from(letters)
            };
            if !self.write_all(cluster, letters).await {
                lock(&self.state).letters = LettersState::Idle;
                break;
            }
        }
        self.notify_changed();
        cluster.share_leader.forget_unused(&self);
    }

    /// Writes letters, or gives them up. Returns `false` if the share partition was loaded again: its new leader has the stored
    /// states, and writes the letters that are left.
    async fn write_all(self: &Arc<Self>, cluster: &Arc<Cluster>, mut letters: VecDeque<DeadLetters>) -> bool {
        let source = self.letter_source(cluster);
        let (mut limit, mut attempts) = (BatchLimit::Bytes, 0);
        while let Some(first) = letters.front().map(|letters| letters.first) {
            attempts += 1;
            let last = match cluster.write_dead_letters(&source, &letters, limit).await {
                Ok(WrittenLetters { last, letters }) => {
                    attempts = 0;
                    cluster.metrics.share.dead_letters_written.fetch_add(letters, Ordering::Relaxed);
                    last
                }
                Err(DeadLetterError::Refused { offsets: (first, last), .. }) if first < last => {
                    // The records of one letter must not cost all others theirs.
                    (limit, attempts) = (BatchLimit::OneRecord, 0);
                    continue;
                }
                Err(DeadLetterError::Refused { reason, offsets: (_, last) }) => {
                    attempts = 0;
                    report_given_up(cluster, &source, (first, last), 1, &reason);
                    last
                }
                Err(DeadLetterError::Unavailable(reason)) if attempts < ATTEMPTS_MAX => {
                    tracing::warn!(group = %source.group, topic = %source.topic, partition = source.index, attempts,
                        reason, "dead letters cannot be written now, and are tried again");
                    if !self.pause(cluster, attempts).await {
                        return false;
                    }
                    continue;
                }
                Err(DeadLetterError::Unavailable(reason) | DeadLetterError::Unusable(reason)) => {
                    let last = letters.back().map_or(first, |letters| letters.last);
                    report_given_up(cluster, &source, (first, last), count_through(&letters, last), &reason);
                    last
                }
            };
            remove_through(&mut letters, last);
            lock(&self.state).window.finish_dead_letters(first, last);
            self.start_write(cluster);
        }
        true
    }

    fn letter_source(&self, cluster: &Cluster) -> LetterSource {
        let topic = cluster.topic_by_id(self.key.topic);
        let index = self.key.partition;
        let partition =
            topic.as_ref().and_then(|topic| topic.partitions.get(usize::try_from(index).ok()?).cloned());
        LetterSource {
            group: self.key.group.clone(),
            // As in Kafka, the id of a topic without a name.
            topic: topic.map_or_else(|| self.key.topic.to_string().into(), |topic| topic.name.clone()),
            index,
            partition,
        }
    }

    /// Waits before another attempt. The share partition can be loaded again meanwhile; then this returns `false`.
    async fn pause(self: &Arc<Self>, cluster: &Arc<Cluster>, attempts: u32) -> bool {
        lock(&self.state).letters = LettersState::Waiting;
        self.notify_changed();
        let pause = PAUSE_MIN.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(PAUSE_MAX);
        tokio::time::sleep(pause).await;
        lock(&self.state).letters = LettersState::Writing;
        !cluster.share_leader.is_replaced(self)
    }
}

/// Counts and logs records that are archived without letters.
fn report_given_up(
    cluster: &Cluster,
    source: &LetterSource,
    (first, last): (i64, i64),
    records: i64,
    reason: &str,
) {
    cluster.metrics.share.dead_letters_given_up.fetch_add(records.unsigned_abs(), Ordering::Relaxed);
    tracing::error!(group = %source.group, topic = %source.topic, partition = source.index, first, last, records, reason,
        "records are archived without dead letters");
}

/// The number of letters up to this offset.
fn count_through(letters: &VecDeque<DeadLetters>, last: i64) -> i64 {
    let begun = letters.iter().take_while(|letters| letters.first <= last);
    begun.map(|letters| letters.last.min(last) - letters.first + 1).sum()
}

/// Removes the letters up to this offset.
fn remove_through(letters: &mut VecDeque<DeadLetters>, last: i64) {
    while let Some(front) = letters.front_mut() {
        if front.last > last {
            front.first = front.first.max(last + 1);
            return;
        }
        letters.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::dead_letters::DeadLetterCause;

    #[test]
    fn letters_are_removed_up_to_an_offset() {
        let letters = |first, last| DeadLetters {
            first,
            last,
            delivery_count: 1,
            cause: DeadLetterCause::ClientReject,
        };
        let mut all = VecDeque::from([letters(0, 4), letters(7, 9)]);
        assert_eq!([0, 4, 5, 8, 9].map(|last| count_through(&all, last)), [1, 5, 5, 7, 8]);
        remove_through(&mut all, 2);
        assert_eq!(all, [letters(3, 4), letters(7, 9)]);
        remove_through(&mut all, 5);
        assert_eq!(all, [letters(7, 9)]);
        remove_through(&mut all, 9);
        assert_eq!(all, []);
    }
}
