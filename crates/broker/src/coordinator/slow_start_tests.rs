//! Groups that are loaded by a broker whose other logs take long to open.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::messages::consumer_group_records::{
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, CONSUMER_GROUP_MEMBER_METADATA,
    ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataValue, CurrentTopicPartitions,
};
use ottla_protocol::messages::consumer_offsets::{GroupMetadataValue, GroupMetadataValueMember};
use ottla_protocol::messages::share_group_records::{
    SHARE_GROUP_MEMBER_METADATA, ShareGroupMemberMetadataValue,
};
use ottla_protocol::{EncodeError, ErrorCode, Uuid};
use tokio::time::Instant;

use super::consumer_group::records::StoredConsumerGroup;
use super::group::CONSUMER;
use super::share_group::records::StoredShareGroup;
use crate::clock::Clock;
use crate::cluster::{Cluster, Seams};
use crate::config::BrokerConfig;
use crate::partition::Syncer;

/// The time from the records of the groups to the first request. No session is as long.
const START: Duration = Duration::from_secs(3600);
/// The state of a member that has to give up partitions.
const UNREVOKED_PARTITIONS: i8 = 1;

fn cluster(config: BrokerConfig) -> Arc<Cluster> {
    let seams = Seams {
        storage: Arc::new(MemStorage::new()),
        clock: Clock::System,
        syncer: Syncer::Inline(Duration::ZERO),
        seed: 1,
    };
    Cluster::open(config, 1, seams).expect("a cluster")
}

/// Loads a classic group with these members.
fn load_classic(cluster: &Cluster, ids: &[&str]) {
    let member = |id: &&str| GroupMetadataValueMember {
        member_id: (*id).into(),
        session_timeout: 45_000,
        rebalance_timeout: 60_000,
        ..Default::default()
    };
    let value = GroupMetadataValue {
        protocol_type: CONSUMER.into(),
        generation: 3,
        protocol: Some("range".into()),
        leader: Some("a".into()),
        members: ids.iter().map(member).collect(),
        ..Default::default()
    };
    cluster.groups.load("classic".into(), value);
}

/// Loads a group of each type with a member.
fn load_groups(cluster: &Cluster) {
    load_classic(cluster, &["a"]);

    let bytes = |encoded: Result<Bytes, EncodeError>| Some(encoded.expect("short texts"));
    let mut consumers = StoredConsumerGroup::default();
    let member = ConsumerGroupMemberMetadataValue { rebalance_timeout_ms: 60_000, ..Default::default() };
    let member = bytes(member.to_bytes());
    consumers.apply_part(CONSUMER_GROUP_MEMBER_METADATA, "a".into(), member).expect("a record");
    let pending = CurrentTopicPartitions {
        topic_id: Uuid([1; 16]),
        partitions: vec![0],
        assignment_epochs: Some(vec![2]),
    };
    let current = ConsumerGroupCurrentMemberAssignmentValue {
        member_epoch: 2,
        previous_member_epoch: 2,
        state: UNREVOKED_PARTITIONS,
        partitions_pending_revocation: vec![pending],
        ..Default::default()
    };
    let current = bytes(current.to_bytes());
    consumers.apply_part(CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, "a".into(), current).expect("a record");
    cluster.consumer_groups.load("consumers".into(), consumers);

    let mut shares = StoredShareGroup::default();
    let member = bytes(ShareGroupMemberMetadataValue::default().to_bytes());
    shares.apply_member(SHARE_GROUP_MEMBER_METADATA, "a".into(), member).expect("a record");
    cluster.share_groups.load("shares".into(), shares);
}

/// The numbers of members of the three groups.
fn members(cluster: &Cluster) -> [usize; 3] {
    let classic = cluster.groups.describe("classic").map(|group| group.members.len());
    let consumers = cluster.consumer_groups.look("consumers", |group| group.members.len());
    let shares = cluster.share_groups.look("shares", |group| group.members.len());
    [classic, consumers, shares].map(|count| count.expect("the group is there"))
}

fn tick(cluster: &Arc<Cluster>, now: Instant) {
    cluster.groups.tick(cluster, now);
    cluster.consumer_groups.tick(cluster, now);
    cluster.share_groups.tick(cluster, now);
}

/// The first tick removed all members of all groups if the start had taken longer than their sessions.
#[tokio::test]
async fn members_have_their_whole_session_after_a_slow_start() {
    let cluster = cluster(BrokerConfig::default());
    load_groups(&cluster);
    let served = Instant::now() + START;
    tick(&cluster, served);
    assert_eq!(members(&cluster), [1; 3]);
    tick(&cluster, served + Duration::from_secs(44));
    assert_eq!(members(&cluster), [1; 3]);
    tick(&cluster, served + START);
    assert_eq!(members(&cluster), [0; 3], "sessions end as before");
}

/// All of them stayed until one of them joined again.
#[tokio::test]
async fn a_classic_group_with_too_many_members_rebalances_after_a_start() {
    let mut config = BrokerConfig::default();
    config.set("group.max.size", "2").expect("a setting");
    let cluster = cluster(config);
    load_classic(&cluster, &["a", "b", "c"]);
    let served = Instant::now() + START;
    tick(&cluster, served);
    let group = cluster.groups.describe("classic").expect("the group is there");
    assert_eq!((group.state, group.members.len()), ("PreparingRebalance", 3));
    // Its members have the whole rebalance timeout.
    tick(&cluster, served + Duration::from_secs(44));
    assert_eq!(cluster.groups.heartbeat("classic", "a", None, 3), Err(ErrorCode::RebalanceInProgress));
}
