//! The consumer protocol of classic groups: conversion between our types and bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::messages::consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition as OfTopic,
};
use ottla_protocol::messages::join_group::JoinGroupResponseMember;

use crate::assignor::{Assignor, Member, OwnedPartitions};
use crate::error::Error;
use crate::types::TopicPartition;

/// This version has the owned partitions, the generation and the rack. Older members read the fields that they know.
const CONSUMER_PROTOCOL_VERSION: i16 = 3;

/// Encodes this member's subscription for the leader, for one assignor. `owned` is the list of partitions that the
/// member keeps while it joins.
pub(super) fn encode_subscription(
    assignor: &dyn Assignor,
    topics: &[Arc<str>],
    owned: &[TopicPartition],
    held: &OwnedPartitions,
    rack: Option<&str>,
) -> Result<Bytes, Error> {
    let subscription = ConsumerProtocolSubscription {
        topics: topics.iter().map(ToString::to_string).collect(),
        user_data: assignor.user_data(held),
        owned_partitions: by_topic(owned),
        generation_id: held.generation.unwrap_or(-1),
        rack_id: rack.map(str::to_owned),
    };
    subscription.to_bytes(CONSUMER_PROTOCOL_VERSION).map_err(|error| Error::Config(error.to_string()))
}

/// Decodes a member's subscription.
pub(super) fn decode_member(member: &JoinGroupResponseMember) -> Result<Member, Error> {
    let said = ConsumerProtocolSubscription::from_bytes(member.metadata.clone()).map_err(|error| {
        Error::Protocol {
            address: format!("group member {}", member.member_id),
            reason: format!("subscription: {error}"),
        }
    })?;
    Ok(Member {
        instance_id: member.group_instance_id.clone(),
        topics: said.topics.into_iter().map(Arc::from).collect(),
        owned: partitions(said.owned_partitions),
        generation: (said.generation_id >= 0).then_some(said.generation_id),
        rack: said.rack_id.map(Arc::from),
        user_data: said.user_data,
    })
}

pub(super) fn encode_assignment(partitions: &[TopicPartition]) -> Result<Bytes, Error> {
    let assignment =
        ConsumerProtocolAssignment { assigned_partitions: by_topic(partitions), ..Default::default() };
    assignment.to_bytes(CONSUMER_PROTOCOL_VERSION).map_err(|error| Error::Config(error.to_string()))
}

/// Decodes an assignment. An empty one counts as no partitions: the member waits for the next rebalance.
pub(super) fn decode_assignment(bytes: Bytes) -> Result<Vec<TopicPartition>, String> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let assignment =
        ConsumerProtocolAssignment::from_bytes(bytes).map_err(|error| format!("assignment: {error}"))?;
    Ok(partitions(assignment.assigned_partitions))
}

fn by_topic(partitions: &[TopicPartition]) -> Vec<OfTopic> {
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for at in partitions {
        by_topic.entry(&at.topic).or_default().push(at.partition);
    }
    let of_topic = |(topic, partitions): (&str, _)| OfTopic { topic: topic.to_owned(), partitions };
    by_topic.into_iter().map(of_topic).collect()
}

fn partitions(topics: Vec<OfTopic>) -> Vec<TopicPartition> {
    let of_topic = |topic: OfTopic| {
        let name: Arc<str> = topic.topic.into();
        let at = move |partition| TopicPartition { topic: name.clone(), partition };
        topic.partitions.into_iter().map(at)
    };
    topics.into_iter().flat_map(of_topic).collect()
}
