//! Request rates: clients never send faster than their backoff allows, whatever a broker answers.
//!
//! The window is the clients' `retry.backoff.ms`. Requests that move records may be as frequent as records, and
//! fetches as frequent as their waits. All others count.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ottla_broker::{AnsweredRequest, ApiKey, RequestObserver};
use ottla_testkit::Network;
use tokio::time::Instant;

use crate::options::Options;

/// The window: the clients' `retry.backoff.ms`.
pub const WINDOW: Duration = Duration::from_millis(100);
/// Maximum number of requests of one API from one client to one node in a window. One dialogue sends one. A client
/// has up to four concurrent dialogues of an API, one per partition or connection. A partition that moves away and
/// back within a window is requested twice.
pub const REQUESTS_PER_WINDOW_MAX: usize = 12;
/// Maximum number of Produce requests. Each batch may fail once without a pause, a batch may contain a single record,
/// and a producer creates at most about fifty records in a window, or as many times more as `Options::density` says.
const PRODUCE_REQUESTS_PER_WINDOW_MAX: usize = 80;
/// Maximum number of ShareAcknowledge requests. A member acknowledges each few records that it has handled, and a backlog has many: seeds
/// 1,001,786 and 1,002,764 have 13 and 19, also without any fault.
const ACKNOWLEDGEMENTS_PER_WINDOW_MAX: usize = 80;
/// A fetch that took at least this long has waited for records.
const WAITED: Duration = Duration::from_millis(1);
/// More answers than this at one instant are a livelock.
const ANSWERS_AT_ONE_INSTANT_MAX: u64 = 20_000;

/// Maximum number of requests of this API from one client to one node in a window.
pub(crate) fn requests_per_window_max(options: &Options, api: i16) -> usize {
    let density = usize::try_from(options.density).unwrap_or(1).max(1);
    match ApiKey::from_i16(api) {
        ApiKey::Produce => PRODUCE_REQUESTS_PER_WINDOW_MAX * density,
        ApiKey::ShareFetch => REQUESTS_PER_WINDOW_MAX * density,
        ApiKey::ShareAcknowledge => ACKNOWLEDGEMENTS_PER_WINDOW_MAX * density,
        _ => REQUESTS_PER_WINDOW_MAX,
    }
}

/// The busiest window of a client and a node.
#[derive(Clone, Debug, Default)]
pub struct BusiestWindow {
    /// The number of requests.
    pub requests: usize,
    /// Client, node, API and time.
    pub what: String,
}

/// Observes every request of a run. Clones share their counts.
#[derive(Clone, Debug)]
pub struct Rates {
    network: Network,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    windows: BTreeMap<(String, i32, i16), VecDeque<Instant>>,
    busiest: BTreeMap<i16, BusiestWindow>,
    totals: BTreeMap<i16, u64>,
    began: Instant,
    instant: Instant,
    answers: u64,
}

impl Rates {
    /// Starts without requests. Stops `network` if requests are answered while the clock does not advance.
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
    pub fn busiest(&self) -> BTreeMap<i16, BusiestWindow> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).busiest.clone()
    }

    /// The number of answered requests of an API that moved no records.
    pub fn total(&self, api: ApiKey) -> u64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.totals.get(&api.code()).copied().unwrap_or(0)
    }
}

impl RequestObserver for Rates {
    fn on_answered(&self, request: AnsweredRequest<'_>) {
        let AnsweredRequest { node, api, client_id, took, moved_records, .. } = request;
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
        let is_fetch = matches!(api, ApiKey::Fetch | ApiKey::ShareFetch);
        if moved_records || is_fetch && took >= WAITED {
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
