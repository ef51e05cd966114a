//! Topics, groups and offsets, seen from above.

mod groups;
mod offsets;
mod topics;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use crate::client::Client;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::consumer::TopicPartition;
use crate::error::Error;
use crate::log::Context;

/// Looks at and changes a cluster's topics and groups.
///
/// Cheap to clone. Calls run in the client's engine: dropping their future lets what was asked run on.
///
/// ```no_run
/// use ottla_client::{Admin, Config, NewTopic};
///
/// # async fn example() -> Result<(), ottla_client::Error> {
/// let admin = Admin::new(Config::new("127.0.0.1:9092"))?;
/// admin.create_topics(&[NewTopic::new("orders").partitions(3).config("retention.ms", "3600000")]).await?;
/// for topic in admin.list_topics().await? {
///     println!("{} {}", topic.name, topic.partitions);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Admin {
    client: Client,
}

/// A broker of the cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// Its number.
    pub id: i32,
    /// Where clients reach it.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// The cluster as a whole.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClusterDescription {
    /// Its id, if the broker tells.
    pub id: Option<String>,
    /// The node that takes changes; `None` when no broker says so.
    pub controller: Option<i32>,
    /// Every broker, by number.
    pub brokers: Vec<Node>,
}

/// A topic in a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TopicListing {
    /// Its name.
    pub name: String,
    /// Its id; zero on brokers before 2.8.
    pub id: Uuid,
    /// How many partitions it has.
    pub partitions: usize,
    /// Whether the broker keeps its own records in it.
    pub internal: bool,
}

/// A topic with its partitions.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// Its id; zero on brokers before 2.8.
    pub id: Uuid,
    /// Whether the broker keeps its own records in it.
    pub internal: bool,
    /// By partition number.
    pub partitions: Vec<PartitionDescription>,
}

/// A partition and who holds it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PartitionDescription {
    /// Its number.
    pub partition: i32,
    /// The broker that takes its writes, if there is one.
    pub leader: Option<i32>,
    /// How often it has changed leaders; -1 when the broker does not tell.
    pub leader_epoch: i32,
    /// Every broker that has a copy.
    pub replicas: Vec<i32>,
    /// The copies that are complete.
    pub isr: Vec<i32>,
}

/// A topic to be created.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; `None` leaves it to the broker.
    pub partitions: Option<i32>,
    /// How many copies of each; `None` leaves it to the broker.
    pub replication: Option<i16>,
    /// Settings that differ from the broker's.
    pub configs: Vec<(String, String)>,
}

impl NewTopic {
    /// A topic with the broker's defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), partitions: None, replication: None, configs: Vec::new() }
    }

    /// Sets how many partitions it gets.
    #[must_use]
    pub fn partitions(mut self, count: i32) -> Self {
        self.partitions = Some(count);
        self
    }

    /// Sets how many copies there are of each partition.
    #[must_use]
    pub fn replication(mut self, factor: i16) -> Self {
        self.replication = Some(factor);
        self
    }

    /// Adds a setting, by Kafka's name.
    #[must_use]
    pub fn config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.configs.push((name.into(), value.into()));
        self
    }
}

/// A setting of a topic.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConfigEntry {
    /// Kafka's name.
    pub name: String,
    /// Its value; `None` is null, or a secret.
    pub value: Option<String>,
    /// Whether it is nobody's choice: neither the topic's nor the broker's.
    pub default: bool,
    /// Whether it cannot be changed.
    pub read_only: bool,
    /// Whether brokers keep the value to themselves.
    pub sensitive: bool,
}

/// Which offset of a partition is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OffsetAt {
    /// The oldest record's.
    Earliest,
    /// The next record's, as far as `isolation.level` lets a consumer see.
    Latest,
    /// The first record's with this timestamp or a later one, milliseconds since 1970; past the last record, the end.
    Timestamp(i64),
}

