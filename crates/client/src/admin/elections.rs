//! Leader elections.

use std::collections::BTreeMap;
use std::rc::Rc;

use ottla_protocol::messages::elect_leaders::{ElectLeadersRequest, ElectLeadersResponse, TopicPartitions};

use super::groups::by_topic;
use super::operation::{Operation, Repeat, Target, wrong_controller};
use super::{Admin, KeyedResults, Timeouts, in_order, refused};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::types::TopicPartition;

const ELECT_LEADERS_VERSION_MAX: i16 = 2;
/// The first version of ElectLeaders with unclean elections (KIP-460).
const UNCLEAN_SINCE: i16 = 1;

/// The kind of leader election.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Election {
    /// Elects the preferred replica, the first in the partition's list, if it is in sync.
    Preferred,
    /// Elects any live replica if none is in sync; records that only other replicas have are lost.
    Unclean,
}

impl Admin {
    /// Elects leaders of these partitions, or of all (`None`). Returns a result per partition.
    ///
    /// A partition that needs no election fails with `ELECTION_NOT_NEEDED`; with `None`, such partitions are omitted.
    ///
    /// # Errors
    /// The whole call fails if the controller does not respond in time, or does not support the request.
    pub async fn elect_leaders(
        &self,
        election: Election,
        partitions: Option<&[TopicPartition]>,
        timeouts: Timeouts,
    ) -> Result<KeyedResults<TopicPartition, ()>, Error> {
        let partitions = partitions.map(<[_]>::to_vec);
        let work = move |cluster: Rc<Cluster>| async move {
            elect(&Operation::new(cluster, "elect_leaders", timeouts), election, partitions).await
        };
        self.ask("elect_leaders", work).await
    }
}

async fn elect(
    operation: &Operation,
    election: Election,
    partitions: Option<Vec<TopicPartition>>,
) -> Result<KeyedResults<TopicPartition, ()>, Error> {
    let topics = partitions.as_ref().map(|partitions| by_topic(partitions.iter().map(|at| (at, ()))));
    let topic = |(name, partitions): (&String, &Vec<(i32, ())>)| TopicPartitions {
        topic: name.clone(),
        partitions: partitions.iter().map(|(index, ())| *index).collect(),
    };
    let make = |_version: i16| ElectLeadersRequest {
        election_type: match election {
            Election::Preferred => 0,
            Election::Unclean => 1,
        },
        topic_partitions: topics.as_ref().map(|topics| topics.iter().map(topic).collect()),
        timeout_ms: operation.at_broker_ms(),
    };
    let needed = match election {
        Election::Preferred => 0,
        Election::Unclean => UNCLEAN_SINCE,
    };
    let again = |response: &ElectLeadersResponse| {
        let results = response.replica_election_results.iter().flat_map(|topic| &topic.partition_result);
        wrong_controller(std::iter::once(response.error_code).chain(results.map(|result| result.error_code)))
    };
    let versions = needed..=ELECT_LEADERS_VERSION_MAX;
    let response = operation.call(Target::Controller, versions, Repeat::Yes, make, again).await?;
    refused("electing leaders", response.error_code, None)?;
    let mut answers = BTreeMap::new();
    for topic in response.replica_election_results {
        for result in topic.partition_result {
            let at = TopicPartition::new(&topic.topic, result.partition_id);
            let what = format!("electing a leader of {at}");
            let elected = refused(&what, result.error_code, result.error_message.as_deref());
            answers.insert(at, elected);
        }
    }
    Ok(match partitions {
        Some(partitions) => in_order(partitions, answers, "a leader of partition"),
        None => answers.into_iter().collect(),
    })
}
