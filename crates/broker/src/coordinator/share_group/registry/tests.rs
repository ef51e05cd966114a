//! Requests for groups of different types at once.

use std::sync::mpsc;
use std::thread;

use ottla_log::storage::mem::MemStorage;

use super::*;
use crate::clock::Clock;
use crate::cluster::Seams;
use crate::config::BrokerConfig;
use crate::coordinator::group::{CONSUMER, Join};
use crate::coordinator::groups::Joining;
use crate::partition::Syncer;

/// Only a defect exhausts it.
const PATIENCE: Duration = Duration::from_secs(30);

fn cluster() -> Arc<Cluster> {
    let seams = Seams {
        storage: Arc::new(MemStorage::new()),
        clock: Clock::System,
        syncer: Syncer::Inline(Duration::ZERO),
        seed: 1,
    };
    Cluster::open(BrokerConfig::default(), 1, seams).expect("a cluster")
}

/// Each join, and each heartbeat of all groups of the new protocol, waited for each other one and for all share groups.
#[test]
fn a_join_of_a_classic_group_delays_no_share_group() {
    let cluster = cluster();
    let joined = cluster.share_groups.unless_share_group(&cluster, "billing", || {
        let (done, is_done) = mpsc::channel();
        let other = cluster.clone();
        thread::spawn(move || done.send(other.share_groups.contains("workers")));
        is_done.recv_timeout(PATIENCE)
    });
    assert_eq!(joined, Some(Ok(false)));
}

#[test]
fn a_group_of_another_type_that_exists_does_not_wait_for_share_groups() {
    let cluster = cluster();
    assert!(join(&cluster).is_some());
    let share_groups = cluster.share_groups.lock();
    let (done, is_done) = mpsc::channel();
    let other = cluster.clone();
    thread::spawn(move || done.send(join(&other).is_some()));
    assert_eq!(is_done.recv_timeout(PATIENCE), Ok(true));
    drop(share_groups);
}

#[test]
fn a_share_group_is_not_created_while_a_member_joins_a_classic_group_of_that_name() {
    let cluster = cluster();
    let beat = ShareBeat {
        member_id: "m1".into(),
        names: Some(["orders".to_owned()].into()),
        ..ShareBeat::default()
    };
    let created = cluster.share_groups.unless_share_group(&cluster, "billing", || {
        let other = cluster.clone();
        let created = thread::spawn(move || {
            other.share_groups.begin_heartbeat(&other, "billing", &beat).map_err(|refusal| refusal.code)
        });
        assert!(matches!(join_group(&cluster), Joining::ComeBackAs(_)));
        created
    });
    let created = created.expect("no share group has the name").join().expect("no panic");
    assert_eq!(created.err(), Some(ErrorCode::GroupIdNotFound));
}

/// Joins the group `billing` as JoinGroup does.
fn join(cluster: &Arc<Cluster>) -> Option<Joining> {
    cluster.share_groups.unless_share_group(cluster, "billing", || join_group(cluster))
}

fn join_group(cluster: &Cluster) -> Joining {
    let join = Join {
        member_id: String::new(),
        instance_id: None,
        client_id: "client".into(),
        client_host: "host".into(),
        protocol_type: CONSUMER.into(),
        protocols: vec![("range".into(), bytes::Bytes::new())],
        session_timeout: PATIENCE,
        rebalance_timeout: PATIENCE,
        knows_skip_assignment: true,
    };
    cluster.groups.join("billing", join, true)
}