/// A group in a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GroupListing {
    /// Its id.
    pub group: String,
    /// What it is a group of: `consumer` for consumers; empty when it has had offsets only.
    pub protocol_type: String,
    /// `Stable`, `Empty` and so on; empty on brokers before 2.6.
    pub state: String,
    /// `classic` or `consumer`; empty on brokers before 3.7.
    pub kind: String,
    /// The broker that coordinates it.
    pub coordinator: i32,
}

/// A group with its members.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GroupDescription {
    /// Its id.
    pub group: String,
    /// `Stable`, `Empty`, `PreparingRebalance` and so on.
    pub state: String,
    /// What it is a group of: `consumer` for consumers.
    pub protocol_type: String,
    /// The assignor that was agreed on.
    pub protocol: String,
    /// The broker that coordinates it.
    pub coordinator: i32,
    /// By member id.
    pub members: Vec<MemberDescription>,
}

/// A member of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct MemberDescription {
    /// The id that the coordinator gave it.
    pub member: String,
    /// Its `group.instance.id`, if it is a static member.
    pub instance: Option<String>,
    /// Its `client.id`.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
    /// What it is to read; empty when the group is not one of consumers.
    pub assignment: Vec<TopicPartition>,
}

impl Admin {
    /// An admin with a client, and so an engine thread, of its own.
    pub fn new(config: Config) -> Result<Self, Error> {
        Ok(Self::of(&Client::new(config)?))
    }

    /// An admin on a client that exists.
    pub fn of(client: &Client) -> Self {
        Self { client: client.clone() }
    }

    /// The client it runs on.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The brokers there are; the cheapest way to see that one answers.
    pub async fn describe_cluster(&self) -> Result<ClusterDescription, Error> {
        self.ask("describe_cluster", |cluster| async move { topics::describe_cluster(&cluster).await }).await
    }

    /// Every topic, by name.
    pub async fn list_topics(&self) -> Result<Vec<TopicListing>, Error> {
        self.ask("list_topics", |cluster| async move { topics::list(&cluster).await }).await
    }

    /// These topics with their partitions, in the order asked for.
    ///
    /// # Errors
    /// [`Error::Broker`] with the first topic that does not exist. None is created by asking.
    pub async fn describe_topics(&self, names: &[&str]) -> Result<Vec<TopicDescription>, Error> {
        let names = owned(names);
        self.ask("describe_topics", |cluster| async move { topics::describe(&cluster, &names).await }).await
    }

    /// Waits until a topic can be used, and says how many partitions it has. With `allow.auto.create.topics`, asking may
    /// create it.
    ///
    /// # Errors
    /// What was in the way last, after `timeout`.
    pub async fn await_topic(&self, name: &str, timeout: Duration) -> Result<usize, Error> {
        let name: Arc<str> = name.into();
        let wait = move |cluster: Rc<Cluster>| async move {
            let layout = cluster.await_topic(&name, Instant::now() + timeout).await?;
            Ok(layout.partitions.len())
        };
        self.ask("await_topic", wait).await
    }

    /// Creates topics.
    ///
    /// # Errors
    /// Every topic is tried; the error is that of the first one that failed.
    pub async fn create_topics(&self, topics: &[NewTopic]) -> Result<(), Error> {
        let topics = topics.to_vec();
        self.ask("create_topics", |cluster| async move { topics::create(&cluster, &topics).await }).await
    }

    /// Deletes topics with everything in them.
    ///
    /// # Errors
    /// Every topic is tried; the error is that of the first one that failed.
    pub async fn delete_topics(&self, names: &[&str]) -> Result<(), Error> {
        let names = owned(names);
        self.ask("delete_topics", |cluster| async move { topics::delete(&cluster, &names).await }).await
    }

    /// Gives a topic more partitions: `total` of them then.
    pub async fn create_partitions(&self, topic: &str, total: i32) -> Result<(), Error> {
        let topic = topic.to_owned();
        self.ask("create_partitions", move |cluster| async move {
            topics::create_partitions(&cluster, &topic, total).await
        })
        .await
    }

