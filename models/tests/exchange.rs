//! The exchange of a processor: work wakes workers, and its end wakes the dispatcher.

use std::sync::Arc;
use std::time::Duration;

use ottla_models::neighbours::exchange::{AssignmentId, Core, Outcome, Outputs};
use ottla_models::run::shuttle;
use ottla_models::timer::deadline_after;
use shuttle::future::block_on;
use shuttle::sync::Barrier;
use shuttle::thread;

/// The dispatcher adds three items and waits for room after each wave. Two workers handle the last two at the same time:
/// each waits for the other.
macro_rules! model {
    ($variant:ident) => {
        shuttle(concat!("exchange, ", stringify!($variant)), 6_000, || {
            use ottla_models::exchange::$variant::exchange::{CompletedWork, Exchange, WakeCondition};
            let exchange = Arc::new(Exchange::new(Core::default(), 2, 1, false));
            let now = deadline_after(Duration::ZERO);
            let both = Arc::new(Barrier::new(2));
            let workers = [(); 2].map(|()| {
                let (exchange, both) = (exchange.clone(), both.clone());
                thread::spawn(move || {
                    let mut completed = None;
                    while let Some((work, begun)) = block_on(exchange.next(completed.take())) {
                        if work.payload.number > 0 {
                            both.wait();
                        }
                        completed =
                            Some(CompletedWork { outcome: Outcome::default(), outputs: Outputs, begun });
                    }
                })
            });
            for (wave, finished) in [(0..1, 1), (1..3, 3)] {
                for number in wave {
                    let mut inner = exchange.lock();
                    inner.core.add(number);
                    exchange.wake_workers(&mut inner, now);
                }
                // The dispatcher does so when an item waits for longer than it should.
                exchange.wake_one(&mut exchange.lock(), now);
                loop {
                    let mut inner = exchange.lock();
                    if inner.core.finished == finished {
                        break;
                    }
                    inner.begin_round();
                    inner.refuse(AssignmentId::default(), true);
                    inner.wake_condition = WakeCondition::Room { queued: 0, records: 0, of_partition: false };
                    drop(inner);
                    block_on(exchange.dispatcher_wake.notified());
                }
            }
            exchange.close();
            for worker in workers {
                worker.join().expect("it ends");
            }
            assert_eq!(exchange.lock().core.lanes().queued(), 0, "all work is done");
        })
    };
}

#[test]
fn work_wakes_workers_and_its_end_wakes_the_dispatcher() {
    model!(shipped);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_worker_must_be_listed_under_the_lock() {
    model!(with_a_late_registration);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_idle_worker_must_be_counted() {
    model!(with_a_worker_that_is_not_counted);
}

#[test]
#[should_panic(expected = "deadlock")]
fn room_for_nothing_must_be_possible() {
    model!(with_a_condition_that_is_never_true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_true_condition_must_wake_the_dispatcher() {
    model!(with_a_condition_that_stays_unread);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_end_of_an_exchange_must_wake_all_workers() {
    model!(with_a_close_for_one_worker);
}
