//! The groups of a broker, counted by state, and their lags.
//!
//! Groups are read in pages, so that each lock is held for the time of one page.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::Uuid;

use crate::cluster::Cluster;
use crate::coordinator::offsets::At;
use crate::coordinator::share_state::SharePartitionKey;
use crate::topics::Topic;

/// Groups, or committed offsets, that are read under one lock.
const PAGE: usize = 500;

const CLASSIC: &str = "classic";
const CONSUMER: &str = "consumer";
const SHARE: &str = "share";
/// The state of a group that has only committed offsets.
const EMPTY: &str = "Empty";

/// The groups at one time.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// The number of groups by protocol and state.
    pub(super) groups: BTreeMap<(&'static str, &'static str), u64>,
    /// The number of members by protocol.
    pub(super) members: BTreeMap<&'static str, u64>,
    pub(super) lags: Vec<GroupLag>,
    pub(super) lags_left_out: u64,
    pub(super) sums: Vec<(Arc<str>, i64)>,
    pub(super) sums_left_out: u64,
}

/// The lag of a group at one partition.
#[derive(Debug)]
pub(super) struct GroupLag {
    pub(super) group: Arc<str>,
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) records: i64,
}

impl Census {
    /// Reads the groups of a cluster. At most `series_max` lags, and the sums of so many groups, are kept.
    pub(super) fn of(cluster: &Cluster, series_max: usize) -> Self {
        let mut census = Self::default();
        census.members.extend([(CLASSIC, 0), (CONSUMER, 0), (SHARE, 0)]);
        let mut after = None;
        loop {
            after = cluster.groups.look_at_page(after.as_deref(), PAGE, |state, members| {
                census.count(CLASSIC, state, members);
            });
            if after.is_none() {
                break;
            }
        }
        census.count_consumer_groups(cluster);
        census.read_offsets(cluster, series_max);
        census.read_share_groups(cluster, series_max);
        // The lags of all types, in one order.
        census.lags.sort_by(|a, b| (&a.group, &a.topic, a.partition).cmp(&(&b.group, &b.topic, b.partition)));
        census.sums.sort();
        census
    }

    fn count(&mut self, protocol: &'static str, state: &'static str, members: usize) {
        *self.groups.entry((protocol, state)).or_default() += 1;
        *self.members.entry(protocol).or_default() += members as u64;
    }

    fn count_consumer_groups(&mut self, cluster: &Cluster) {
        cluster.consumer_groups.look_at_each(|_, group| {
            self.count(CONSUMER, group.state(), group.members.len());
        });
    }

    /// Reads the committed offsets: groups that have nothing else are counted here.
    fn read_offsets(&mut self, cluster: &Cluster, series_max: usize) {
        let mut after: Option<String> = None;
        loop {
            let page = cluster.offsets.page_after(after.as_deref(), PAGE);
            // Pending offsets make no group.
            for (name, offsets) in page.iter().filter(|(_, offsets)| !offsets.is_empty()) {
                let is_counted = cluster.groups.is_known(name) || cluster.consumer_groups.contains(name);
                if !is_counted {
                    self.count(CLASSIC, EMPTY, 0);
                }
                self.add_lags(cluster, name, offsets, series_max);
            }
            match page.into_iter().last() {
                Some((last, _)) => after = Some(last),
                None => return,
            }
        }
    }

    /// Counts the share groups, and reads how far each of them is.
    fn read_share_groups(&mut self, cluster: &Cluster, series_max: usize) {
        let mut after: Option<String> = None;
        loop {
            let mut page = Vec::new();
            let last = cluster.share_groups.look_at_page(after.as_deref(), PAGE, |name, group| {
                self.count(SHARE, group.state(), group.members.len());
                page.push((name.to_owned(), group.initialized()));
            });
            for (name, partitions) in page {
                let offsets = share_offsets(cluster, &name, partitions);
                if !offsets.is_empty() {
                    self.add_lags(cluster, &name, &offsets, series_max);
                }
            }
            match last {
                Some(last) => after = Some(last),
                None => return,
            }
        }
    }

    fn add_lags(&mut self, cluster: &Cluster, name: &str, offsets: &[(At, i64)], series_max: usize) {
        if self.sums.len() >= series_max {
            self.sums_left_out += 1;
            self.lags_left_out += offsets.len() as u64;
            return;
        }
        let group: Arc<str> = name.into();
        let mut sum = 0_i64;
        let mut topic: Option<Arc<Topic>> = None;
        for ((topic_name, partition), committed) in offsets {
            if topic.as_ref().is_none_or(|known| *known.name != **topic_name) {
                topic = cluster.topic(topic_name);
            }
            let index = usize::try_from(*partition).ok();
            // A deleted topic has no lag.
            let Some((topic, found)) =
                topic.as_ref().and_then(|topic| Some((topic, topic.partitions.get(index?)?)))
            else {
                continue;
            };
            let records = (found.high_watermark() - committed).max(0);
            sum = sum.saturating_add(records);
            if self.lags.len() < series_max {
                let (group, topic) = (group.clone(), topic.name.clone());
                self.lags.push(GroupLag { group, topic, partition: *partition, records });
            } else {
                self.lags_left_out += 1;
            }
        }
        self.sums.push((group, sum));
    }
}

/// The progress of a share group in its partitions, as if it had committed it.
fn share_offsets(cluster: &Cluster, name: &str, topics: BTreeMap<Uuid, BTreeSet<i32>>) -> Vec<(At, i64)> {
    let group: Arc<str> = name.into();
    let mut offsets = Vec::new();
    for (id, partitions) in topics {
        let Some(topic) = cluster.topic_by_id(id) else { continue };
        for partition in partitions {
            let key = SharePartitionKey { group: group.clone(), topic: id, partition };
            let progress = cluster.share_states.progress(&key);
            offsets.extend(progress.map(|offset| ((topic.name.to_string(), partition), offset)));
        }
    }
    offsets.sort();
    offsets
}
