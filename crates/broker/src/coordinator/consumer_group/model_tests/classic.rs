//! Clients of the classic protocol, with an eager and with a cooperative assignor.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition,
};

use super::{SESSION, Topics, World};
use crate::coordinator::consumer_group::classic::ClassicRequest;
use crate::coordinator::consumer_group::group::TopicLookup;
use crate::coordinator::consumer_group::member::Place;
use crate::coordinator::group::{CONSUMER, Join};

/// The kind of a client's assignor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Assignor {
    /// The client gives up all partitions before it joins.
    Eager,
    /// The client keeps its partitions, gives up those that it loses, and joins again.
    Cooperative,
}

impl Assignor {
    pub(super) fn any(rng: &mut fastrand::Rng) -> Self {
        if rng.bool() { Self::Eager } else { Self::Cooperative }
    }
}

/// The metadata of a join.
pub(super) fn subscription(names: &BTreeSet<String>, owned: &BTreeSet<Place>, topics: &Topics) -> Bytes {
    let mut by_name: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for (id, partition) in owned {
        by_name.entry(topics.name_of(*id).expect("a known topic")).or_default().push(*partition);
    }
    let owned = by_name.into_iter().map(|(topic, partitions)| TopicPartition { topic, partitions });
    let subscription = ConsumerProtocolSubscription {
        topics: names.iter().cloned().collect(),
        owned_partitions: owned.collect(),
        ..Default::default()
    };
    subscription.to_bytes(3).expect("short names")
}

/// The partitions of an assignment.
pub(super) fn assigned(assignment: Bytes, topics: &Topics) -> BTreeSet<Place> {
    let assignment = ConsumerProtocolAssignment::from_bytes(assignment).expect("an assignment");
    let places = assignment.assigned_partitions.into_iter().flat_map(|topic| {
        let (id, _) = topics.by_name(&topic.topic).expect("a known topic");
        topic.partitions.into_iter().map(move |partition| (id, partition))
    });
    places.collect()
}

/// A request to join.
pub(super) fn join_of(id: &str, metadata: Bytes) -> Join {
    Join {
        member_id: id.to_owned(),
        instance_id: None,
        client_id: "".into(),
        client_host: "".into(),
        protocol_type: CONSUMER.to_owned(),
        protocols: vec![("range".to_owned(), metadata)],
        session_timeout: SESSION,
        rebalance_timeout: Duration::from_secs(30),
        knows_skip_assignment: true,
    }
}

impl World {
    /// A heartbeat, or a join with its sync if the client must join; with `lost` the first answer does not arrive.
    pub(super) fn beat_classic(&mut self, id: &str, lost: bool) {
        let client = self.clients[id].clone();
        if client.epoch == 0 || client.reports {
            return self.join_classic(id, lost);
        }
        let request = ClassicRequest { member_id: id, instance_id: None, generation: client.epoch };
        let answer = self.group.heartbeat_classic(self.now, self.now_ms, request, &self.settings);
        if lost {
            return;
        }
        let client = self.clients.get_mut(id).expect("it was there");
        match answer {
            Ok(()) => {}
            Err(ErrorCode::RebalanceInProgress) => client.reports = true,
            Err(code) => lose(client, code),
        }
    }

    fn join_classic(&mut self, id: &str, lost: bool) {
        let client = self.clients.get_mut(id).expect("it is there");
        if client.classic == Some(Assignor::Eager) {
            client.owned.clear();
        }
        let client = client.clone();
        let join = join_of(id, subscription(&client.names, &client.owned, &self.topics));
        let joined =
            self.group.join_classic(self.now, self.now_ms, (join, true), &self.settings, &self.topics);
        self.save();
        if lost {
            return;
        }
        let generation = joined.expect("a member of the protocol type `consumer`").joined.generation;
        let request = ClassicRequest { member_id: id, instance_id: None, generation };
        let protocol = (Some(CONSUMER), Some("range"));
        let synced =
            self.group.sync_classic(self.now, self.now_ms, request, protocol, &self.settings, &self.topics);
        self.save();
        let client = self.clients.get_mut(id).expect("it was there");
        client.epoch = generation;
        match synced {
            Ok(synced) => {
                let assigned = assigned(synced.assignment, &self.topics);
                // A cooperative client that gives up partitions joins again.
                client.reports = !client.owned.is_subset(&assigned);
                client.owned = assigned;
            }
            Err(ErrorCode::RebalanceInProgress) => client.reports = true,
            Err(code) => lose(client, code),
        }
        self.check();
    }
}

/// The client has lost its membership.
fn lose(client: &mut super::Client, code: ErrorCode) {
    assert!(matches!(code, ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration), "{code}");
    client.owned.clear();
    (client.epoch, client.reports) = (0, false);
}
