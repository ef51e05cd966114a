//! Topics, groups, settings and rights, seen from above.

mod acls;
mod codes;
mod configs;
mod credentials;
mod elections;
mod group_descriptions;
mod group_offsets;
mod groups;
mod layout;
mod leaders;
mod offsets;
mod operation;
mod records;
mod topics;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

pub use self::acls::{Acl, AclFilter};
pub use self::codes::{
    AclOperation, AclPermission, ConfigResourceType, ConfigSource, PatternType, ResourceType, ScramMechanism,
};
pub use self::configs::{ConfigChange, ConfigEntry, ConfigResource, ConfigSynonym, DescribeConfigs};
pub use self::credentials::{ScramChange, ScramCredential};
pub use self::elections::Election;
pub use self::group_descriptions::{GroupDescription, MemberDescription};
pub use self::groups::{GroupFilter, GroupListing, GroupListings};
pub use self::layout::{
    ClusterDescription, Node, PartitionDescription, TopicDescription, TopicDescriptions, TopicListing,
};
pub use self::offsets::{FoundOffset, OffsetAt};
pub use self::records::DeleteBefore;
pub use self::topics::{CreatedTopic, NewPartitions, NewTopic};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::error::Error;
use crate::log::Context;
use crate::topic_name::check_topic_name;

/// Looks at and changes a cluster's topics, groups, settings, rights and credentials.
///
/// Cheap to clone. Calls run in the client's engine: dropping their future lets what was asked run on.
///
/// Each call goes to the broker that can answer it: the controller, a partition's leader, a group's coordinator, the
/// broker that a setting is of, or any. When that turns out to be another one, it is asked instead, until the call's time
/// is over. Calls with [`Timeouts`] answer per item, so that one that fails hides no other, and wait for brokers that
/// cannot be reached; the short forms fail with the first error, and at once when nobody can be reached.
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

/// What became of each of several things, in the order in which they were named.
pub type Each<K, V> = Vec<(K, Result<V, Error>)>;

/// How long a call may take.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timeouts {
    /// Until there must be a result; `None` is the client's `request.timeout.ms`.
    pub request: Option<Duration>,
    /// How long the broker may take, where it waits for others before it answers; `None` is nine tenths of `request`. With
    /// zero it answers as soon as it has begun.
    pub operation: Option<Duration>,
}

impl Timeouts {
    /// A result within this time.
    pub const fn within(request: Duration) -> Self {
        Self { request: Some(request), operation: None }
    }
}

/// How a change is made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Change {
    /// How long it may take.
    pub timeouts: Timeouts,
    /// Whether it is only checked, and not made.
    pub validate_only: bool,
}

/// How a thing is described.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Describe {
    /// How long it may take.
    pub timeouts: Timeouts,
    /// Whether the answer tells what we may do with it.
    pub authorized_operations: bool,
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

    /// Waits until a topic can be used, and says how many partitions it has. With `allow.auto.create.topics`, asking may
    /// create it.
    ///
    /// # Errors
    /// What was in the way last, after `timeout`.
    pub async fn await_topic(&self, name: &str, timeout: Duration) -> Result<usize, Error> {
        check_topic_name(name)?;
        let name: Arc<str> = name.into();
        let wait = move |cluster: Rc<Cluster>| async move {
            let layout = cluster.await_topic(&name, Instant::now() + timeout).await?;
            Ok(layout.partitions.len())
        };
        self.ask("await_topic", wait).await
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

/// The error for `what`, unless the code is none, with the broker's own words when it says more than the code.
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

/// For the short forms, whose broker's errors are of one kind: its words follow what was asked for.
fn plain(error: Error) -> Error {
    match error {
        // What the broker says of a topic that exists is what the code says.
        Error::Refused { what, code: code @ ErrorCode::TopicAlreadyExists, .. } => {
            Error::Broker { what, code }
        }
        Error::Refused { what, code, message } => {
            Error::Broker { what: format!("{what}: {}", message.trim().trim_end_matches('.')), code }
        }
        other => other,
    }
}

/// The first error among answers, if there is one.
fn first_error<K, V>(answers: Each<K, V>) -> Result<(), Error> {
    answers.into_iter().try_for_each(|(_, answer)| answer.map(|_| ()).map_err(plain))
}

/// Answers in the order of the questions. What was left out of a broker's answer says so.
fn in_order<K: Display + Ord, V>(
    asked: impl IntoIterator<Item = K>,
    mut answers: BTreeMap<K, Result<V, Error>>,
    what: &str,
) -> Each<K, V> {
    let answer = |key: K| {
        let answer = answers.remove(&key).unwrap_or_else(|| {
            let what = format!("{what} {key}: left out of the broker's answer");
            Err(Error::Broker { what, code: ErrorCode::UnknownServerError })
        });
        (key, answer)
    };
    asked.into_iter().map(answer).collect()
}
