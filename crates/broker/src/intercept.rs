//! Faults for tests: they fail, delay or disconnect the next requests of an API.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};

/// The fault of an intercepted request.
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
}

#[derive(Debug)]
struct Rule {
    api: ApiKey,
    node: Option<i32>,
    left: u32,
    fault: Fault,
}

/// The pending faults.
#[derive(Debug, Default)]
pub(crate) struct Intercepts {
    rules: Mutex<Vec<Rule>>,
    /// Number of requests by API key.
    requests: Mutex<BTreeMap<i16, u64>>,
    counting: AtomicBool,
}

impl Intercepts {
    /// Adds a fault for the next `count` requests of `api`, at one node or at any.
    pub(crate) fn add(&self, api: ApiKey, node: Option<i32>, count: u32, fault: Fault) {
        if count > 0 {
            self.rules.lock().unwrap_or_else(PoisonError::into_inner).push(Rule {
                api,
                node,
                left: count,
                fault,
            });
        }
    }

    /// Returns the fault for a request, if there is one: the oldest for this node, or else the oldest for any node.
    pub(crate) fn take(&self, api: ApiKey, node: i32) -> Option<Fault> {
        if self.counting.load(Ordering::Relaxed) {
            *self.requests.lock().unwrap_or_else(PoisonError::into_inner).entry(api.code()).or_default() += 1;
        }
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let at = |wanted| rules.iter().position(|rule| rule.api == api && rule.node == wanted);
        let at = at(Some(node)).or_else(|| at(None))?;
        let rule = &mut rules[at];
        rule.left -= 1;
        let fault = rule.fault;
        if rule.left == 0 {
            rules.remove(at);
        }
        Some(fault)
    }

    /// Returns the number of requests of `api` since the first call, which returns 0 and starts the count.
    pub(crate) fn requests(&self, api: ApiKey) -> u64 {
        self.counting.store(true, Ordering::Relaxed);
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.get(&api.code()).copied().unwrap_or(0)
    }

    /// Removes every fault, or those of one API.
    pub(crate) fn clear(&self, api: Option<ApiKey>) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.retain(|rule| api.is_some_and(|api| rule.api != api));
    }

    /// Returns the number of pending faults for requests of `api` at `node`, without those for any node.
    pub(crate) fn left(&self, api: ApiKey, node: i32) -> usize {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let own = rules.iter().filter(|rule| rule.api == api && rule.node == Some(node));
        own.map(|rule| rule.left as usize).sum()
    }
}
