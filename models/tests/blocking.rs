//! Threads without a runtime: they wake when what they wait for is done, as `flush` waits for the last batch.

use std::sync::Arc;
use std::time::Duration;

use ottla_models::run::shuttle;
use ottla_models::under_shuttle::tokio_sync::Notify;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

const LONG: Duration = Duration::from_secs(3600);

/// Two threads wait until no batch is unsettled. Two others settle one each.
macro_rules! model {
    ($variant:ident) => {
        shuttle(concat!("blocking, ", stringify!($variant)), 4_000, || {
            use ottla_models::blocking::$variant::blocking::wait_until;
            let batches = Arc::new((AtomicUsize::new(2), Notify::new()));
            let flushes = [(); 2].map(|()| {
                let batches = batches.clone();
                thread::spawn(move || wait_until(LONG, &batches.1, || batches.0.load(Ordering::SeqCst) == 0))
            });
            let settle = || {
                if batches.0.fetch_sub(1, Ordering::SeqCst) == 1 {
                    batches.1.notify_waiters();
                }
            };
            settle();
            batches.1.notify_waiters();
            settle();
            for flush in flushes {
                assert!(flush.join().expect("it ends"), "the flush sees the last batch");
            }
        })
    };
}

#[test]
fn a_flush_sees_the_last_batch() {
    model!(shipped);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_flush_must_look_after_it_is_listed() {
    model!(with_a_late_waiter);
}

#[test]
fn a_thread_runs_a_future_to_its_end() {
    shuttle("blocking, future", 2_000, || {
        let notify = Arc::new(Notify::new());
        let waiting = {
            let notify = notify.clone();
            thread::spawn(move || {
                ottla_models::blocking::shipped::blocking::block_on(LONG, notify.notified())
            })
        };
        notify.notify_one();
        assert!(waiting.join().expect("it ends").is_some());
    });
}
