//! Limited places for connections that hold something before they have earned it. Above the limit, the oldest one ends, so that those
//! that only wait keep no honest client out.
//!
//! Two kinds of connections need one: those that have not authenticated yet, and those over TLS whose decrypted requests wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Connections of one listener that may be unauthenticated at a time.
pub(crate) const UNAUTHENTICATED_MAX: usize = 1_000;
/// The bytes of requests that have arrived in part on all of them. A login has less than a kilobyte, a token some.
const BYTES_MAX: usize = 16 << 20;
/// The bytes that each of them may have at any time: the largest of the others ends first. So large requests keep no honest client out.
const SHARE_BYTES: usize = 8 << 10;

/// The places of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    max: usize,
    next: u64,
    /// In the order of arrival.
    waiting: BTreeMap<u64, Waiting>,
    /// Those of all that wait.
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    evicted: Arc<Notify>,
    bytes: usize,
}

impl State {
    /// Ends a connection. Its bytes do not count any more.
    fn evict(&mut self, id: u64) {
        if let Some(waiting) = self.waiting.remove(&id) {
            self.bytes -= waiting.bytes;
            waiting.evicted.notify_one();
        }
    }
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    all: Places,
    id: u64,
    evicted: Arc<Notify>,
}

impl Places {
    pub(crate) fn new(max: usize) -> Self {
        Self { state: Arc::new(Mutex::new(State { max, ..State::default() })) }
    }

    /// Lowers the number of places: the process may have few open files.
    pub(crate) fn limit_to(&self, max: usize) {
        let mut places = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        places.max = places.max.min(max);
    }

    /// The places of the connections of a listener that are not authenticated.
    pub(crate) fn unauthenticated() -> Self {
        Self::new(UNAUTHENTICATED_MAX)
    }

    /// Adds a connection. The oldest one ends if there are too many.
    pub(crate) fn enter(&self) -> Place {
        let mut places = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let id = places.next;
        places.next += 1;
        let evicted = Arc::new(Notify::new());
        places.waiting.insert(id, Waiting { evicted: evicted.clone(), bytes: 0 });
        if places.waiting.len() > places.max
            && let Some((&oldest, _)) = places.waiting.first_key_value()
        {
            places.evict(oldest);
        }
        Place { all: self.clone(), id, evicted }
    }
}

impl Place {
    /// Waits until the connection must end for a newer one.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// The same for a caller that counts bytes meanwhile.
    pub(crate) fn eviction(&self) -> Arc<Notify> {
        self.evicted.clone()
    }

    /// Counts the bytes of a request that has arrived in part. If all connections together have too many, the one with the most ends:
    /// `false` if it is this one.
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        let mut places = self.all.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Evicted: the connection ends.
        let Some(waiting) = places.waiting.get_mut(&self.id) else { return false };
        let before = std::mem::replace(&mut waiting.bytes, bytes);
        places.bytes = places.bytes - before + bytes;
        while places.bytes > BYTES_MAX {
            let largest = places.waiting.iter().max_by_key(|(_, waiting)| waiting.bytes);
            let Some((&id, largest)) = largest else { break };
            if largest.bytes <= SHARE_BYTES {
                break;
            }
            places.evict(id);
            if id == self.id {
                return false;
            }
        }
        true
    }
}

/// The reason why a connection with so many bytes ends, if [`Place::hold`] is `false`.
pub(crate) fn too_large(bytes: usize) -> String {
    format!(
        "{bytes} bytes arrived before the client authenticated, the most of connections that may have {BYTES_MAX} together"
    )
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.all.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = places.waiting.remove(&self.id) {
            places.bytes -= waiting.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_evicted(place: &Place) -> bool {
        pin!(place.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_connection_ends_for_a_new_one() {
        let all = Places::unauthenticated();
        let places: Vec<_> = (0..=UNAUTHENTICATED_MAX).map(|_| all.enter()).collect();
        assert!(is_evicted(&places[0]));
        assert!(!is_evicted(&places[1]));
    }

    #[test]
    fn a_process_with_few_open_files_has_fewer_places() {
        let all = Places::unauthenticated();
        all.limit_to(2);
        let places: Vec<_> = (0..3).map(|_| all.enter()).collect();
        assert!(is_evicted(&places[0]) && !is_evicted(&places[1]));
    }

    /// The connection that came last was closed, whatever it had: 32 strangers with large requests kept every login out.
    #[test]
    fn the_connection_with_the_largest_request_ends_for_the_others() {
        let all = Places::unauthenticated();
        let large = BYTES_MAX / 32;
        let mut strangers: Vec<_> = (0..32).map(|_| all.enter()).collect();
        assert!(strangers.iter_mut().all(|place| place.hold(large)));
        let mut login = all.enter();
        assert!(login.hold(100));
        assert!(!is_evicted(&login));
        assert_eq!(strangers.iter().filter(|place| is_evicted(place)).count(), 1);
        let mut largest = all.enter();
        assert!(!largest.hold(large + 1), "the one with the most is this one");
        drop(strangers);
        assert!(login.hold(2 * large));
    }

    #[test]
    fn shares_of_all_connections_fit_into_the_limit() {
        let all = Places::unauthenticated();
        let mut places: Vec<_> = (0..UNAUTHENTICATED_MAX).map(|_| all.enter()).collect();
        assert!(places.iter_mut().all(|place| place.hold(SHARE_BYTES)));
        assert!(!places.iter().any(is_evicted));
        assert!(places[0].hold(SHARE_BYTES + 1));
    }
}
