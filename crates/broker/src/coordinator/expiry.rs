//! The expiry of offsets (`offsets.retention.minutes`): a group that no one uses is forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::ErrorCode;

use crate::cluster::Cluster;
use crate::coordinator::offset_log::{TOMBSTONES_MAX, tombstones};
use crate::coordinator::offsets::ExpiryRule;
use crate::internal_topics::InternalTopic;
use crate::partition::Partition;

impl Cluster {
    /// Removes expired offsets from time to time. Runs until the future is dropped.
    pub(crate) async fn keep_offsets(self: &Arc<Self>) {
        loop {
            tokio::time::sleep(self.config.offsets_retention_check).await;
            self.expire_offsets(self.deletion_clock.now_ms()).await;
        }
    }

    /// Removes offsets that have expired at `now_ms`, and groups that have neither members nor offsets left.
    pub(crate) async fn expire_offsets(self: &Arc<Self>, now_ms: i64) {
        let mut names: BTreeSet<String> = self.offsets.groups().into_iter().collect();
        names.extend(self.groups.empty());
        names.extend(self.consumer_groups.empty());
        for group in names {
            let cluster = self.clone();
            // It looks at every offset of the group: not in the thread that serves clients.
            let expire = move || cluster.expire_group(&group, now_ms);
            self.run_blocking(expire).await;
        }
    }

    fn expire_group(self: &Arc<Self>, group: &str, now_ms: i64) {
        let Some(partition) = self.internal_partition(InternalTopic::ConsumerOffsets, group) else { return };
        let rule = ExpiryRule {
            now_ms,
            retention_ms: i64::try_from(self.config.offsets_retention.as_millis()).unwrap_or(i64::MAX),
            members: match self.consumer_groups.members_for_expiry(group) {
                Some(members) => members,
                None => self.groups.members_for_expiry(group),
            },
        };
        match self.remove_expired(group, &partition, &rule) {
            Ok((removed, are_all)) => {
                if removed > 0 {
                    tracing::info!(group, offsets = removed, "removed expired offsets");
                }
                if are_all && let Err(code) = self.delete_idle(group) {
                    tracing::debug!(group, %code, "the group has members again");
                }
            }
            Err(code) => tracing::warn!(group, %code, "cannot remove expired offsets"),
        }
    }

    /// Returns how many offsets were removed, and whether the group has none left.
    fn remove_expired(
        self: &Arc<Self>,
        group: &str,
        partition: &Arc<Partition>,
        rule: &ExpiryRule,
    ) -> Result<(usize, bool), ErrorCode> {
        let mut removed = 0;
        loop {
            let choose = || {
                let (expired, are_all) = self.offsets.expired(group, rule, TOMBSTONES_MAX);
                Ok((tombstones(group, &expired)?, (expired, are_all)))
            };
            let (_, (expired, are_all)) =
                self.write_chosen(partition, choose, |(expired, _), _| self.offsets.remove(group, expired))?;
            removed += expired.len();
            if expired.len() < TOMBSTONES_MAX || are_all {
                return Ok((removed, are_all));
            }
        }
    }

    /// Removes a group without members, of either protocol.
    fn delete_idle(self: &Arc<Self>, group: &str) -> Result<(), ErrorCode> {
        if self.consumer_groups.delete(self, group)?.is_none() && self.groups.is_idle(group) {
            self.groups.delete(self, group)?;
        }
        Ok(())
    }
}
