//! Faults on request: fail, delay or cut the next requests of an API.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};

/// What happens to an intercepted request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// It is not carried out; every part of the answer carries this error.
    Fail(ErrorCode),
    /// The same, after this time.
    FailAfter(ErrorCode, Duration),
    /// It is carried out after this time.
    Delay(Duration),
    /// It is not carried out and its connection is closed.
    Cut,
    /// It is carried out and its connection is closed instead of an answer.
    CutAfter,
}

#[derive(Debug)]
struct Rule {
    api: ApiKey,
    node: Option<i32>,
    left: u32,
    fault: Fault,
}

/// The faults that wait for their requests.
#[derive(Debug, Default)]
pub(crate) struct Intercepts {
    rules: Mutex<Vec<Rule>>,
    /// Requests that came, by the API's number.
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

    /// The fault for a request, if one waits for it: one for this node before one for any, the oldest first.
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

    /// Requests of `api` since the first call of this function; the first one gives 0 and begins to count.
    pub(crate) fn requests(&self, api: ApiKey) -> u64 {
        self.counting.store(true, Ordering::Relaxed);
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.get(&api.code()).copied().unwrap_or(0)
    }

    /// Forgets every fault, or those of one API.
    pub(crate) fn clear(&self, api: Option<ApiKey>) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.retain(|rule| api.is_some_and(|api| rule.api != api));
    }

    /// How many faults wait for requests of `api` at `node`, those for any node left out.
    pub(crate) fn left(&self, api: ApiKey, node: i32) -> usize {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let own = rules.iter().filter(|rule| rule.api == api && rule.node == Some(node));
        own.map(|rule| rule.left as usize).sum()
    }
}
