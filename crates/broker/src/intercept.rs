//! Faults for tests: they fail, delay, cut or swallow requests that match a rule.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};

/// The fault of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The request has no effect, and every part of the response has this error.
    Fail(ErrorCode),
    /// The same, after this time.
    FailAfter(ErrorCode, Duration),
    /// The request is handled after this time.
    Delay(Duration),
    /// The request is handled at once, and its response is sent after this time.
    AnswerAfter(Duration),
    /// The request has no effect, and its connection is closed.
    Cut,
    /// The request is handled, but its connection is closed instead of a response.
    CutAfter,
    /// The request is handled, and its connection is closed after this many bytes of the response's frame, or after the
    /// whole response if it is shorter.
    CutAt(usize),
    /// The request has no effect and gets no response. The connection stays open, and its later requests wait.
    Hang,
    /// The request is handled and gets no response. The connection stays open, and its later requests wait.
    HangAfter,
}

/// A fault, and the requests that have it: those of an API which match every filter.
///
/// ```
/// use ottla_broker::{ApiKey, ErrorCode, Fault, FaultRule};
///
/// let rule = FaultRule::new(ApiKey::Produce, Fault::Fail(ErrorCode::NotEnoughReplicas)).topic("orders").times(3);
/// assert_eq!(rule.count, 3);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FaultRule {
    /// The API.
    pub api: ApiKey,
    /// The fault.
    pub fault: Fault,
    /// Only requests to this node.
    pub node: Option<i32>,
    /// Only requests with this `client.id`.
    pub client_id: Option<String>,
    /// Only requests that name this topic, by name or by id; a Fetch request of a session names the topics of the session.
    pub topic: Option<String>,
    /// The number of requests that still have the fault.
    pub count: u32,
}

impl FaultRule {
    /// A fault of the next request of `api`, from any client to any node.
    pub fn new(api: ApiKey, fault: Fault) -> Self {
        Self { api, fault, node: None, client_id: None, topic: None, count: 1 }
    }

    /// Limits the rule to requests to `node`.
    #[must_use]
    pub fn node(mut self, node: i32) -> Self {
        self.node = Some(node);
        self
    }

    /// Limits the rule to requests of the client with this `client.id`.
    #[must_use]
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = Some(client_id.into());
        self
    }

    /// Limits the rule to requests that name this topic.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Sets the number of requests that have the fault; [`u32::MAX`] is every request.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.count = count;
        self
    }

    fn matches(&self, request: &Intercepted<'_>) -> bool {
        self.api == request.api
            && self.node.is_none_or(|node| node == request.node)
            && self.client_id.as_ref().is_none_or(|client_id| client_id == request.client_id)
            && self.topic.as_ref().is_none_or(|topic| (request.names_topic)(topic))
    }
}

/// The reason why a rule is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultRuleError {
    /// Rules for the API take no topic.
    #[error("a rule for {0} takes no topic: remove it; rules for these APIs do: {filtered}", filtered = names_of_filtered())]
    NoTopics(ApiKey),
    /// The broker does not answer the API.
    #[error("the broker does not answer {0}")]
    NotAnswered(ApiKey),
    /// The rule is for no request.
    #[error("a rule for 0 requests has no effect: the count is at least 1")]
    NoRequests,
}

fn names_of_filtered() -> String {
    FILTERED_BY_TOPIC.iter().map(|api| api.name()).collect::<Vec<_>>().join(", ")
}

/// The APIs whose rules may have a topic.
pub(crate) const FILTERED_BY_TOPIC: &[ApiKey] = &[
    ApiKey::AddPartitionsToTxn,
    ApiKey::CreatePartitions,
    ApiKey::CreateTopics,
    ApiKey::DeleteRecords,
    ApiKey::DeleteTopics,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::OffsetCommit,
    ApiKey::OffsetDelete,
    ApiKey::OffsetFetch,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::Produce,
    ApiKey::TxnOffsetCommit,
];

/// A request that may have a fault.
pub(crate) struct Intercepted<'a> {
    pub(crate) api: ApiKey,
    pub(crate) node: i32,
    pub(crate) client_id: &'a str,
    /// Returns `true` if the request names a topic.
    pub(crate) names_topic: &'a dyn Fn(&str) -> bool,
}

