//! The statistics of a client for its application.

use ottla_client::statistics::{Broker, Fatal, Snapshot};

use crate::client::handle::Handle;
use crate::errors::error_object::description;
use crate::ffi::{RD_KAFKA_PARTITION_UA, RD_KAFKA_PRODUCER};

/// The statistics as JSON, with what only this library knows: the type of the client, and the error that ended it. Each topic has the
/// partition -1, as in the original, whether records wait for its metadata or not. A consumer with a group has the broker
/// `GroupCoordinator`.
pub(super) fn shown(handle: &Handle, snapshot: &Snapshot) -> String {
    let mut snapshot = snapshot.clone();
    snapshot.client_type = if handle.kind == RD_KAFKA_PRODUCER { "producer" } else { "consumer" }.into();
    if handle.group_consumer().is_some() {
        let coordinator = group_coordinator(&snapshot);
        snapshot.brokers.insert(coordinator.name.clone(), coordinator);
    }
    for topic in snapshot.topics.values_mut() {
        topic.partitions.entry(RD_KAFKA_PARTITION_UA.to_string()).or_default();
    }
    if let Some((code, reason)) = handle.fatal_cause() {
        let mut fatal = Fatal::default();
        fatal.error = description(code).to_string_lossy().into_owned();
        fatal.reason = reason;
        fatal.cnt = 1;
        snapshot.fatal = Some(fatal);
    }
    snapshot.to_json()
}

/// The coordinator as a broker of its own. The original has a connection for it; here its requests use the connections of the broker
/// that coordinates, where they count.
fn group_coordinator(snapshot: &Snapshot) -> Broker {
    let mut logical = Broker::default();
    logical.name = "GroupCoordinator".into();
    logical.source = "logical".into();
    (logical.nodeid, logical.state) = (-1, "INIT".into());
    (logical.txidle, logical.rxidle) = (-1, -1);
    let node = snapshot.cgrp.as_ref().and_then(|group| group.coordinator);
    if let Some(broker) = snapshot.brokers.values().find(|broker| Some(broker.nodeid) == node) {
        logical.nodeid = broker.nodeid;
        logical.nodename.clone_from(&broker.nodename);
        logical.state.clone_from(&broker.state);
        logical.stateage = broker.stateage;
    }
    logical
}