    /// Every setting of a topic, by name.
    pub async fn describe_topic_configs(&self, topic: &str) -> Result<Vec<ConfigEntry>, Error> {
        let topic = topic.to_owned();
        self.ask("describe_topic_configs", |cluster| async move {
            topics::describe_configs(&cluster, &topic).await
        })
        .await
    }

    /// Offsets of many partitions, asked of all their leaders at once.
    pub async fn list_offsets(
        &self,
        wanted: &[(TopicPartition, OffsetAt)],
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        let wanted = wanted.to_vec();
        self.ask("list_offsets", |cluster| async move { offsets::list(&cluster, &wanted).await }).await
    }

    /// Every group, asked of every broker, by id.
    pub async fn list_groups(&self) -> Result<Vec<GroupListing>, Error> {
        self.ask("list_groups", |cluster| async move { groups::list(&cluster).await }).await
    }

    /// These groups with their members, in the order asked for; classic ones and those of KIP-848.
    ///
    /// # Errors
    /// [`Error::Broker`] with [`ErrorCode::GroupIdNotFound`] for the first group that does not exist.
    pub async fn describe_groups(&self, groups: &[&str]) -> Result<Vec<GroupDescription>, Error> {
        let groups = owned(groups);
        self.ask("describe_groups", |cluster| async move { groups::describe(&cluster, &groups).await }).await
    }

    /// A group's committed offsets of these partitions, or of all that it has any of (`None`). Partitions without one
    /// are missing in the answer.
    pub async fn group_offsets(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        let (group, partitions) = (group.to_owned(), partitions.map(<[_]>::to_vec));
        self.ask("group_offsets", |cluster| async move {
            groups::offsets(&cluster, group, partitions.as_deref()).await
        })
        .await
    }

    /// Sets a group's committed offsets.
    ///
    /// # Errors
    /// [`Error::Broker`] with [`ErrorCode::UnknownMemberId`] while the group has members: they would overwrite them.
    pub async fn alter_group_offsets(
        &self,
        group: &str,
        offsets: &BTreeMap<TopicPartition, i64>,
    ) -> Result<(), Error> {
        let (group, offsets) = (group.to_owned(), offsets.clone());
        self.ask(
            "alter_group_offsets",
            |cluster| async move { groups::alter(&cluster, group, &offsets).await },
        )
        .await
    }

    /// Deletes groups with their offsets.
    ///
    /// # Errors
    /// Every group is tried; the error is that of the first one that failed, [`ErrorCode::NonEmptyGroup`] for one
    /// that has members.
    pub async fn delete_groups(&self, groups: &[&str]) -> Result<(), Error> {
        let groups = owned(groups);
        self.ask("delete_groups", |cluster| async move { groups::delete(&cluster, &groups).await }).await
    }

    /// Runs a call in the engine, and puts it into words for `debug=admin`.
    async fn ask<T, F, W>(&self, call: &'static str, work: W) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + 'static,
        W: FnOnce(Rc<Cluster>) -> F + Send + 'static,
    {
        let log = &self.client.produce().observer.log;
        log.debug(Context::Admin, "ADMIN", || format!("{call}: begun"));
        let result = self.client.run(work).await;
        log.debug(Context::Admin, "ADMIN", || match &result {
            Ok(_) => format!("{call}: done"),
            Err(error) => format!("{call}: {error}"),
        });
        result
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The error for `what`, unless the code is none; the broker's own words follow when it says more than the code.
fn refused(what: &str, code: ErrorCode, message: Option<&str>) -> Result<(), Error> {
    if code == ErrorCode::None {
        return Ok(());
    }
    let what = match message.map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => format!("{what}: {}", message.trim_end_matches('.')),
        None => what.to_owned(),
    };
    Err(Error::Broker { what, code })
}
