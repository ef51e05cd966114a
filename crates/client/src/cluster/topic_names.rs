//! The names of topics that coordinators identify by their ids.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use ottla_protocol::{ErrorCode, Uuid};

use super::{Cluster, METADATA_VERSION_MAX};
use crate::error::Error;

/// The result of a lookup of names.
#[derive(Debug)]
pub(crate) struct NamedTopics {
    pub(crate) names: BTreeMap<Uuid, Arc<str>>,
    /// The ids that the brokers do not know: the topics may be new, deleted, or hidden from this client.
    pub(crate) unknown: BTreeSet<Uuid>,
}

impl NamedTopics {
    /// The error of the first unknown id.
    pub(crate) fn error(&self) -> Option<Error> {
        let id = self.unknown.first()?;
        Some(Error::Broker { what: format!("topic with id {id}"), code: ErrorCode::UnknownTopicId })
    }
}

impl Cluster {
    /// The names of the topics with these ids; unknown ones are looked up.
    ///
    /// # Errors
    /// The error of the lookup.
    pub(crate) async fn names_of_ids(&self, ids: &BTreeSet<Uuid>) -> Result<NamedTopics, Error> {
        let unknown: Vec<Uuid> =
            ids.iter().copied().filter(|id| self.topic_named_by(*id).is_none()).collect();
        if !unknown.is_empty() {
            let described = self.describe_ids(&unknown).await?;
            self.layout.borrow_mut().accept_ids(&described);
            self.apply(described, true);
        }
        Ok(self.known_names(ids))
    }

    /// The names of the topics with these ids that are known without a lookup.
    pub(crate) fn known_names(&self, ids: &BTreeSet<Uuid>) -> NamedTopics {
        let mut named = NamedTopics { names: BTreeMap::new(), unknown: BTreeSet::new() };
        for id in ids.iter().copied() {
            if let Some(name) = self.topic_named_by(id) {
                named.names.insert(id, name);
            } else {
                named.unknown.insert(id);
            }
        }
        named
    }

    /// Requests the metadata of the topics with these ids.
    async fn describe_ids(&self, ids: &[Uuid]) -> Result<MetadataResponse, Error> {
        let topic = |id: &Uuid| MetadataRequestTopic { topic_id: *id, name: None };
        let request = |_version: i16| MetadataRequest {
            topics: Some(ids.iter().map(topic).collect()),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        self.call_any(METADATA_VERSION_MAX, request).await
    }

    /// The name of the topic with this id, if known.
    fn topic_named_by(&self, id: Uuid) -> Option<Arc<str>> {
        let layout = self.layout.borrow();
        layout.topics.iter().find(|(_, topic)| topic.id == id).map(|(name, _)| name.clone())
    }
}
