//! What brokers say of the cluster: nodes, topics, leaders.

use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::metadata::MetadataResponse;

use crate::client::Client;
use crate::error::Error;

/// The cluster as one broker sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metadata {
    /// The cluster's id, if the broker tells.
    pub cluster_id: Option<String>,
    /// The node that takes changes; -1 when the broker does not say.
    pub controller: i32,
    /// Every broker: number, host, port.
    pub brokers: Vec<(i32, String, u16)>,
    /// The topics that were asked for.
    pub topics: Vec<TopicMetadata>,
}

/// One topic, or why there is nothing to say of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicMetadata {
    /// Its name.
    pub name: String,
    /// [`ErrorCode::None`] if it is as it should be.
    pub error: ErrorCode,
    /// Its partitions, by number.
    pub partitions: Vec<PartitionMetadata>,
}

/// One partition.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionMetadata {
    /// Its number.
    pub partition: i32,
    /// What is wrong with it, for one that it has no leader.
    pub error: ErrorCode,
    /// The broker that takes its writes; -1 if there is none.
    pub leader: i32,
    /// Every broker that has a copy.
    pub replicas: Vec<i32>,
    /// The copies that are complete.
    pub isr: Vec<i32>,
}

impl Client {
    /// Asks a broker for these topics, or for all (`None`), and for the cluster's nodes. Topics are not created by being
    /// asked for. When the broker's connection breaks before the answer, another is asked.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when no broker answers within `timeout`; [`Error::Unreachable`] when there is none to ask.
    pub async fn metadata(&self, topics: Option<&[&str]>, timeout: Duration) -> Result<Metadata, Error> {
        let names: Option<Vec<String>> =
            topics.map(|topics| topics.iter().map(ToString::to_string).collect());
        self.run(move |cluster| async move {
            let names: Option<Vec<&str>> =
                names.as_ref().map(|names| names.iter().map(String::as_str).collect());
            let answered = async {
                loop {
                    match cluster.describe(names.as_deref()).await {
                        // The broker went away with the question: another one, or this one once it is back, can answer.
                        Err(Error::Transport { .. }) => {
                            tokio::time::sleep(cluster.config.retry_backoff).await;
                        }
                        answer => return answer,
                    }
                }
            };
            let asked = tokio::time::timeout(timeout, answered).await;
            let what = || "metadata".to_owned();
            let timed_out = Error::TimedOut { what: what(), waited_ms: timeout.as_millis() };
            asked.unwrap_or(Err(timed_out)).map(told)
        })
        .await
    }

    /// [`Client::metadata`] for threads without a runtime.
    pub fn metadata_blocking(&self, topics: Option<&[&str]>, timeout: Duration) -> Result<Metadata, Error> {
        let grace = timeout + Duration::from_secs(1);
        crate::blocking::block_on(grace, self.metadata(topics, timeout)).unwrap_or_else(|| {
            Err(Error::TimedOut { what: "metadata".into(), waited_ms: timeout.as_millis() })
        })
    }
}

fn told(response: MetadataResponse) -> Metadata {
    let topics = response.topics.into_iter().map(|topic| {
        let mut partitions: Vec<_> = topic
            .partitions
            .into_iter()
            .map(|partition| PartitionMetadata {
                partition: partition.partition_index,
                error: partition.error_code,
                leader: partition.leader_id,
                replicas: partition.replica_nodes,
                isr: partition.isr_nodes,
            })
            .collect();
        partitions.sort_by_key(|partition| partition.partition);
        TopicMetadata { name: topic.name.unwrap_or_default(), error: topic.error_code, partitions }
    });
    Metadata {
        cluster_id: response.cluster_id,
        controller: response.controller_id,
        topics: topics.collect(),
        brokers: response
            .brokers
            .into_iter()
            .map(|broker| (broker.node_id, broker.host, u16::try_from(broker.port).unwrap_or_default()))
            .collect(),
    }
}
