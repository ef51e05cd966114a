//! The broker's memory: no request waits for memory that is free, and no more is given than there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ottla_models::run::shuttle;
use shuttle::future::block_on;
use shuttle::thread;

const UNIT: usize = 1 << 10;

/// Three connections with two requests each, and room for one response. The last request of one of them has no response.
macro_rules! responses {
    ($variant:ident) => {
        shuttle(concat!("memory, responses, ", stringify!($variant)), 4_000, || {
            use ottla_models::memory::$variant::memory::MemoryBudget;
            let budget = Arc::new(MemoryBudget::new(UNIT, 0));
            let connections: Vec<_> = (0..3)
                .map(|number| {
                    let budget = budget.clone();
                    thread::spawn(move || {
                        for request in 0..2 {
                            block_on(budget.room_for_response());
                            if number == 0 && request == 1 {
                                break;
                            }
                            let sending = budget.send(10);
                            thread::yield_now();
                            drop(sending);
                        }
                    })
                })
                .collect();
            for connection in connections {
                connection.join().expect("its responses are sent");
            }
            assert_eq!(budget.waiting(), 0, "no waiter is left");
        })
    };
}

/// Two parts of data and room for one of them.
macro_rules! kept {
    ($variant:ident) => {
        shuttle(concat!("memory, kept, ", stringify!($variant)), 1_000, || {
            use ottla_models::memory::$variant::memory::KeptMemory;
            let memory = KeptMemory::new(100);
            let other = {
                let memory = memory.clone();
                thread::spawn(move || memory.keep(60))
            };
            let mine = memory.keep(60);
            let other = other.join().expect("it ends");
            assert!(mine.is_some() != other.is_some(), "one of the two fits");
            drop((mine, other));
            assert!(memory.keep(100).is_some(), "all was returned");
        })
    };
}

#[test]
fn each_response_finds_room_after_others_are_sent() {
    responses!(shipped);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_response_must_be_listed_before_it_looks_again() {
    responses!(with_a_late_waiter);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sent_response_must_be_counted_before_others_are_woken() {
    responses!(with_an_early_wake_up);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sent_response_must_wake_all_waiters() {
    responses!(with_one_wake_up_for_all);
}

/// Requests for more than half of the budget, one of which is given up while it waits.
#[test]
fn requests_get_memory_in_turn_and_never_more_than_there_is() {
    shuttle("memory, requests", 4_000, || {
        let budget = Arc::new(ottla_models::memory::shipped::memory::MemoryBudget::new(3 * UNIT, 0));
        let charged = Arc::new(AtomicUsize::new(0));
        let connections: Vec<_> = (0..3)
            .map(|number| {
                let (budget, charged) = (budget.clone(), charged.clone());
                thread::spawn(move || {
                    if number == 0 {
                        block_on(async {
                            let mut waiting = std::pin::pin!(budget.charge(3 * UNIT));
                            let once =
                                std::future::poll_fn(|cx| std::task::Poll::Ready(waiting.as_mut().poll(cx)));
                            drop(once.await);
                        });
                    }
                    // One of them asks for more than there is, and gets all.
                    let units = [2, 2, 9][number];
                    let charge = block_on(budget.charge(units * UNIT));
                    let before = charged.fetch_add(units.min(3), Ordering::Relaxed);
                    assert!(before + units.min(3) <= 3, "{before} of 3 units were given before {units}");
                    thread::yield_now();
                    charged.fetch_sub(units.min(3), Ordering::Relaxed);
                    drop(charge);
                })
            })
            .collect();
        for connection in connections {
            connection.join().expect("it gets its memory");
        }
        assert_eq!(budget.waiting(), 0, "no waiter is left");
        assert!(budget.try_charge(3 * UNIT).is_some(), "all memory was returned");
    });
}

#[test]
fn kept_data_never_exceeds_its_maximum() {
    kept!(shipped);
}

#[test]
#[should_panic(expected = "one of the two fits")]
fn kept_data_must_be_counted_in_one_step() {
    kept!(with_two_steps);
}
