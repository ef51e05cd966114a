//! Requests for topics and their records.

use ottla_protocol::messages as m;
use ottla_protocol::messages::delete_topics::DeleteTopicState;
use ottla_protocol::{ErrorCode, Uuid};

use super::super::repeats::repeated;
use super::super::topics::Deleted;
use super::super::{Api, produce};
use super::{Access, Authorize, Verdict, items, open, take_denied};
use crate::security::acl::Operation;

open! {
    // Each topic of the session, or of the request.
    m::fetch::FetchRequest,
    // Each topic; a list of all is filtered.
    m::describe_topic_partitions::DescribeTopicPartitionsRequest,
}

items!(
    m::list_offsets::ListOffsetsRequest,
    topics to topics,
    |access, topic| access.topic(Operation::Describe, &topic.name),
    ErrorCode::TopicAuthorizationFailed
);
// Replicas ask, and consumers.
items!(
    m::offset_for_leader_epoch::OffsetForLeaderEpochRequest,
    topics to topics,
    |access, topic| access.may_on_all_topics(Operation::ClusterAction)
        || access.topic(Operation::Describe, &topic.topic),
    ErrorCode::TopicAuthorizationFailed
);
items!(
    m::delete_records::DeleteRecordsRequest,
    topics to topics,
    |access, topic| access.topic(Operation::Delete, &topic.name),
    ErrorCode::TopicAuthorizationFailed
);
items!(
    m::describe_producers::DescribeProducersRequest,
    topics to topics,
    |access, topic| access.topic(Operation::Read, &topic.name),
    ErrorCode::TopicAuthorizationFailed
);
/// Requests that change each of their topics, which `$may` allows. The response has the results in the list `$results`.
macro_rules! of_changed_topics {
    ($request:ty, $results:ident, |$access:ident, $name:ident| $may:expr) => {
        impl Authorize for $request {
            fn authorize(&mut self, $access: &Access<'_>) -> Verdict<Self> {
                let repeated = repeated(self.topics.iter().map(|topic| topic.name.clone()));
                let may = |$name: &str| repeated.contains($name) || $may;
                let denied = take_denied(&mut self.topics, |topic| may(&topic.name));
                if denied.is_empty() {
                    return Verdict::Granted;
                }
                let denied = Self { topics: denied, ..Default::default() };
                Verdict::Partly(denied.refuse($access.context, ErrorCode::TopicAuthorizationFailed))
            }

            fn merge(response: &mut Self::Response, denied: Self::Response) {
                response.$results.extend(denied.$results);
            }
        }
    };
}

of_changed_topics!(m::create_partitions::CreatePartitionsRequest, results, |access, name| access
    .topic(Operation::Alter, name));
of_changed_topics!(m::create_topics::CreateTopicsRequest, topics, |access, name| access.may_create(name));

items!(
    m::produce::ProduceRequest,
    |access, request| match &request.transactional_id {
        Some(id) => access.need_transactional_id(Operation::Write, id),
        None => Ok(()),
    },
    topic_data to responses,
    |access, topic| access.topic_or_id(Operation::Write, &topic.name, topic.topic_id, produce::TOPIC_IDS_FROM),
    ErrorCode::TopicAuthorizationFailed
);

impl Authorize for m::metadata::MetadataRequest {
    fn authorize(&mut self, access: &Access<'_>) -> Verdict<Self> {
        let cluster = access.context.cluster();
        let creates = self.allow_auto_topic_creation && cluster.config.auto_create_topics;
        // A list of all topics is filtered.
        let Some(topics) = &mut self.topics else { return Verdict::Granted };
        let denied = take_denied(topics, |topic| {
            let name = topic.name.as_deref().unwrap_or_default();
            let Some(name) = access.topic_name(name, topic.topic_id) else { return true };
            access.topic(Operation::Describe, &name)
                && (!creates || cluster.topic(&name).is_some() || access.may_create(&name))
        });
        if denied.is_empty() {
            return Verdict::Granted;
        }
        let code = ErrorCode::TopicAuthorizationFailed;
        if access.context.version == 0 && topics.is_empty() {
            // Without a name, version 0 lists all topics.
            self.topics = Some(denied);
            return Verdict::Refused(code);
        }
        let denied = Self { topics: Some(denied), ..Default::default() };
        Verdict::Partly(denied.refuse(access.context, code))
    }

    fn merge(response: &mut Self::Response, denied: Self::Response) {
        response.topics.extend(denied.topics);
    }
}

impl Authorize for m::delete_topics::DeleteTopicsRequest {
    fn authorize(&mut self, access: &Access<'_>) -> Verdict<Self> {
        // As in Kafka, the request is refused for all topics before the rights of the client count.
        if !access.context.cluster().config.delete_topics {
            return Verdict::Granted;
        }
        // As in Kafka, such a client need not be allowed to describe the topics.
        if access.may_on_all_topics(Operation::Delete) {
            return Verdict::Granted;
        }
        let named = std::mem::take(&mut self.topic_names).into_iter();
        self.topics.extend(named.map(|name| DeleteTopicState { name: Some(name), ..Default::default() }));
        let cluster = access.context.cluster();
        let repeated = repeated(self.topics.iter().map(|topic| (topic.name.clone(), topic.topic_id)));
        let is_repeated = |topic: &DeleteTopicState| repeated.contains(&(topic.name.clone(), topic.topic_id));
        let mut denied = take_denied(&mut self.topics, |topic| match Deleted::of(topic) {
            _ if is_repeated(topic) => true,
            // A client that may see topics learns that there is no such topic.
            Some(Deleted::Named(name)) => {
                access.topic(Operation::Describe, name)
                    && (cluster.topic(name).is_none() || access.topic(Operation::Delete, name))
            }
            Some(Deleted::WithId(id)) => {
                let name = access.topic_name("", id);
                name.is_none_or(|name| access.topic(Operation::Delete, &name))
            }
            // It is refused without a look at the topics.
            None => true,
        });
        if denied.is_empty() {
            return Verdict::Granted;
        }
        // The name of a topic that was named by its id is for those who may see it.
        for topic in denied.iter_mut().filter(|topic| topic.topic_id != Uuid::ZERO) {
            let name = access.topic_name("", topic.topic_id);
            topic.name = name.filter(|name| access.context.may_see_topic(name)).map(|name| name.to_string());
        }
        let denied = Self { topics: denied, ..Default::default() };
        Verdict::Partly(denied.refuse(access.context, ErrorCode::TopicAuthorizationFailed))
    }

    fn merge(response: &mut Self::Response, denied: Self::Response) {
        response.responses.extend(denied.responses);
    }
}
