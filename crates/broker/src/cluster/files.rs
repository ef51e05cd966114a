//! The open files and the tail caches of all partitions: those that are not used are closed or emptied before there are too many.

use std::sync::{Arc, MutexGuard};

use ottla_log::Log;

use crate::cluster::{Cluster, lock};
use crate::partition::Partition;

/// Idle files are closed when fewer can be opened: an append opens up to 4, and starting a segment some more.
const FILES_LEFT_MIN: usize = 32;
/// The number of files that can be opened after that.
const FILES_LEFT_AFTER: usize = 128;

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
        if self.storage.files_left() >= FILES_LEFT_MIN {
            return;
        }
        let topics = self.topics();
        let partitions: Vec<&Arc<Partition>> = topics.iter().flat_map(|topic| &topic.partitions).collect();
        let mut hand = lock(&self.file_hand);
        // The second round closes what was used before the first.
        for _ in 0..2 * partitions.len() {
            *hand = (*hand + 1) % partitions.len();
            partitions[*hand].close_idle_files(self.config.durability);
            if self.storage.files_left() >= FILES_LEFT_AFTER {
                return;
            }
        }
    }

    /// Empties the caches of partitions that were not used for a while, if all together have too much.
    pub(crate) fn make_room_in_caches(&self) {
        if !self.cache_total.is_exceeded() {
            return;
        }
        let enough = self.cache_total.max() / 4 * 3;
        let topics = self.topics();
        let partitions: Vec<&Arc<Partition>> = topics.iter().flat_map(|topic| &topic.partitions).collect();
        let mut hand = lock(&self.cache_hand);
        // The second round empties what was used before the first.
        for _ in 0..2 * partitions.len() {
            *hand = (*hand + 1) % partitions.len();
            partitions[*hand].empty_idle_cache();
            if self.cache_total.bytes() <= enough {
                return;
            }
        }
    }
}