/// The rules, and the counts of requests.
#[derive(Debug, Default)]
pub(crate) struct Intercepts {
    /// `true` if there is a rule. Requests do not take the lock otherwise.
    any: AtomicBool,
    rules: Mutex<Rules>,
    /// Number of requests by API key.
    requests: Mutex<BTreeMap<i16, u64>>,
    counting: AtomicBool,
}

#[derive(Debug, Default)]
struct Rules {
    last_id: u64,
    by_id: BTreeMap<u64, FaultRule>,
}

impl Intercepts {
    fn lock(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule and returns its id.
    pub(crate) fn add(&self, rule: FaultRule) -> u64 {
        let mut rules = self.lock();
        rules.last_id += 1;
        let id = rules.last_id;
        if rule.count > 0 {
            rules.by_id.insert(id, rule);
            self.any.store(true, Ordering::Release);
        }
        id
    }

    /// Returns the fault for a request, if there is one: of the oldest rule for its node, or else of the oldest for any node.
    pub(crate) fn take(&self, request: &Intercepted<'_>) -> Option<Fault> {
        if self.counting.load(Ordering::Relaxed) {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            *requests.entry(request.api.code()).or_default() += 1;
        }
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut rules = self.lock();
        let find = |of_node: bool| {
            let mut rules = rules.by_id.iter();
            rules.find(|(_, rule)| rule.node.is_some() == of_node && rule.matches(request))
        };
        let id = find(true).or_else(|| find(false)).map(|(id, _)| *id)?;
        let rule = rules.by_id.get_mut(&id)?;
        let fault = rule.fault;
        if rule.count < u32::MAX {
            rule.count -= 1;
        }
        if rule.count == 0 {
            self.retain(&mut rules, |other, _| other != id);
        }
        Some(fault)
    }

    fn retain(&self, rules: &mut Rules, mut stays: impl FnMut(u64, &FaultRule) -> bool) {
        rules.by_id.retain(|id, rule| stays(*id, rule));
        self.any.store(!rules.by_id.is_empty(), Ordering::Release);
    }

    /// Returns the number of requests of `api` since the first call, which returns 0 and starts the count.
    pub(crate) fn requests(&self, api: ApiKey) -> u64 {
        self.counting.store(true, Ordering::Relaxed);
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.get(&api.code()).copied().unwrap_or(0)
    }

    /// Returns the counts of all APIs since the first call of this function or of [`Self::requests`].
    pub(crate) fn request_counts(&self) -> Vec<(ApiKey, u64)> {
        self.counting.store(true, Ordering::Relaxed);
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.iter().map(|(code, count)| (ApiKey::from_i16(*code), *count)).collect()
    }

    /// Continues the counts and the ids of a cluster that this one replaces. That cluster receives no more requests.
    pub(crate) fn continue_counts(&self, before: &Self) {
        // An id of before the restore must not be that of another rule.
        let last_id = before.lock().last_id;
        self.lock().last_id = last_id;
        let counted = before.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner) = counted;
        self.counting.store(before.counting.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Removes every rule, or those of one API.
    pub(crate) fn clear(&self, api: Option<ApiKey>) {
        self.retain(&mut self.lock(), |_, rule| api.is_some_and(|api| rule.api != api));
    }

    /// Removes the rules for requests to one node.
    pub(crate) fn clear_node(&self, node: i32) {
        self.retain(&mut self.lock(), |_, rule| rule.node != Some(node));
    }

    /// Removes one rule. Returns `false` if there is none with this id.
    pub(crate) fn remove(&self, id: u64) -> bool {
        let mut rules = self.lock();
        let there = rules.by_id.contains_key(&id);
        self.retain(&mut rules, |other, _| other != id);
        there
    }

    /// Returns the rules that still have requests to come, oldest first.
    pub(crate) fn all(&self) -> Vec<(u64, FaultRule)> {
        self.lock().by_id.iter().map(|(id, rule)| (*id, rule.clone())).collect()
    }

    /// Returns the number of pending faults for requests of `api` at `node`, without those for any node.
    pub(crate) fn left(&self, api: ApiKey, node: i32) -> usize {
        let rules = self.lock();
        let own = rules.by_id.values().filter(|rule| rule.api == api && rule.node == Some(node));
        own.map(|rule| rule.count as usize).sum()
    }
}
