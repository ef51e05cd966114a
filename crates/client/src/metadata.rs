//! Cluster metadata for the application: nodes, topics, leaders.

use std::future::Future;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::metadata::MetadataResponse;

use crate::client::Client;
use crate::error::Error;

/// The cluster as one broker sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metadata {
    /// The cluster's id, if the broker reports it.
    pub cluster_id: Option<String>,
    /// The node id of the controller; -1 when the broker does not report it.
    pub controller: i32,
    /// Every broker: node id, host, port.
    pub brokers: Vec<(i32, String, u16)>,
    /// The address (`host:port`) of the broker that responded.
    pub responder_address: String,
    /// The node id of the broker that responded, if the cluster lists this address.
    pub responder: Option<i32>,
    /// The requested topics.
    pub topics: Vec<TopicMetadata>,
}

/// One topic, or its error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicMetadata {
    /// The name.
    pub name: String,
    /// The error of the topic, or [`ErrorCode::None`].
    pub error: ErrorCode,
    /// The partitions, in order.
    pub partitions: Vec<PartitionMetadata>,
}

/// One partition.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionMetadata {
    /// The partition number.
    pub partition: i32,
    /// The error of the partition, for example that it has no leader.
    pub error: ErrorCode,
    /// The node id of the leader; -1 if there is none.
    pub leader: i32,
    /// The node ids of the replicas.
    pub replicas: Vec<i32>,
    /// The node ids of the in-sync replicas.
    pub isr: Vec<i32>,
}

impl Client {
    /// Requests metadata of these topics, or of all (`None`), and of the cluster's nodes. The request creates no topics.
    /// When the connection breaks before the response, or a broker does not answer in time, the client asks another broker.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when no broker responds within `timeout`; [`Error::Unreachable`] when no broker is reachable.
    pub async fn metadata(&self, topics: Option<&[&str]>, timeout: Duration) -> Result<Metadata, Error> {
        self.request_metadata(topics, false, timeout).await
    }

    async fn request_metadata(
        &self,
        topics: Option<&[&str]>,
        creates: bool,
        timeout: Duration,
    ) -> Result<Metadata, Error> {
        let names: Option<Vec<String>> =
            topics.map(|topics| topics.iter().map(ToString::to_string).collect());
        self.run(move |cluster| async move {
            let names: Option<Vec<&str>> =
                names.as_ref().map(|names| names.iter().map(String::as_str).collect());
            let answered = async {
                loop {
                    match cluster.describe_with_address(names.as_deref(), creates).await {
                        // The connection broke, or the broker was silent: another one, or this one after it returns, can respond.
                        Err(Error::Transport { .. } | Error::UnknownHost { .. } | Error::TimedOut { .. }) => {
                            tokio::time::sleep(cluster.config.retry_backoff).await;
                        }
                        answer => return answer,
                    }
                }
            };
            let asked = tokio::time::timeout(timeout, answered).await;
            let what = || "metadata".to_owned();
            let timed_out = Error::TimedOut { what: what(), waited_ms: timeout.as_millis() };
            let (response, address) = asked.unwrap_or(Err(timed_out))?;
            cluster.compare(&response).await;
            Ok(metadata_of(response, address))
        })
        .await
        .inspect(|metadata| self.apply_permissions(metadata))
    }

    /// Lets records be produced at once to topics that a broker has forbidden before, and does not forbid any more.
    fn apply_permissions(&self, metadata: &Metadata) {
        for described in &metadata.topics {
            if let Some(topic) = self.produce().topics.known(&described.name) {
                topic.set_forbidden(described.error == ErrorCode::TopicAuthorizationFailed);
            }
        }
    }

    /// [`Client::metadata`] for threads without a runtime.
    pub fn metadata_blocking(&self, topics: Option<&[&str]>, timeout: Duration) -> Result<Metadata, Error> {
        block_on_metadata(timeout, self.metadata(topics, timeout))
    }

    /// Requests metadata of these topics. If `allow.auto.create.topics` is on, the brokers create the missing ones, as far
    /// as their configuration allows it; the response then contains an error for each, and a later one its partitions.
    ///
    /// # Errors
    /// The errors of [`Client::metadata`].
    pub fn metadata_creating_blocking(&self, topics: &[&str], timeout: Duration) -> Result<Metadata, Error> {
        let creates = self.config().allow_auto_create_topics;
        block_on_metadata(timeout, self.request_metadata(Some(topics), creates, timeout))
    }
}

fn block_on_metadata(
    timeout: Duration,
    request: impl Future<Output = Result<Metadata, Error>>,
) -> Result<Metadata, Error> {
    let grace = timeout + Duration::from_secs(1);
    crate::blocking::block_on(grace, request)
        .unwrap_or_else(|| Err(Error::TimedOut { what: "metadata".into(), waited_ms: timeout.as_millis() }))
}

fn metadata_of(response: MetadataResponse, responder_address: String) -> Metadata {
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
    let is_responder = |host: &str, port: i32| {
        let named = responder_address.rsplit_once(':');
        named.is_some_and(|(name, number)| {
            name.trim_matches(['[', ']']) == host && number.parse::<i32>() == Ok(port)
        })
    };
    let responder = response.brokers.iter().find(|broker| is_responder(&broker.host, broker.port));
    Metadata {
        responder: responder.map(|broker| broker.node_id),
        responder_address,
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
