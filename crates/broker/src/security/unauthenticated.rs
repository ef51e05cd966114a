//! The limit of connections that have not authenticated yet. Above it, the oldest one ends, so that idle connections keep no honest
//! client out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Connections of one listener that may be unauthenticated at a time.
const CONNECTIONS_MAX: usize = 1_000;
/// The bytes of requests that have arrived in part on all of them. A login has less than a kilobyte, a token some.
const BYTES_MAX: usize = 16 << 20;

/// The unauthenticated connections of one listener.
#[derive(Debug, Default)]
pub(crate) struct Unauthenticated {
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    next: u64,
    /// In the order of arrival.
    waiting: BTreeMap<u64, Arc<Notify>>,
    bytes: usize,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    all: &'a Unauthenticated,
    id: u64,
    evicted: Arc<Notify>,
    bytes: usize,
}

impl Unauthenticated {
    /// Adds a connection. The oldest one ends if there are too many.
    pub(crate) fn enter(&self) -> Place<'_> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let id = places.next;
        places.next += 1;
        let evicted = Arc::new(Notify::new());
        places.waiting.insert(id, evicted.clone());
        if places.waiting.len() > CONNECTIONS_MAX
            && let Some((_, oldest)) = places.waiting.pop_first()
        {
            oldest.notify_one();
        }
        Place { all: self, id, evicted, bytes: 0 }
    }
}

impl Place<'_> {
    /// Waits until the connection must end for a newer one.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// The same for a caller that counts bytes meanwhile.
    pub(crate) fn eviction(&self) -> Arc<Notify> {
        self.evicted.clone()
    }

    /// Counts the bytes of a request that has arrived in part. `false` if all connections together have too many.
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        let mut places = self.all.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.bytes = places.bytes - self.bytes + bytes;
        self.bytes = bytes;
        places.bytes <= BYTES_MAX
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut places = self.all.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.waiting.remove(&self.id);
        places.bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn the_oldest_connection_ends_for_a_new_one() {
        let all = Unauthenticated::default();
        let places: Vec<_> = (0..=CONNECTIONS_MAX).map(|_| all.enter()).collect();
        let is_evicted = |place: &Place<'_>| {
            pin!(place.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(is_evicted(&places[0]));
        assert!(!is_evicted(&places[1]));
    }

    #[test]
    fn bytes_of_all_connections_are_limited() {
        let all = Unauthenticated::default();
        let mut first = all.enter();
        assert!(first.hold(BYTES_MAX));
        let mut second = all.enter();
        assert!(!second.hold(1));
        drop(first);
        assert!(second.hold(2));
    }
}
