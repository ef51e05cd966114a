//! A target assignment of the KIP-848 protocol that is not applied yet: it has topic ids, whose names may have to be looked up.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::Uuid;
use ottla_protocol::messages::consumer_group_heartbeat::TopicPartitions;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::cluster::topic_names::NamedTopics;
use crate::error::Error;

/// The time that partitions of topics with known names wait for the names of others. Most lookups take less, and the application gets
/// the assignment as a whole.
const WAIT_FOR_OTHERS: Duration = Duration::from_millis(100);

type Lookup = Pin<Box<dyn Future<Output = Result<NamedTopics, Error>>>>;

/// A target assignment that is not applied, or only the part of it whose topics are known by name.
pub(super) struct UnappliedTarget {
    pub(super) target: Vec<TopicPartitions>,
    /// The coordinator knows what this member owns of it.
    pub(super) is_acknowledged: bool,
    /// The number of failed attempts.
    attempts: u32,
    /// The lookup of the names that are not known. It is no part of the member's loop: a member that is fenced meanwhile must not
    /// wait for another broker.
    lookup: Lookup,
    /// The time at which the partitions of topics with known names are taken without the others; `None` once they are.
    take_known_at: Option<Instant>,
}

/// The names of a target's topics.
pub(super) struct TargetNames {
    pub(super) names: BTreeMap<Uuid, Arc<str>>,
    pub(super) missing: Missing,
}

/// The names that [`TargetNames`] lacks.
pub(super) enum Missing {
    None,
    /// They are still looked up.
    InLookup,
    /// Their lookup has failed.
    Failed(Error),
}

impl UnappliedTarget {
    pub(super) fn new(cluster: &Rc<Cluster>, target: Vec<TopicPartitions>) -> Self {
        Self::after(cluster, target, Duration::ZERO)
    }

    /// Looks the names up after a pause.
    fn after(cluster: &Rc<Cluster>, target: Vec<TopicPartitions>, pause: Duration) -> Self {
        let (cluster, ids) = (cluster.clone(), ids_of(&target));
        let lookup = Box::pin(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            cluster.names_of_ids(&ids).await
        });
        let take_known_at = Some(Instant::now() + pause + WAIT_FOR_OTHERS);
        Self { target, is_acknowledged: false, attempts: 0, lookup, take_known_at }
    }

    /// The same target, which is applied again after a pause.
    pub(super) fn again(self, cluster: &Rc<Cluster>) -> Self {
        let Self { target, is_acknowledged, attempts, .. } = self;
        let again = Self::after(cluster, target, cluster.backoff(attempts));
        Self { is_acknowledged, attempts: attempts.saturating_add(1), ..again }
    }

    /// Waits until all names are known, or the lookup of some fails, or the known ones have waited long enough. It may be dropped and
    /// called again; after the end of the lookup, [`Self::again`] begins another one.
    ///
    /// # Errors
    /// The error of the lookup, if no other attempt can succeed.
    pub(super) async fn names(&mut self, cluster: &Cluster) -> Result<TargetNames, Error> {
        let take_known_at = self.take_known_at;
        let pause = async {
            match take_known_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let known = || cluster.known_names(&ids_of(&self.target)).names;
        tokio::select! {
            biased;
            found = &mut self.lookup => match found {
                Ok(found) => {
                    let missing = found.error().map_or(Missing::None, Missing::Failed);
                    Ok(TargetNames { names: found.names, missing })
                }
                Err(error) if error.may_pass() => {
                    Ok(TargetNames { names: known(), missing: Missing::Failed(error) })
                }
                Err(error) => Err(error),
            },
            () = pause => {
                self.take_known_at = None;
                Ok(TargetNames { names: known(), missing: Missing::InLookup })
            }
        }
    }
}

fn ids_of(target: &[TopicPartitions]) -> BTreeSet<Uuid> {
    target.iter().map(|topic| topic.topic_id).collect()
}
