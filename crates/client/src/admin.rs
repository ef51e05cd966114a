//! The admin client: topics, groups, transactions, configurations, ACLs, quotas, credentials and the cluster.

mod acls;
mod client_quotas;
mod codes;
mod configs;
mod credentials;
mod elections;
mod features;
mod group_descriptions;
mod group_offsets;
mod groups;
mod layout;
mod leaders;
mod log_dirs;
mod offsets;
mod operation;
mod producers;
mod records;
mod share_group_offsets;
mod share_groups;
mod topics;
mod transactions;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::{ErrorCode, Uuid};

pub use self::acls::{Acl, AclFilter};
pub use self::client_quotas::{QuotaAlteration, QuotaEntity, QuotaMatch, QuotaValues};
pub use self::codes::{
    AclOperation, AclPermission, ConfigResourceType, ConfigSource, PatternType, ResourceType, ScramMechanism,
};
pub use self::configs::{ConfigChange, ConfigEntry, ConfigResource, ConfigSynonym, DescribeConfigs};
pub use self::credentials::{ScramChange, ScramCredential};
pub use self::elections::Election;
pub use self::features::{FeatureDescription, QuorumDescription, QuorumReplica};
pub use self::group_descriptions::{GroupDescription, MemberDescription};
pub use self::groups::{GroupFilter, GroupListing, GroupListings};
pub use self::layout::{
    ClusterDescription, Node, PartitionDescription, TopicDescription, TopicDescriptions, TopicListing,
};
pub use self::log_dirs::{LogDirDescription, LogDirReplica};
pub use self::offsets::{FoundOffset, OffsetAt};
pub use self::producers::{ActiveProducer, HangingTransaction};
pub use self::records::DeleteBefore;
pub use self::share_group_offsets::ShareGroupOffset;
pub use self::share_groups::{ShareGroupDescription, ShareMemberDescription};
pub use self::topics::{CreatedTopic, NewPartitions, NewTopic};
pub use self::transactions::{
    TransactionDescription, TransactionFilter, TransactionListing, TransactionListings,
};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::error::Error;
use crate::log::Context;
use crate::timer::deadline_after;
use crate::types::topic_name::check_topic_name;

/// Describes and changes a cluster's topics, groups, configurations, ACLs and credentials.
///
/// Cheap to clone. Calls run in the client's engine: dropping the future of a call does not cancel it.
///
/// Each call goes to the broker that can serve it: the controller, a partition's leader, a group's coordinator, the
/// broker that owns a configuration, or any broker. If the broker has changed, the call is retried at the new one
/// until its time limit.
///
/// Calls with [`Timeouts`] return a result per item, so that one failure hides no other result, and retry unreachable
/// brokers. The short forms fail with the first error, and at once if no broker is reachable.
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

/// The result of each item of a call, in the order of the request.
pub type KeyedResults<K, V> = Vec<(K, Result<V, Error>)>;

/// The time limits of a call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timeouts {
    /// The time limit for the result; `None` is the client's `socket.timeout.ms`, which is `request.timeout.ms` unless it is set.
    pub request: Option<Duration>,
    /// The time that the broker may wait for other brokers before it responds; `None` is nine tenths of `request`.
    /// With zero, it responds as soon as it has started the operation.
    pub operation: Option<Duration>,
}

impl Timeouts {
    /// Creates a time limit for the result.
    pub const fn within(request: Duration) -> Self {
        Self { request: Some(request), operation: None }
    }
}

/// Options of calls that create, alter or delete.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AlterOptions {
    /// The time limits.
    pub timeouts: Timeouts,
    /// `true` if the broker only validates the change.
    pub validate_only: bool,
}

/// Options of calls that describe.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DescribeOptions {
    /// The time limits.
    pub timeouts: Timeouts,
    /// `true` if the response includes the operations that the client is authorized for.
    pub authorized_operations: bool,
}

impl Client {
    /// Creates an admin that shares this client's engine thread and connections.
    pub fn admin(&self) -> Admin {
        Admin { client: self.clone() }
    }
}

impl Admin {
    /// Creates an admin with its own client and engine thread.
    pub fn new(config: Config) -> Result<Self, Error> {
        Ok(Client::new(config)?.admin())
    }

    /// Returns the client that the admin runs on.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Calls [`Client::client_instance_id`].
    ///
    /// # Errors
    /// The errors of [`Client::client_instance_id`].
    pub async fn client_instance_id(&self, timeout: Duration) -> Result<Uuid, Error> {
        self.client.client_instance_id(timeout).await
    }

    /// Waits until a topic is usable and returns its number of partitions. With `allow.auto.create.topics`, the
    /// request may create the topic.
    ///
    /// # Errors
    /// The last error, once `timeout` has elapsed.
    pub async fn await_topic(&self, name: &str, timeout: Duration) -> Result<usize, Error> {
        check_topic_name(name)?;
        let name: Arc<str> = name.into();
        let wait = move |cluster: Rc<Cluster>| async move {
            let layout = cluster.await_topic(&name, deadline_after(timeout)).await?;
            Ok(layout.partitions.len())
        };
        self.ask("await_topic", wait).await
    }

    /// Runs a call in the engine and logs it for `debug=admin`.
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

/// The error for `what`, unless the code is `None`, with the broker's message if it has one.
fn refused(what: &str, code: ErrorCode, message: Option<&str>) -> Result<(), Error> {
    if code == ErrorCode::None {
        return Ok(());
    }
    let what = what.to_owned();
    match message.filter(|message| !message.trim().is_empty()) {
        Some(message) => Err(Error::Refused { what, code, message: message.to_owned() }),
        None => Err(Error::Broker { what, code }),
    }
}

/// Converts errors for the short forms: the broker's message follows the subject of the request.
fn plain(error: Error) -> Error {
    match error {
        // For an existing topic, the broker's message only repeats the error code.
        Error::Refused { what, code: code @ ErrorCode::TopicAlreadyExists, .. } => {
            Error::Broker { what, code }
        }
        Error::Refused { what, code, message } => {
            Error::Broker { what: format!("{what}: {}", message.trim().trim_end_matches('.')), code }
        }
        other => other,
    }
}

/// The first error among the results, if any.
fn first_error<K, V>(answers: KeyedResults<K, V>) -> Result<(), Error> {
    answers.into_iter().try_for_each(|(_, answer)| answer.map(|_| ()).map_err(plain))
}

/// Returns the answers in the order of the request. A repeated key gets its answer again, and a key that the broker's response lacks
/// an error.
fn in_order<K: Display + Ord, V: Clone>(
    asked: impl IntoIterator<Item = K>,
    mut answers: BTreeMap<K, Result<V, Error>>,
    what: &str,
) -> KeyedResults<K, V> {
    let mut ordered: KeyedResults<K, V> = Vec::new();
    for key in asked {
        let earlier = || ordered.iter().find(|(other, _)| *other == key).map(|(_, answer)| answer.clone());
        let answer = answers.remove(&key).or_else(earlier).unwrap_or_else(|| Err(left_out(what, &key)));
        ordered.push((key, answer));
    }
    ordered
}

/// The error for a key that the broker's response lacks.
fn left_out(what: &str, key: &impl Display) -> Error {
    let what = format!("{what} {key}: left out of the broker's answer");
    Error::Broker { what, code: ErrorCode::UnknownServerError }
}
