//! The features of the cluster, and the quorum of its controllers.

use std::collections::BTreeMap;
use std::rc::Rc;

use ottla_protocol::messages::ApiVersionsRequest;
use ottla_protocol::messages::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState, requested,
};

use super::operation::{Operation, Repeat, Target};
use super::{Admin, Timeouts, refused};
use crate::cluster::Cluster;
use crate::error::Error;

/// The versions of ApiVersions that have features.
const FEATURES_VERSIONS: std::ops::RangeInclusive<i16> = 3..=4;
const DESCRIBE_QUORUM_VERSION_MAX: i16 = 2;
/// The topic of the quorum.
const METADATA_TOPIC: &str = "__cluster_metadata";

/// A feature: the levels that a broker supports, and the one that the cluster has.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FeatureDescription {
    /// Its name: `metadata.version`, `transaction.version` and so on.
    pub name: String,
    /// The lowest and the highest level that the broker supports; `None` if it does not know the feature.
    pub supported: Option<(i16, i16)>,
    /// The level of the cluster; `None` if it has none.
    pub finalized: Option<i16>,
}

/// The quorum of controllers, in KRaft mode.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct QuorumDescription {
    /// The node id of the leader: the active controller.
    pub leader: i32,
    /// The leader's epoch.
    pub leader_epoch: i32,
    /// The high watermark of the metadata log.
    pub high_watermark: i64,
    /// The controllers that vote.
    pub voters: Vec<QuorumReplica>,
    /// The nodes that read the log without a vote: the brokers.
    pub observers: Vec<QuorumReplica>,
}

/// A replica of the metadata log.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct QuorumReplica {
    /// The node id.
    pub id: i32,
    /// The end of its log, as the leader knows it.
    pub log_end_offset: i64,
    /// The time at which it last had the whole log, in milliseconds since 1970; `None` if it is unknown.
    pub caught_up_ms: Option<i64>,
}

impl Admin {
    /// Describes the features that a broker supports or that the cluster has, by name. Empty on brokers before 2.7.
    ///
    /// # Errors
    /// The call fails if no broker responds in time.
    pub async fn describe_features(&self, timeouts: Timeouts) -> Result<Vec<FeatureDescription>, Error> {
        let work = move |cluster: Rc<Cluster>| async move {
            describe(&Operation::new(cluster, "describe_features", timeouts)).await
        };
        self.ask("describe_features", work).await
    }

    /// Describes the quorum of controllers.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with brokers that use ZooKeeper.
    pub async fn describe_quorum(&self, timeouts: Timeouts) -> Result<QuorumDescription, Error> {
        let work = move |cluster: Rc<Cluster>| async move {
            quorum(&Operation::new(cluster, "describe_quorum", timeouts)).await
        };
        self.ask("describe_quorum", work).await
    }
}

async fn describe(operation: &Operation) -> Result<Vec<FeatureDescription>, Error> {
    let make = |_version: i16| ApiVersionsRequest {
        client_software_name: "ottla".into(),
        client_software_version: env!("CARGO_PKG_VERSION").into(),
    };
    let call = operation.call(Target::Any, FEATURES_VERSIONS, Repeat::Yes, make, |_| None);
    let response = match call.await {
        Ok(response) => response,
        Err(Error::Unsupported { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    refused("features", response.error_code, None)?;
    let mut features: BTreeMap<String, FeatureDescription> = BTreeMap::new();
    let new = |name: &String| FeatureDescription { name: name.clone(), supported: None, finalized: None };
    for found in response.supported_features {
        let feature = features.entry(found.name.clone()).or_insert_with(|| new(&found.name));
        feature.supported = Some((found.min_version, found.max_version));
    }
    for found in response.finalized_features {
        let feature = features.entry(found.name.clone()).or_insert_with(|| new(&found.name));
        feature.finalized = Some(found.max_version_level);
    }
    Ok(features.into_values().collect())
}

async fn quorum(operation: &Operation) -> Result<QuorumDescription, Error> {
    let make = |_version: i16| {
        let partitions = vec![requested::PartitionData { partition_index: 0 }];
        let topic = requested::TopicData { topic_name: METADATA_TOPIC.into(), partitions };
        DescribeQuorumRequest { topics: vec![topic] }
    };
    let again = |response: &DescribeQuorumResponse| {
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        let mut codes = partitions.map(|partition| partition.error_code).chain([response.error_code]);
        codes.find(|code| code.is_retriable())
    };
    let versions = 0..=DESCRIBE_QUORUM_VERSION_MAX;
    let response = operation.call(Target::Any, versions, Repeat::Yes, make, again).await?;
    refused("the quorum", response.error_code, response.error_message.as_deref())?;
    let partition = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
    let Some(partition) = partition else {
        let (what, code) = ("the quorum".to_owned(), ottla_protocol::ErrorCode::UnknownServerError);
        return Err(Error::Broker { what, code });
    };
    refused("the quorum", partition.error_code, partition.error_message.as_deref())?;
    let replica = |state: &ReplicaState| QuorumReplica {
        id: state.replica_id,
        log_end_offset: state.log_end_offset,
        caught_up_ms: Some(state.last_caught_up_timestamp).filter(|ms| *ms >= 0),
    };
    Ok(QuorumDescription {
        leader: partition.leader_id,
        leader_epoch: partition.leader_epoch,
        high_watermark: partition.high_watermark,
        voters: partition.current_voters.iter().map(replica).collect(),
        observers: partition.observers.iter().map(replica).collect(),
    })
}
