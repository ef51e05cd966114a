//! Reports to the observers of a test.

use std::sync::Arc;

use super::acknowledge::AckBatch;
use super::acquire::Acquired;
use super::leader::LedPartition;
use super::settings::ShareSettings;
use crate::cluster::Cluster;
use crate::request_observer::{RequestObserver, ShareEvent, ShareEventKind};

impl LedPartition {
    /// Reports records that are in the response to a member.
    pub(crate) fn observe_acquired(
        &self,
        cluster: &Cluster,
        member: &str,
        acquired: &[Acquired],
        settings: &ShareSettings,
    ) {
        let Some(observers) = cluster.overrides.observers() else { return };
        for Acquired { first, last, delivery_count } in acquired.iter().copied() {
            let (lock, leader_epoch) = (settings.limits.lock_duration, self.leader_epoch);
            let kind = ShareEventKind::Acquired { first, last, delivery_count, lock, leader_epoch };
            self.observe(cluster, &observers, member, kind);
        }
    }

    /// Reports acknowledgements that were marked.
    pub(super) fn observe_acknowledged(&self, cluster: &Cluster, member: &str, batches: &[AckBatch]) {
        let Some(observers) = cluster.overrides.observers() else { return };
        for (first, last, ack) in batches.iter().flat_map(AckBatch::ranges) {
            let kind = ShareEventKind::Acknowledged { first, last, acknowledge_type: ack.number() };
            self.observe(cluster, &observers, member, kind);
        }
    }

    /// Reports the end of a session.
    pub(super) fn observe_released(&self, cluster: &Cluster, member: &str) {
        if let Some(observers) = cluster.overrides.observers() {
            self.observe(cluster, &observers, member, ShareEventKind::Released);
        }
    }

    fn observe(
        &self,
        cluster: &Cluster,
        observers: &[Arc<dyn RequestObserver>],
        member: &str,
        kind: ShareEventKind,
    ) {
        let Some(topic) = cluster.topic_by_id(self.key.topic) else { return };
        let (group, topic, partition) = (&*self.key.group, &*topic.name, self.key.partition);
        for observer in observers {
            observer.on_share_event(ShareEvent { group, member, topic, partition, kind });
        }
    }
}
