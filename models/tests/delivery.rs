//! The outcome of a batch: each task and each thread that waits for one of its records gets it.

use std::time::Duration;

use ottla_models::run::shuttle;
use shuttle::future::block_on;
use shuttle::thread;

/// Two tasks and a thread wait for records of a batch that was written, while a record of another batch moves to it.
macro_rules! model {
    ($variant:ident) => {
        shuttle(concat!("delivery, ", stringify!($variant)), 4_000, || {
            use ottla_models::delivery::$variant::delivery::{Completion, Delivery, Outcome};
            let (moved, batch) = (Completion::new("orders".into(), -1), Completion::new("orders".into(), 3));
            let mut threads = Vec::new();
            for index in 0..2 {
                let delivery = Delivery::new(batch.clone(), index);
                threads.push(thread::spawn(move || block_on(delivery)));
            }
            for completion in [&batch, &moved] {
                let delivery = Delivery::new(completion.clone(), 0);
                let wait = move || {
                    delivery.wait(Duration::from_secs(3600)).expect("the wait has no end but the outcome")
                };
                threads.push(thread::spawn(wait));
            }
            let delivery = Delivery::new(moved.clone(), 0);
            threads.push(thread::spawn(move || block_on(delivery)));
            moved.complete(Outcome::Forwarded(vec![Delivery::new(batch.clone(), 2)]));
            batch.complete(Outcome::Written { base_offset: 10, append_time_ms: -1 });
            let offset = |thread: thread::JoinHandle<Result<_, _>>| {
                let outcome: Result<ottla_models::neighbours::delivery::RecordMetadata, _> =
                    thread.join().expect("it ends");
                outcome.expect("it is written").offset
            };
            let offsets: Vec<_> = threads.into_iter().filter_map(offset).collect();
            assert_eq!(offsets, [10, 11, 10, 12, 12], "each record has its offset");
        })
    };
}

#[test]
fn all_who_wait_for_a_batch_get_its_outcome() {
    model!(shipped);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_outcome_must_be_set_under_the_lock() {
    model!(with_an_outcome_after_the_lock);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_task_must_look_again_under_the_lock() {
    model!(without_the_second_look);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_thread_that_waits_must_be_counted() {
    model!(with_threads_that_are_not_counted);
}
