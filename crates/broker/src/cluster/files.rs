//! The open files and the tail caches of all partitions: those that are not used are closed or emptied before there are too many.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use ottla_log::Log;
use tokio::time::Instant;

use crate::cluster::{Cluster, lock};
use crate::partition::Partition;

/// Idle files are closed when fewer can be opened: an append opens up to 4, and starting a segment some more.
const FILES_LEFT_MIN: usize = 32;
/// The number of files that can be opened after that.
const FILES_LEFT_AFTER: usize = 128;
/// The files that an append opens.
const FILES_OF_APPEND: usize = 4;
/// The pause after a walk that closed too few files, in times of the walk: files of logs in use can be closed soon.
const FILES_PAUSE_FACTOR: u32 = 10;
/// The pause after a walk that emptied too few caches.
const CACHES_PAUSE: Duration = Duration::from_secs(1);

impl Cluster {
    /// The log of a partition, for a use that may open files.
    pub(crate) fn log_with_files<'p>(&self, partition: &'p Partition) -> MutexGuard<'p, Log> {
        let log = partition.log_in_use();
        // A read opens the files of older segments.
        if log.has_open_files() && self.storage.files_left() >= FILES_LEFT_MIN {
            return log;
        }
        drop(log);
        self.make_room_for_files();
        partition.log()
    }

    /// Closes files of partitions that were not used for a while, if few more can be opened. Work that opens files by itself
    /// calls this for each partition.
    pub(crate) fn make_room_for_files(&self) {
        let used = || FILES_LEFT_MIN.saturating_sub(self.storage.files_left());
        if used() == 0 {
            return;
        }
        let began = Instant::now();
        if !lock(&self.file_walk).is_due(began, used(), FILES_OF_APPEND) {
            return;
        }
        let topics = self.topics();
        let partitions: Vec<&Arc<Partition>> = topics.iter().flat_map(|topic| &topic.partitions).collect();
        let mut walk = lock(&self.file_walk);
        let has_room = walk.visit(partitions.len(), |at| {
            partitions[at].close_idle_files(self.config.durability);
            self.storage.files_left() >= FILES_LEFT_AFTER
        });
        let ended = Instant::now();
        let pause = ended.saturating_duration_since(began) * FILES_PAUSE_FACTOR;
        walk.note(has_room || used() == 0, used(), ended + pause);
    }

    /// Empties the caches of partitions that were not used for a while, if all together have too much.
    pub(crate) fn make_room_in_caches(&self) {
        let total = &self.cache_total;
        if !total.is_exceeded() {
            return;
        }
        let now = Instant::now();
        if !lock(&self.cache_walk).is_due(now, total.bytes(), total.max() / 8) {
            return;
        }
        let enough = total.max() / 4 * 3;
        let topics = self.topics();
        let partitions: Vec<&Arc<Partition>> = topics.iter().flat_map(|topic| &topic.partitions).collect();
        let mut walk = lock(&self.cache_walk);
        let has_room = walk.visit(partitions.len(), |at| {
            partitions[at].empty_idle_cache();
            total.bytes() <= enough
        });
        walk.note(has_room, total.bytes(), now + CACHES_PAUSE);
    }
}

/// A walk over all partitions that makes room. The next one continues where it ended.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The partition that was visited last.
    hand: usize,
    /// Present if the last walk made too little room.
    failed: Option<FailedWalk>,
}

/// A walk that made too little room: another one at once would make none.
#[derive(Clone, Copy, Debug)]
struct FailedWalk {
    /// The use after it.
    used: usize,
    repeat_at: Instant,
}

impl Walk {
    /// Returns `false` for some time after a walk that made too little room, unless the use has grown by `growth` since.
    fn is_due(&self, now: Instant, used: usize, growth: usize) -> bool {
        self.failed.is_none_or(|failed| now >= failed.repeat_at || used >= failed.used.saturating_add(growth))
    }

    /// Visits the partitions until there is room, twice each at most. Returns `true` if there is room.
    fn visit(&mut self, partitions: usize, mut makes_room: impl FnMut(usize) -> bool) -> bool {
        // The second round visits what was used before the first.
        (0..2 * partitions).any(|_| {
            self.hand = (self.hand + 1) % partitions;
            makes_room(self.hand)
        })
    }

    /// Notes the result of a walk, and the use after it.
    fn note(&mut self, has_room: bool, used: usize, repeat_at: Instant) {
        self.failed = (!has_room).then_some(FailedWalk { used, repeat_at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITIONS: usize = 100;
    const MAX: usize = 8_000;

    /// The appends of so many requests, each of which has more in the caches than before. Returns the partitions that were visited.
    fn visited(walk: &mut Walk, now: Instant, used: impl IntoIterator<Item = usize>) -> usize {
        let mut visits = 0;
        for used in used {
            if walk.is_due(now, used, MAX / 8) {
                let has_room = walk.visit(PARTITIONS, |_| {
                    visits += 1;
                    false
                });
                walk.note(has_room, used, now + CACHES_PAUSE);
            }
        }
        visits
    }

    /// Each append visited all partitions twice while the caches were in use.
    #[test]
    fn a_walk_that_makes_too_little_room_is_not_repeated_with_each_append() {
        let (mut walk, now) = (Walk::default(), Instant::now());
        assert_eq!(visited(&mut walk, now, MAX + 1..MAX + 1_000), 2 * PARTITIONS);
        assert_eq!(visited(&mut walk, now, [MAX + 1 + MAX / 8]), 2 * PARTITIONS, "much more is in use");
        assert_eq!(visited(&mut walk, now + CACHES_PAUSE / 2, [MAX + 2]), 0);
        assert_eq!(visited(&mut walk, now + CACHES_PAUSE, [MAX + 2]), 2 * PARTITIONS, "some time has passed");
    }

    #[test]
    fn a_walk_ends_with_enough_room_and_the_next_one_continues_there() {
        let mut walk = Walk::default();
        assert!(walk.visit(PARTITIONS, |at| at == 7));
        walk.note(true, MAX, Instant::now() + CACHES_PAUSE);
        assert!(walk.is_due(Instant::now(), 0, MAX));
        let mut first = None;
        assert!(walk.visit(PARTITIONS, |at| *first.get_or_insert(at) == 8));
        assert!(!walk.visit(0, |_| true), "a cluster without partitions");
    }
}
