//! The broker's memory: no request waits for memory that is free, and no more is given than there is.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use ottla_models::run::shuttle;
use shuttle::future::block_on;
use shuttle::thread;

const UNIT: usize = 1 << 10;

/// Three connections with two requests each, and room for one response. The last request of one of them has no response.
macro_rules! responses {
    ($variant:ident) => {
        shuttle(concat!("memory, responses, ", stringify!($variant)), 4_000, || {
            use ottla_models::memory::$variant::memory::{ClientHost, MemoryBudget};
            let budget = Arc::new(MemoryBudget::new(UNIT, 0));
            let connections: Vec<_> = (0..3)
                .map(|number| {
                    let budget = budget.clone();
                    // Two of them are of one client.
                    let client = ClientHost::new(Some([10, 0, 0, number / 2].into()));
                    thread::spawn(move || {
                        for request in 0..2 {
                            let admission = block_on(budget.room_for_response(client));
                            if number == 0 && request == 1 {
                                break;
                            }
                            let sending = budget.send(client, 10);
                            drop(admission);
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

/// Requests for more than half of the budget, one of which is given up while it waits.
macro_rules! requests {
    ($variant:ident) => {
        shuttle(concat!("memory, requests, ", stringify!($variant)), 4_000, || {
            use ottla_models::memory::$variant::memory::{ClientHost, MemoryBudget};
            let budget = Arc::new(MemoryBudget::new(3 * UNIT, 0));
            let charged = Arc::new(AtomicUsize::new(0));
            let connections: Vec<_> = (0..3)
                .map(|number| {
                    let (budget, charged) = (budget.clone(), charged.clone());
                    let client = ClientHost::new(Some([10, 0, 0, number / 2].into()));
                    thread::spawn(move || {
                        if number == 0 {
                            block_on(async {
                                let mut waiting = pin!(budget.charge(client, 3 * UNIT));
                                let once = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx)));
                                drop(once.await);
                            });
                        }
                        // One of them asks for more than there is, and gets all.
                        let units = [2, 2, 9][usize::from(number)];
                        let charge = block_on(budget.charge(client, units * UNIT));
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
            assert!(budget.try_charge(ClientHost::LOCAL, 3 * UNIT).is_some(), "all memory was returned");
        })
    };
}

#[test]
fn each_response_finds_room_after_others_are_sent() {
    responses!(shipped);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_request_that_waits_must_look_for_room_in_one_step() {
    responses!(with_a_late_look_for_room);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_request_that_has_started_must_admit_the_next_one() {
    responses!(with_a_start_that_admits_no_other);
}

#[test]
fn requests_get_memory_in_turn_and_never_more_than_there_is() {
    requests!(shipped);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_request_that_waits_must_look_for_memory_in_one_step() {
    requests!(with_a_late_look_for_memory);
}

#[test]
#[should_panic(expected = "units were given")]
fn memory_must_be_lent_once() {
    requests!(with_memory_that_is_lent_twice);
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
