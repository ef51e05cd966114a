//! Many clients that send produce requests without waiting for the responses.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: its clients have threads")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ottla_broker::{AnsweredRequest, ApiKey, Broker, RequestObserver};
use ottla_wire::Seal;

use crate::common::{Heard, PATIENCE, Raw, batch, framed, produce_request};

const CLIENTS: usize = 40;
/// More than a connection reads at a time.
const REQUESTS: usize = 400;
/// The produce requests that a connection starts at a time.
const PIPELINED_MAX: usize = 16;

/// Counts the produce requests that are answered between two turns of another task.
#[derive(Debug, Default)]
struct Counts {
    answered: AtomicUsize,
    in_this_turn: AtomicUsize,
    most: AtomicUsize,
}

impl RequestObserver for Counts {
    fn on_answered(&self, request: AnsweredRequest<'_>) {
        if request.api == ApiKey::Produce {
            self.answered.fetch_add(1, Ordering::Relaxed);
            let now = self.in_this_turn.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(now, Ordering::Relaxed);
        }
    }
}

/// Each of them had its turn before the thread looked at its sockets: with 2,000 such clients, another one waited for 200 ms.
#[test]
fn clients_with_many_produce_requests_have_their_turns_one_after_the_other() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let broker = Broker::builder().memory().topic("orders", 1).start().await.expect("a broker");
        let counts = Arc::new(Counts::default());
        broker.cluster().observe_requests(counts.clone());
        let address = broker.addresses()[0];
        // The topic is missing: nothing waits for a disk.
        let request = framed(9, &produce_request("missing", 1, &batch(&[b"a"], &Seal::default())));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let requests = request.repeat(REQUESTS);
                std::thread::spawn(move || {
                    let mut client = Raw::connect(address);
                    client.send(&requests);
                    for _ in 0..REQUESTS {
                        assert!(matches!(client.hear(), Heard::Answer(_)), "the connection was closed");
                    }
                })
            })
            .collect();
        // The broker runs in this thread, too.
        let other = async {
            while counts.answered.load(Ordering::Relaxed) < CLIENTS * REQUESTS {
                counts.in_this_turn.store(0, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, other).await.expect("all answers");
        let most = counts.most.load(Ordering::Relaxed);
        // One that has its turn, and others that have just connected.
        assert!(most <= 4 * PIPELINED_MAX, "{most} requests in one turn");
        for client in clients {
            client.join().expect("all answers");
        }
        broker.stop().await;
    });
}
