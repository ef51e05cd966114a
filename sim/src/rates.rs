//! How often clients send requests: never more often than their back-off allows, whatever a broker answers.
//!
//! A window is as long as the clients' `retry.backoff.ms`. Requests that move records may come as often as there are
//! records, and fetches that waited for records as often as they waited; all others count.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ottla_broker::{AnsweredRequest, ApiKey, RequestObserver};
use tokio::time::Instant;

use crate::net::Network;

/// The window: `retry.backoff.ms` as the clients of a run have it.
pub const WINDOW: Duration = Duration::from_millis(100);
/// The most requests of one API that one client may send to one node in a window. One dialogue sends one; a client has
/// up to four dialogues of an API at a time, one per partition or connection, and a partition that moves away and back
/// within a window is asked for twice.
pub const REQUESTS_PER_WINDOW_MAX: usize = 12;
/// The same for Produce requests. Each batch may fail once without a pause, a batch may have one record, and a producer of
/// a run makes at most about fifty records in a window.
const PRODUCE_REQUESTS_PER_WINDOW_MAX: usize = 80;
/// A fetch that took at least so long has waited for records.
const WAITED: Duration = Duration::from_millis(1);
/// More answers than this without any time passing are a livelock.
const ANSWERS_AT_ONE_INSTANT_MAX: u64 = 20_000;

/// The most requests of this API that one client may send to one node in a window.
pub fn requests_per_window_max(api: i16) -> usize {
    if api == ApiKey::Produce.code() { PRODUCE_REQUESTS_PER_WINDOW_MAX } else { REQUESTS_PER_WINDOW_MAX }
}

/// The most requests that one client sent to one node in one window.
#[derive(Clone, Debug, Default)]
pub struct Busiest {
    /// How many.
    pub requests: usize,
    /// Client, node and API, and when.
    pub what: String,
}

/// Observes every request of a run. Clones count together.
#[derive(Clone, Debug)]
pub struct Rates {
    network: Network,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    windows: BTreeMap<(String, i32, i16), VecDeque<Instant>>,
    busiest: BTreeMap<i16, Busiest>,
    totals: BTreeMap<i16, u64>,
    began: Instant,
    instant: Instant,
    answers: u64,
}

impl Rates {
    /// Nothing was sent so far. `network` is frozen when requests are answered and time stands still.
    pub fn new(network: Network) -> Self {
        let now = Instant::now();
        let state = State {
            windows: BTreeMap::new(),
            busiest: BTreeMap::new(),
            totals: BTreeMap::new(),
            began: now,
            instant: now,
            answers: 0,
        };
        Self { network, state: Arc::new(Mutex::new(state)) }
    }

    /// The busiest window of each API.
    pub fn busiest(&self) -> BTreeMap<i16, Busiest> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).busiest.clone()
    }

    /// How many requests of an API were answered that moved no records.
    pub fn total(&self, api: ApiKey) -> u64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.totals.get(&api.code()).copied().unwrap_or(0)
    }
}

impl RequestObserver for Rates {
    fn on_answered(&self, request: AnsweredRequest<'_>) {
        let AnsweredRequest { node, api, client_id, took, moved_records } = request;
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        if state.instant != now {
            (state.instant, state.answers) = (now, 0);
        }
        state.answers += 1;
        if state.answers == ANSWERS_AT_ONE_INSTANT_MAX {
            let what = format!("{api} of {client_id} to node {node}: {} answers in no time", state.answers);
            self.network.freeze(what);
        }
        if moved_records || api == ApiKey::Fetch && took >= WAITED {
            return;
        }
        *state.totals.entry(api.code()).or_default() += 1;
        let window = state.windows.entry((client_id.to_owned(), node, api.code())).or_default();
        while window.front().is_some_and(|at| *at + WINDOW <= now) {
            window.pop_front();
        }
        window.push_back(now);
        let busiest = state.busiest.entry(api.code()).or_default();
        if window.len() > busiest.requests {
            let at = now.duration_since(state.began).as_millis();
            busiest.requests = window.len();
            busiest.what = format!("{} {api} of {client_id} to node {node} before {at} ms", window.len());
        }
    }
}
